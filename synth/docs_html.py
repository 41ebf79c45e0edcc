"""Definitions in HTML pages, by the layouts that documentation tools write.

Sphinx: description lists of `envvar`, `option`, functions and classes, and field lists. mkdocstrings: headings with the
dotted name as id, tables of parameters. pdoc: blocks with a `signature`. Any tool: tables with a header row, definition
lists, headings that are a name, list items that start with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString

from synth.docs_entries import Entry, EntryKind, How, entry, kind_of, parameters_of, variables_in
from synth.docs_soup import soup_of

MAX_ENTRIES = 5_000  # of one page
_DEPTH = 150
_OUTSIDE = frozenset({"script", "style", "nav", "aside", "footer", "header", "svg", "noscript", "button", "form"})
_OUTSIDE_CLASSES = frozenset(
    {"sphinxsidebar", "headerlink", "toctree-wrapper", "sidebar", "related", "highlight-toc", "toc-entry"}
)
_OBJECTS = frozenset(
    {"function", "method", "class", "classmethod", "staticmethod", "exception", "data", "attribute", "property"}
)
_PARAMETERS = re.compile(
    r"^\s*(?:other\s+|keyword\s+)?(?:parameters?|arguments?|args|params?|kwargs|attributes|options)\s*:?\s*$",
    re.IGNORECASE,
)
_NUMBERING = re.compile(r"^(?:\d+\.)+\s*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAME_HEADS = re.compile(
    r"name|variable|option|parameter|param|setting|key|flag|argument|property|config", re.IGNORECASE
)
_TYPE_HEADS = re.compile(r"type", re.IGNORECASE)
_DEFAULT_HEADS = re.compile(r"default", re.IGNORECASE)
_OPTION_ARGUMENT = re.compile(r"(--?[A-Za-z][\w-]*)(?:[ =]+(\S+))?")
_BLOCKS = frozenset(
    {"p", "li", "dt", "dd", "td", "th", "div", "tr", "ul", "ol", "dl", "pre", "br", "section", "h1", "h2", "h3", "h4"}
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_MAX_LINKS = 5_000
_LINK = re.compile(
    r"""<a\s[^<>]{0,500}?\bhref\s*=\s*(?:"([^"<>]{1,2000})"|'([^'<>]{1,2000})')[^<>]{0,500}>""", re.IGNORECASE
)
_MAIN = re.compile(
    r"""<(?:main\b|[a-z]+\s[^<>]{0,300}"""
    r"""(?:role=["']?main\b|itemprop=["']?articleBody|class=["'][^"'<>]{0,200}\bmd-content\b))"""
)
LINE = "data-line"  # attribute with the line of the document that an element was written from


@dataclass
class _Page:
    """One page being read."""

    where: str
    found: list[Entry] = field(default_factory=list)
    seen: set[tuple[str, int]] = field(default_factory=set)
    module: str = ""
    ids: frozenset[str] = frozenset()

    def add(
        self, name: str, kind: EntryKind, tag: Tag, said: str, *, how: How, type_: str = "", default: str = ""
    ) -> None:
        line = _line(tag)
        if (name, line) in self.seen or len(self.found) >= MAX_ENTRIES:
            return
        self.seen.add((name, line))
        self.found.append(entry(name, kind, self.where, line, said, how=how, type_=type_, default=default))

    def parameter(self, owner: str, name: str, tag: Tag, said: str, *, how: How, type_: str, default: str) -> None:
        if owner and _WORD.fullmatch(name):
            self.add(f"{owner}({name}=)", "param", tag, said, how=how, type_=type_, default=default)


def html_entries(text: str, where: str) -> list[Entry]:
    """The definitions of a page, in its order."""
    start = _MAIN.search(text)
    if start is not None:  # navigation before the page proper can be most of it
        text = "\n" * text.count("\n", 0, start.start()) + text[start.start() :]
    soup = soup_of(text)
    page = _Page(where)
    title = soup.find("h1", class_="modulename")
    page.module = _WORDS.sub("", _text(title)) if isinstance(title, Tag) else ""
    page.ids = frozenset(str(tag["id"]) for tag in soup.find_all(["dt", "section", "h2", "h3"], id=True, limit=20_000))
    stack: list[tuple[Tag, str, int]] = [(_content(soup), "", 0)]
    while stack and len(page.found) < MAX_ENTRIES:
        tag, owner, depth = stack.pop()
        owner = _visit(page, tag, owner)
        if depth >= _DEPTH:
            continue
        below: list[tuple[Tag, str, int]] = []
        object_ = owner
        for child in tag.children:
            if not isinstance(child, Tag) or child.name in _OUTSIDE or _OUTSIDE_CLASSES & set(_classes(child)):
                continue
            if child.name == "dt":
                object_ = _term(page, child, owner)
                continue  # its name and signature are read
            if child.name in _HEADINGS:
                object_ = _heading(page, child, owner)
            below.append((child, object_, depth + 1))
        stack.extend(reversed(below))
    return sorted(page.found, key=lambda found: found.line)


_WORDS = re.compile(r"[^\w.]")


def links_of(text: str) -> Iterator[tuple[str, str]]:
    """(address as written, words) of the links of a page; the page need not be parsed for that."""
    for count, match in enumerate(_LINK.finditer(text)):
        if count >= _MAX_LINKS:
            return
        words = re.sub(r"<[^>]*>", " ", text[match.end() : match.end() + 300].partition("</a>")[0])
        yield unescape(match[1] or match[2] or ""), " ".join(words.split())[:100]


def _content(soup: BeautifulSoup) -> Tag:
    """The part of a page that is not navigation."""
    for wanted in ("[role=main]", ".document", ".md-content", "[itemprop=articleBody]"):
        found = soup.select_one(wanted)
        if isinstance(found, Tag):
            return found
    for name in ("main", "article", "body"):
        found = soup.find(name)
        if isinstance(found, Tag):
            return found
    return soup


def _classes(tag: Tag) -> list[str]:
    value = tag.get("class")
    return [str(item) for item in value] if isinstance(value, list) else str(value or "").split()


def _line(tag: Tag) -> int:
    written = str(tag.get(LINE) or "")
    return int(written) if written.isdigit() else (tag.sourceline or 1)


def _text(tag: Tag | None, limit: int = 20_000) -> str:
    """Words of an element, without the marks that link to it."""
    if tag is None:
        return ""
    parts: list[str] = []
    size = 0
    for piece in tag.descendants:
        if isinstance(piece, Tag):
            if piece.name in _BLOCKS:
                parts.append(" ")
            continue
        if not isinstance(piece, NavigableString) or piece in ("\u00b6", "\u00a7", "[source]", "#", "\uf0c1"):
            continue
        parts.append(piece)
        size += len(piece)
        if size > limit:
            break
    return " ".join("".join(parts).split())


def _visit(page: _Page, tag: Tag, owner: str) -> str:
    """Read an element of its own; gives the callable that what is inside belongs to."""
    name = tag.name
    classes = _classes(tag)
    if name in ("section", "div") and {"attr", "function", "variable", "class"} & set(classes):
        return _pdoc(page, tag, owner)
    if name == "section" and tag.get("id") and page.module:
        return f"{page.module}.{tag['id']}" if _WORD.fullmatch(str(tag["id"]).replace(".", "_")) else owner
    if name == "table":
        _table(page, tag, owner)
    elif name == "li":
        _item(page, tag, owner)
    elif name == "pre":
        _help(page, tag)
    elif name == "p":
        _prose(page, tag)
    return owner


# Sphinx


def _term(page: _Page, dt: Tag, owner: str) -> str:
    """A term of a description list; gives the callable that its text belongs to."""
    parent = dt.parent
    classes = set(_classes(parent)) if isinstance(parent, Tag) else set[str]()
    said_tag = _following(dt, "dd")
    said = _text(said_tag, 4_000)
    plain = _text(dt, 20_000)
    anchor = str(dt.get("id") or "")
    if "field-list" in classes:
        _field(page, dt, said_tag, owner)
        return owner
    if "envvar" in classes:
        names = list(variables_in(_text(_part(dt, "descname")) or plain)) or [plain.split("=")[0].strip()]
        for name in names[:4]:
            page.add(name, "env", dt, said, how="directive")
        return owner
    if "option" in classes or "cmdoption" in classes or (plain.startswith("-") and anchor.startswith("cmdoption")):
        for match in list(_OPTION_ARGUMENT.finditer(plain))[:4]:
            if match[1].startswith("--"):
                page.add(match[1], "option", dt, said, how="directive", type_=match[2] or "")
        return owner
    if classes & _OBJECTS or "sig" in _classes(dt) or _is_pdoc3(dt):
        return _object(page, dt, anchor, said, owner)
    return _definition(page, dt, plain, said, owner)


def _refers(tag: Tag | None) -> bool:
    """Whether a name in code style is a link to an object of the API."""
    code = tag.find("code") if isinstance(tag, Tag) else None
    return isinstance(code, Tag) and {"xref", "py"} <= set(_classes(code))


def _part(tag: Tag, name: str) -> Tag | None:
    found = tag.find(class_=name)
    return found if isinstance(found, Tag) else None


def _following(tag: Tag, name: str) -> Tag | None:
    """The next sibling of a name, past terms that share one text."""
    for sibling in tag.next_siblings:
        if isinstance(sibling, Tag):
            if sibling.name == name:
                return sibling
            if sibling.name != tag.name:
                return None
    return None


def _is_pdoc3(dt: Tag) -> bool:
    return bool(_DOTTED.fullmatch(str(dt.get("id") or ""))) and dt.find("code", class_="name") is not None


def _object(page: _Page, dt: Tag, anchor: str, said: str, owner: str) -> str:
    prefix, last = _text(_part(dt, "descclassname")), _text(_part(dt, "descname"))
    written = f"{prefix}{last}".strip()
    name = anchor if _DOTTED.fullmatch(anchor) else written
    if not name:
        return owner
    plain = _text(dt)
    _, bracket, rest = plain.partition("(")
    if kind_of(name) == "env":
        page.add(name, "env", dt, said, how="directive")
        return owner
    if not bracket:
        # a datum: its value follows the name
        property_ = dt.find("em", class_="property", recursive=False)
        value = _text(property_) if isinstance(property_, Tag) and last else ""
        type_, _, value = value.partition("=") if value.startswith(":") else ("", "", value.lstrip("= "))
        is_key = not prefix and ("-" in written or "." in written) and kind_of(written) == "config"
        kind: EntryKind = "config" if is_key or (written and not _DOTTED.fullmatch(name) and not prefix) else "api"
        page.add(written or name, kind, dt, said, how="directive", type_=type_.strip(": "), default=value.strip())
        return name
    page.add(name, "api", dt, said, how="signature")
    params = dt.find_all(class_="sig-param")
    if params:
        for param in params[:300]:
            for found, type_, default in parameters_of(_text(param))[:1]:
                page.parameter(
                    name,
                    found,
                    dt if param.sourceline is None else param,
                    "",
                    how="signature",
                    type_=type_,
                    default=default,
                )
    else:
        inside = rest.rpartition(")")[0] or rest
        for found, type_, default in parameters_of(inside):
            page.parameter(name, found, dt, "", how="signature", type_=type_, default=default)
    return name


def _field(page: _Page, dt: Tag, dd: Tag | None, owner: str) -> None:
    """Parameters in a field list: as a definition list (numpydoc), a list, or one paragraph."""
    if dd is None or not owner or not _PARAMETERS.match(_text(dt)):
        return
    terms = [t for dl in dd.find_all("dl", recursive=False) for t in dl.find_all("dt", recursive=False)]
    for term in terms:
        strong, classifier = term.find("strong"), _part(term, "classifier")
        names, _, after = (_text(strong) if isinstance(strong, Tag) else _text(term)).partition(":")
        type_ = _text(classifier) or after.strip() or _text(term).partition(" : ")[2]
        for name in re.split(r"\s*,\s*", names)[:6]:
            said = _text(_following(term, "dd"), 4_000)
            page.parameter(owner, name.lstrip("*"), term, said, how="list", type_=type_, default="")
    if terms:
        return
    for place in dd.find_all(["li", "p"])[:300]:
        strong = place.find("strong")
        if isinstance(strong, Tag):
            said = _text(place, 4_000)
            kind = re.match(r"\*{0,2}\w+\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", said)
            name = _text(strong).lstrip("*")
            page.parameter(owner, name, place, said, how="list", type_=kind[1] if kind else "", default="")


def _definition(page: _Page, dt: Tag, plain: str, said: str, owner: str) -> str:
    """A term of a plain definition list."""
    kind_tag = _part(dt, "classifier")
    type_ = _text(kind_tag)
    strong = dt.find(["code", "strong", "b", "tt"])
    head = plain.removesuffix(type_).strip(" :") if type_ else plain
    head, _, tail = head.partition(" : ") if " : " in head else head.partition(" (")
    name = head.strip().strip("`'\"").split("=")[0]
    kind = kind_of(name)
    said_so = bool(type_) or "default" in said.lower()
    if kind == "config" and (("." not in name and (owner or not said_so)) or _refers(dt)):
        kind = None
    if kind is not None:
        page.add(name, kind, dt, said, how="list", type_=type_ or tail.strip("() "))
    elif owner and (isinstance(strong, Tag) or type_) and _WORD.fullmatch(name):
        page.parameter(owner, name, dt, said, how="list", type_=type_ or tail.strip("() "), default="")
    return owner


# other tools


def _heading(page: _Page, tag: Tag, owner: str) -> str:
    """A heading that is a name: of an object by its id, or of a variable or key by its words."""
    anchor = str(tag.get("id") or "")
    classes = _classes(tag)
    code = tag.find("code")
    plain = _NUMBERING.sub("", _text(tag))
    if "doc-heading" in classes and _DOTTED.fullmatch(anchor):
        page.add(anchor, "api", tag, _text(_following_block(tag), 4_000), how="signature")
        signature = _signature_near(tag, plain)
        for name, type_, default in parameters_of(signature):
            page.parameter(anchor, name, tag, "", how="signature", type_=type_, default=default)
        return anchor
    name = plain.strip("`'\" :").split("=")[0]
    kind = kind_of(name)
    if kind == "config" and (name in page.ids or not (isinstance(code, Tag) or "." in name)):
        kind = None  # the title of an object's own page, or a word
    if kind is not None:
        page.add(name, kind, tag, _section_text(tag), how="heading")
    return owner if tag.name in ("h4", "h5", "h6") else ""


def _signature_near(tag: Tag, plain: str) -> str:
    """The inside of the signature in a heading, or in the block after it."""
    text = plain
    if "(" not in text:
        block = _following_block(tag)
        text = _text(block) if block is not None and "signature" in " ".join(_classes(block)) else ""
    return text.partition("(")[2].rpartition(")")[0]


def _following_block(tag: Tag) -> Tag | None:
    return next((s for s in tag.next_siblings if isinstance(s, Tag)), None)


def _section_text(tag: Tag) -> str:
    """Prose between a heading and the next."""
    parts: list[str] = []
    size = 0
    for sibling in tag.next_siblings:
        if not isinstance(sibling, Tag):
            continue
        if sibling.name in _HEADINGS or sibling.name == "section" or size > 3_000:
            break
        parts.append(_text(sibling, 3_000))
        size += len(parts[-1])
    return " ".join(parts)


def _pdoc(page: _Page, tag: Tag, owner: str) -> str:
    name_tag, signature = _part(tag, "name"), _part(tag, "signature")
    if "attr" not in _classes(tag) or name_tag is None:
        return owner
    parent = tag.parent
    anchor = str(parent.get("id") or "") if isinstance(parent, Tag) else ""
    path = anchor or _text(name_tag)
    name = f"{page.module}.{path}" if page.module and not path.startswith(f"{page.module}.") else path
    if signature is None:
        return owner
    page.add(name, "api", tag, _text(_following_block(tag), 4_000), how="signature")
    inside = _text(signature).partition("(")[2].rpartition(")")[0]
    for found, type_, default in parameters_of(inside):
        page.parameter(name, found, tag, "", how="signature", type_=type_, default=default)
    return name


def _table(page: _Page, tag: Tag, owner: str) -> None:
    """Rows of a table with a header that says which column holds names."""
    rows = [row for row in tag.find_all("tr", limit=2_000) if row.find_parent("table") is tag]
    if not rows:
        return
    heads = [_text(cell, 200) for cell in rows[0].find_all(["th", "td"], recursive=False)]
    column = next((i for i, head in enumerate(heads) if _NAME_HEADS.search(head)), 0)
    typed = next((i for i, head in enumerate(heads) if _TYPE_HEADS.search(head) and i != column), None)
    default = next((i for i, head in enumerate(heads) if _DEFAULT_HEADS.search(head) and i != column), None)
    for row in rows:
        cells = row.find_all(["td", "th"], recursive=False)
        if column >= len(cells) or len(cells) > 12:
            continue
        texts = [_text(cell, 4_000) for cell in cells]
        name = texts[column].strip("`'\" ").split("=")[0].split(" ")[0]
        kind = kind_of(name)
        said = " ".join(text for i, text in enumerate(texts) if i not in (column, typed, default))
        facts = (_at(texts, typed), _at(texts, default).strip("`'\" "))
        code = cells[column].find(["code", "strong", "b", "tt"])
        kind = None if kind == "config" and _refers(cells[column]) else kind
        if kind in ("env", "option") or (kind == "config" and not owner and _is_key(name, code, typed, default)):
            page.add(name, kind, row, said, how="table", type_=facts[0], default=facts[1])
        elif owner and _WORD.fullmatch(name) and row is not rows[0] and (typed is not None or isinstance(code, Tag)):
            page.parameter(owner, name, row, said, how="table", type_=facts[0], default=facts[1])


def _is_key(name: str, code: object, typed: int | None, default: int | None) -> bool:
    """Whether a row is about a key: a dotted name, or a name in code style where the table has types or defaults."""
    return "." in name or (isinstance(code, Tag) and (typed is not None or default is not None))


def _at(texts: list[str], column: int | None) -> str:
    return texts[column] if column is not None and column < len(texts) else ""


def _item(page: _Page, tag: Tag, owner: str) -> None:
    """A list item that starts with a name."""
    first = tag.find(["code", "strong", "b", "tt", "em"])
    if not isinstance(first, Tag):
        return
    plain = _text(tag, 4_000)
    written = _text(first, 200)
    if not written or not plain.startswith(written):
        return
    name = written.strip("`'\" :").split("=")[0].split("(")[0]
    kind = kind_of(name)
    rest = plain[len(written) :].lstrip()
    if kind in ("env", "option") or (kind == "config" and "." in name and not owner and not _refers(tag)):
        page.add(name, kind, tag, rest, how="list")
    elif owner and _WORD.fullmatch(name) and (rest.startswith(("(", ":", "\u2013", "-")) or written.endswith(":")):
        type_ = re.match(r"\(([^()]*)\)", rest)
        page.parameter(owner, name, tag, rest, how="list", type_=type_[1] if type_ else "", default="")


def _prose(page: _Page, tag: Tag) -> None:
    """Variables, dotted keys and callables that a paragraph names in the style of code."""
    said = _text(tag, 2_000)
    for code in tag.find_all(["code", "tt", "kbd", "cite", "em", "strong"], limit=30):
        written = _text(code, 400)
        for name in variables_in(written):
            page.add(name, "env", tag, said, how="prose")
        if code.name in ("code", "tt") and _DOTTED.fullmatch(written.replace("-", "_").removesuffix("()")):
            called = written.endswith("()") or "py-func" in _classes(code) or "py-meth" in _classes(code)
            page.add(written.removesuffix("()"), "api" if called else "config", tag, said, how="prose")
    for name in variables_in(said) if "environment" in said else ():
        page.add(name, "env", tag, said, how="prose")


def _help(page: _Page, tag: Tag) -> None:
    """Option lists in what a command printed, and variables that a shell example sets."""
    from synth.docs_text import help_entries, yaml_keys  # noqa: PLC0415 - that module reads Markdown through this one

    plain = tag.get_text()[:100_000]
    line = _line(tag)
    for name in yaml_keys(plain):
        page.add(name, "config", tag, plain[:200], how="prose")
    for match in re.finditer(r"[\"']([a-z][\w-]*(?:\.[a-zA-Z_][\w-]*)+)[\"']", plain):
        page.add(match[1], "config", tag, plain[match.start() : match.start() + 200], how="prose")
    for found in help_entries(plain, page.where) if "-" in plain else []:
        page.add(found.name, found.kind, tag, found.said, how="option list", type_=found.type, default=found.default)
    for match in re.finditer(r"(?m)^\W*(?:export|set|setenv)?\s*([A-Z][A-Z0-9_]+_[A-Z0-9_]+)\s*=", plain):
        if (match[1], line) not in page.seen:
            page.add(match[1], "env", tag, plain[match.start() : match.start() + 200], how="prose")
