"""Cross-file facts of the Rust sources of a release, found by searching bytes and parsing only where something stands.

A walker that visits every node of a tree is bound by Python; here regular expressions find the places of interest and
the tree answers what a place is: in which function, closure or lazy static, in a comment, in test code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tree_sitter_rust
from tree_sitter import Language, Node, Tree

from synth.records import Role, When
from synth.walk.arithmetic import evaluated
from synth.walk.roles import role_of
from synth.walk.syntax import PARSE_SECONDS, NotParsedError, parse, text_of

if TYPE_CHECKING:
    from synth.walk.rust_macros import Family

RUST = Language(tree_sitter_rust.language())
RUST_SUFFIXES = frozenset({".rs"})
HITS = 2_000  # places looked at in one file
DEPTH = 400  # nodes around a place that are looked at
CALLERS = 60  # calls of one function that are looked at
CALL_DEPTH = 8  # callers of callers of ...
ROUNDS = 4  # wrappers of wrappers of ...

HINT = re.compile(
    rb"\benv\b|\bvar_os\b|getenv|rayon|tokio|thread|num_cpus|available_parallelism|py(function|methods|class|module)|"
    rb"lazy_static|_par_iter|par_bridge|affinity|pthread_|spin_loop|fork\b"
)
_STRING_CONST = re.compile(
    rb"\b(?:const|static)\s+([A-Za-z_]\w*)\s*:\s*&\s*(?:'static\s+)?(?:str|c_str|CStr|\[u8\])\s*=\s*"
    rb"[bc]?r?#*\"((?:[^\"\\]|\\.)*)\""
)
_LIST_CONST = re.compile(
    rb"\b(?:const|static)\s+([A-Za-z_]\w*)\s*:\s*(?:&\s*(?:'static\s+)?)?\[[^=]{1,80}?=\s*&?\s*\[([^\]]{0,20000})\]\s*;"
)
_OTHER_CONST = re.compile(rb"\b(?:const|static)\s+([A-Z_][A-Z0-9_]*)\s*:\s*([\w:<>]{1,60})\s*=\s*([^;{}\n]{1,120});")
_BY_BUILD = re.compile(  # what holds in a release build
    rb"\b(?:const|static)\s+([A-Z_][A-Z0-9_]*)\s*:\s*([\w:<>]{1,60})\s*=\s*if\s+cfg!\(\s*debug_assertions\s*\)\s*"
    rb"\{[^{}]*\}\s*else\s*\{\s*([^{}]{1,80}?)\s*\}\s*;"
)
_FUNCTION = re.compile(rb"\bfn\s+([A-Za-z_]\w*)\s*(?:<|\()")
_CALL = re.compile(rb"\b([a-z_]\w*)\s*(?:::\s*<[^;{}()]{0,80}>)?\s*\(")
_QUALIFIED = re.compile(rb"\b([A-Z]\w*)\s*::\s*([a-z_]\w*)\s*\(")
_HANDED = re.compile(rb"(?:\bLazy\w*\s*::\s*new|\bget_or_init|\bcall_once)\s*\(\s*((?:\w+\s*::\s*)*([a-z_]\w*))\s*\)")
_FIELD_DEFAULT = re.compile(rb"\bfn\s+default\s*\(\s*\)\s*->\s*[\w:<>]+\s*\{")
_FIELD = re.compile(rb"\b([a-z_]\w*)\s*:\s*([^,{}\n]{1,80}),")
_LAZY = re.compile(rb"\blazy_static!(?=\s*\{)")
_LOCAL = re.compile(rb"\bthread_local!(?=\s*\{)")
_REF = re.compile(rb"\bstatic(\s+)ref(?=\s)")
_ONCE_CALLS = frozenset({"get_or_init", "get_or_try_init", "call_once", "call_once_force", "get_or_insert_with"})
_ONCE_TYPE = re.compile(r"\b(LazyLock|LazyCell|Lazy|LazyStatic|OnceCell|OnceLock|AsyncOnceCell|SyncLazy)\b")
_ONCE_NEW = re.compile(r"\b(LazyLock|LazyCell|Lazy|SyncLazy|LazyStatic)\s*(::\s*<.*>)?\s*::\s*(new|force)$", re.DOTALL)
_HOLDERS = frozenset({"impl_item", "trait_item", "function_item"})
_BENCH = re.compile(r"(^|/)benches/")
_BUILD = re.compile(r"(^|/)(build\.rs|xtask/)")
_TESTED = re.compile(r"\btest\b|\bbench\b|\brstest\b")
_AT_IMPORT = re.compile(r"#\[\s*(pymodule(?!_export)|pymodule_init|ctor(::ctor)?|module_init)\b")
PYTHON_CALLED = re.compile(r"#\[\s*(pyfunction|pymethods|new|getter|setter|staticmethod|classmethod|pyo3)\b")


@dataclass(frozen=True)
class Function:
    """A function: where it stands and how it is called.

    Attributes:
        owner: type of the `impl` block around it, `""` for a free function.
        parameters: names without `self`; types: of the same, as source text.
    """

    file: str
    name: str
    owner: str
    start: int
    end: int
    parameters: tuple[str, ...]
    types: tuple[str, ...]
    returns: str
    has_self: bool

    @property
    def qualname(self) -> str:
        """`Type::name` or `name`."""
        return f"{self.owner}::{self.name}" if self.owner else self.name


@dataclass(frozen=True)
class Wrapper:
    """A function, closure or macro that reads the variable named by one of its arguments.

    Attributes:
        key, default: positions among the arguments; -1 if there is none.
        prefix: literal text that is put before the name.
        local: start and end of the code in which the name stands for it, for a closure.
        owner: the type whose method or associated function it is.
    """

    file: str
    name: str
    key: int
    default: int
    value_type: str | None
    prefix: str = ""
    fixed_default: str | None = None
    macro: bool = False
    local: tuple[int, int] | None = None
    owner: str = ""


@dataclass(eq=False)
class RustFile:
    """One file: its bytes, and its tree once it is needed."""

    path: str
    raw: bytes
    role: Role
    tree: Tree
    functions: dict[int, Function] = field(default_factory=dict)

    def at(self, start: int, end: int) -> list[Node]:
        """The nodes around a place, the outermost first."""
        found = self.tree.root_node.descendant_for_byte_range(start, end)
        path: list[Node] = []
        current: Node | None = self.tree.root_node
        while current is not None and found is not None and len(path) < DEPTH:
            path.append(current)
            if current == found:
                break
            current = current.child_with_descendant(found)
        return path


def rust_role(path: str) -> Role:
    """Role of a Rust file: cargo has its own names for folders."""
    role = role_of(path)
    if role is Role.LIBRARY and _BENCH.search(path):
        return Role.BENCHMARK
    return Role.BUILD if role is Role.LIBRARY and _BUILD.search(path) else role


def attributes_of(node: Node) -> Iterator[Node]:
    """Attributes that stand before an item."""
    before = node.prev_named_sibling
    for _ in range(60):
        if before is None or before.type not in ("attribute_item", "line_comment", "block_comment"):
            return
        if before.type == "attribute_item":
            yield before
        before = before.prev_named_sibling


def is_test(path: list[Node]) -> bool:
    """Whether a place is compiled for tests only."""
    return any(
        node.type in ("mod_item", "function_item", "impl_item", "const_item", "struct_item")
        and any(_TESTED.search(text_of(a)[:200]) for a in attributes_of(node))
        for node in path
    )


def is_code(path: list[Node]) -> bool:
    """Whether a place is code: neither a comment nor text."""
    return bool(path) and path[-1].type not in (
        "line_comment",
        "block_comment",
        "doc_comment",
        "string_content",
        "string_literal",
        "raw_string_literal",
    )


def last_name(name: str) -> str:
    """`a::b.c` -> `c`, generic arguments left out."""
    return re.split(r"::|\.", re.sub(r"::\s*<.*>$", "", name.strip(), flags=re.DOTALL))[-1].strip()


def call_arguments(node: Node) -> list[Node]:
    """Arguments of a call."""
    holder = node.child_by_field_name("arguments")
    return [c for c in (holder.named_children if holder is not None else []) if "comment" not in c.type]


def called(node: Node) -> str:
    """What a call calls, as written; of a chain of calls only what is called last."""
    function = node.child_by_field_name("function")
    if function is not None and function.type == "generic_function":
        function = function.child_by_field_name("function")
    if function is not None and function.type == "field_expression":
        function = function.child_by_field_name("field")
    return text_of(function)[:200]


def plain_type(text: str) -> str:
    """`&'a mut Type<T>` -> `Type`."""
    return (
        re.sub(r"<.*", "", re.sub(r"^(&|'\w+|mut|dyn|impl|\s)+", "", text.strip()), flags=re.DOTALL)
        .split("::")[-1]
        .strip()
    )


def type_word(text: str | None) -> str | None:
    """The plain type of a Rust type, through wrappers such as `Option<usize>`."""
    if not text:
        return None
    inner = re.sub(r"\b(std|core|alloc|num|sync|cell)::", "", text)
    for _ in range(4):
        match = re.match(
            r"\s*(?:&\s*(?:'\w+\s*)?(?:mut\s+)?)?(?:Option|Result|LazyLock|Lazy|OnceLock|OnceCell|Arc|Box|RelaxedCell|Cell|Mutex|RwLock)\s*<(.*)>\s*$",
            inner,
            re.DOTALL,
        )
        if not match:
            break
        inner = match[1].split(",")[0] if "Result" in inner[: inner.find("<")] else match[1]
    inner = inner.strip().split("::")[-1]
    if re.fullmatch(
        r"(Atomic|NonZero)?<?[uiUI](8|16|32|64|128|size)>?|(Atomic|NonZero)(U|I)(8|16|32|64|128|size)|NonZero<\w+>",
        inner,
    ):
        return "int"
    if re.fullmatch(r"f(32|64)", inner):
        return "float"
    if re.fullmatch(r"(Atomic)?[bB]ool", inner):
        return "bool"
    if re.fullmatch(r"Path(Buf)?|OsString|OsStr", inner):
        return "path"
    if re.match(r"Vec\b|\[", inner):
        return "list"
    return "str" if re.fullmatch(r"&?\s*('\w+\s*)?(str|String|Cow<.*>|CStr|CString)", inner) else None


@dataclass(eq=False)
class RustIndex:
    """Facts of all Rust files; build it with `RustIndex.build`."""

    raw: Mapping[str, bytes] = field(default_factory=dict)
    strings: dict[str, dict[str, str]] = field(default_factory=dict)  # name -> file -> value
    lists: dict[str, dict[str, str]] = field(default_factory=dict)
    constants: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)  # name -> file -> (type, text)
    defaults: dict[str, set[str]] = field(default_factory=dict)  # struct field -> values of `fn default`
    functions: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    calls: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    wrappers: dict[str, list[Wrapper]] = field(default_factory=dict)
    seconds: float = PARSE_SECONDS
    families: dict[str, Family] = field(default_factory=dict)  # macros that compose names
    classes: dict[str, tuple[str, str]] = field(default_factory=dict)  # Rust type -> Python name, module
    module: str = ""  # the extension module
    _files: dict[str, RustFile | None] = field(default_factory=dict)
    _when: dict[tuple[str, int], When] = field(default_factory=dict)
    _sites: dict[tuple[str, int], When] = field(default_factory=dict)

    @classmethod
    def build(cls, files: Mapping[str, bytes], *, seconds: float = PARSE_SECONDS) -> RustIndex:
        """Find constants, functions and calls by their bytes, then the wrappers around reads."""
        from synth.walk.rust_api import classes_of, module_of  # noqa: PLC0415  # these build on the index
        from synth.walk.rust_macros import families_of  # noqa: PLC0415
        from synth.walk.rust_wrappers import find_wrappers  # noqa: PLC0415

        index = cls(raw=files, seconds=seconds)
        for path in sorted(files):
            index._harvest(path, files[path])
        for path in sorted(files):
            if rust_role(path) in (Role.LIBRARY, Role.VENDORED):
                index._harvest_calls(path, files[path])
        index.classes, index.module = classes_of(files), module_of(files)
        index.families = families_of(index)
        find_wrappers(index)
        return index

    def worth(self, path: str) -> bool:
        """Whether a file holds anything to look at."""
        raw = self.raw[path]
        if HINT.search(raw):
            return True
        return any(name.encode() in raw for name in (*self.wrappers, *self.families))

    def file(self, path: str) -> RustFile:
        """A parsed file.

        Raises:
            NotParsedError: it could not be parsed.
        """
        if path not in self._files:
            raw = self.raw[path]
            try:
                self._files[path] = RustFile(
                    path, raw, rust_role(path), parse(RUST, unwrapped(raw), seconds=self.seconds)
                )
            except NotParsedError:
                self._files[path] = None
                raise
        found = self._files[path]
        if found is None:
            raise NotParsedError("it could not be parsed before")
        return found

    def opened(self, path: str) -> RustFile | None:
        """A parsed file, `None` if it cannot be parsed."""
        try:
            return self.file(path)
        except NotParsedError:
            return None

    def _harvest(self, path: str, raw: bytes) -> None:
        for match in _STRING_CONST.finditer(raw):
            self.strings.setdefault(match[1].decode(), {})[path] = match[2].decode("utf-8", "replace")
        for match in _LIST_CONST.finditer(raw):
            self.lists.setdefault(match[1].decode(), {})[path] = match[2].decode("utf-8", "replace")
        for match in _OTHER_CONST.finditer(raw):
            kind, text = match[2].decode("utf-8", "replace"), match[3].decode("utf-8", "replace").strip()
            if not text.startswith(('"', "&", "r#")):
                self.constants.setdefault(match[1].decode(), {})[path] = (kind, text)
        for match in _BY_BUILD.finditer(raw) if b"debug_assertions" in raw else []:
            self.constants.setdefault(match[1].decode(), {})[path] = (
                match[2].decode(),
                match[3].decode("utf-8", "replace"),
            )
        for match in _FUNCTION.finditer(raw):
            self.functions.setdefault(match[1].decode(), []).append((path, match.start()))
        for match in _FIELD_DEFAULT.finditer(raw):
            for pair in _FIELD.finditer(raw, match.end(), match.end() + 4_000):
                self.defaults.setdefault(pair[1].decode(), set()).add(pair[2].decode("utf-8", "replace").strip())

    def _harvest_calls(self, path: str, raw: bytes) -> None:
        defined = self.functions
        for match in _CALL.finditer(raw):
            name = match[1].decode()
            if name in defined and len(defined[name]) <= 3:
                self._called(name, path, match.start(), raw)
        for match in _QUALIFIED.finditer(raw):
            if match[2].decode() in defined:
                self._called(f"{match[1].decode()}::{match[2].decode()}", path, match.start(2), raw)
        for match in _HANDED.finditer(raw):
            owner = match[1].decode().replace(" ", "").rpartition("::")[0].rpartition("::")[2]
            self._called(match[2].decode(), path, match.start(2), raw)
            if owner[:1].isupper():
                self._called(f"{owner}::{match[2].decode()}", path, match.start(2), raw)

    def _called(self, name: str, path: str, offset: int, raw: bytes) -> None:
        places = self.calls.setdefault(name, [])
        if len(places) < CALLERS and raw[max(0, offset - 3) : offset] != b"fn ":
            places.append((path, offset))

    # what a place is

    def enclosing(self, file: RustFile, path: list[Node]) -> Function | None:
        """The function around a place."""
        node = next((n for n in reversed(path) if n.type == "function_item"), None)
        if node is None:
            return None
        if node.id not in file.functions:
            outer = (n for n in reversed(path[: path.index(node)]) if n.type in _HOLDERS)
            holder = next(outer, None)
            if holder is not None and holder.type == "function_item":
                holder = None  # a function inside of a function
            file.functions[node.id] = function_of(file.path, node, holder)
        return file.functions[node.id]

    def place_name(self, file: RustFile, path: list[Node]) -> str:
        """Qualified name of the function or static around a place."""
        function = self.enclosing(file, path)
        if function is not None:
            return function.qualname.replace("::", ".")
        static = next((n for n in reversed(path) if n.type in ("static_item", "const_item")), None)
        return text_of(static.child_by_field_name("name")) if static is not None else ""

    def when(self, file: RustFile, path: list[Node]) -> When:
        """When the code at a place runs."""
        if once(path):
            return When.FIRST_USE
        function = self.enclosing(file, path)
        if function is None:
            return When.UNKNOWN
        return self._when_function(function, self._heads(path), 0)

    @staticmethod
    def _heads(path: list[Node]) -> str:
        node = next((n for n in reversed(path) if n.type == "function_item"), None)
        return " ".join(text_of(a)[:200] for a in attributes_of(node)) if node is not None else ""

    def _when_function(self, function: Function, heads: str, depth: int) -> When:
        key = (function.file, function.start)
        if key in self._when:
            return self._when[key]
        if _AT_IMPORT.search(heads):
            return self._when.setdefault(key, When.IMPORT)
        if PYTHON_CALLED.search(heads):
            return self._when.setdefault(key, When.CALL)
        if depth > CALL_DEPTH:
            return When.CALL
        self._when[key] = When.CALL  # for a function that calls itself through others
        places = self.calls.get(f"{function.owner}::{function.name}", []) if function.owner else []
        if len(self.functions.get(function.name, [])) <= 3:
            places = [*places, *self.calls.get(function.name, [])]
        found: set[When] = set()
        for path, offset in places:
            if path != function.file or not function.start <= offset < function.end:
                found.add(self._when_called(path, offset, depth))
        if When.IMPORT in found:
            self._when[key] = When.IMPORT
        elif When.FIRST_USE in found:  # what others read again later was settled then
            self._when[key] = When.FIRST_USE
        return self._when[key]

    def _when_called(self, path: str, offset: int, depth: int) -> When:
        """When a call at a place runs."""
        if (path, offset) in self._sites:
            return self._sites[path, offset]
        file = self.opened(path)
        around = file.at(offset, offset + 1) if file is not None else []
        result = When.UNKNOWN
        if file is not None and is_code(around) and not is_test(around):
            caller = self.enclosing(file, around)
            if once(around):
                result = When.FIRST_USE
            elif caller is not None:
                result = self._when_function(caller, self._heads(around), depth + 1)
        self._sites[path, offset] = result
        return result

    # values

    def string(self, name: str, file: str) -> str | None:
        """Value of a string constant: of the same file, or the only one of that name."""
        places = self.strings.get(last_name(name), {})
        if file in places:
            return places[file]
        values = set(places.values())
        return next(iter(values)) if len(values) == 1 else None

    def constant(self, name: str, file: str) -> str | None:
        """Source text of another constant."""
        places = self.constants.get(last_name(name), {})
        if file in places:
            return places[file][1]
        values = {text for _, text in places.values()}
        return next(iter(values)) if len(values) == 1 else None

    def resolved(self, text: str, file: str) -> str:
        """A value with the constants in it replaced, as far as they are known."""
        for _ in range(4):
            replaced = re.sub(
                r"(?<![\w.])(?:[A-Za-z_]\w*\s*::\s*)*([A-Z][A-Z0-9_]{2,})\b(?!\s*(?:::|\())",
                lambda m: self._literal(m[1], file) or m[0],
                text,
            )
            if replaced == text or len(replaced) > 200:
                break
            text = replaced
        return evaluated(text)

    def _literal(self, name: str, file: str) -> str | None:
        found = self.constant(name, file)
        if found is None:
            text = self.string(name, file)
            return f'"{text}"' if text is not None else None
        if re.search(rf"\b{re.escape(name)}\b", found):
            return None  # `const MAX: T = T(u64::MAX)`: another one of that name
        found = evaluated(found)
        return found if re.fullmatch(r"[\w\s.*+<>():-]{1,80}", found) else None


def once(path: list[Node]) -> bool:
    """Whether a place runs once, when a lazy value is first asked for."""
    for place in range(len(path) - 1, -1, -1):
        node = path[place]
        if node.type == "static_item":
            return True  # what is not constant can only be computed lazily
        if node.type == "call_expression":
            name = called(node)
            arguments = node.child_by_field_name("arguments")
            inside = place + 1 < len(path) and arguments is not None and path[place + 1] == arguments
            if inside and (last_name(name) in _ONCE_CALLS or _ONCE_NEW.search(name)):
                return True
        if node.type == "function_item":
            return False
    return False


def function_of(file: str, node: Node, holder: Node | None) -> Function:
    """A function item with its signature."""
    names: list[str] = []
    types: list[str] = []
    has_self = False
    parameters = node.child_by_field_name("parameters")
    for child in parameters.named_children if parameters is not None else []:
        if child.type == "self_parameter":
            has_self = True
        elif child.type == "parameter":
            names.append(re.sub(r"^(mut|ref)\s+", "", text_of(child.child_by_field_name("pattern"))))
            types.append(text_of(child.child_by_field_name("type")))
    owner = holder.child_by_field_name("type") or holder.child_by_field_name("name") if holder is not None else None
    return Function(
        file,
        text_of(node.child_by_field_name("name")),
        plain_type(text_of(owner)) if owner is not None else "",
        node.start_byte,
        node.end_byte,
        tuple(names),
        tuple(types),
        text_of(node.child_by_field_name("return_type")),
        has_self,
    )


def unwrapped(raw: bytes) -> bytes:
    """The source with `lazy_static!` and `thread_local!` written as plain modules, byte for byte as long."""
    if b"lazy_static!" in raw:
        raw = _LAZY.sub(b"mod lazystat", raw)
        raw = _REF.sub(lambda m: b"static" + m[1] + b"   ", raw)
    return _LOCAL.sub(b"mod threadloc", raw) if b"thread_local!" in raw else raw
