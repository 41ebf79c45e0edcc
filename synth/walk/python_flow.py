"""Where the value of an expression goes: its type, its default, and what is tried when it is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from tree_sitter import Node

from synth.walk.python_environ import arguments_of
from synth.walk.python_scope import PyFile, Scope, dotted
from synth.walk.python_values import strings
from synth.walk.syntax import CITED_LINES, brief, descend, lines_of, text_of

_TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "str", "Path": "path", "list": "list"}
_TYPE_WORDS = (
    (re.compile(r"bool|flag|truthy|is_true|istrue|str2b|env_on", re.IGNORECASE), "bool"),
    (re.compile(r"(^|_)int(eger)?(_|$)|(^|_)atoi|to_bytes|parse_bytes|nbytes", re.IGNORECASE), "int"),
    (re.compile(r"(^|_)float(_|$)", re.IGNORECASE), "float"),
    (re.compile(r"(^|_)path(_|$)|expanduser|abspath|realpath", re.IGNORECASE), "path"),
)
_BOOL_WORDS = frozenset(
    {"", "0", "1", "true", "false", "on", "off", "yes", "no", "y", "n", "t", "f", "none", "enabled"}
)
_THROUGH = frozenset({"parenthesized_expression", "boolean_operator", "conditional_expression", "await", "subscript"})
_STRING_STEPS = frozenset({"lower", "upper", "strip", "casefold", "lstrip", "rstrip", "replace", "removeprefix"})
_SPLITS = frozenset({"split", "splitlines"})
_STATEMENTS = frozenset(
    {
        "expression_statement",
        "return_statement",
        "assert_statement",
        "raise_statement",
        "delete_statement",
        "import_statement",
        "import_from_statement",
        "global_statement",
    }
)
_NAMED = 80  # characters of a name
_OUTWARDS = 120  # levels in which two reads must meet to be a chain
_AROUND = 60  # levels around an expression that are looked at
_LEAVES = frozenset({"return_statement", "raise_statement", "break_statement", "continue_statement"})


def cited_lines(pyfile: PyFile, node: Node) -> tuple[int, int]:
    """Lines to cite for an expression: its simple statement if that is short, else its own."""
    own = lines_of(node)
    for ancestor in pyfile.tree.ancestors(node):
        if ancestor.type in _STATEMENTS:
            start, end = lines_of(ancestor)
            return (start, end) if end - start < CITED_LINES else own
        if ancestor.type in ("block", "module"):
            break
    return own if own[1] - own[0] < CITED_LINES else (own[0], own[0] + CITED_LINES - 1)


def type_word(name: str) -> str | None:
    """Type that a converter's name stands for."""
    if name.startswith("lambda"):
        if re.search(r"\.split\(", name):
            return "list"
        inner = re.match(r"lambda\s+(\w+)\s*:\s*(\w+)\(", name)
        name = inner[2] if inner else ""
    last = name.rpartition(".")[2]
    if last in _TYPES:
        return _TYPES[last]
    return next((kind for pattern, kind in _TYPE_WORDS if pattern.search(last)), None)


def parsed_type(pyfile: PyFile, node: Node) -> str | None:
    """What the code turns the value of `node` into, as far as it shows."""
    current = node
    for parent in pyfile.tree.ancestors(node):
        if parent.type in ("argument_list", "attribute"):
            continue
        found = _type_in(pyfile, parent, current)
        if found:
            return found
        if parent.type == "call" and not _string_step(parent):
            return None
        if parent.type == "assignment":
            return _assigned_type(pyfile, parent)
        if parent.type not in _THROUGH and parent.type not in ("call", "comparison_operator"):
            return None
        current = parent
    return None


def _string_step(call: Node) -> bool:
    function = call.child_by_field_name("function")
    return (
        function is not None
        and function.type == "attribute"
        and text_of(function.child_by_field_name("attribute")) in _STRING_STEPS
    )


def _type_in(pyfile: PyFile, parent: Node, node: Node) -> str | None:
    if parent.type == "call":
        function = parent.child_by_field_name("function")
        if function is None or function.id == node.id:
            return None
        inside_function = function.start_byte <= node.start_byte and node.end_byte <= function.end_byte
        if inside_function:
            method = text_of(function.child_by_field_name("attribute"))
            return "list" if method in ("split", "splitlines") else None
        return type_word(dotted(function))
    if parent.type == "comparison_operator":
        words = [w for other in parent.named_children if other.id != node.id for w in _words(pyfile, other)]
        if words and any(words) and all(word.lower() in _BOOL_WORDS for word in words):
            return "bool"
    return None


def _words(pyfile: PyFile, node: Node) -> list[str]:
    value = pyfile.value(node)
    if isinstance(value, (list, tuple)):
        return [item if isinstance(item, str) else "?" for item in value]
    return strings(value) or ["?"]


def _assigned_type(pyfile: PyFile, assignment: Node) -> str | None:
    annotation = text_of(assignment.child_by_field_name("type"))
    for name in ("bool", "int", "float", "Path"):
        if re.search(rf"\b{name}\b", annotation):
            return _TYPES[name]
    left = assignment.child_by_field_name("left")
    if left is None or left.type != "identifier":
        return None
    scope = pyfile.scope(assignment)
    holder = scope.node if scope.kind == "function" else pyfile.root
    return _used_as(pyfile, text_of(left), holder, assignment.end_byte)


def _used_as(pyfile: PyFile, name: str, holder: Node, after: int) -> str | None:
    """Type that a local name is converted to further down."""
    for looked, use in enumerate(pyfile.uses(name, after)):
        if looked >= 8 or use.start_byte > holder.end_byte:
            return None
        node, parent = use, pyfile.tree.parent(use)
        while parent is not None and (
            parent.type in ("argument_list", "attribute", "parenthesized_expression")
            or (parent.type == "call" and _string_step(parent))
        ):
            if parent.type == "attribute" and text_of(parent.child_by_field_name("attribute")) in _SPLITS:
                return "list"
            node, parent = parent, pyfile.tree.parent(parent)
        found = _type_in(pyfile, parent, node) if parent is not None else None
        if found:
            return found
    return None


def _inside(node: Node, outer: Node | None) -> bool:
    return outer is not None and outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def _plain_none(text: str | None) -> str | None:
    return None if text in (None, "None") else text


def default_of(pyfile: PyFile, node: Node) -> str | None:
    """What stands in when the value of `node` is missing, from the code around it."""
    current = node
    for parent in pyfile.tree.ancestors(node):
        if parent.type == "boolean_operator" and text_of(parent.child_by_field_name("operator")) == "or":
            right = parent.child_by_field_name("right")
            if not _is_test(pyfile, parent) and right is not None and not _inside(node, right):
                return _plain_none(_last_operand(_outermost(pyfile, parent).child_by_field_name("right") or right))
        elif parent.type == "conditional_expression" and len(parent.named_children) == 3:
            taken, _, other = parent.named_children
            return _plain_none(brief(other if _inside(node, taken) else taken if _inside(node, other) else other))
        elif parent.type == "try_statement" and current.type == "block":
            found = _other_branch(pyfile, node, [c for c in parent.named_children if c.type == "except_clause"])
            return _plain_none(found)
        elif parent.type in ("if_statement", "elif_clause"):
            found = _else_value(pyfile, node, parent)
            if found is not None:
                return _plain_none(found)
        elif parent.type == "assignment":
            found = _refilled(pyfile, parent)
            if found is not None:
                return _plain_none(found)
        elif parent.type in ("function_definition", "lambda", "class_definition"):
            break
        current = parent
    return None


def _outermost(pyfile: PyFile, node: Node) -> Node:
    """`(a or b) or c` for `a or b`: what stands in last is the last of all."""
    for parent in islice(pyfile.tree.ancestors(node), _AROUND):
        if parent.type == "parenthesized_expression":
            continue
        operator = text_of(parent.child_by_field_name("operator"))
        if parent.type != "boolean_operator" or operator != "or" or _inside(node, parent.child_by_field_name("right")):
            return node
        node = parent
    return node


def _last_operand(node: Node) -> str:
    while node.type == "boolean_operator" and node.child_by_field_name("right") is not None:
        right = node.child_by_field_name("right")
        if right is None:
            break
        node = right
    return brief(node)


def is_emptiness_test(pyfile: PyFile, node: Node) -> bool:
    """Whether a value is only compared with nothing, as in `if environ["X"] != "":`."""
    parent = pyfile.tree.parent(node)
    if parent is None or parent.type != "comparison_operator":
        return False
    others = [child for child in parent.named_children if child.id != node.id]
    return len(others) == 1 and text_of(others[0]) in ("''", '""', "None")


def _is_test(pyfile: PyFile, node: Node) -> bool:
    """Whether an expression only decides a branch."""
    current = node
    for parent in pyfile.tree.ancestors(node):
        if parent.type in ("if_statement", "elif_clause", "while_statement"):
            condition = parent.child_by_field_name("condition")
            return condition is not None and condition.id == current.id
        if parent.type == "not_operator":
            return True
        if parent.type not in ("boolean_operator", "parenthesized_expression"):
            return False
        current = parent
    return False


def _target(pyfile: PyFile, node: Node) -> str | None:
    """Name that the statement around `node` assigns to, `return` if it returns it."""
    for parent in pyfile.tree.ancestors(node):
        if parent.type == "assignment":
            return text_of(parent.child_by_field_name("left"))
        if parent.type == "return_statement":
            return "return"
        if parent.type in ("block", "module"):
            return None
    return None


def goes_to(pyfile: PyFile, node: Node) -> str:
    """Name of what the value of an expression is kept in or handed over as; empty if it is only tested."""
    for parent in islice(pyfile.tree.ancestors(node), _AROUND):
        if parent.type in ("assignment", "named_expression"):
            left = parent.child_by_field_name("left") or parent.child_by_field_name("name")
            text = dotted(left).rpartition(".")[2]
            return text if len(text) <= _NAMED else ""
        if parent.type == "keyword_argument":
            return text_of(parent.child_by_field_name("name"))[:_NAMED]
        if parent.type == "return_statement":
            scope = pyfile.scope(parent).function()
            return scope.qualname.rpartition(".")[2] if scope is not None else ""
        if parent.type in ("comparison_operator", "not_operator", "block", "module", "lambda", "pair"):
            return ""
    return ""


def _value_for(block: Node | None, target: str) -> str | None:
    """Value that the statements of a block give to `target`."""
    for statement in block.named_children if block is not None else []:
        if target == "return" and statement.type == "return_statement":
            return brief(statement.named_children[0]) if statement.named_children else None
        inner = statement.named_children[0] if statement.named_children else None
        if inner is None or inner.type != "assignment":
            continue
        if text_of(inner.child_by_field_name("left")) == target:
            return brief(inner.child_by_field_name("right"))
    return None


def _other_branch(pyfile: PyFile, node: Node, clauses: list[Node]) -> str | None:
    target = _target(pyfile, node)
    if target is None:
        return None
    for clause in clauses:
        block = next((c for c in clause.named_children if c.type == "block"), None)
        value = _value_for(block, target)
        if value is not None:
            return value
    return None


def _else_value(pyfile: PyFile, node: Node, branch: Node) -> str | None:
    """Default for `if "X" in environ: v = environ["X"] else: v = d`, or `v = d` before the `if`, or a later return."""
    condition = branch.child_by_field_name("condition")
    target = _target(pyfile, node)
    if target is None or condition is None:
        return None
    whole = branch
    if branch.type == "elif_clause":
        whole = pyfile.tree.parent(branch) or branch
    for clause in whole.named_children:
        if clause.type == "else_clause" and not _inside(node, clause):
            value = _value_for(clause.child_by_field_name("body"), target)
            if value is not None:
                return value
    if not _inside(node, branch.child_by_field_name("consequence")):
        return None
    if target == "return":
        parent = pyfile.tree.parent(whole)
        last = parent.named_children[-1] if parent is not None and parent.named_children else None
        if last is not None and last.type == "return_statement" and last.named_children:
            return brief(last.named_children[0])
        return None
    previous = whole.prev_named_sibling
    for _ in range(3):
        if previous is None:
            return None
        inner = previous.named_children[0] if previous.named_children else None
        if inner is not None and inner.type == "assignment" and text_of(inner.child_by_field_name("left")) == target:
            return brief(inner.child_by_field_name("right"))
        previous = previous.prev_named_sibling
    return None


def _refilled(pyfile: PyFile, assignment: Node) -> str | None:
    """`x = environ.get("X")` and then `if x is None: x = d`."""
    target = text_of(assignment.child_by_field_name("left"))
    statement = pyfile.tree.parent(assignment)
    following = statement.next_named_sibling if statement is not None else None
    for _ in range(2):
        if following is None:
            return None
        if following.type == "if_statement" and _tests_missing(following, target):
            value = _value_for(following.child_by_field_name("consequence"), target)
            if value is None:
                value = _value_for(following.child_by_field_name("consequence"), "return")
            return value
        following = following.next_named_sibling
    return None


def _tests_missing(branch: Node, name: str) -> bool:
    condition = text_of(branch.child_by_field_name("condition"))
    quoted = re.escape(name)
    return bool(re.match(rf"^\(?(not\s+{quoted}|{quoted}\s+is\s+None|{quoted}\s*==\s*(\"\"|''|None))", condition))


def _tests_present(branch: Node, name: str) -> bool:
    condition = text_of(branch.child_by_field_name("condition"))
    quoted = re.escape(name)
    return bool(
        re.match(rf"^\(?{quoted}(\s+is\s+not\s+None|\s*!=\s*(\"\"|''))?\s*\)?(\s+and\b.*)?$", condition, re.DOTALL)
    )


def ends_block(block: Node | None) -> bool:
    """Whether a block always leaves (returns, raises, breaks)."""
    last = block.named_children[-1] if block is not None and block.named_children else None
    return last is not None and last.type in _LEAVES


def _path(pyfile: PyFile, node: Node) -> list[Node]:
    return [node, *islice(pyfile.tree.ancestors(node), _OUTWARDS)]


def is_fallback(pyfile: PyFile, first: Node, second: Node, tested: Iterator[Node] | list[Node]) -> bool:
    """Whether the code comes to `second` because `first` was missing.

    Args:
        pyfile: the file of both.
        first: a read of one variable; `second` one of another, further down.
        second: see `first`.
        tested: all reads of the first variable in this scope, for the tests that guard a branch.
    """
    outer = {node.id: place for place, node in enumerate(_path(pyfile, first))}
    below_second = second
    for ancestor in _path(pyfile, second):
        if ancestor.id in outer:
            path = _path(pyfile, first)
            below_first = path[max(outer[ancestor.id] - 1, 0)]
            return _related(pyfile, ancestor, below_first, below_second, first, list(tested))
        below_second = ancestor
    return False


def _related(pyfile: PyFile, common: Node, left: Node, right: Node, first: Node, tested: list[Node]) -> bool:
    if common.id == first.id or common.type == "argument_list":
        call = first if common.id == first.id else None
        return call is not None  # the second stands in the default argument of the first
    if common.type == "boolean_operator":
        is_or = text_of(common.child_by_field_name("operator")) == "or"
        return is_or and not _is_test(pyfile, common)
    if common.type == "conditional_expression":
        parts = [c.id for c in common.named_children]
        return len(parts) == 3 and right.id == parts[2]
    if common.type == "if_statement":
        return _branches(common, left, right, first, tested)
    if common.type == "try_statement":
        return left.type == "block" and right.type == "except_clause"
    if common.type in ("block", "module"):
        return _siblings(left, right, tested)
    return False


def _branches(common: Node, left: Node, right: Node, first: Node, tested: list[Node]) -> bool:
    holder = left if left.type == "elif_clause" else common
    condition = holder.child_by_field_name("condition")
    if not any(_inside(node, condition) for node in tested):
        return False
    taken = holder.child_by_field_name("consequence")
    if right.type in ("elif_clause", "else_clause") and not any(_inside(node, taken) for node in tested):
        return False  # two questions, one after the other: the first variable's value is not used
    if right.type in ("elif_clause", "else_clause"):
        return True
    consequence = common.child_by_field_name("consequence")
    negated = bool(re.search(r"\bnot\b|is None", text_of(condition)))
    return negated and consequence is not None and right.id == consequence.id and _inside(first, condition)


def _siblings(left: Node, right: Node, tested: list[Node]) -> bool:
    if left.type == "if_statement":
        condition = left.child_by_field_name("condition")
        guarded = any(_inside(node, condition) for node in tested)
        return guarded and ends_block(left.child_by_field_name("consequence"))
    inner = left.named_children[0] if left.type == "expression_statement" and left.named_children else None
    if inner is None or inner.type != "assignment":
        return False
    target = text_of(inner.child_by_field_name("left"))
    if right.type == "if_statement":
        return _tests_missing(right, target)
    between = left.next_named_sibling
    while between is not None and between.id != right.id and between.start_byte < right.start_byte:
        if between.type == "if_statement" and _tests_present(between, target):
            return ends_block(between.child_by_field_name("consequence"))
        between = between.next_named_sibling
    refill = right.named_children[0] if right.named_children else None
    if refill is not None and refill.type == "assignment":
        value = refill.child_by_field_name("right")
        return value is not None and bool(re.match(rf"{re.escape(target)}\s+or\b", text_of(value)))
    return False


def leaves_loop(pyfile: PyFile, node: Node) -> bool:
    """Whether the loop around a read stops at the first hit."""
    for parent in pyfile.tree.ancestors(node):
        if parent.type == "for_statement":
            body = parent.child_by_field_name("body")
            return body is not None and any(n.type in ("return_statement", "break_statement") for n in descend(body))
        if parent.type in ("generator_expression", "list_comprehension"):
            outer = pyfile.tree.parent(parent)
            call = outer if outer is not None and outer.type == "call" else None
            if outer is not None and outer.type == "argument_list":
                call = pyfile.tree.parent(outer)
            return call is not None and dotted(call.child_by_field_name("function")) == "next"
        if parent.type in ("function_definition", "lambda"):
            return False
    return False


def unfolded(pyfile: PyFile, node: Node | None, steps: int = 4) -> tuple[str, str]:
    """Source text of an expression and, where it is a local name, how that came about (`n = ...; m = ...`)."""
    if node is None:
        return "", ""
    notes: list[str] = []
    queue = [node]
    seen: set[str] = set()
    while queue and len(notes) < steps:
        current = queue.pop(0)
        for inner in descend(current):
            name = text_of(inner)
            if inner.type != "identifier" or name in seen:
                continue
            seen.add(name)
            scope: Scope = pyfile.scope(inner)
            if scope.function() is None and scope.kind == "module" and name.isupper():
                continue
            values = [d.node for d in pyfile.definitions(name, scope)[:20] if d.form == "assign" and d.node is not None]
            fresh = [v for v in values if not _inside(node, v) and v.type != "function_definition"][:2]
            if fresh:
                notes.append(f"{name} = {' or '.join(brief(v, 100) for v in fresh)}")
                queue.extend(fresh)
            if len(notes) >= steps:
                break
    return brief(node), "; ".join(notes)


def size_argument(call: Node, names: tuple[str, ...], place: int | None) -> Node | None:
    """Argument of a call by one of several keywords, or by its position."""
    positional, named = arguments_of(call)
    for name in names:
        if name in named:
            return named[name]
    return positional[place] if place is not None and place < len(positional) else None
