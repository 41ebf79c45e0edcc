"""Cross-file facts of the C and C++ sources of a release: wrappers around getenv, constants, who runs at import."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import tree_sitter_c
import tree_sitter_cpp
from tree_sitter import Language, Node, Tree

from synth.records import Role, When
from synth.walk.c_settings import Settings, declares_settings
from synth.walk.roles import role_of
from synth.walk.syntax import PARSE_SECONDS, Nodes, NotParsedError, brief, descend, lines_of, parse, text_of

C = Language(tree_sitter_c.language())
CPP = Language(tree_sitter_cpp.language())
C_SUFFIXES = frozenset({".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hxx", ".hh", ".cu", ".cuh", ".inl", ".ipp"})
GETTERS = frozenset({"getenv", "secure_getenv", "_wgetenv", "__secure_getenv", "GetEnvironmentVariableA"})
# plain texts: looking for each of them is many times faster than one expression with as many branches
_HINTS = (
    *b"getenv setenv putenv GetEnvironmentVariable Env env( ENV( ENV_ _env getpid pthread_atfork".split(),
    *b"pthread_ std::thread std::jthread std::async omp_get omp_set tbb:: task_arena global_control".split(),
    *b"hread_pool hread_Pool hreadPool readpool um_threads umThreads um_Threads umthreads _THREADS MAX_WORKERS".split(),
    *b"MAX_CPUS MAX_PROCS MaxWorkers SC_NPROCESSORS sched_ hardware_concurrency get_nprocs setaffinity".split(),
    *b"this_thread condition_variable cond_wait _mm_pause ia32_pause YieldProcessor sem_wait futex".split(),
    *b"METH_ PyMethodDef .def( .def_ /sys/fs/cgroup /proc/".split(),
    b"pragma omp",
)
KEPT_BYTES = 12_000_000  # of source whose nodes are kept from the pre-pass; they take some twenty times as much


def worth_a_look(source: bytes) -> bool:
    """Whether a file holds a text that a walker looks for."""
    return any(hint in source for hint in _HINTS)


_GETENV = re.compile(rb"getenv|GetEnvironmentVariable")
_INIT = re.compile(r"^(PyInit_\w+|init_?module\w*|_?PyMODINIT\w*)$")
_MODULE_MACROS = frozenset({"PYBIND11_MODULE", "NB_MODULE", "BOOST_PYTHON_MODULE", "TORCH_LIBRARY", "PYBIND11_PLUGIN"})
LONG_NAME = 300  # bytes of what is called
DEEP = 1_000  # nodes around an expression that are searched for its function
NEAR = 25  # nodes around an expression that are looked at
_ONCE = frozenset({"call_once", "std::call_once", "pthread_once", "absl::call_once", "InitOnceExecuteOnce"})
_DEFAULT = re.compile(r"def(ault)?|fallback|dflt", re.IGNORECASE)


@dataclass(frozen=True)
class CConstant:
    """A `#define` or constant with a literal value."""

    name: str
    text: str
    file: str
    lines: tuple[int, int]
    static: bool = False


@dataclass(frozen=True)
class CWrapper:
    """A function or macro that reads the variable named by one of its arguments.

    Attributes:
        key, default: positions of the name and of the default among the arguments; -1 if there is none.
        prefix: literal text that is put before the name.
    """

    name: str
    key: int
    default: int
    value_type: str | None
    fixed_default: str | None = None
    prefix: str = ""


@dataclass(eq=False)
class CFile:
    """The tree of one file with its functions."""

    tree: Nodes
    language: Literal["c", "cpp"]
    _named: dict[int, dict[str, list[Node]]] = field(default_factory=dict)

    def named(self, owner: Node, name: str) -> list[Node]:
        """Identifiers of a name inside a function, in source order."""
        if owner.id not in self._named:
            found: dict[str, list[Node]] = {}
            for node in descend(owner):
                if node.type == "identifier":
                    found.setdefault(text_of(node), []).append(node)
            self._named[owner.id] = found
        return self._named[owner.id].get(name, [])

    def function(self, node: Node) -> Node | None:
        """The function definition around a node."""
        near = islice(self.tree.ancestors(node), DEEP)
        return next((p for p in near if p.type == "function_definition"), None)


def function_name(node: Node | None) -> str:
    """Name of a function definition or declaration, qualified as written."""
    current = node.child_by_field_name("declarator") if node is not None else None
    for _ in range(12):
        if current is None:
            return ""
        if current.type in (
            "identifier",
            "field_identifier",
            "qualified_identifier",
            "destructor_name",
            "operator_name",
        ):
            return text_of(current)
        inner = current.child_by_field_name("declarator")
        current = inner if inner is not None else (current.named_children[0] if current.named_children else None)
    return ""


def parameter_names(node: Node) -> list[str]:
    """Parameter names of a function definition."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    holder = declarator.child_by_field_name("parameters") if declarator is not None else None
    return [
        function_name(child)
        for child in (holder.named_children if holder is not None else [])
        if "parameter" in child.type
    ]


def called(node: Node) -> str:
    """Name that a call expression calls; template arguments left out."""
    function = node.child_by_field_name("function")
    if function is not None and function.end_byte - function.start_byte > LONG_NAME:
        # a chain of calls: only what is called last counts, and copying each link's text would be quadratic
        function = function.child_by_field_name("field")
    return re.sub(r"<[^()]*>$", "", text_of(function)) if function is not None else ""


def last_name(name: str) -> str:
    """`a::b.c->d` -> `d`."""
    return re.split(r"::|\.|->", name)[-1]


def call_arguments(node: Node) -> list[Node]:
    """Arguments of a call."""
    holder = node.child_by_field_name("arguments")
    return [child for child in (holder.named_children if holder is not None else []) if child.type != "comment"]


def language_of(file: str, source: bytes) -> Literal["c", "cpp"]:
    """Language of a file by its name, for a header by what is in it."""
    if file.endswith(".c"):
        return "c"
    if file.endswith(".h"):
        return "cpp" if re.search(rb"\b(class|namespace|template|typename|constexpr)\b|std::", source) else "c"
    return "cpp"


def parse_c(source: bytes, language: Literal["c", "cpp"], *, seconds: float = PARSE_SECONDS) -> Tree:
    """Parse C or C++."""
    return parse(C if language == "c" else CPP, source, seconds=seconds)


@dataclass
class CIndex:
    """Facts of all C and C++ files; build it with `CIndex.build`."""

    wrappers: dict[str, CWrapper] = field(default_factory=dict)
    constants: dict[str, CConstant] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    defined: dict[str, int] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    _roots: set[str] = field(default_factory=set)
    _once: set[str] = field(default_factory=set)
    _at_import: set[str] = field(default_factory=set)
    _first_use: set[str] = field(default_factory=set)
    _at_call: set[str] = field(default_factory=set)
    _kept: dict[str, tuple[int, CFile]] = field(default_factory=dict)
    _wrapper_names: tuple[bytes, ...] = ()
    _looked: dict[int, bool] = field(default_factory=dict)  # by identity: the sources stay in memory
    _worth: dict[int, bool] = field(default_factory=dict)

    @classmethod
    def build(cls, files: Mapping[str, bytes]) -> CIndex:
        """Read what crosses files from those files that a walker will look at."""
        index = cls(settings=Settings.build(files))
        kept = 0
        for path in sorted(files):
            source = files[path]
            index._looked[id(source)] = worth_a_look(source)
            if not index._looked[id(source)]:
                continue
            try:
                language = language_of(path, source)
                tree = parse_c(source, language)
            except NotParsedError:
                continue
            file = CFile(Nodes(tree.root_node), language)
            index._gather(file, path, role_of(path), source)
            kept += len(source)
            if kept < KEPT_BYTES:
                index._kept[path] = (len(source), file)
        index._wrapper_names = tuple(name.encode() for name in sorted(index.wrappers))
        index._at_import = index._reached(index._roots)
        index._first_use = index._reached(index._once) - index._at_import
        index._at_call = index._reached(set(index.methods)) - index._at_import - index._first_use
        return index

    def worth(self, source: bytes) -> bool:
        """Whether a file holds anything to look at."""
        if id(source) not in self._worth:
            self._worth[id(source)] = self.worth_parsing(source) or declares_settings(source)
        return self._worth[id(source)]

    def worth_parsing(self, source: bytes) -> bool:
        """Whether a file holds anything that its tree is needed for."""
        looked = self._looked.get(id(source))
        return (worth_a_look(source) if looked is None else looked) or any(n in source for n in self._wrapper_names)

    def file(self, path: str, source: bytes, language: Literal["c", "cpp"], *, seconds: float) -> CFile:
        """The parsed file, from the pre-pass where it was parsed there."""
        kept = self._kept.pop(path, None)  # it is asked for once
        if kept and kept[0] == len(source):
            return kept[1]
        return CFile(Nodes(parse_c(source, language, seconds=seconds).root_node), language)

    def when(self, function: str) -> When:
        """When a function runs, as far as the calls by name show."""
        name = last_name(function)
        if name in self._at_import:
            return When.IMPORT
        if name in self._first_use:
            return When.FIRST_USE
        return When.CALL if name in self._at_call else When.UNKNOWN

    def _reached(self, roots: set[str]) -> set[str]:
        reached: set[str] = set()
        queue = sorted(roots)
        while queue:
            name = queue.pop()
            # a name with several definitions says too little about which of them is called
            if name not in reached and (name in roots or self.defined.get(name, 0) == 1):
                reached.add(name)
                queue.extend(sorted(self.calls.get(name, set())))
        return reached

    def _gather(self, file: CFile, path: str, role: Role, source: bytes) -> None:
        library = role in (Role.LIBRARY, Role.VENDORED)
        reads = bool(_GETENV.search(source))
        for node in file.tree.nodes:
            if node.type == "call_expression" and library:
                self._call(file, node)
            elif node.type == "preproc_def":
                self._define(node, path)
            elif node.type == "preproc_function_def" and reads:
                self._macro(node)
            elif node.type == "init_declarator":
                self._declared(file, node, path)
            elif node.type == "function_definition" and library:
                self._defined(file, node, reads=reads)
            elif node.type == "initializer_list" and library:
                method = method_entry(node)
                if method is not None:
                    self.methods[method[1]] = method[0]

    def _call(self, file: CFile, node: Node) -> None:
        name = last_name(called(node))
        owner = file.function(node)
        target = last_name(function_name(owner)) if owner is not None else ""
        if called(node) in _ONCE or name in ("call_once", "pthread_once"):
            self._once.update(last_name(text_of(argument).lstrip("&")) for argument in call_arguments(node)[1:2])
        if owner is None:
            if self._initialises(file, node):
                self._roots.add(name)
        elif _in_static(file, node):
            self._once.add(name)
        else:
            self.calls.setdefault(target, set()).add(name)

    @staticmethod
    def _initialises(file: CFile, node: Node) -> bool:
        """Whether a call outside of functions is a static initialiser, and not in a lambda that runs later."""
        kinds = [parent.type for parent in islice(file.tree.ancestors(node), NEAR)]
        return "init_declarator" in kinds and not {"lambda_expression", "class_specifier", "struct_specifier"} & set(
            kinds
        )

    def _define(self, node: Node, path: str) -> None:
        name = text_of(node.child_by_field_name("name"))
        value = text_of(node.child_by_field_name("value")).split("//")[0].split("/*")[0].strip()
        if name and value and name not in self.constants:
            self.constants[name] = CConstant(name, value[:200], path, lines_of(node))

    def _macro(self, node: Node) -> None:
        """`#define ENV_INT(name, d) (getenv(name) ? atoi(getenv(name)) : d)`."""
        body = text_of(node.child_by_field_name("value"))
        match = re.search(r"\b(?:secure_)?getenv\s*\(\s*#?(\w+)\s*\)", body)
        holder = node.child_by_field_name("parameters")
        parameters = [text_of(child) for child in (holder.named_children if holder is not None else [])]
        if match and match[1] in parameters:
            name = text_of(node.child_by_field_name("name"))
            default = next((i for i, p in enumerate(parameters) if _DEFAULT.search(p)), -1)
            self.wrappers[name] = CWrapper(name, parameters.index(match[1]), default, converter_in(body))

    def _declared(self, file: CFile, node: Node, path: str) -> None:
        value = node.child_by_field_name("value")
        if file.function(node) is not None or value is None:
            return
        name = function_name(node)
        self.globals.setdefault(name, brief(value))
        declaration = file.tree.parent(node)
        text = file.tree.head(declaration, 300) if declaration is not None else ""
        constant = re.match(r"\s*(static|const|constexpr|inline|extern)\b", text) and re.search(
            r"\bconst(expr)?\b", text
        )
        if constant and value.type in ("number_literal", "string_literal", "binary_expression"):
            self.constants.setdefault(
                name, CConstant(name, brief(value), path, lines_of(declaration or node), static=True)
            )

    def _defined(self, file: CFile, node: Node, *, reads: bool) -> None:
        name = function_name(node)
        self.defined[last_name(name)] = self.defined.get(last_name(name), 0) + 1
        kind = text_of(node.child_by_field_name("type"))
        if _INIT.match(last_name(name)) or "PyMODINIT" in kind or name in _MODULE_MACROS or kind in _MODULE_MACROS:
            self._roots.add(last_name(name))
        head = file.tree.head(node, 200)
        if "constructor" in head and "__attribute__" in head:
            self._roots.add(last_name(name))
        if reads:
            self._wrap(node, name)

    def _wrap(self, node: Node, name: str) -> None:
        parameters = parameter_names(node)
        if not parameters or ("getenv" in last_name(name) and len(parameters) == 0):
            return
        body = node.child_by_field_name("body")
        for inner in _calls_in(body):
            if last_name(called(inner)) not in GETTERS:
                continue
            arguments = call_arguments(inner)
            source = text_of(arguments[0]) if arguments else ""
            base = re.split(r"\.|->", source)[0].strip()
            prefix = ""
            if base not in parameters:
                base, prefix = _composed(body, base, parameters)
            if base in parameters:
                default = next((i for i, p in enumerate(parameters) if _DEFAULT.search(p) and p != base), -1)
                text = text_of(body)
                kind = converter_in(text) or _returned(text_of(node.child_by_field_name("type")))
                short = last_name(name)
                self.wrappers.setdefault(short, CWrapper(short, parameters.index(base), default, kind, None, prefix))
                return


def _composed(body: Node | None, name: str, parameters: list[str]) -> tuple[str, str]:
    """For `std::string key = "PREFIX_" + name; getenv(key.c_str())`: the parameter and the prefix."""
    if not name or not re.fullmatch(r"\w+", name):
        return "", ""
    pattern = rf"\b{re.escape(name)}\s*(?:=|\(|\{{)\s*(?:std::string\s*\()?\s*\"(\w*)\"\s*\)?\s*\+\s*(\w+)"
    match = re.search(pattern, text_of(body))
    return (match[2], match[1]) if match and match[2] in parameters else ("", "")


def _calls_in(node: Node | None) -> Iterator[Node]:
    stack = [node] if node is not None else []
    while stack:
        current = stack.pop()
        if current.type == "call_expression":
            yield current
        stack.extend(reversed(current.named_children))


def _in_static(file: CFile, node: Node) -> bool:
    for parent in islice(file.tree.ancestors(node), NEAR):
        if parent.type == "declaration":
            return bool(re.match(r"\s*(inline\s+|const\s+)*(static|thread_local)\b", file.tree.head(parent, 60)))
        if parent.type == "function_definition":
            return False
    return False


def converter_in(text: str) -> str | None:
    """Type that a piece of code converts a string to."""
    if re.search(
        r"\b(atoi|atol|atoll|strto(l|ll|ul|ull|imax|umax)|stoi|stol|stoul|stoull|SimpleAtoi|from_chars)\b", text
    ):
        return "int"
    if re.search(r"\b(atof|strtod|strtof|stod|stof)\b", text):
        return "float"
    if re.search(
        r"\b(strn?casecmp|strcmp|_stricmp)\b[^;]*\"(1|0|true|false|on|off|yes|no)\"|==\s*\"(1|0|true|on)\"", text
    ):
        return "bool"
    return None


def _returned(kind: str) -> str | None:
    if re.search(r"\bbool\b", kind):
        return "bool"
    if re.search(r"\b(int|long|size_t|u?int\d+_t|unsigned)\b", kind):
        return "int"
    return "float" if re.search(r"\b(double|float)\b", kind) else None


def method_entry(node: Node) -> tuple[str, str] | None:
    """(Python name, C function) of an entry `{"name", function, METH_..., "doc"}` of a method table."""
    parts = node.named_children
    if len(parts) < 3 or parts[0].type not in ("string_literal", "concatenated_string"):
        return None
    flags = text_of(parts[2])
    if "METH_" not in flags:
        return None
    functions = re.findall(
        r"[A-Za-z_]\w*", re.sub(r"\((Py\w+|void\s*\(\*\)\s*\(void\)|_?PyCFunction\w*)\)", "", text_of(parts[1]))
    )
    if not functions:
        return None
    return text_of(parts[0]).strip('"'), functions[-1]
