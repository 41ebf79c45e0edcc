"""Join what documents say with what the code shows: defaults, deprecations, places, names that only documents have."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from synth import classify, lexicon
from synth.classify import Verdict
from synth.docs_changes import Changed
from synth.docs_entries import Entry
from synth.docs_site import Document, Read, documentation_urls, from_folder, from_web, read_documents, release_changes
from synth.items import Item, ItemKind, Place, ReadWhen
from synth.records import Skipped, SynthError
from synth.walk.words import control_parameter, counting_parameter
from synth.web import PageCache, Web, WebLimits, host_of, is_url

PROJECT = "project"  # the place that a release's own metadata names
_STRENGTH = {"directive": 0, "signature": 1, "table": 2, "list": 3, "option list": 3, "heading": 4, "prose": 9}
_SILENT = frozenset({"", "-", "unset"})
_PLACES = 2  # pages that one item cites
_NEW_PLACES = 4
_WHEN: tuple[tuple[ReadWhen, re.Pattern[str]], ...] = (
    ("import", re.compile(r"before\s+(?:the\s+)?(?:\w+\s+){0,2}import|at\s+import|import\s+time", re.IGNORECASE)),
    ("process-start", re.compile(r"before\s+(?:starting|launching)|at\s+(?:program\s+)?start(?:-?up)?", re.IGNORECASE)),
)

OnSkip = Callable[[Skipped], None]


def documents_of(place: str, root: Path, names: Iterable[str], *, cache: Path, offline: bool, on_skip: OnSkip) -> Read:
    """Read the documents of a place: an address, a folder, or `project` for what the release's metadata names.

    Raises:
        SynthError: nothing can be read there.
    """
    if place == PROJECT:
        return _project(root, names, cache=cache, offline=offline, on_skip=on_skip)
    if is_url(place):
        return _site(place, frozenset({host_of(place)}), names, cache=cache, offline=offline, on_skip=on_skip)
    folder = Path(place)
    if not folder.is_dir():
        raise SynthError(f"no folder `{place}` to read documents from", help_text="give a folder or an address")
    return read_documents(from_folder(folder, on_skip), names, on_skip)


def _project(root: Path, names: Iterable[str], *, cache: Path, offline: bool, on_skip: OnSkip) -> Read:
    urls = documentation_urls(root)
    wanted = list(names)
    for url in urls[:3]:
        try:
            # an address of somebody else's choice: never a private one
            return _site(url, frozenset(), wanted, cache=cache, offline=offline, on_skip=on_skip)
        except SynthError as error:
            on_skip(Skipped(file=url, why=str(error)))
    why = "none of the addresses in the metadata can be read" if urls else "the metadata names no documentation"
    raise SynthError(why, help_text="give an address or a folder with --docs", code=3 if urls else 2)


def _site(
    url: str, named: frozenset[str], names: Iterable[str], *, cache: Path, offline: bool, on_skip: OnSkip
) -> Read:
    limits, wanted = WebLimits(), list(names)
    pages = PageCache(cache / "pages", limits.cache_bytes)
    with Web(named=named, cache=pages, offline=offline, limits=limits) as web:
        documents: Iterator[Document] = from_web(url, web, wanted, on_skip)
        return read_documents(documents, wanted, on_skip)


def with_changes(items: Sequence[Item], root: Path) -> tuple[Item, ...]:
    """Items with what the release's own changelogs say of their names."""
    read = release_changes(root, lambda _skip: None)
    return tuple(joined(items, read)) if read.changed else tuple(items)


def joined(items: Sequence[Item], read: Read) -> list[Item]:
    """Items with what documents say of them, then those that only documents name; most important first."""
    by_name: dict[str, list[Entry]] = defaultdict(list)
    for entry in read.entries:
        by_name[_norm(entry.name)].append(entry)
    notes: dict[str, list[Changed]] = defaultdict(list)
    for change in read.changed:
        notes[_norm(change.name)].append(change)
    known: set[str] = set()
    tails = _tails(items)
    found: list[Item] = []
    for item in items:
        names = [_norm(item.name), *(_norm(alias) for alias in item.aliases)]
        tail = _tail(names[0])
        if item.kind in ("api", "param") and tails[tail] == 1:
            names += [name for name in by_name if _tail(name) == tail and name not in names][:3]
        known.update(names)
        said = sorted((e for n in names for e in by_name.get(n, [])), key=lambda e: _STRENGTH[e.how])
        found.append(_told(item, said, [c for n in names for c in notes.get(n, [])]))
    new = [entries for name, entries in by_name.items() if name not in known]
    found += [item for entries in new for item in [_new(entries)] if item is not None]
    order = {"control": 0, "mitigation": 1, "demand": 2, "signal": 3, "not_control": 4}
    return sorted(found, key=lambda item: (order[item.verdict], -item.rank))


def _norm(name: str) -> str:
    match = re.match(r"^(.*?)\((\w+)=?\)$", name.strip())
    return f"{match[1]}({match[2]}=)".lower() if match else name.strip().removesuffix("()").lower()


def _tail(name: str) -> str:
    """The last two components: documents and code may disagree about the module."""
    return ".".join(name.partition("(")[0].split(".")[-1:]) + "".join(name.partition("(")[1:])


def _tails(items: Iterable[Item]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for item in items:
        counts[_tail(_norm(item.name))] += 1
    return counts


def _told(item: Item, said: Sequence[Entry], notes: Sequence[Changed]) -> Item:
    if not said and not notes:
        return item
    default = next((e.default for e in said if e.default and e.how != "prose"), "")
    old = next((e.deprecated for e in said if e.deprecated), "") or next((_note(c) for c in notes), "")
    places = dict.fromkeys((e.where, e.line) for e in said)
    places |= dict.fromkeys((c.where, c.line) for c in notes)
    cited = tuple(Place(where=where, line=line) for where, line in list(places)[:_PLACES])
    facts: dict[str, object] = {"evidence": (*item.evidence, *cited), "rank": min(1.0, round(item.rank * 1.05, 4))}
    if default and item.default in _SILENT:
        facts["default"] = f"{default} (documented)"
    why = [item.why, f"documented as {said[0].how}" if said and said[0].how != "prose" else "", old]
    facts["why"] = "; ".join(part for part in why if part)
    return item.model_copy(update=facts)


def _note(change: Changed) -> str:
    version = f" in {change.version}" if change.version else ""
    return f"{change.what}{version}" + (f", use {change.by}" if change.by else "")


def _new(entries: list[Entry]) -> Item | None:
    """An item that no code shows; None for what is no name of a control by its form."""
    entries = sorted(entries, key=lambda e: _STRENGTH[e.how])
    first = entries[0]
    judged = _judged(first)
    if judged is None:
        return None
    kind, verdict, why = judged
    resource = classify.resource(first.name)
    default = next((e.default for e in entries if e.default), "unset" if kind == "env" else "-")
    prose = " ".join(e.said for e in entries[:4])
    stated = next((e.type for e in entries if e.type), "")
    old = next((e.deprecated for e in entries if e.deprecated), "")
    places = list(dict.fromkeys((e.where, e.line) for e in entries))[:_NEW_PLACES]
    how = "only mentioned in" if first.how == "prose" else f"only in documents, as {first.how} in"
    return Item(
        name=first.name,
        kind=kind,
        verdict=verdict,
        resource=resource,
        type=stated or classify.type_of(default, first.name),
        default=default,
        read_when=next((when for when, pattern in _WHEN if pattern.search(prose)), "each-call"),
        scope="object" if kind == "param" else "process",
        precedence="",
        provider="documentation",
        certain=False,
        evidence=tuple(Place(where=where, line=line) for where, line in places),
        why="; ".join(part for part in (why, f"{how} {first.where}", old) if part),
        rank=classify.importance(first.name, kind, resource, 0.3, documented=True),
    )


def _judged(entry: Entry) -> tuple[ItemKind, Verdict, str] | None:
    """(kind, verdict, why) of a name by its words, as for code."""
    if entry.kind == "param":
        parameter = entry.name.rpartition("(")[2].removesuffix("=)")
        sized = counting_parameter(parameter) or (control_parameter(parameter) and bool(entry.default))
        return ("param", "control", "its name speaks of a pool or a limit") if sized else None
    if entry.kind == "api":
        sets = re.search(r"(^|\.)(set_|limit_|\w+_limits?$)", entry.name)
        resource = lexicon.resource_of(entry.name)
        return ("api", "control", f"a callable that sets {resource}") if sets and resource else None
    attribute = entry.kind == "config" and (entry.name != entry.name.lower() or entry.name.startswith("self."))
    if attribute or (entry.how == "prose" and entry.kind != "env"):
        return None
    kind: ItemKind = "env" if entry.kind == "env" else "config"
    reading = lexicon.read(entry.name.lstrip("-").replace("-", "_"), key=kind == "config")
    if reading.against:
        return kind, "not_control", reading.against
    if reading.resource is not None:
        return kind, "control", f"its name speaks of {reading.resource}"
    if reading.engine and entry.how != "prose":
        return kind, "control", "its name speaks of how the engine works"
    return kind, "not_control", "its name speaks of no resource"
