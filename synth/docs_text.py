"""Definitions in reStructuredText, Markdown, man pages and what `--help` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt

from synth.docs_entries import Entry, entry, kind_of, parameters_of, variables_in
from synth.docs_html import LINE, html_entries

_DIRECTIVE = re.compile(r"^(\s*)\.\.\s+(?:[a-z]+:)?([a-z-]+)::\s*(.*)$")
_FIELD = re.compile(r"^\s*:(param|parameter|arg|argument|keyword|kwarg|type|default)\b\s*([^:]*):\s*(.*)$")
_LITERAL_ROW = re.compile(r"^\s*(?:[*+-]\s+|\|\s*)?``([^`]+)``\s*(.*)$")
_OPTION_LINE = re.compile(r"^(\s{1,12})((?:-\w(?:[ =]\S+)?,\s*)?--[A-Za-z][\w-]*)(?:[ =]([^\s].*?))?(?:\s{2,}(.*))?$")
_OPTION = re.compile(r"--[A-Za-z][\w-]*")
_CALLABLES = frozenset({"function", "method", "class", "autofunction", "automethod", "autoclass"})
_YAML_LINE = re.compile(r"^( *)([A-Za-z_][\w-]*):(?:\s+([^#\s].*)|\s*(?:#.*)?)$")
_YAML_DEPTH = 8
_BODY_LINES = 60


def markdown_entries(text: str, where: str) -> list[Entry]:
    """Definitions of a Markdown document, read as the page that it makes, with the lines of the document."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    for token in tokens:
        if token.map is not None and token.nesting >= 0:
            token.attrSet(LINE, str(token.map[0] + 1))
    return html_entries(reader.renderer.render(tokens, reader.options, {}), where)


def rst_entries(text: str, where: str) -> list[Entry]:
    """Definitions of a reStructuredText document; directives are text, nothing is included or run."""
    lines = text.split("\n")
    found: list[Entry] = []
    owner, owner_indent = "", -1
    for place, line in enumerate(lines):
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if indent <= owner_indent:
            owner, owner_indent = "", -1
        directive = _DIRECTIVE.match(line)
        if directive is not None:
            found.extend(_directive(directive, lines, place, where))
            if directive[2] in _CALLABLES:
                owner, owner_indent = directive[3].partition("(")[0].strip(), indent
            continue
        found.extend(_rst_line(line, lines, place, where, owner))
    return found


def _directive(match: re.Match[str], lines: list[str], place: int, where: str) -> Iterator[Entry]:
    what, argument = match[2], match[3].strip()
    body, default, type_ = _body(lines, place)
    if what == "envvar":
        for name in list(variables_in(argument))[:1] or [argument.split("=")[0].strip()]:
            if name:
                yield entry(name, "env", where, place + 1, body, how="directive", default=default, type_=type_)
    elif what in ("option", "cmdoption"):
        for name in _OPTION.findall(argument)[:4]:
            yield entry(name, "option", where, place + 1, body, how="directive", default=default)
    elif what in ("confval", "setting", "data") and argument:
        kind = kind_of(argument) or "config"
        yield entry(argument, kind, where, place + 1, body, how="directive", default=default, type_=type_)
    elif what in _CALLABLES and argument:
        name, _, rest = argument.partition("(")
        yield entry(name.strip(), "api", where, place + 1, body, how="signature")
        for parameter, kind_, value in parameters_of(rest.rpartition(")")[0]):
            full = f"{name.strip()}({parameter}=)"
            yield entry(full, "param", where, place + 1, "", how="signature", type_=kind_, default=value)


def _body(lines: list[str], place: int) -> tuple[str, str, str]:
    """(prose, default, type) of the indented text below a line."""
    base = len(lines[place]) - len(lines[place].lstrip())
    prose: list[str] = []
    facts = {"default": "", "type": ""}
    for line in lines[place + 1 : place + 1 + _BODY_LINES]:
        if line.strip() and len(line) - len(line.lstrip()) <= base:
            break
        named = re.match(r"^\s+:(default|type):\s*(.*)$", line)
        if named is not None:
            facts[named[1]] = named[2].strip("` ")
        else:
            prose.append(line.strip())
    return " ".join(part for part in prose if part), facts["default"], facts["type"]


def _rst_line(line: str, lines: list[str], place: int, where: str, owner: str) -> Iterator[Entry]:
    named = _FIELD.match(line)
    if named is not None and owner and named[2].strip():
        *type_, name = named[2].split()
        if named[1] not in ("type", "default"):
            said = f"{named[3]} {_body(lines, place)[0]}"
            yield entry(f"{owner}({name}=)", "param", where, place + 1, said, type_=" ".join(type_))
        return
    row = _LITERAL_ROW.match(line)
    following = lines[place + 1] if place + 1 < len(lines) else ""
    deeper = len(following) - len(following.lstrip()) > len(line) - len(line.lstrip())
    if row is not None:
        name = row[1].split("=")[0].strip()
        kind = kind_of(name)
        if kind in ("env", "option") or (kind == "config" and "." in name):
            said = f"{row[2]} {_body(lines, place)[0] if deeper else ''}"
            yield entry(name, kind, where, place + 1, said)
            return
    term = line.strip().strip("`*").partition(" : ")[0]
    kind = kind_of(term)
    if kind == "env" and following.strip() and (deeper or re.match(r"^[=\-~^\"'`+#*]{3,}\s*$", following)):
        said = _body(lines, place)[0] if deeper else " ".join(lines[place + 2 : place + 8])
        yield entry(term, kind, where, place + 1, said, how="list" if deeper else "heading")
        return
    for literal in re.findall(r"``([^`]{3,200})``|:envvar:`([^`]{3,80})`", line)[:20]:
        for name in variables_in(literal[0] or literal[1]):
            yield entry(name, "env", where, place + 1, line.strip(), how="prose")


def help_entries(text: str, where: str, first_line: int = 1) -> list[Entry]:
    """Options in what a command prints about itself."""
    lines = text.split("\n")
    found: list[Entry] = []
    for place, line in enumerate(lines):
        match = _OPTION_LINE.match(line[:500])
        if match is None:
            continue
        indent = len(match[1])
        said = [match[4] or ""]
        for below in lines[place + 1 : place + 12]:
            if not below.strip() or len(below) - len(below.lstrip()) <= indent or _OPTION_LINE.match(below[:500]):
                break
            said.append(below.strip())
        for name in _OPTION.findall(match[2]):
            prose = " ".join(part for part in said if part)
            found.append(
                entry(name, "option", where, first_line + place, prose, how="option list", type_=match[3] or "")
            )
    return found


def yaml_keys(text: str) -> Iterator[str]:
    """Dotted keys of an example in YAML: those that are nested at least once."""
    path: list[tuple[int, str]] = []
    for line in text.split("\n")[:2_000]:
        match = _YAML_LINE.match(line[:300])
        if match is None:
            if line.strip() and not line.lstrip().startswith("#"):
                path = []
            continue
        indent = len(match[1])
        path = [*(item for item in path if item[0] < indent), (indent, match[2])][:_YAML_DEPTH]
        if match[3] and len(path) > 1 and path[0][0] == 0:
            yield ".".join(name for _, name in path)


# man pages

_ESCAPES = re.compile(r"\\f(?:\([A-Z]{2}|\[[^\]]*\]|.)|\\[&|^/%]|\\s[+-]?\d")


def is_man(path: str) -> bool:
    """Whether a file is a page of a manual by its name."""
    folder, _, name = path.rpartition("/")
    ends = re.search(r"\.[1-8](?:\.in)?$", name)
    return bool(ends) and ".so" not in name and ("man" in folder or name.count(".") == 1)


def plain_man(text: str) -> str:
    """The words of a manual page, line by line, so that line numbers hold."""
    return "\n".join(_plain_line(line) for line in text.split("\n"))


def _plain_line(line: str) -> str:
    line = _ESCAPES.sub("", line).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")
    if not line.startswith((".", "'")):
        return line
    macro, _, rest = line[1:].partition(" ")
    if macro in ("SH", "SS", "Sh", "Ss"):
        return f"\n{rest}".lstrip("\n")
    if macro in ("B", "I", "BR", "IR", "RB", "BI", "IB", "RI", "IP", "It", "Ev", "Fl", "Nm", "Ar", "Cm", "Li"):
        words = rest.replace('"', "")
        return words.removeprefix("Ev ").removeprefix("Fl ") if macro == "It" else words
    return ""


def man_entries(text: str, where: str) -> list[Entry]:
    """Variables and options of a manual page: the terms of its tagged paragraphs."""
    raw = text.split("\n")
    lines = plain_man(text).split("\n")
    found: list[Entry] = []
    for place in range(len(raw)):
        if raw[place].startswith((".TP", ".TQ")) and place + 1 < len(raw):
            term, start = lines[place + 1], place + 1
        elif raw[place].startswith((".IP", ".It")):
            term, start = lines[place], place
        else:
            continue
        said: list[str] = []
        for below in range(start + 1, min(start + 30, len(raw))):
            if raw[below].startswith((".TP", ".IP", ".SH", ".SS", ".It", ".Sh", ".TQ")):
                break
            said.append(lines[below])
        names = [(name, "env") for name in variables_in(term)] or [(name, "option") for name in _OPTION.findall(term)]
        for name, kind in names[:4]:
            prose = " ".join(part for part in said if part)
            shape = "env" if kind == "env" else "option"
            found.append(entry(name, "env" if shape == "env" else "option", where, start + 1, prose))
    return found
