"""Cython source written as Python, line for line, so that the Python walkers can read it.

It is lenient: what cannot be written as Python becomes `pass`, and the parser forgives the rest. Only lines are kept,
not columns, because evidence cites lines.
"""

from __future__ import annotations

import re

WRITTEN = re.compile(r"\.(pyx|pxi)(\.(in|tp))?$")  # what is written as Python; templates too
CYTHON = re.compile(r"\.(pyx|pxi|pxd)(\.(in|tp))?$")
MAX_BYTES = 4 * 1024 * 1024
_SIGNATURE_LINES = 120
_VALUE = re.compile(r"\{\{[ \t]*[\w.]+[ \t]*\}\}")
_TEMPLATE = re.compile(r"\{\{.{0,1000}?\}\}", re.DOTALL)
_STRING = re.compile(
    r"\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_COMMENT = re.compile(r"#[^\n]*")
_MARK = re.compile(r"\x00(\d+)\x01")
_INDENT = re.compile(r"[ \t]*")
_CIMPORT = re.compile(r"\bcimport\b")
_EXTERN = re.compile(
    r"^(cdef\s+extern\b.*|cdef\s+(?:public\s+|packed\s+)*(?:enum|struct|union|cppclass|fused)\b.*|ctypedef\s+(?:enum|struct|union|fused|class|public)\b.*):\s*$"
)
_CLASS = re.compile(r"^(?:cdef|cpdef)\s+(?:public\s+|api\s+)*class\s+([\w.]+)\s*(\([^)]*\))?[^:]*:(.*)$")
_FUNCTION = re.compile(
    r"^(?:(?:cdef|cpdef)\s+(?:[^=\n(]*?[\s*&])?|(?:async\s+)?def\s+)([A-Za-z_]\w*)\s*\((?![^\n]*\)\s*=)"
)
_BLOCK = re.compile(r"^cdef(?:\s+(?:public|readonly|api|inline))*(?:\s+(?:nogil|with\s+gil))?\s*:\s*$")
_VARIABLE = re.compile(r"^(?:cdef|cpdef)\s+(?:public\s+|readonly\s+|inline\s+|api\s+)*(.+)$")
_DEF = re.compile(r"^DEF\s+(\w+)\s*=")
_CONDITION = re.compile(r"^(IF|ELIF|ELSE)\b")
_INCLUDE = re.compile(r"^([ \t]*)include\s+[\"']([^\"'\n]+)[\"'][ \t]*$", re.MULTILINE)
_FROM = re.compile(r"^for\s+(\w+)\s+from\s+.*:\s*$")
_CAST = re.compile(r"(?<=[=(,\[+\-*/%:&|<>\s])<\s*[A-Za-z_][\w. ]*(?:\[[^<>]*\])?\s*[*&]*\s*\??\s*>(?=\s*[\w(&\"'\[])")
_ADDRESS = re.compile(r"(^|(?<=[=(,\[]))(\s*)&(?=\s*[A-Za-z_])")
_NEW = re.compile(r"\bnew\s+(?=[A-Za-z_][\w.]*\s*[(\[])")
_TUPLE = re.compile(r"^(cdef|cpdef)\s+((?:inline\s+)?)\([^()]*\)\s+")
_SIZEOF = re.compile(r"\bsizeof\s*\(([^()]*)\)")
_DIMENSIONS = re.compile(r"\[[^\[\]]*\]")
_LAST_NAME = re.compile(r"([A-Za-z_]\w*)\s*$")


def include_module(path: str) -> str:
    """Module name part that an included file goes by: `helper.pxi` -> `helper__pxi`."""
    return re.sub(r"\W", "_", path.partition(".pxi")[0]) + "__pxi"


def to_python(raw: bytes) -> bytes:
    """Cython source as Python with as many lines; byte order marks and odd bytes are kept as they come."""
    text = raw[:MAX_BYTES].decode("utf-8", "surrogateescape")
    text = re.sub(r"[\x00-\x02]", " ", text)  # used as marks below
    if "{{" in text:  # a template: its values become a name, its statements nothing
        text = _VALUE.sub("T", text)
        text = _TEMPLATE.sub(lambda m: "\n" * m[0].count("\n"), text)
    masked, kept = _masked(text)
    lines = masked.split("\n")
    written = _unmasked("\n".join(_Writer(lines).run()), kept)
    written = _INCLUDE.sub(lambda m: f"{m[1]}from .{include_module(m[2])} import *", written)
    return written.encode("utf-8", "surrogateescape")


def _masked(text: str) -> tuple[str, list[str]]:
    """The text with strings replaced by a mark that keeps their line ends, and without comments."""
    kept: list[str] = []
    pieces: list[str] = []
    position = 0
    pattern = re.compile(f"({_STRING.pattern})|({_COMMENT.pattern})", re.DOTALL)
    for match in pattern.finditer(text):
        pieces.append(text[position : match.start()])
        if match[1] is not None:
            kept.append(match[1])
            pieces.append(f"\x00{len(kept) - 1}\x01" + "\x02\n" * match[1].count("\n"))
        position = match.end()
    pieces.append(text[position:])
    return "".join(pieces), kept


def _unmasked(text: str, kept: list[str]) -> str:
    """The text with its strings; one over several lines comes back only where all its lines are still there."""
    lines = text.split("\n")
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        ends = max((kept[int(m)].count("\n") for m in _MARK.findall(line)), default=0)
        whole = ends > 0 and line.endswith("\x02") and at + ends < len(lines)
        if whole and all(lines[at + k].strip() == "\x02" for k in range(1, ends)):
            joined = line.removesuffix("\x02") + lines[at + ends].replace("\x02", "")
            marks = [m for m in _MARK.finditer(joined) if "\n" in kept[int(m[1])]]
            if len(marks) == 1:
                out.extend(_MARK.sub(lambda m: kept[int(m[1])], joined).split("\n"))
                at += ends + 1
                continue
        plain = line.replace("\x02", "")
        out.append(_MARK.sub(lambda m: kept[int(m[1])] if "\n" not in kept[int(m[1])] else '""', plain))
        at += 1
    return "\n".join(out)


class _Writer:
    """Writes one line after the other."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.out: list[str] = []
        self.foreign: int | None = None  # indentation of a block of C declarations
        self.declaring: int | None = None  # indentation of a `cdef:` block

    def run(self) -> list[str]:
        at = 0
        while at < len(self.lines):
            at = self._line(at)
        return self.out

    def _line(self, at: int) -> int:
        """Write the statement at a line; returns the line after it."""
        line = self.lines[at]
        body = line.strip()
        indent = _INDENT.match(line)[0] if body else ""  # type: ignore[index]
        width = len(indent.expandtabs())
        if not body or body.startswith("\x02"):
            self.out.append(line)
            return at + 1
        if self.foreign is not None and width > self.foreign:
            self.out.append(indent + "pass")
            return at + 1
        self.foreign = None
        if self.declaring is not None and width > self.declaring:
            taken = 1
            while _open(body) and taken <= _SIGNATURE_LINES and at + taken < len(self.lines):
                body += " " + self.lines[at + taken].strip().replace("\x02", "")
                taken += 1
            self.out += [indent + self._declared(body), *[""] * (taken - 1)]
            return at + taken
        self.declaring = None
        if _EXTERN.match(body):
            self.foreign = width
            self.out.append(indent + "if True:")
            return at + 1
        if _BLOCK.match(body):
            self.declaring = width
            self.out.append(indent + "if True:")
            return at + 1
        if body.startswith(("cdef (", "cpdef (", "cdef inline (")):
            self.lines[at] = indent + _TUPLE.sub(r"\1 \2", body)
            body = self.lines[at].strip()
        if _FUNCTION.match(body) and not _CLASS.match(body):
            return self._function(at, indent)
        self.out.append(indent + self._statement(body))
        return at + 1

    def _statement(self, body: str) -> str:
        match = _CLASS.match(body)
        if match:
            return f"class {match[1].rpartition('.')[2]}{match[2] or ''}:{match[3]}"
        match = _DEF.match(body)
        if match:
            return body[4:].lstrip()
        if _CONDITION.match(body):
            return self._plain(_CONDITION.sub(lambda m: m[1].lower(), body))
        match = _FROM.match(body)
        if match:
            return f"for {match[1]} in range(0):"
        if re.match(r"property\s+\w+\s*:$", body):
            return f"class {body[9:-1].strip()}:"
        if body.startswith("ctypedef "):
            return "pass"
        if body.startswith("include "):
            return body  # written as an import once its name is back
        match = _VARIABLE.match(body)
        if match:
            return self._declared(match[1])
        return self._plain(_CIMPORT.sub("import", body))

    @staticmethod
    def _plain(body: str) -> str:
        body = _CAST.sub("", " " + body).strip() if "<" in body else body
        body = _ADDRESS.sub(r"\2", body) if "&" in body else body
        body = _NEW.sub("", body) if "new " in body else body
        return _SIZEOF.sub("sizeof(0)", body) if "sizeof" in body else body

    def _declared(self, body: str) -> str:
        """`int n = 4, *p` -> `n = 4; p = None`, a declaration without a value -> `pass`."""
        if "(" in body and re.search(r"\)\s*(noexcept|nogil|except\b.*)?\s*$", body) and "=" not in body:
            return "pass"
        made: list[str] = []
        for piece in _split(body):
            name, sign, value = _halves(piece)
            if not sign or value.startswith("="):
                continue
            last = _LAST_NAME.search(_DIMENSIONS.sub("", name).strip())
            if last:
                made.append(f"{last[1]} = {self._plain(value.strip())}")
        return "; ".join(made) or "pass"

    def _function(self, at: int, indent: str) -> int:
        """A function with its signature, which may go over several lines."""
        match = _FUNCTION.match(self.lines[at].strip())
        assert match is not None  # noqa: S101  # the caller matched it
        head = self.lines[at].strip()
        start = match.end()
        depth, end, taken = 1, start, 1
        while depth and taken <= _SIGNATURE_LINES:
            while end < len(head) and depth:
                depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(head[end], 0)
                end += 1
            if depth and at + taken < len(self.lines):
                head += "\n" + self.lines[at + taken]
                taken += 1
            elif depth:
                break
        if depth:
            self.out.append(indent + "pass")
            return at + 1
        while not head.rstrip().endswith(":") and at + taken < len(self.lines) and taken <= _SIGNATURE_LINES:
            rest = head[end:]
            if rest.strip() and not re.fullmatch(r"[\s\w?+*.\-:>\[\],()\\|]*", rest):
                break
            if ":" in rest or not rest.rstrip().endswith("\\"):
                break
            head += "\n" + self.lines[at + taken]
            taken += 1
        after = head[end:]
        if ":" not in after:  # a declaration without a body, or a variable that is made by a call
            first = _VARIABLE.sub(r"\1", head.split("\n")[0])
            self.out.append(indent + (self._declared(first) if "=" in first else "pass"))
        else:
            given = (self._argument(piece) for piece in _split(head[start : end - 1]) if piece.strip())
            suite = after.partition(":")[2].strip().replace("\x02", "")
            self.out.append(f"{indent}def {match[1]}({', '.join(given)}): {self._statement(suite) if suite else ''}")
        self.out += [""] * (taken - 1)  # keep the number of lines
        return at + taken

    def _argument(self, piece: str) -> str:
        """`double[:, ::1] x not None = None` -> `x=None`."""
        text = " ".join(re.sub(r"\x00\d+\x01(\x02\s*)+", '""', piece).split())
        text = re.sub(r"\s+(not|or)\s+None\b", "", text)
        name, sign, value = _halves(text)
        name = name.partition(":")[0] if re.match(r"^\*{0,2}\w+\s*:", name) else name
        stars = re.match(r"\s*(\*{0,2})", name)
        plain = _DIMENSIONS.sub("", name).strip()
        if plain in ("*", "/"):
            return plain
        last = _LAST_NAME.search(plain)
        if not last:
            return "_"
        prefix = stars[1] if stars and re.fullmatch(r"\s*\*{1,2}\w+\s*", name) else ""
        return f"{prefix}{last[1]}={self._plain(value.strip())}" if sign else prefix + last[1]


def _open(text: str) -> bool:
    """Whether more brackets open than close."""
    return sum(text.count(c) for c in "([{") > sum(text.count(c) for c in ")]}")


def _halves(text: str) -> tuple[str, str, str]:
    """As `partition` at the first `=` outside of brackets."""
    depth = 0
    for place, char in enumerate(text):
        depth += 1 if char in "([{" else -1 if char in ")]}" else 0
        if char == "=" and depth == 0:
            return text[:place], "=", text[place + 1 :]
    return text, "", ""


def _split(text: str) -> list[str]:
    """Pieces between commas outside of brackets."""
    pieces: list[str] = []
    depth, start = 0, 0
    for place, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[start:place])
            start = place + 1
    pieces.append(text[start:])
    return pieces
