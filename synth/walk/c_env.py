"""Environment variables in C and C++."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from synth.records import Kind, Observation
from synth.walk.c_index import (
    GETTERS,
    CFile,
    CIndex,
    CWrapper,
    call_arguments,
    called,
    converter_in,
    function_name,
    last_name,
    parameter_names,
)
from synth.walk.syntax import brief, descend, text_of

See = Callable[..., Observation]
_NAME = re.compile(r"^[A-Za-z_*][A-Za-z0-9_*]*$")
_MANY = 50  # uses of one variable that are looked at
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


# functions and macros that read the variable named by their first argument, whatever their body is
_READER = re.compile(
    r"^(?:[a-zA-Z]{0,12}_?)(?:get|read|check|has|parse|load|lookup|from|is|fetch|init|query)_?\w{0,16}?env\w{0,32}$|"
    r"^env_?(?:var|bool|int|long|size|flag|str|string|float|double|or|get|value|is)\w{0,16}$|^\w{0,12}env_?(?:var|or_default|to_\w+)$",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$")


@dataclass(eq=False)
class _Read:
    node: Node
    names: list[str]
    value: str | None
    value_type: str | None
    variable: str
    detail: str = ""
    chain: str = ""
    order: int = 0


def walk_c_environment(file: CFile, index: CIndex, see: See) -> Iterator[Observation]:
    """Observations of reads and writes of environment variables in a file."""
    reads: list[_Read] = []
    for node in file.tree.nodes:
        if node.type != "call_expression":
            continue
        last = last_name(called(node))
        if last in GETTERS:
            read = _read(file, index, node)
            if read is not None:
                reads.append(read)
        elif last in index.wrappers:
            read = _wrapped(file, index, node, index.wrappers[last])
            if read is not None:
                reads.append(read)
        elif _READER.match(last):
            read = _by_name(file, index, node, last)
            if read is not None:
                reads.append(read)
        elif last in ("setenv", "putenv", "_putenv", "_putenv_s", "unsetenv", "SetEnvironmentVariableA"):
            yield from _written(file, index, node, last, see)
    _chain(file, reads)
    for read in reads:
        for name in read.names:
            seen = see(Kind.ENV_READ, name, read.node, value=read.value, value_type=read.value_type, detail=read.detail)
            yield seen.model_copy(update={"chain": read.chain, "order": read.order})


def _names(file: CFile, index: CIndex, node: Node | None, depth: int = 0) -> list[str]:
    """Names that an expression can be; `*` for an unknown part."""
    if node is None or depth > 4:
        return []
    text = text_of(node)
    if node.type in ("string_literal", "concatenated_string", "raw_string_literal"):
        return ["".join(_LITERAL.findall(text))]
    if node.type == "identifier":
        return _named(file, index, node, text, depth)
    if node.type in ("parenthesized_expression", "cast_expression") and node.named_children:
        return _names(file, index, node.named_children[-1], depth + 1)
    if node.type == "conditional_expression":
        parts = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
        return [name for part in parts for name in _names(file, index, part, depth + 1)]
    if node.type == "binary_expression" and "+" in text:
        sides = (node.child_by_field_name("left"), node.child_by_field_name("right"))
        left, right = (_names(file, index, side, depth + 1) or ["*"] for side in sides)
        return [re.sub(r"\*+", "*", a + b) for a in left for b in right][:50]
    if node.type == "call_expression":
        owner = node.child_by_field_name("function")
        if owner is not None and owner.type == "field_expression":
            return _names(file, index, owner.child_by_field_name("argument"), depth + 1)
        arguments = call_arguments(node)
        return _names(file, index, arguments[0], depth + 1) if len(arguments) == 1 else []
    return []


def _named(file: CFile, index: CIndex, node: Node, name: str, depth: int) -> list[str]:
    owner = file.function(node)
    if owner is not None:
        declared = _declarator(file, owner, name, node.start_byte)
        if declared is not None:
            return _names(file, index, declared.child_by_field_name("value"), depth + 1)
        if name in parameter_names(owner):
            return []
    constant = index.constants.get(name)
    text = constant.text if constant is not None else index.globals.get(name, "")
    found = _LITERAL.findall(text)
    return ["".join(found)] if found else []


def _declarator(file: CFile, owner: Node, name: str, before: int) -> Node | None:
    """The declaration of a local variable with a value, above a byte offset."""
    for use in file.named(owner, name)[:_MANY]:
        if use.start_byte >= before:
            return None
        for parent in file.tree.ancestors(use):
            if parent.type == "init_declarator" and function_name(parent) == name:
                return parent
            if parent.type not in ("pointer_declarator", "array_declarator", "reference_declarator"):
                break
    return None


def _usable(names: list[str]) -> list[str]:
    return [n for n in dict.fromkeys(names) if _NAME.match(n) and len(n.replace("*", "")) >= (3 if "*" in n else 1)]


def _read(file: CFile, index: CIndex, node: Node) -> _Read | None:
    arguments = call_arguments(node)
    names = _usable(_names(file, index, arguments[0] if arguments else None))
    if not names:
        return None
    variable = _assigned(file, node)
    value = _default(file, index, node, variable)
    return _Read(node, names, value, _type(file, node, variable), variable)


def _wrapped(file: CFile, index: CIndex, node: Node, wrapper: CWrapper) -> _Read | None:
    arguments = call_arguments(node)
    if wrapper.key >= len(arguments):
        return None
    names = _usable([wrapper.prefix + name for name in _names(file, index, arguments[wrapper.key])])
    if not names:
        return None
    given = wrapper.default if 0 <= wrapper.default < len(arguments) else -1
    if given < 0 and wrapper.default < 0 and len(arguments) == 2 and wrapper.key == 0:
        given = 1
    variable = _assigned(file, node)
    kind = wrapper.value_type or _template_type(node) or _type(file, node, variable)
    value = _unbraced(brief(arguments[given])) if given >= 0 else None
    if given < 0 and kind is None:  # a value that is already converted is never missing
        value = _default(file, index, node, variable)
    return _Read(node, names, value, kind, variable, f"through {wrapper.name}()")


def _by_name(file: CFile, index: CIndex, node: Node, last: str) -> _Read | None:
    """A call of what is named as a reader and whose body is elsewhere: the literal must look like a variable."""
    arguments = call_arguments(node)
    names = [n for n in _usable(_names(file, index, arguments[0] if arguments else None)) if _VARIABLE.match(n)]
    if not names or index.defined.get(last, 0) > 1:
        return None
    variable = _assigned(file, node)
    value = _unbraced(brief(arguments[1])) if len(arguments) == 2 and "=" not in text_of(arguments[1]) else None
    if value is not None and re.match(r"[&*]", value):
        value = None  # where the result goes
    kind = _template_type(node) or _type(file, node, variable)
    if kind is None:
        kind = next((k for word, k in _WORDS if word in last.lower()), None)
    return _Read(node, names, value, kind, variable, f"through {last}(), whose body is not in this release")


_WORDS = (
    ("bool", "bool"),
    ("flag", "bool"),
    ("int", "int"),
    ("size", "int"),
    ("long", "int"),
    ("float", "float"),
    ("check", "bool"),
)


def _unbraced(text: str) -> str | None:
    """`{-1}` -> `-1`, an empty `{}` -> nothing."""
    return (text[1:-1].strip() or None) if text.startswith("{") and text.endswith("}") else text


def _template_type(node: Node) -> str | None:
    match = re.search(r"<\s*([\w:]+)\s*>$", text_of(node.child_by_field_name("function")))
    if not match:
        return None
    return {"int": "int", "bool": "bool", "float": "float", "double": "float", "size_t": "int"}.get(
        match[1].rpartition("::")[2], "int" if "int" in match[1] else "str" if "string" in match[1] else None
    )


def _assigned(file: CFile, node: Node) -> str:
    """Variable that takes the value of an expression."""
    for parent in file.tree.ancestors(node):
        if parent.type == "init_declarator":
            return function_name(parent)
        if parent.type == "assignment_expression":
            return text_of(parent.child_by_field_name("left"))
        if parent.type not in ("parenthesized_expression", "cast_expression", "argument_list", "call_expression"):
            return ""
        if parent.type == "call_expression" and converter_in(text_of(parent.child_by_field_name("function"))):
            continue
        if parent.type == "call_expression" and last_name(called(parent)) not in ("string", "std::string"):
            return ""
    return ""


def _uses(file: CFile, node: Node, variable: str) -> Iterator[Node]:
    owner = file.function(node)
    if owner is None or not variable:
        return
    for place, inner in enumerate(file.named(owner, variable)):
        if inner.start_byte > node.end_byte:
            yield inner
        if place > _MANY:
            return


def _type(file: CFile, node: Node, variable: str) -> str | None:
    for parent in file.tree.ancestors(node):
        if parent.type == "call_expression":
            found = converter_in(brief(parent, 400))
            if found:
                return found
        elif parent.type not in ("argument_list", "parenthesized_expression", "cast_expression"):
            break
    for place, use in enumerate(_uses(file, node, variable)):
        if place > 8:
            break
        for parent in file.tree.ancestors(use):
            if parent.type == "call_expression":
                found = converter_in(brief(parent, 400))
                if found:
                    return found
            if parent.type in ("expression_statement", "compound_statement", "declaration"):
                break
    return None


def _default(file: CFile, index: CIndex, node: Node, variable: str) -> str | None:
    """What stands in when the variable is not set."""
    for parent in file.tree.ancestors(node):
        if parent.type == "conditional_expression":
            return _other(parent, node)
        if parent.type in ("compound_statement", "function_definition"):
            break
    for use in _uses(file, node, variable):
        for parent in file.tree.ancestors(use):
            if parent.type == "conditional_expression":
                condition = parent.child_by_field_name("condition")
                if condition is not None and _inside(use, condition):
                    return _other(parent, parent.child_by_field_name("consequence") or use)
            if parent.type == "if_statement":
                condition = parent.child_by_field_name("condition")
                if condition is not None and _inside(use, condition):
                    return _branch_default(file, index, node, parent)
            if parent.type == "function_definition":
                break
    return None


def _inside(node: Node, outer: Node) -> bool:
    return outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def _other(conditional: Node, node: Node) -> str | None:
    alternative = conditional.child_by_field_name("alternative")
    consequence = conditional.child_by_field_name("consequence")
    if alternative is not None and _inside(node, alternative):
        return brief(consequence)
    return brief(alternative) if alternative is not None else None


def _branch_default(file: CFile, index: CIndex, node: Node, branch: Node) -> str | None:
    """`if (s) x = atoi(s); else x = d;`, or the value that `x` had before."""
    condition = text_of(branch.child_by_field_name("condition"))
    negated = bool(re.search(r"!\s*\w|==\s*(NULL|nullptr|0)", condition)) and "!=" not in condition
    used, other = branch.child_by_field_name("consequence"), branch.child_by_field_name("alternative")
    if negated:
        used, other = other, used
    if other is not None:
        values = [n for n in descend(other) if n.type == "assignment_expression"]
        if values:
            return brief(values[0].child_by_field_name("right"))
        returned = next((n for n in descend(other) if n.type == "return_statement"), None)
        if returned is not None:
            return brief(returned.named_children[0]) if returned.named_children else None
    target = next((n for n in descend(used) if n.type == "assignment_expression"), None) if used is not None else None
    if target is None:
        return None
    name = text_of(target.child_by_field_name("left"))
    owner = file.function(node)
    declared = _declarator(file, owner, name, target.start_byte) if owner is not None else None
    if declared is not None:
        return brief(declared.child_by_field_name("value"))
    return index.globals.get(name)


def _chain(file: CFile, reads: list[_Read]) -> None:
    """`s = getenv("A"); if (!s) s = getenv("B");` and defaults that read another variable."""
    members: list[_Read] = []
    for place, read in enumerate(reads):
        for earlier in reversed(reads[max(0, place - 4) : place]):
            owner = file.function(read.node)
            if owner is None or (
                owner is not file.function(earlier.node) and owner.id != _id(file.function(earlier.node))
            ):
                continue
            if _follows(file, earlier, read):
                if not earlier.chain:
                    text = f"{function_name(owner)}|{earlier.names[0]}|{read.names[0]}|{owner.start_byte}"
                    earlier.chain = "c" + hashlib.sha256(text.encode()).hexdigest()[:8]
                    members.append(earlier)
                read.chain, read.order = earlier.chain, earlier.order + 1
                break


def _id(node: Node | None) -> int:
    return node.id if node is not None else -1


def _follows(file: CFile, first: _Read, second: _Read) -> bool:
    if set(first.names) & set(second.names):
        return False
    if _inside(second.node, first.node):
        return True
    for parent in file.tree.ancestors(second.node):
        if parent.type == "conditional_expression" and _inside(first.node, parent):
            return True
        if parent.type == "if_statement" and first.variable:
            condition = text_of(parent.child_by_field_name("condition"))
            variable = re.escape(first.variable)
            missing = re.search(
                rf"!\s*{variable}\b|\b{variable}\s*==\s*(NULL|nullptr|0)|\b{variable}\.empty\(\)", condition
            )
            consequence = parent.child_by_field_name("consequence")
            if missing and consequence is not None and _inside(second.node, consequence):
                return True
            alternative = parent.child_by_field_name("alternative")
            if (
                re.search(rf"\b{variable}\b", condition)
                and alternative is not None
                and _inside(second.node, alternative)
            ):
                return not missing
        if parent.type == "function_definition":
            return False
    return False


def _written(file: CFile, index: CIndex, node: Node, last: str, see: See) -> Iterator[Observation]:
    arguments = call_arguments(node)
    if not arguments:
        return
    names = _names(file, index, arguments[0])
    value = brief(arguments[1]) if len(arguments) > 1 else None
    if last in ("putenv", "_putenv") and names:
        names = [name.partition("=")[0] for name in names]
        value = text_of(arguments[0]).strip('"').partition("=")[2] or None
    keeps = last == "setenv" and len(arguments) > 2 and text_of(arguments[2]) in ("0", "false", "FALSE")
    for name in _usable(names):
        detail = "removed" if last == "unsetenv" else ""
        yield see(Kind.ENV_WRITE, name, node, value=value, target="process", unless_set=keeps, detail=detail)
