"""What becomes of a variable that Rust code reads: its default, type and bounds, and what stands in for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from synth.walk.rust_index import RustFile, RustIndex, call_arguments, called, last_name, type_word
from synth.walk.syntax import VALUE_LIMIT, one_line, text_of

_PARSE = re.compile(r"\bparse\s*::\s*<\s*([\w:]+)\s*>")
_WORDS = re.compile(r"\"(1|0|true|false|on|off|yes|no)\"", re.IGNORECASE)
_NUMBER_FROM = re.compile(r"\b([uif](?:8|16|32|64|128|size)|f32|f64)\s*::\s*from_str\b")
_STEPS = 40
FEW = 4  # callers of a helper that are looked at
SHORT = 80  # characters of a value that a variable has before it is set from the environment
_BOUND = frozenset({"clamp", "max", "min", "saturating_sub", "saturating_mul"})
_ELSE = frozenset({"or", "or_else", "unwrap_or_else", "unwrap_or", "map_or_else", "map_or"})
_NOT_FUNCTIONS = frozenset({"Some", "Ok", "Err", "Box", "Arc", "String", "from", "new", "drop"})


@dataclass(eq=False)
class Use:
    """What becomes of a value.

    Attributes:
        default: source text of what holds when the variable is not set.
        zones: byte ranges of the code that runs when it is not set.
        notes: bounds and conversions in a few words.
        feeds: what the value goes to.
    """

    default: str | None = None
    value_type: str | None = None
    zones: list[tuple[int, int]] = field(default_factory=list)
    notes: str = ""
    feeds: str = ""


@dataclass(eq=False)
class _Walk:
    index: RustIndex
    file: RustFile
    use: Use
    notes: list[str] = field(default_factory=list)
    followed: int = 0

    def default(self, text: str) -> None:
        """Take a default, unless the code around already gave one."""
        text = one_line(re.sub(r"//[^\n]*", "", text).strip().rstrip(",;"))
        text = re.sub(r'^("[^"]*")\s*\.\s*(?:to_string|to_owned|into)\(\)$|^String::from\(("[^"]*")\)$', r"\1\2", text)
        text = re.sub(r"^(?:const\s*\{\s*)?NonZero\w*::new\(([^()]*)\)\s*\.\s*unwrap\(\)\s*\}?$", r"\1", text)
        if self.use.default is None and text and "return Err" not in text:
            self.use.default = self.index.resolved(text, self.file.path)[:VALUE_LIMIT]

    def kind(self, text: str | None) -> None:
        """Take a type, unless a nearer one is known."""
        found = type_word(text)
        if self.use.value_type is None and found:
            self.use.value_type = found

    def scan(self, text: str) -> None:
        """Look for conversions in a closure or a branch."""
        match = _PARSE.search(text) or _NUMBER_FROM.search(text)
        if match:
            self.kind(match[1])
        elif self.use.value_type is None and _WORDS.search(text) and re.search(r"==|!=|matches!|match|contains", text):
            self.use.value_type = "bool"
        bound = re.search(r"\.\s*(clamp|max|min)\s*\(([^()]{1,60})\)", text)
        if bound:
            self.note(f"{bound[1]}({one_line(self.index.resolved(bound[2], self.file.path))})")

    def note(self, text: str) -> None:
        """Keep a remark once."""
        if text not in self.notes and len(self.notes) < 4:
            self.notes.append(text)


def use_of(index: RustIndex, file: RustFile, path: list[Node]) -> Use:
    """Follow a value from the call that reads it outwards.

    Args:
        index: facts of the release.
        file: where it stands.
        path: the nodes around the read, the outermost first, the read itself last.
    """
    walk = _Walk(index, file, Use())
    _follow(walk, path)
    walk.use.notes = "; ".join(walk.notes)
    return walk.use


def _follow(walk: _Walk, path: list[Node]) -> None:
    place = len(path) - 1
    for _ in range(_STEPS):
        if place <= 0:
            return
        node, parent = path[place], path[place - 1]
        step = _step(walk, node, parent, path, place)
        if step <= 0:
            return
        place -= step


_THROUGH = frozenset(
    {
        "try_expression",
        "reference_expression",
        "parenthesized_expression",
        "await_expression",
        "generic_function",
        "closure_expression",
        "match_arm",
        "match_block",
        "unsafe_block",
    }
)
_CONDITIONS = frozenset({"let_condition", "let_chain", "if_expression", "while_expression"})


def _step(walk: _Walk, node: Node, parent: Node, path: list[Node], place: int) -> int:
    """How many nodes to go outwards; 0 at the end."""
    kind = parent.type
    if kind in _THROUGH:
        return 1
    if kind == "arguments":
        return _argument(walk, node, path, place)
    if kind == "match_expression":
        _matched(walk, parent)
        return 1
    if kind in _CONDITIONS:
        return _condition(walk, node, path, place)
    if kind == "field_expression":
        typed = place >= 3 and path[place - 2].type == "generic_function"  # `v.parse::<usize>()`
        call = path[place - 3] if typed else path[place - 2] if place >= 2 else None
        if call is None or call.type != "call_expression":
            return 0
        alive = _method(walk, text_of(parent.child_by_field_name("field")), call_arguments(call), call)
        return (2 + typed) if alive else 0
    if kind in ("block", "expression_statement", "return_expression"):
        return 1 if _is_last(node, parent) else 0
    return (
        _operator(walk, parent)
        if kind.endswith("expression") and kind != "assignment_expression"
        else _end(walk, parent, path, place)
    )


def _operator(walk: _Walk, parent: Node) -> int:
    """An operator around the value, or a cast of it."""
    if parent.type == "unary_expression":
        if text_of(parent).startswith("!"):
            walk.use.value_type = walk.use.value_type or "bool"
        return 1
    if parent.type == "binary_expression":
        if re.search(r"==|!=|&&|\|\|", text_of(parent)[:400]):
            walk.use.value_type = walk.use.value_type or "bool"
            return 0
        return 1
    if parent.type == "type_cast_expression":
        walk.kind(text_of(parent.child_by_field_name("type")))
        return 1
    return 0


def _end(walk: _Walk, parent: Node, path: list[Node], place: int) -> int:
    """Where the value goes to: a variable, a static, a field, the caller."""
    kind = parent.type
    if kind == "let_declaration":
        _let(walk, parent, path, place)
    elif kind in ("static_item", "const_item"):
        walk.kind(text_of(parent.child_by_field_name("type")))
        walk.use.feeds = text_of(parent.child_by_field_name("name"))
    elif kind == "function_item":
        walk.kind(text_of(parent.child_by_field_name("return_type")))
        _callers(walk, parent)
    elif kind in ("field_initializer", "assignment_expression"):
        left = parent.child_by_field_name("left") or parent.child_by_field_name("field")
        walk.use.feeds = one_line(text_of(left), 60)
        if kind == "field_initializer" and walk.use.default is None:
            _field_use(walk, walk.use.feeds)
    return 0


def _callers(walk: _Walk, function: Node) -> None:
    """`fn from_env() -> Option<usize>`: what its callers put in where there is none."""
    name = text_of(function.child_by_field_name("name"))
    returns = text_of(function.child_by_field_name("return_type"))
    if walk.use.default is not None or not re.search(r"\b(Option|Result)\b", returns) or walk.followed > 1:
        return
    found: set[str] = set()
    for path, offset in walk.index.calls.get(name, [])[:FEW] if len(walk.index.functions.get(name, [])) == 1 else []:
        file = walk.index.opened(path)
        around = file.at(offset, offset + 1) if file is not None else []
        place = next((i for i in range(len(around) - 1, -1, -1) if around[i].type == "call_expression"), -1)
        if file is None or place < 0:
            continue
        inner = _Walk(walk.index, file, Use(), followed=walk.followed + 1)
        _follow(inner, around[: place + 1])
        if inner.use.default is not None:
            found.add(inner.use.default)
    if len(found) == 1:
        walk.use.default = found.pop()


def _field_use(walk: _Walk, name: str) -> None:
    """`n: env_var("N")` here and `self.n.unwrap_or(4)` there."""
    if walk.followed > 1 or not re.fullmatch(r"\w+", name):
        return
    match = re.search(
        rb"\." + name.encode() + rb"\s*\.\s*(?:unwrap_or|unwrap_or_else|map_or|map_or_else)\s*\(", walk.file.raw
    )
    if match is None:
        return
    around = walk.file.at(match.start() + 1, match.start() + 2)
    if len(around) > 1 and around[-1].type == "field_identifier" and around[-2].type == "field_expression":
        walk.followed += 1
        _follow(walk, around[:-1])


def _is_last(node: Node, parent: Node) -> bool:
    if parent.type != "block":
        return True
    children = [c for c in parent.named_children if "comment" not in c.type]
    return bool(children) and children[-1] == node


def _method(walk: _Walk, name: str, arguments: list[Node], call: Node) -> bool:
    """Whether the value lives on after a method."""
    first = text_of(arguments[0]) if arguments else ""
    if name in _ELSE and arguments:
        zone = arguments[0]
        walk.use.zones.append((zone.start_byte, zone.end_byte))
    if name == "unwrap_or":
        walk.default(first)
    elif name in ("unwrap_or_else", "or_else"):
        body = _closure_body(arguments[0]) if arguments else ""
        if body and not re.search(r"\b(panic|unreachable|todo)!|env\s*::\s*var", body):
            walk.default(body)
    elif name == "unwrap_or_default":
        walk.default({"int": "0", "float": "0.0", "bool": "false"}.get(walk.use.value_type or "", '""'))
    elif name == "map_or":
        walk.default(first)
        walk.scan(text_of(arguments[1]) if len(arguments) > 1 else "")
    elif name == "map_or_else":
        walk.default(_closure_body(arguments[0]) if arguments else "")
        walk.scan(text_of(arguments[1]) if len(arguments) > 1 else "")
    elif name in (
        "is_ok",
        "is_some",
        "is_err",
        "is_none",
        "is_ok_and",
        "is_some_and",
        "eq_ignore_ascii_case",
        "eq",
        "contains",
    ):
        walk.use.value_type = walk.use.value_type or "bool"
        if name in ("is_ok", "is_some", "is_err", "is_none"):
            walk.note("only whether it is set")
        return False
    elif name == "parse":
        match = _PARSE.search(text_of(call.child_by_field_name("function")))
        walk.kind(match[1] if match else None)
    elif name in _BOUND and arguments:
        given = ", ".join(text_of(a) for a in arguments)
        walk.note(f"{name}({one_line(walk.index.resolved(given, walk.file.path), 60)})")
    elif name == "filter":
        walk.note(f"only if {one_line(first, 60)}")
        walk.scan(first)
    elif arguments:
        walk.scan(" ".join(text_of(a) for a in arguments)[:4_000])
    return True


def _closure_body(node: Node) -> str:
    if node.type == "closure_expression":
        return _value_of(node.child_by_field_name("body"))
    return text_of(node)


def _value_of(node: Node | None) -> str:
    """The value of an expression or block: the last expression of a block."""
    for _ in range(4):
        if node is None or node.type not in ("block", "unsafe_block"):
            break
        children = [c for c in node.named_children if "comment" not in c.type]
        if not children:
            return ""
        node = children[-1]
        if len(children) > 3 and children[-2].type == "attribute_item" and "not(" in text_of(children[-2]):
            node = children[-3]  # of two ways to compile it, the one that is named
        if node.type == "expression_statement" and node.named_children:
            node = node.named_children[0]
    if node is not None and node.type == "return_expression" and node.named_children:
        node = node.named_children[0]
    return text_of(node)


def _argument(walk: _Walk, node: Node, path: list[Node], place: int) -> int:
    """The value is handed to a call, or a closure around it is."""
    call = path[place - 2] if place >= 2 else None
    if call is None or call.type != "call_expression":
        return 0
    name = last_name(called(call))
    function = call.child_by_field_name("function")
    if node.type == "closure_expression":
        # `x.or_else(|| env::var(..))` goes on as `x` does; what a lazy value computes is its own end
        return 2 if function is not None else 0
    arguments = call_arguments(call)
    if name in ("Some", "Ok"):
        return 2
    if function is not None and function.type == "field_expression" and name in _ELSE:
        return 2
    if name in _NOT_FUNCTIONS or function is None:
        return 2
    places = walk.index.functions.get(name, [])
    if len(places) == 1:
        opened = walk.index.opened(places[0][0])
        made = (
            walk.index.enclosing(opened, opened.at(places[0][1] + 1, places[0][1] + 2)) if opened is not None else None
        )
        if made is not None:
            for given, parameter in zip(arguments, made.parameters, strict=False):
                if given != node and re.search(r"def(ault)?|fallback", parameter):
                    walk.default(text_of(given))
            walk.kind(made.returns)
    walk.use.feeds = walk.use.feeds or one_line(f"{called(call)}()", 60)
    return 2


def _matched(walk: _Walk, node: Node) -> None:
    body = node.child_by_field_name("body")
    for arm in body.named_children[:200] if body is not None else []:
        if arm.type != "match_arm":
            continue
        pattern = text_of(arm.child_by_field_name("pattern"))
        value = arm.child_by_field_name("value")
        if re.match(r"\s*(Err\b|None\b|Err\(_\)|_)", pattern):
            if value is not None:
                walk.use.zones.append((value.start_byte, value.end_byte))
            text = _value_of(value)
            if not re.search(r"\b(panic|unreachable)!|env\s*::\s*var|\breturn\s+Err\b", text):
                walk.default(text)
        else:
            walk.scan(pattern + " => " + text_of(value)[:4_000])
            if _WORDS.search(pattern) and walk.use.value_type is None:
                walk.use.value_type = "bool"


def _condition(walk: _Walk, node: Node, path: list[Node], place: int) -> int:
    """`if let Ok(v) = env::var(..) { .. } else { .. }`."""
    holder = next((n for n in reversed(path[:place]) if n.type in ("if_expression", "while_expression")), None)
    if holder is None:
        return 0
    condition = holder.child_by_field_name("condition")
    if condition is None or not (condition.start_byte <= node.start_byte < condition.end_byte):
        return path.index(node) - path.index(holder) if _is_last(node, path[place - 1]) else 0
    consequence = holder.child_by_field_name("consequence")
    alternative = holder.child_by_field_name("alternative")
    walk.scan(text_of(consequence)[:4_000])
    if alternative is not None:
        walk.use.zones.append((alternative.start_byte, alternative.end_byte))
        inner = alternative.named_children[-1] if alternative.named_children else None
        text = _value_of(inner)
        if inner is not None and inner.type != "if_expression" and len(text) < VALUE_LIMIT:
            walk.default(text)
    elif re.search(r"^\{\s*return\b|;\s*return\b[^;]*;?\s*\}$", text_of(consequence)[:4_000]):
        _value_below(walk, holder, path)
    else:
        _assigned_before(walk, consequence, holder, path)
    return path.index(node) - path.index(holder) if place else 0


def _value_below(walk: _Walk, holder: Node, path: list[Node]) -> None:
    """`if let Ok(v) = .. { return v; } 4`: the value of the block around."""
    block = next((n for n in reversed(path[: path.index(holder)]) if n.type == "block"), None)
    text = _value_of(block) if block is not None else ""
    function = next((n for n in reversed(path) if n.type == "function_item"), None)
    walk.kind(text_of(function.child_by_field_name("return_type")) if function is not None else None)
    if text and block is not None and block.named_children[-1].start_byte > holder.end_byte:
        last = block.named_children[-1]
        walk.use.zones.append((last.start_byte, last.end_byte))
        if not re.search(r"env\s*::\s*var|\breturn\b", text):
            walk.default(text)


def _assigned_before(walk: _Walk, consequence: Node | None, holder: Node, path: list[Node]) -> None:
    """`let mut n = 4; if let Ok(v) = env::var(..) { n = .. }`."""
    match = re.search(r"(?:^|[{;])\s*\*?(\w+(?:\.\w+)*)\s*=[^=]", text_of(consequence)[:2_000])
    if not match:
        return
    walk.use.feeds = match[1]
    block = next((n for n in reversed(path[: path.index(holder)]) if n.type == "block"), None)
    for child in block.named_children[:200] if block is not None else []:
        if child.start_byte >= holder.start_byte:
            break
        if child.type == "let_declaration":
            pattern = re.sub(r"^mut\s+", "", text_of(child.child_by_field_name("pattern")))
            value = text_of(child.child_by_field_name("value"))
            if pattern == match[1] and len(value) <= SHORT:
                walk.default(value)
                walk.kind(text_of(child.child_by_field_name("type")))


def _let(walk: _Walk, node: Node, path: list[Node], place: int) -> None:
    """`let Ok(v) = .. else { return 4 };`, or a variable that is looked at below."""
    walk.kind(text_of(node.child_by_field_name("type")))
    alternative = node.child_by_field_name("alternative")
    if alternative is not None:
        walk.use.zones.append((alternative.start_byte, alternative.end_byte))
        walk.default(_value_of(alternative))
    pattern = text_of(node.child_by_field_name("pattern"))
    name = re.search(r"(\w+)\s*\)*$", pattern)
    if name is None or walk.followed > 1:
        return
    walk.use.feeds = walk.use.feeds or name[1]
    walk.followed += 1
    block = path[place - 2] if place >= 2 else None
    if block is None or block.type not in ("block", "source_file"):
        return
    start, end = node.end_byte, min(block.end_byte, node.end_byte + 4_000)
    source = walk.file.raw[start:end]
    if walk.use.value_type is None or walk.use.default is None:
        match = re.search(rb"\b" + re.escape(name[1].encode()) + rb"\b", source)
        if match:
            around = walk.file.at(start + match.start(), start + match.end())
            if around and around[-1].type == "identifier":
                _follow(walk, around)
