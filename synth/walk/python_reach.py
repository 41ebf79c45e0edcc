"""How far a setting reaches: this object, the calling thread, or the process."""

from __future__ import annotations

import re

from tree_sitter import Node

from synth.walk.index import Entity, PackageIndex
from synth.walk.python_facts import Facts
from synth.walk.python_scope import dotted
from synth.walk.syntax import descend, text_of

_LOCAL = re.compile(r"(^|\.)(local|ContextVar|_?thread_?local\w*)$", re.IGNORECASE)
_CALLS = 24  # calls of one function that are looked into
_DEPTH = 3
_BYTES = 40_000  # of a body that is searched


def locals_of(index: PackageIndex, facts: Facts) -> frozenset[str]:
    """Names in a module that hold a thread-local object or a context variable, imported ones included."""
    key = f"locals:{facts.module}"
    known = index.memo.get(key)
    if isinstance(known, frozenset):
        return known
    found = {name for name, maker in facts.instances.items() if _LOCAL.search(maker)}
    for name, (module, attribute) in facts.imports.items():
        other = index.modules.get(module)
        if attribute and other is not None and _LOCAL.search(other.instances.get(attribute, "")):
            found.add(name)
    # a subclass of `threading.local` that is instantiated here
    for name, maker in facts.instances.items():
        entity = index.resolve(facts.module, maker)
        if entity is not None and any(_LOCAL.search(base) for base in index.ancestry(*entity)):
            found.add(name)
    result = frozenset(found)
    index.memo[key] = result
    return result


def per_thread(index: PackageIndex, entity: Entity, depth: int = 0, seen: set[Entity] | None = None) -> bool:
    """Whether a function, or one that it calls, keeps its state in a thread-local object or context variable."""
    seen = set() if seen is None else seen
    facts = index.modules.get(entity[0])
    if facts is None or entity in seen or depth > _DEPTH or len(seen) > _CALLS:
        return False
    seen.add(entity)
    pyfile = index.opened(entity[0])
    node = pyfile.functions.get(entity[1]) if pyfile is not None else None
    if node is None or node.end_byte - node.start_byte > _BYTES:
        return False
    names = locals_of(index, facts)
    if names and _uses(node, names):
        return True
    function = facts.functions.get(entity[1])
    for called in sorted(function.calls)[:_CALLS] if function is not None else []:
        target = index.called(entity[0], entity[1], called)
        if target is None or target[0].partition(".")[0] != entity[0].partition(".")[0]:
            continue
        if index.is_class(target):
            for method in ("__init__", "__enter__"):
                made = index.resolve(target[0], f"{target[1]}.{method}")
                if made is not None and per_thread(index, made, depth + 1, seen):
                    return True
        elif per_thread(index, target, depth + 1, seen):
            return True
    return False


def _uses(node: Node, names: frozenset[str]) -> bool:
    for inner in descend(node):
        if inner.type == "attribute":
            owner = text_of(inner.child_by_field_name("object"))
            if owner in names:
                return True
        elif inner.type == "call" and dotted(inner.child_by_field_name("function")) in (
            "getattr",
            "setattr",
            "hasattr",
        ):
            arguments = inner.child_by_field_name("arguments")
            first = arguments.named_children[0] if arguments is not None and arguments.named_children else None
            if first is not None and text_of(first) in names:
                return True
    return False
