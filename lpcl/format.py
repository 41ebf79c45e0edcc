"""The canonical form of a contract.

Properties come in a fixed order, clauses keep theirs, comments stay with the clause or property that they stand
before or behind. `format_text` proves its result before it returns it: it parses to an equal file, and formatting
it again changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from lark import Token, Tree

from lpcl import model as m
from lpcl.diagnostics import Diagnostic, LpcError
from lpcl.parse import MAX_BYTES, parse_tree
from lpcl.parse import comments as comments_of

_PRECEDENCE = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "neg": 7}
_COMPARE = 4
_ATOM = 8
_HEAD = ("package", "native", "summary", "uses", "carries")


class FormatError(LpcError, RuntimeError):
    """The formatter could not prove its own output: a bug of ours, the text is left alone."""


# ---------------------------------------------------------------- expressions


def expression(e: m.Expr) -> str:
    """An expression with as few parentheses as its meaning allows."""
    return _expression(e)[0]


def _expression(e: m.Expr) -> tuple[str, int]:
    match e:
        case m.Number():
            return number(e), _ATOM
        case m.Text():
            return quote(e.value), _ATOM
        case m.Truth():
            return ("true" if e.value else "false"), _ATOM
        case m.Unknown():
            return "unknown", _ATOM
        case m.Ref():
            return e.name, _ATOM
        case m.Apply():
            return f"{e.function}({', '.join(expression(a) for a in e.arguments)})", _ATOM
        case m.Conditional():
            return f"if {expression(e.condition)} then {expression(e.yes)} else {expression(e.no)}", 0
        case m.Operation():
            return _operation(e)


def _operation(e: m.Operation) -> tuple[str, int]:
    level = _PRECEDENCE.get(e.operator, _COMPARE)
    if len(e.operands) == 1:
        word = "-" if e.operator == "neg" else "not "
        return word + _inside(e.operands[0], level), level
    left, right = e.operands
    # Comparisons do not chain; the other operators associate to the left.
    low = level + 1 if level == _COMPARE else level
    return f"{_inside(left, low)} {e.operator} {_inside(right, level + 1)}", level


def _inside(e: m.Expr, level: int) -> str:
    text, own = _expression(e)
    return text if own >= level else f"({text})"


def number(n: m.Number) -> str:
    """`0.2s`, `4GiB`, `16`; never an exponent, which the grammar does not know."""
    value = format(Decimal(repr(n.value)), "f") if isinstance(n.value, float) else str(n.value)
    if isinstance(n.value, float) and "." not in value:
        value += ".0"
    return value + n.unit


def quote(text: str) -> str:
    """A string literal."""
    body = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{body}"'


# ------------------------------------------------------------------ properties


def _refs(refs: tuple[m.Ref, ...]) -> str:
    return ", ".join(r.name for r in refs)


def _if(condition: m.Expr | None) -> str:
    return "" if condition is None else f" if {expression(condition)}"


def _way(way: m.Way) -> str:
    versions = "" if way.versions is None else f" versions {quote(way.versions)}"
    tail = versions + _if(way.condition)
    tail += "" if way.taken is None else f" as {expression(way.taken)}"
    tail += "" if way.lasts is None else f" lasts {way.lasts}"
    tail += "" if way.deprecated is None else f" deprecated {quote(way.deprecated)}"
    if way.kind in {"env", "config"}:
        return f"{way.kind} {quote(way.name)} read {way.binding}{tail}"
    arguments = ", ".join(way.parameters)
    return f"{way.kind} {way.name}({arguments}) at {way.binding}{tail}"


def _range(r: m.Range) -> str:
    step = "" if r.step is None else f" step {expression(r.step)}"
    return f"{expression(r.low)} to {expression(r.high)}{step}" + (f" {r.scale}" if r.scale else "")


def _idle(i: m.Idle) -> str:
    return i.mode + ("" if i.duration is None else f"({expression(i.duration)})") + _if(i.condition)


def _forbids(f: m.Forbids) -> str:
    after = "" if f.after is None else f" after {f.after.name}"
    unless = "" if f.unless is None else f" unless {expression(f.unless)}"
    return f.event + after + unless


def _read(r: m.Read) -> tuple[str, str]:
    if r.kind == "call":
        return "read_call", f"read call {r.target[0]}()"
    if r.kind == "attribute":
        return "read_attribute", f"read attribute {r.target[0]}"
    if r.kind == "native":
        return "read_native", "read native " + ", ".join(quote(t) for t in r.target)
    if r.kind == "log":
        return "read_log", f"read log {quote(r.target[0])}"
    tail = "" if r.field is None else f" field {quote(r.field)}"
    return "read_file", f"read file {quote(r.target[0])}{tail}"


def type_text(t: m.Type) -> str:
    """`int`, `choice("a", "b")`, `list(int)`."""
    if t.name == "choice":
        return f"choice({', '.join(quote(c) for c in t.choices)})"
    if t.name == "placement" and t.resource is not None:
        return f"placement({t.resource.name})"
    if t.element is None:
        return t.name
    length = f", {t.least} to {t.greatest}" if t.name == "sequence" else ""
    return f"{t.name}({type_text(t.element)}{length})"


def _properties(c: m.Clause) -> Iterator[tuple[str, str]]:
    """(grammar rule, line) of each property in canonical order."""
    match c:
        case m.Demand():
            yield from _demand(c)
        case m.Assumption():
            yield from _assumption(c)
        case m.Control():
            yield from _control(c)
        case m.Signal():
            yield from _signal(c)
        case m.Mitigation():
            yield from _mitigation(c)
    if c.condition is not None:
        yield "condition", f"when {expression(c.condition)}"
    for note in c.notes:
        yield "note", f"note {quote(note)}"
    if c.evidence:
        yield "evidence", "evidence " + ", ".join(c.evidence)


def _simple(c: m.Clause, *keys: str) -> Iterator[tuple[str, str]]:
    """Properties whose line is their name and one value: a word, an expression, or names."""
    for key in keys:
        value = getattr(c, key)
        if value in (None, (), ""):
            continue
        if isinstance(value, tuple):
            yield key, f"{key} {_refs(value)}"
        else:
            yield key, f"{key} {value if isinstance(value, str) else expression(value)}"


def _demand(d: m.Demand) -> Iterator[tuple[str, str]]:
    yield from _simple(d, "amount", "created", "scope")
    for idle in d.idle:
        yield "idle", f"idle {_idle(idle)}"
    yield from _simple(d, "work", "runs", "fork", "runtime", "inside", "pinned")


def _assumption(a: m.Assumption) -> Iterator[tuple[str, str]]:
    for s in a.sizes:
        yield "sizes", f"sizes {s.resource.name} from {_refs(s.facts)}"
    yield from _simple(a, "ignores")
    for r in a.requires:
        yield "requires", f"requires {expression(r)}"
    for f in a.forbids:
        yield "forbids", f"forbids {_forbids(f)}"
    yield from _simple(a, "consequence")
    for text in a.remedies:
        yield "remedy", f"remedy {quote(text)}"


def _control(c: m.Control) -> Iterator[tuple[str, str]]:
    if c.range is not None:
        yield "range", f"range {_range(c.range)}"
    yield from _simple(c, "default")
    for way in c.ways:
        yield way.kind, _way(way)
    yield from _simple(c, "combine", "effective")
    for s in c.specials:
        meaning = s.action if s.meaning is None else f"means {expression(s.meaning)}"
        yield "special", f"special {expression(s.value)} {meaning}"
    yield from _simple(c, "malformed")
    if c.levels is not None:
        yield "levels", f"levels {quote(c.levels)}"
    yield from _simple(c, "effect")
    if c.inherited:
        yield "inherited", "inherited by " + ", ".join(c.inherited)
    yield from _simple(c, "per", "bounds", "affects", "switch")
    for r in c.requires:
        yield "requires", f"requires {expression(r)}"


def _signal(s: m.Signal) -> Iterator[tuple[str, str]]:
    if s.read is not None:
        yield _read(s.read)
    yield from _simple(s, "observes", "unit")
    if s.valid_after:
        yield "valid", f"valid after {s.valid_after}"
    if s.unreliable is not None:
        yield "unreliable", f"unreliable {quote(s.unreliable)}"


def _mitigation(c: m.Mitigation) -> Iterator[tuple[str, str]]:
    if c.env:
        yield "sets_env", "sets env " + ", ".join(quote(v) for v in c.env)
    yield from _simple(c, "limits")
    if c.value is not None:
        yield "to", f"to {expression(c.value)}"
    if c.target:
        yield "in", f"in {c.target}" + ("" if c.pool is None else f" of {c.pool.name}")
    if c.unless_set:
        yield "unless_set", "unless_set"
    yield from _simple(c, "lasts")


def _title(c: m.Clause) -> str:
    match c:
        case m.Demand():
            return f"demand {c.name}: {c.resource.name}"
        case m.Control():
            return f"control {c.name}: {type_text(c.type)}"
        case m.Signal():
            return f"signal {c.name}: {c.kind}"
        case _:
            return m.clause_label(c)


# --------------------------------------------------------------------- layout

Path = tuple[Any, ...]


@dataclass
class _Attached:
    """Comments by the element they belong to."""

    before: dict[Path, list[str]] = field(default_factory=lambda: defaultdict(list))
    behind: dict[Path, list[str]] = field(default_factory=lambda: defaultdict(list))

    def line(self, path: Path, indent: str, text: str) -> Iterator[str]:
        for comment in self.before.get(path, ()):
            yield indent + comment
        tail = self.behind.get(path, ())
        yield indent + text + ("  " + " ".join(tail) if tail else "")

    def rest(self, path: Path, indent: str) -> Iterator[str]:
        for comment in self.before.get(path, ()):
            yield indent + comment


def contract_text(contract: m.Contract) -> str:
    """One contract in canonical form, without the language header."""
    return "\n".join(_contract(0, contract, _Attached())) + "\n"


def clause_text(clause: m.Clause) -> str:
    """The clause alone, in canonical form."""
    lines = contract_text(m.Contract("x", clauses=(clause,))).split("\n")[1:-2]
    return "\n".join(line[2:] for line in lines)


def file_text(file: m.File) -> str:
    """A file that was built rather than read, in canonical form: it has no comments."""
    return _file(file, _Attached())


def _file(file: m.File, attached: _Attached) -> str:
    lines = list(attached.line(("header",), "", f"lpcl {file.version}"))
    for i, contract in enumerate(file.contracts):
        lines.append("")
        lines += _contract(i, contract, attached)
    lines += attached.rest(("end",), "")
    return "\n".join(lines) + "\n"


def _contract(i: int, c: m.Contract, attached: _Attached) -> Iterator[str]:
    yield from attached.line((i,), "", f"contract {c.name} {{")
    for n, p in enumerate(c.packages):
        versions = "" if p.versions is None else f" versions {quote(p.versions)}"
        yield from attached.line((i, "package", n), "  ", f"package {quote(p.name)}{versions}")
    for n, native in enumerate(c.natives):
        yield from attached.line((i, "native", n), "  ", "native " + ", ".join(map(quote, native.patterns)))
    if c.summary is not None:
        yield from attached.line((i, "summary", 0), "  ", f"summary {quote(c.summary)}")
    if c.uses:
        yield from attached.line((i, "uses", 0), "  ", f"uses {', '.join(c.uses)}")
    for n, copy in enumerate(c.carries):
        pattern = "" if copy.pattern is None else f" {quote(copy.pattern)}"
        yield from attached.line((i, "carries", n), "  ", f"carries {copy.name}{pattern}")
    head = bool(c.packages or c.natives or c.summary is not None or c.uses or c.carries)
    for j, clause in enumerate(c.clauses):
        if head or j:
            yield ""
        path = (i, "clause", j)
        yield from attached.line(path, "  ", f"{_title(clause)} {{")
        seen: dict[str, int] = defaultdict(int)
        for key, text in _properties(clause):
            yield from attached.line((*path, key, seen[key]), "    ", text)
            seen[key] += 1
        yield from attached.rest((*path, "end"), "    ")
        yield from attached.line((*path, "close"), "  ", "}")
    yield from attached.rest((i, "end"), "  ")
    yield from attached.line((i, "close"), "", "}")


# ------------------------------------------------------------------- comments

_MERGED = {"uses", "ignores", "bounds", "affects", "observes", "evidence", "sets_env", "limits", "inherited", "inside"}


def _elements(tree: Tree[Token]) -> Iterator[tuple[Path, Any, Path]]:
    """(path, node, path of the enclosing block's end) of each element that can carry a comment, in text order."""
    header, *contracts = tree.children
    yield ("header",), header, ("end",)
    for i, contract in enumerate(contracts):
        yield (i,), contract, ("end",)
        heads: dict[str, int] = defaultdict(int)
        j = 0
        for clause in contract.children[1:]:  # type: ignore[union-attr]
            kind = str(clause.data)  # type: ignore[union-attr]
            if kind in _HEAD:
                yield (i, kind, 0 if kind in _MERGED else heads[kind]), clause, (i, "end")
                heads[kind] += 1
                continue
            path = (i, "clause", j)
            j += 1
            yield path, clause, (i, "end")
            seen: dict[str, int] = defaultdict(int)
            for prop in clause.children[1:]:  # type: ignore[union-attr]
                if not isinstance(prop, Tree) or prop.data in {"ref", "type", "sequence", "placement", "map"}:
                    continue
                key = str(prop.data)
                yield (*path, key, 0 if key in _MERGED else seen[key]), prop, (*path, "end")
                seen[key] += 1


def _attach(text: str, tree: Tree[Token]) -> _Attached:
    """Each comment goes to the element on its line before it, else to the next element of its block."""
    attached = _Attached()
    elements = list(_elements(tree))
    blocks: list[tuple[int, int, Path]] = [(0, len(text) + 1, ("end",))]
    by_line: dict[int, list[tuple[Path, Any]]] = defaultdict(list)
    closers: dict[int, Path] = {}
    following: dict[Path, tuple[list[int], list[Path]]] = defaultdict(lambda: ([], []))
    for path, node, end in elements:
        meta = node.meta
        opens = path != ("header",) and (len(path) == 1 or (len(path) == 3 and path[1] == "clause"))
        if opens:
            blocks.append((meta.start_pos, meta.end_pos, (*path, "end")))
            if meta.end_line != meta.line:
                closers[meta.end_line] = closers.get(meta.end_line, path) if len(path) > 1 else path
        by_line[meta.line if opens else meta.end_line].append((path, node))
        following[end][0].append(meta.start_pos)
        following[end][1].append(path)
    starts = [b[0] for b in blocks]
    for span, comment in comments_of(text):
        on_line = [p for p, n in by_line[span.line] if _ends_on(n, p, span)]
        if on_line:
            # Repeated lines merge into one, which has room for one comment behind it.
            full = attached.behind[on_line[-1]]
            (attached.before[on_line[-1]] if full else full).append(comment)
            continue
        n = bisect_right(starts, span.start) - 1
        while blocks[n][1] <= span.start:  # at most the clauses of one contract
            n -= 1
        end = blocks[n][2]
        closer = closers.get(span.line)
        if closer is not None and end == ((closer[0], "end") if len(closer) > 1 else ("end",)):
            attached.behind[(*closer, "close")].append(comment)
            continue
        places, paths = following[end]
        after = bisect_left(places, span.end)
        attached.before[paths[after] if after < len(paths) else end].append(comment)
    return attached


def _ends_on(node: Any, path: Path, span: m.Span) -> bool:
    # A block "ends", for this purpose, on the line on which it opens: `contract x {  // comment`.
    opens = len(path) == 1 or (len(path) == 3 and path[1] == "clause")
    if path == ("header",) or not opens:
        return bool(node.meta.end_line == span.line and node.meta.end_pos <= span.start)
    return bool(node.meta.line == span.line and node.meta.start_pos <= span.start < node.meta.end_pos)


def format_text(text: str, *, file: str = "") -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Format a file.

    Args:
        text: the file as it stands.
        file: its path, for diagnostics.

    Returns:
        The canonical text, or None with the diagnostics if it does not parse.

    Raises:
        FormatError: the result could not be proved equal to the input and stable.
    """
    parsed, tree = parse_tree(text, file=file)
    if tree is None or parsed.file is None:
        return None, parsed.diagnostics
    result = _file(parsed.file, _attach(text, tree))
    if len(result.encode()) > MAX_BYTES:
        message = f"its canonical form is larger than {MAX_BYTES >> 20} MiB"
        return None, (Diagnostic("LP001", "error", message, help="split it by contract", file=file),)
    again, tree = parse_tree(result)
    if tree is None or again.file is None or again.file != parsed.file:
        raise FormatError("the formatted text does not parse to the same contract")
    if sorted(c for _, c in again.file.comments) != sorted(c for _, c in parsed.file.comments):
        raise FormatError("the formatted text lost or changed a comment")
    if _file(again.file, _attach(result, tree)) != result:
        raise FormatError("formatting the formatted text changes it")
    return result, parsed.diagnostics
