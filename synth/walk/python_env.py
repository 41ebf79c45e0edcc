"""Environment variables in Python: reads with their defaults, types and fallback chains, and writes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from tree_sitter import Node

from synth.records import Kind, Observation, When
from synth.walk.index import PackageIndex
from synth.walk.python_defaults import within, worked_out
from synth.walk.python_environ import Access, accesses, arguments_of, unset_guard
from synth.walk.python_flow import (
    cited_lines,
    default_of,
    goes_to,
    is_emptiness_test,
    is_fallback,
    leaves_loop,
    parsed_type,
    type_word,
    unfolded,
)
from synth.walk.python_scope import PyFile, Scope, dotted
from synth.walk.python_values import Choice, Value, strings
from synth.walk.python_wrappers import Wrapper, argument, text_default
from synth.walk.syntax import Cited, brief, descend, text_of

_NAME = re.compile(r"^[A-Za-z_*][A-Za-z0-9_*]*$")
_UPPER = re.compile(r"^[A-Z_*][A-Z0-9_*]{2,}$")
# a web server's request has an `environ` as well
_REQUEST = re.compile(
    r"^(HTTP_|REQUEST_|SERVER_(NAME|PORT|PROTOCOL|SOFTWARE)|REMOTE_|CONTENT_(TYPE|LENGTH)|PATH_INFO|QUERY_STRING|SCRIPT_NAME)"
)
_DEFAULT_PARAMETER = re.compile(r"default|fallback|dflt|otherwise", re.IGNORECASE)
_WINDOW = 20  # reads around one that may test the same variable
_LOOK_BACK = 6  # earlier reads of the scope that one read can be a fallback of
_SERVED = 50  # reads of one variable that are looked at for one write
_LONGEST_DEFAULT = 120  # characters
_READING = frozenset({"get", "subscript", "in", "pop", "each"})


@dataclass(eq=False)
class Read:
    """One place that reads one or several variables."""

    node: Node
    names: list[str]
    form: str
    scope: Scope
    key: str
    when: When
    default: str | None = None
    value_type: str | None = None
    detail: str = ""
    chain: str = ""
    order: int = 0
    in_order: bool = False
    feeds: str = ""


@dataclass(eq=False)
class Write:
    """One place that sets variables."""

    access: Access
    names: list[str]
    scope: Scope
    unless_set: bool
    passed: list[Read] = field(default_factory=list)


@dataclass
class FileWalk:
    """What the walkers of one Python file share."""

    pyfile: PyFile
    cited: Cited
    index: PackageIndex

    def when(self, node: Node) -> When:
        """When the code at a node runs."""
        return self.index.when(self.pyfile.module, self.pyfile.scope(node), node.start_byte)

    def function(self, node: Node) -> str:
        """Qualified name of the function or class around a node."""
        for scope in self.pyfile.scope(node).outwards():
            if scope.kind != "lambda":
                return scope.qualname
        return ""


def usable(value: Value) -> list[str]:
    """Variable names that an expression can be: identifiers, with `*` for unknown parts."""
    found = []
    for text in strings(value):
        known = len(text.replace("*", ""))
        if _NAME.match(text) and not _REQUEST.match(text) and known >= (3 if "*" in text else 1) and len(text) <= 120:
            found.append(text)
    return found


def walk_environment(walk: FileWalk) -> list[Observation]:
    """Observations of all reads and writes of environment variables in a file."""
    reads: list[Read] = []
    writes: list[Write] = []
    for access in accesses(walk.pyfile):
        _sort(walk, access, reads, writes)
    reads.extend(_wrapped(walk))
    reads.sort(key=lambda read: read.node.start_byte)
    dropped = _passed_on(walk, reads, writes)
    reads = [read for read in reads if id(read) not in dropped]
    _find_chains(walk, reads)
    observations = [o for read in _merged(reads) for o in _report_read(walk, read)]
    return observations + [o for write in writes for o in _report_write(walk, write)]


def _sort(walk: FileWalk, access: Access, reads: list[Read], writes: list[Write]) -> None:
    pyfile = walk.pyfile
    scope = pyfile.scope(access.node)
    if access.form in _READING or (access.form == "setdefault" and _result_used(pyfile, access.node)):
        read = _read(walk, access, scope)
        if read.names:
            reads.append(read)
    if access.form in ("set", "setdefault", "update", "del") or (
        access.form == "pop" and not _result_used(pyfile, access.node)
    ):
        names = _written_names(walk, access)
        if names:
            guarded = access.form == "setdefault" or unset_guard(pyfile, access)
            writes.append(Write(access, names, scope, guarded))


def _result_used(pyfile: PyFile, node: Node) -> bool:
    parent = pyfile.tree.parent(node)
    return parent is not None and parent.type != "expression_statement"


def _read(walk: FileWalk, access: Access, scope: Scope) -> Read:
    pyfile = walk.pyfile
    value = pyfile.value(access.key)
    names = usable(value)
    read = Read(access.node, names, access.form, scope, text_of(access.key), walk.when(access.node))
    if access.form == "each":
        read.names = [f"{name}*" for name in names]
        read.detail = "every variable with this prefix"
        return read
    if access.form == "pop" and not _result_used(pyfile, access.node):
        read.names = []
    if access.form != "in":
        given = brief(access.default) if access.default is not None else None
        read.default = given if given not in (None, "None") else default_of(pyfile, access.node)
        read.default = worked_out(pyfile, access.node, read.default)
        read.value_type = parsed_type(pyfile, access.node) or _literal_type(read.default)
        if is_emptiness_test(pyfile, access.node) and read.default is None:
            read.form = "in"
    read.feeds = goes_to(pyfile, access.node)
    if access.key is not None and access.key.type != "string":
        read.detail = f"name from `{brief(access.key, 80)}`"
    read.in_order = isinstance(value, Choice) and len(names) > 1 and leaves_loop(pyfile, access.node)
    return read


def _literal_type(default: str | None) -> str | None:
    if default in ("True", "False"):
        return "bool"
    return None


# wrappers


def _wrapped(walk: FileWalk) -> list[Read]:
    """Calls of functions that read a variable whose name they are given."""
    pyfile, index = walk.pyfile, walk.index
    names = index.wrapper_names()
    names |= {alias for alias, (_, attribute) in pyfile.imports.items() if attribute in names}
    found: list[Read] = []
    if not names:
        return found
    for node in pyfile.tree.nodes:
        if node.type != "call":
            continue
        called = dotted(node.child_by_field_name("function"))
        if called.rpartition(".")[2] not in names:
            continue
        wrapper = index.wrapper_at(pyfile, node)
        if wrapper is not None:
            read = _wrapper_read(walk, node, wrapper)
            if read.names:
                found.append(read)
    return found


def _bindings(pyfile: PyFile, call: Node, wrapper: Wrapper, outer: dict[str, Value]) -> dict[str, Value]:
    given: dict[str, Value] = {}
    for name, _ in wrapper.parameters:
        node = argument(call, name, wrapper.parameters)
        if node is not None:
            given[name] = pyfile.value(node, outer)
    return given


def _wrapper_read(walk: FileWalk, call: Node, wrapper: Wrapper) -> Read:
    pyfile = walk.pyfile
    key = argument(call, wrapper.key, wrapper.parameters)
    names = _names_through(wrapper, _bindings(pyfile, call, wrapper, {})) if key is not None else []
    read = Read(call, names, "get", pyfile.scope(call), text_of(key), walk.when(call))
    if wrapper.deferred and read.when is When.IMPORT:
        read.when = When.CALL
    read.default = worked_out(pyfile, call, _wrapper_default(call, wrapper) or default_of(pyfile, call))
    read.value_type = parsed_type(pyfile, call) or _wrapper_type(call, wrapper) or _literal_type(read.default)
    read.detail = f"through {wrapper.entity[1]}()"
    read.feeds = goes_to(pyfile, call)
    return read


def _names_through(wrapper: Wrapper, bindings: dict[str, Value]) -> list[str]:
    for _ in range(4):
        if wrapper.inner is None:
            break
        inner = _bindings(wrapper.pyfile, wrapper.access.node, wrapper.inner, bindings)
        wrapper, bindings = wrapper.inner, inner
    return usable(wrapper.pyfile.value(wrapper.access.key, bindings))


def _wrapper_default(call: Node, wrapper: Wrapper) -> str | None:
    given = wrapper.access.default
    named = text_of(given) if given is not None and given.type == "identifier" else ""
    parameters = dict(wrapper.parameters)
    if named not in parameters:
        named = next((name for name in parameters if _DEFAULT_PARAMETER.search(name) and name != wrapper.key), "")
    if named:
        node = argument(call, named, wrapper.parameters)
        found = brief(node) if node is not None else text_default(wrapper.parameters, named)
        return None if found == "None" else found
    if given is not None:
        return brief(given)
    return default_of(wrapper.pyfile, wrapper.access.node)


def _wrapper_type(call: Node, wrapper: Wrapper) -> str | None:
    parameters = {name for name, _ in wrapper.parameters}
    for node in descend(wrapper.scope.node):
        if node.type == "call":
            function = node.child_by_field_name("function")
            name = text_of(function)
            if function is not None and function.type == "identifier" and name in parameters and name != wrapper.key:
                given = argument(call, name, wrapper.parameters)
                converter = brief(given) if given is not None else text_default(wrapper.parameters, name)
                kind = type_word(converter) if converter else None
                if kind:
                    return kind
    shown = parsed_type(wrapper.pyfile, wrapper.access.node)
    if shown:
        return shown
    annotation = text_of(wrapper.scope.node.child_by_field_name("return_type"))
    found = type_word(re.split(r"[\s|\[]", annotation)[0]) if annotation else None
    if found is None:
        found = type_word(wrapper.entity[1])
    return type_word(wrapper.inner.entity[1]) if found is None and wrapper.inner is not None else found


# writes


def _written_names(walk: FileWalk, access: Access) -> list[str]:
    value = walk.pyfile.value(access.key)
    if access.form == "update":
        keys = [key for key in value if isinstance(key, str)] if isinstance(value, dict) else []
        return [key for key in keys if _UPPER.match(key)]
    if access.key is not None and access.node.type == "keyword_argument":
        return [text_of(access.key)]
    names = usable(value)
    if access.where == "live":
        return names
    return [name for name in names if _UPPER.match(name) and "*" not in name]


def _passed_on(walk: FileWalk, reads: list[Read], writes: list[Write]) -> set[int]:
    """Reads that only serve a write of the same variable: they make it conditional, they are no use of it."""
    dropped: set[int] = set()
    by_name: dict[str, list[Read]] = {}
    for read in reads:
        for name in read.names:
            by_name.setdefault(name, []).append(read)
    for write in writes:
        served = {id(read): read for name in write.names for read in by_name.get(name, [])}
        for read in list(served.values())[:_SERVED]:
            same = read.scope.function() is write.scope.function() or read.scope is write.scope
            if same and _feeds(walk.pyfile, read, write):
                dropped.add(id(read))
                write.passed.append(read)
                write.unless_set = True
    return dropped


def _feeds(pyfile: PyFile, read: Read, write: Write) -> bool:
    value = write.access.default
    if value is not None:
        start, end = value.start_byte, value.end_byte
        if start <= read.node.start_byte and read.node.end_byte <= end:
            return True
        for inner in descend(value):
            if inner.type != "identifier":
                continue
            for definition in pyfile.definitions(text_of(inner), pyfile.scope(inner)):
                node = definition.node
                if node is not None and node.start_byte <= read.node.start_byte and read.node.end_byte <= node.end_byte:
                    return True
    for parent in pyfile.tree.ancestors(write.access.node):
        if parent.type in ("if_statement", "elif_clause"):
            condition = parent.child_by_field_name("condition")
            if condition is not None and within(read.node, condition):
                return read.form == "in" or "not " in text_of(condition) or "None" in text_of(condition)
        if parent.type == "conditional_expression" and within(read.node, parent):
            return True
        if parent.type in ("function_definition", "module"):
            break
    return False


def _report_write(walk: FileWalk, write: Write) -> list[Observation]:
    access = write.access
    value, notes = _written_value(walk, write)
    if access.form in ("del", "pop"):
        notes = "removed"
    observations = []
    for name in write.names:
        if access.form == "update":
            table = walk.pyfile.value(access.key)
            entry = table.get(name) if isinstance(table, dict) else None
            value = str(entry) if isinstance(entry, (str, int, float)) else None
        observations.append(
            walk.cited.observe(
                Kind.ENV_WRITE,
                name,
                cited_lines(walk.pyfile, access.node),
                function=walk.function(access.node),
                when=walk.when(access.node),
                value=value,
                target="process" if access.where == "live" else "child",
                unless_set=write.unless_set,
                detail=notes,
            )
        )
    return observations


def _written_value(walk: FileWalk, write: Write) -> tuple[str | None, str]:
    """The value written, with a read of the variable itself replaced by what stands in for it."""
    node = write.access.default
    if node is None or write.access.form in ("update", "del", "pop"):
        return None, ""
    for _ in range(2):
        if node.type == "call" and dotted(node.child_by_field_name("function")) in ("str", "repr", "int"):
            positional, _named = arguments_of(node)
            node = positional[0] if positional else node
    defaults = [read for read in write.passed if read.default is not None]
    _, notes = unfolded(walk.pyfile, node)
    value = brief(node)
    if defaults and node.type in ("identifier", "call", "boolean_operator"):
        value = defaults[0].default or value
        known = re.search(rf"\b{re.escape(value)} = ([^;]+)", notes) if value.isidentifier() else None
        value = known[1] if known else value
    elif node.type == "identifier":
        known = re.search(rf"\b{re.escape(value)} = ([^;]+)", notes)
        value = known[1] if known else value
    return value, notes


# chains


def _find_chains(walk: FileWalk, reads: list[Read]) -> None:
    by_scope: dict[int, list[Read]] = {}
    for read in reads:
        by_scope.setdefault(id(read.scope), []).append(read)
    for group in by_scope.values():
        links: dict[int, Read] = {}
        for place, read in enumerate(group):
            for earlier in reversed(group[max(0, place - _LOOK_BACK) : place]):
                if set(earlier.names) & set(read.names) or not earlier.names or earlier.form == "each":
                    continue
                window = group[max(0, place - _WINDOW) : place + _WINDOW]
                tested = [r.node for r in window if set(r.names) & set(earlier.names)]
                if is_fallback(walk.pyfile, earlier.node, read.node, tested):
                    links[id(read)] = earlier
                    break
        _name_chains(walk, group, links)
        for read in group:
            if read.in_order:
                read.chain = _chain_id(walk, read.scope, read.names)


def _name_chains(walk: FileWalk, group: list[Read], links: dict[int, Read]) -> None:
    roots: dict[int, list[Read]] = {}
    for read in group:
        root = read
        while id(root) in links:
            root = links[id(root)]
        roots.setdefault(id(root), []).append(read)
    for members in roots.values():
        names = list(dict.fromkeys(name for read in members for name in read.names))
        if len(members) < 2 or len(names) < 2:
            continue
        chain = _chain_id(walk, members[0].scope, names)
        for read in members:
            read.chain, read.order = chain, names.index(read.names[0])
        # tests of the same variable in the same branches belong to the chain as well
        for read in group:
            if not read.chain and read.form == "in" and read.names[0] in names and _near(read, members):
                read.chain, read.order = chain, names.index(read.names[0])


def _near(read: Read, members: list[Read]) -> bool:
    first = min(member.node.start_byte for member in members)
    last = max(member.node.end_byte for member in members)
    return first <= read.node.start_byte <= last


def _chain_id(walk: FileWalk, scope: Scope, names: list[str]) -> str:
    text = "|".join([walk.cited.file, scope.qualname, *names])
    return "c" + hashlib.sha256(text.encode()).hexdigest()[:8]


def _merged(reads: list[Read]) -> list[Read]:
    """One read per variable and chain in a scope: a test and the use that it guards are one."""
    kept: list[Read] = []
    groups: dict[tuple[int, str, tuple[str, ...]], Read] = {}
    for read in reads:
        key = (id(read.scope), read.chain, tuple(read.names))
        known = groups.get(key)
        if known is None:
            groups[key] = read
            kept.append(read)
        elif _worth(read) > _worth(known):
            kept[kept.index(known)] = read
            groups[key] = read
    chained = {(id(read.scope), name) for read in kept if read.chain for name in read.names}
    return [
        read
        for read in kept
        if read.chain or read.form != "in" or not all((id(read.scope), name) in chained for name in read.names)
    ]


def _worth(read: Read) -> tuple[bool, bool, bool]:
    return read.value_type is not None, read.default is not None, read.form != "in"


def _report_read(walk: FileWalk, read: Read) -> list[Observation]:
    observations = []
    for place, name in enumerate(read.names):
        detail = read.detail
        if read.form == "in":
            detail = "; ".join(part for part in (detail, "only whether it is set") if part)
        seen = walk.cited.observe(
            Kind.ENV_READ,
            name,
            cited_lines(walk.pyfile, read.node),
            function=walk.function(read.node),
            when=read.when,
            value=read.default,
            value_type=read.value_type,
            detail=detail,
        )
        order = place if read.in_order else read.order
        observations.append(seen.model_copy(update={"chain": read.chain, "order": order, "feeds": read.feeds}))
    return observations
