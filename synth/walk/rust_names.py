"""Which texts a Rust expression can be: names of environment variables through constants, tables, loops and macros."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from synth.walk.rust_index import RustFile, RustIndex, call_arguments, called, last_name
from synth.walk.syntax import descend, text_of

MANY = 300  # names that one expression can be
NAME = re.compile(r"^[A-Za-z_*][A-Za-z0-9_*.]*$")
UPPER = re.compile(r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$")
_LITERAL = re.compile(r"[bc]?r?#*\"((?:[^\"\\]|\\.)*)\"")
_PASSED = frozenset(
    {
        "as_str",
        "as_ref",
        "as_bytes",
        "as_ptr",
        "to_string",
        "to_owned",
        "into",
        "clone",
        "deref",
        "borrow",
        "as_os_str",
        "to_str",
        "to_string_lossy",
        "unwrap",
        "expect",
        "iter",
        "into_iter",
    }
)
_UPPERED = frozenset({"to_uppercase", "to_ascii_uppercase"})


def names_of(index: RustIndex, file: RustFile, node: Node | None, path: list[Node], depth: int = 0) -> list[str]:
    """Names that an expression can be; `*` for an unknown part.

    Args:
        index: facts of the release.
        file: where the expression stands.
        node: the expression.
        path: the nodes around it, the outermost first.
        depth: of the expression in what is asked for.
    """
    if node is None or depth > 6:
        return []
    kind = node.type
    if kind in ("string_literal", "raw_string_literal"):
        return ["".join(_LITERAL.findall(text_of(node)))]
    if kind in ("reference_expression", "parenthesized_expression", "unary_expression", "try_expression"):
        return names_of(index, file, node.named_children[-1] if node.named_children else None, path, depth + 1)
    if kind == "scoped_identifier":
        value = index.string(text_of(node), file.path)
        return [value] if value is not None else _associated(index, file, node)
    if kind == "identifier":
        return _identifier(index, file, node, path, depth)
    if kind == "macro_invocation":
        return _macro(index, file, node)
    if kind == "call_expression":
        return _call(index, file, node, path, depth)
    if kind in ("match_expression", "if_expression", "block"):
        return _branches(index, file, node, path, depth)
    if kind in ("array_expression", "tuple_expression"):
        return [n for c in node.named_children[:MANY] for n in names_of(index, file, c, path, depth + 1)][:MANY]
    if kind == "binary_expression":
        sides = (node.child_by_field_name("left"), node.child_by_field_name("right"))
        left, right = (names_of(index, file, side, path, depth + 1) or ["*"] for side in sides)
        return [re.sub(r"\*+", "*", a + b) for a in left for b in right][:MANY]
    return []


def _associated(index: RustIndex, file: RustFile, node: Node) -> list[str]:
    """`Self::NAME`, `module::NAME` of several types: every value of that name in the file."""
    value = index.string(last_name(text_of(node)), file.path)
    return [value] if value is not None else []


def _branches(index: RustIndex, file: RustFile, node: Node, path: list[Node], depth: int) -> list[str]:
    found: list[str] = []
    for place, inner in enumerate(descend(node)):
        if place > 2_000 or len(found) > MANY:
            break
        if inner.type == "match_arm":
            found += names_of(index, file, inner.child_by_field_name("value"), path, depth + 1)
        elif inner.type == "block" and inner.named_children and inner.parent is not None:
            last = inner.named_children[-1]
            if last.type in ("string_literal", "identifier", "scoped_identifier"):
                found += names_of(index, file, last, path, depth + 1)
    return found


def _call(index: RustIndex, file: RustFile, node: Node, path: list[Node], depth: int) -> list[str]:
    function = node.child_by_field_name("function")
    name = last_name(called(node))
    arguments = call_arguments(node)
    if function is not None and function.type == "field_expression":
        owner = function.child_by_field_name("value")
        if name in _PASSED:
            return names_of(index, file, owner, path, depth + 1)
        if name in _UPPERED:
            return [n.upper() for n in names_of(index, file, owner, path, depth + 1)]
        if not arguments:
            return _returned(index, name)
        return []
    if len(arguments) == 1 and name in ("from", "new", "OsStr", "String", "Some"):
        return names_of(index, file, arguments[0], path, depth + 1)
    return _returned(index, name) if len(arguments) <= 1 else []


def _returned(index: RustIndex, name: str) -> list[str]:
    """Upper-case literals of a function that gives names: `fn env_name(&self) -> &'static str { match self {..} }`."""
    places = index.functions.get(name, [])
    if not 0 < len(places) <= 2:
        return []
    found: list[str] = []
    for path, start in places:
        raw = index.raw[path]
        end = raw.find(b"\n}", start)
        text = raw[start : min(end if end > 0 else start + 4_000, start + 8_000)].decode("utf-8", "replace")
        if re.search(r"->\s*(Option\s*<\s*)?&\s*('\w+\s+)?str\b|->\s*String\b", text[:300]):
            found += [literal for literal in _LITERAL.findall(text) if UPPER.match(literal)]
    return list(dict.fromkeys(found))[:MANY]


def _identifier(index: RustIndex, file: RustFile, node: Node, path: list[Node], depth: int) -> list[str]:
    name = text_of(node)
    for around in reversed(path):
        if around.type in ("for_expression", "closure_expression"):
            found = _bound(index, file, around, name, path, depth)
            if found:
                return found
        if around.type == "block":
            found = _local(index, file, around, name, node, path, depth)
            if found:
                return found
        if around.type == "function_item":
            break
    value = index.string(name, file.path)
    if value is not None:
        return [value]
    return listed(index, file, name)


def listed(index: RustIndex, file: RustFile, name: str) -> list[str]:
    """Names in a constant list."""
    places = index.lists.get(last_name(name), {})
    text = places.get(file.path) or (next(iter(places.values())) if len(places) == 1 else "")
    found: list[str] = []
    for literal, identifier in re.findall(r"\"((?:[^\"\\]|\\.)*)\"|\b((?:\w+::)*[A-Z][A-Z0-9_]+)\b", text)[:MANY]:
        value = literal or index.string(identifier, file.path)
        if value:
            found.append(value)
    return found


def _bound(index: RustIndex, file: RustFile, around: Node, name: str, path: list[Node], depth: int) -> list[str]:
    """What a loop variable or the parameter of a closure over a list can be."""
    if around.type == "for_expression":
        if not re.search(rf"\b{re.escape(name)}\b", text_of(around.child_by_field_name("pattern"))):
            return []
        source = around.child_by_field_name("value")
    else:
        parameters = text_of(around.child_by_field_name("parameters"))
        if not re.search(rf"\b{re.escape(name)}\b", parameters):
            return []
        place = next((i for i, n in enumerate(path) if n == around), 0)
        call = path[place - 2] if place >= 2 and path[place - 1].type == "arguments" else None
        function = call.child_by_field_name("function") if call is not None and call.type == "call_expression" else None
        source = function.child_by_field_name("value") if function is not None else None
    for _ in range(4):  # the list below `.iter().copied()`
        inner = source
        if inner is not None and inner.type in ("reference_expression", "parenthesized_expression"):
            inner = inner.named_children[-1] if inner.named_children else None
        elif inner is not None and inner.type == "call_expression":
            function = inner.child_by_field_name("function")
            inner = function.child_by_field_name("value") if function is not None else None
        if inner is None or inner == source:
            break
        source = inner
    if source is None:
        return []
    if source.type in ("identifier", "scoped_identifier"):
        return listed(index, file, text_of(source)) or names_of(index, file, source, path[:1], depth + 1)
    return names_of(index, file, source, path[:1], depth + 1)


def _local(
    index: RustIndex, file: RustFile, block: Node, name: str, use: Node, path: list[Node], depth: int
) -> list[str]:
    """Value of a `let` or an inner `const` above a use."""
    for child in block.named_children[:400]:
        if child.start_byte >= use.start_byte:
            break
        if child.type == "let_declaration":
            pattern = re.sub(r"^mut\s+", "", text_of(child.child_by_field_name("pattern")))
            if pattern == name:
                value = child.child_by_field_name("value")
                if value is not None and not (value.start_byte <= use.start_byte < value.end_byte):
                    return names_of(index, file, value, path, depth + 1)
        elif child.type in ("const_item", "static_item") and text_of(child.child_by_field_name("name")) == name:
            return names_of(index, file, child.child_by_field_name("value"), path, depth + 1)
    return []


def _macro(index: RustIndex, file: RustFile, node: Node) -> list[str]:
    name = last_name(text_of(node.child_by_field_name("macro")))
    tokens = next((c for c in node.named_children if c.type == "token_tree"), None)
    text = text_of(tokens)[1:-1]
    if name in ("concat", "concatcp", "formatcp", "str", "c"):
        parts = [part.strip() for part in split_top(text)]
        return ["".join(_piece(index, file, part) for part in parts)] if parts else []
    if name == "format":
        parts = split_top(text)
        template = "".join(_LITERAL.findall(parts[0])) if parts else ""
        given = [part.strip() for part in parts[1:]]
        return [filled(index, file, template, given)]
    return []


def filled(index: RustIndex, file: RustFile, template: str, given: list[str]) -> str:
    """A format template with what is known of its arguments."""
    named = {k.strip(): v.strip() for k, _, v in (g.partition("=") for g in given if "==" not in g) if v}
    positional = [g for g in given if not re.match(r"\w+\s*=[^=]", g)]
    place = -1

    def one(match: re.Match[str]) -> str:
        nonlocal place
        key = match[1].partition(":")[0].strip()
        if not key:
            place += 1
            text = positional[place] if place < len(positional) else "*"
        elif key.isdigit():
            text = positional[int(key)] if int(key) < len(positional) else "*"
        else:
            text = named.get(key, key)
        return _piece(index, file, text)

    return re.sub(r"\*+", "*", re.sub(r"\{([^{}]*)\}", one, template))


def _piece(index: RustIndex, file: RustFile, text: str) -> str:
    text = text.strip().lstrip("&")
    literal = _LITERAL.fullmatch(text)
    if literal:
        return literal[1]
    if re.fullmatch(r"(\w+::)*\w+", text):
        return index.string(text, file.path) or "*"
    return "*"


def split_top(text: str, separator: str = ",") -> list[str]:
    """Pieces of a token text between separators that stand in no bracket and no string."""
    pieces: list[str] = []
    depth, start, position = 0, 0, 0
    while position < len(text):
        char = text[position]
        if char == '"':
            match = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, position)
            position = match.end() if match else len(text)
            continue
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith(separator, position):
            pieces.append(text[start:position])
            start = position + len(separator)
        position += 1
    pieces.append(text[start:])
    return [piece for piece in pieces if piece.strip()]


def usable(names: list[str]) -> list[str]:
    """Names that can be names of variables, each once."""
    return [n for n in dict.fromkeys(names) if NAME.match(n) and len(n.replace("*", "")) >= (3 if "*" in n else 2)][
        :MANY
    ]


def upper_literals(text: str) -> Iterator[str]:
    """Text literals that look like variables."""
    for literal in _LITERAL.findall(text):
        if UPPER.match(literal):
            yield literal
