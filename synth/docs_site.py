"""Where documents come from: a folder of pages, or a site that is read page by page, the most telling first."""

from __future__ import annotations

import heapq
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.metadata import parse_email

from synth.docs import DOC_SUFFIXES, passages
from synth.docs_changes import Changed, changes, is_changelog
from synth.docs_entries import Entry
from synth.docs_html import html_entries, links_of
from synth.docs_text import help_entries, is_man, man_entries, markdown_entries, rst_entries
from synth.records import Skipped, SynthError
from synth.walk.words import counting_parameter
from synth.web import LimitError, RefusedError, Web, plain_url, site_of

_GENERATED = frozenset(
    {"_modules", "_sources", "_static", "_images", "_downloads", "node_modules", ".git", ".doctrees"}
)
_NOT_PAGES = re.compile(r"(^|/)(genindex(-\w+)?|search|py-modindex|searchindex|404)\.html?$")
_WEB_PAGE = re.compile(r"(/|\.html?|\.md|\.rst|\.txt|/[\w%~-]*)$", re.IGNORECASE)
_TELLING = re.compile(
    r"env|config|option|setting|parallel|thread|concurren|perform|tun(e|ing)|memory|cli\b|command|scal|worker|process|"
    r"optimi[sz]|parameter|backend|cache|resource|limit|threadpool|openmp|gpu|distributed",
    re.IGNORECASE,
)
_VARIABLE = re.compile(rb"\b[A-Z][A-Z0-9]+_[A-Z0-9_]{2,}\b")
_TOKEN = re.compile(rb"[A-Za-z_]\w*")
_CODE_TAG = re.compile(rb"</?(?:code|tt)\b[^<>]*>", re.IGNORECASE)  # to what prose marks code with
_MARKED = re.compile(rb"envvar|confval|cmdoption")
_DEFINING = frozenset({"std:envvar", "std:cmdoption", "std:confval", "std:option"})
_GONE = re.compile(rb"[Dd]eprecat|[Rr]enam|[Rr]emov")
_CHANGELOG_BYTES = 16 << 20
_INVENTORY_BYTES = 32 << 20
_METADATA_BYTES = 4 << 20
_MAX_DEPTH = 8
_MAX_QUEUE = 20_000

OnSkip = Callable[[Skipped], None]


@dataclass(frozen=True, slots=True)
class Document:
    """One page. `where` is its path in the folder or its address; `kind` html | markdown | rst | man | text."""

    where: str
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class FolderLimits:
    """Bounds of reading a folder."""

    file_bytes: int = 8 << 20
    files: int = 50_000
    total_bytes: int = 1 << 30


@dataclass
class Read:
    """What was found in the documents of one place."""

    entries: list[Entry] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    mentions: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    documents: int = 0
    bytes: int = 0


def kind_by_name(path: str) -> str | None:
    """Kind of a document by its name, None for other files."""
    name = path.rpartition("/")[2].lower()
    suffix = name.rpartition(".")[2] if "." in name else ""
    known = {"html": "html", "htm": "html", "xhtml": "html", "md": "markdown", "markdown": "markdown", "rst": "rst"}
    if suffix in known:
        return known[suffix]
    if is_man(path):
        return "man"
    return "text" if f".{suffix}" in DOC_SUFFIXES or name in ("readme", "news", "changes", "changelog") else None


def from_folder(
    folder: Path,
    on_skip: OnSkip,
    limits: FolderLimits | None = None,
    wanted: Callable[[str], bool] = lambda _path: True,
) -> Iterator[Document]:
    """The pages below a folder in a fixed order; links are not followed, what a tool generated beside is left out."""
    bounds = limits or FolderLimits()
    stack, count, total = [""], 0, 0
    while stack:
        here = stack.pop()
        try:
            with os.scandir(folder / here) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            on_skip(Skipped(file=here or ".", why=f"cannot be listed: {error.strerror or error}"))
            continue
        below: list[str] = []
        for entry in entries:
            path = f"{here}/{entry.name}" if here else entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode) and entry.name not in _GENERATED:
                below.append(path)
            kind = kind_by_name(path) if stat.S_ISREG(status.st_mode) else None
            if kind is None or _NOT_PAGES.search(path) or not wanted(path):
                continue
            count, total = count + 1, total + status.st_size
            if status.st_size > bounds.file_bytes or count > bounds.files or total > bounds.total_bytes:
                total -= status.st_size
                on_skip(Skipped(file=path, why=f"more than {bounds.file_bytes:,} bytes, or too much in all"))
                continue
            try:
                yield Document(path, kind, (folder / path).read_bytes())
            except OSError as error:
                on_skip(Skipped(file=path, why=f"cannot be read: {error.strerror or error}"))
        stack.extend(reversed(below))


def from_web(start: str, web: Web, names: Iterable[str], on_skip: OnSkip) -> Iterator[Document]:
    """The pages of a site at and below an address, the most telling first, as far as the limits reach.

    Args:
        start: address of the first page.
        web: reads the pages.
        names: controls that the code has: the pages that define them come first.
        on_skip: told of each page that is not read.

    Raises:
        SynthError: not even the first page could be read.
    """
    first = web.get(start)
    crawl = _Crawl(first.url, frozenset(names))
    crawl.known.add(plain_url(start))
    for path in ("objects.inv", "sitemap.xml"):
        try:
            crawl.listed(web.get(crawl.base + path).body, path)
        except SynthError:
            continue
    page, depth = first, 0
    while True:
        document = _document(page.url, page.kind, page.body)
        if document is not None:
            yield document
            if document.kind == "html" and depth < _MAX_DEPTH:
                crawl.linked(page.url, page.body, depth + 1)
        following = crawl.take()
        while following is not None:
            url, depth = following
            try:
                page = web.get(url)
                if crawl.inside(page.url) and crawl.new(page.url, url):
                    break
            except LimitError as error:
                on_skip(Skipped(file=url, why=f"{error}; {len(crawl.queue)} more pages are known"))
                return
            except SynthError as error:
                on_skip(Skipped(file=url, why=str(error)))
            following = crawl.take()
        if following is None:
            return


class _Crawl:
    """The addresses still to read, the most telling first."""

    def __init__(self, first: str, names: frozenset[str]) -> None:
        self.site = site_of(first)
        self.base = first.rpartition("/")[0] + "/"
        self.names = names | {name.partition("(")[0] for name in names}
        self.queue: list[tuple[int, int, str, int]] = []
        self.known = {first}
        self.read = {first}

    def inside(self, url: str) -> bool:
        return url.startswith(self.base) and _WEB_PAGE.search(urlsplit(url).path) is not None

    def new(self, url: str, asked: str) -> bool:
        """Whether the page that an address led to is not read yet."""
        if url != asked and url in self.read:
            return False
        self.read.add(url)
        return True

    def add(self, url: str, words: str, depth: int, rank: int | None = None) -> None:
        try:
            plain = plain_url(url)
        except RefusedError:
            return
        path = unquote(urlsplit(plain).path)
        generated = _GENERATED & set(path.split("/")) or _NOT_PAGES.search(path)
        if plain in self.known or generated or not self.inside(plain) or len(self.known) >= _MAX_QUEUE:
            return
        self.known.add(plain)
        near = path.removeprefix(urlsplit(self.base).path)
        telling = 1 if _TELLING.search(f"{near} {words}") else 4 if is_changelog(near) else 3
        heapq.heappush(self.queue, (telling if rank is None else rank, len(self.known), plain, depth))

    def take(self) -> tuple[str, int] | None:
        if not self.queue:
            return None
        _, _, url, depth = heapq.heappop(self.queue)
        return url, depth

    def linked(self, url: str, body: bytes, depth: int) -> None:
        for link, words in links_of(body.decode("utf-8", "replace")):
            try:
                self.add(plain_url(link, url), words, depth)
            except RefusedError:
                continue

    def listed(self, body: bytes, path: str) -> None:
        """Addresses of an inventory or a list of pages."""
        if path == "sitemap.xml":
            for match in re.finditer(rb"<loc>\s*([^<\s]{1,2000})\s*</loc>", body):
                self.add(match[1].decode("utf-8", "replace"), "", 1)
            return
        ranks: dict[str, int] = {}
        for name, role, uri in inventory(body):
            rank = 0 if role in _DEFINING or name in self.names else 1 if _TELLING.search(name) else 3
            ranks[uri] = min(ranks.get(uri, 9), rank)
        for uri, rank in ranks.items():
            self.add(self.base + uri, "", 1, rank if not is_changelog(uri) else 4)


def inventory(body: bytes) -> Iterator[tuple[str, str, str]]:
    """(name, domain:role, page) of a Sphinx inventory of version 2, within bounds."""
    parts = body.split(b"\n", 4)
    if len(parts) < 5 or not parts[0].startswith(b"# Sphinx inventory version 2"):
        return
    try:
        text = zlib.decompressobj().decompress(parts[4], _INVENTORY_BYTES)
    except zlib.error:
        return
    for line in text.decode("utf-8", "replace").split("\n"):
        match = re.match(r"(.+?)\s+(\S+:\S+)\s+-?\d+\s+(\S*)", line[:2_000])
        if match is not None:
            uri = match[3].replace("$", match[1]).partition("#")[0]
            yield match[1], match[2], uri


def _document(url: str, kind: str, body: bytes) -> Document | None:
    path = urlsplit(url).path
    if "html" in kind or (not kind and body.lstrip()[:1] == b"<"):
        return Document(url, "html", body)
    if kind.startswith("text/") or not kind:
        return Document(url, kind_by_name(path) or ("markdown" if "markdown" in kind else "text"), body)
    return None


def release_changes(root: Path, on_skip: OnSkip) -> Read:
    """What the changelogs of a release say about names that went away; nothing else of it is read here."""
    found = Read()
    for document in from_folder(
        root, on_skip, FolderLimits(file_bytes=2 << 20, total_bytes=_CHANGELOG_BYTES), is_changelog
    ):
        if _GONE.search(document.body) is None:
            continue
        try:
            found.changed.extend(_changes(document))
        except Exception as error:  # noqa: BLE001 - as for other documents
            on_skip(Skipped(file=document.where, why=f"the reader failed: {type(error).__name__}: {error}"))
    return found


def documentation_urls(root: Path) -> list[str]:
    """Addresses that a release's metadata gives for its documentation, its home page last."""
    ranked: list[tuple[int, str]] = []
    for path in (root / "PKG-INFO", *sorted(root.glob("*.dist-info/METADATA"))[:1]):
        try:
            if path.is_symlink() or path.stat().st_size > _METADATA_BYTES:
                continue
            fields, _ = parse_email(path.read_bytes())
        except (OSError, ValueError):
            continue
        for label, url in fields.get("project_urls", {}).items():
            if re.search(r"doc|manual|guide|reference", label, re.IGNORECASE):
                ranked.append((0, url))
            elif re.search(r"home", label, re.IGNORECASE):
                ranked.append((1, url))
        ranked.append((2, fields.get("home_page", "")))
    return list(dict.fromkeys(url for _, url in sorted(ranked) if url.startswith(("http://", "https://"))))


def read_documents(documents: Iterable[Document], names: Iterable[str], on_skip: OnSkip) -> Read:
    """Definitions, changes and mentions in documents; one that breaks a reader is skipped with the reason."""
    wanted = frozenset(names)
    words = {re.split(r"[.(]", name.removesuffix("=)"))[-1] for name in wanted}
    found = Read()
    for document in documents:
        found.documents += 1
        found.bytes += len(document.body)
        tokens = {token.decode() for token in set(_TOKEN.findall(document.body))}
        if not (_worth(document, tokens) or tokens & words or is_changelog(document.where)):
            continue
        try:
            _read(document, found)
        except Exception as error:  # noqa: BLE001 - one odd page must not lose the rest
            on_skip(Skipped(file=document.where, why=f"the reader failed: {type(error).__name__}: {error}"))
    return found


def _worth(document: Document, tokens: set[str]) -> bool:
    """Whether a document can define anything, by its words."""
    if _MARKED.search(document.body) or _VARIABLE.search(document.body):
        return True
    return any(counting_parameter(token) for token in tokens)


def _read(document: Document, found: Read) -> None:
    text, where = document.body.decode("utf-8", "replace").replace("\r\n", "\n"), document.where
    if document.kind == "html":
        found.entries.extend(html_entries(text, where))
    elif document.kind == "markdown":
        found.entries.extend(markdown_entries(text, where))
    elif document.kind == "man":
        found.entries.extend(man_entries(text, where))
    else:
        found.entries.extend(rst_entries(text, where))
        if document.kind == "text":
            found.entries.extend(help_entries(text, where))
    if is_changelog(urlsplit(where).path if "://" in where else where):
        found.changed.extend(_changes(document))


def _changes(document: Document) -> Iterator[Changed]:
    suffix = {"html": ".html", "markdown": ".md"}.get(document.kind, ".rst")
    body = _CODE_TAG.sub(b"`", document.body) if document.kind == "html" else document.body
    return changes(passages(body, f"x{suffix}"), document.where)
