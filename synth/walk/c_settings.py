"""Settings that C and C++ code declares: parameter macros, flags, tables of names, structs of settings.

All of them are found by searching the bytes; comments are taken out first, and only files that hold one are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from synth.records import Kind, Observation, Role, When
from synth.walk.syntax import Cited, line_at, line_index, one_line

MANY = 2_000  # settings of one file
_MARKS = (b"DECLARE_FIELD", b"ABSL_FLAG", b"cl::opt", b"cl::list")
_DEFINED = re.compile(rb"DEFINE_(?:bool|int32|int64|uint32|uint64|double|string)\s*\(")
_ASKED = re.compile(rb", \"\w+\"\s*,\s*&")
_NAMED = re.compile(rb"Name = \"")
_DOTTED = re.compile(rb"= \"[a-z]\w*\.[\w.]+\";")
_TOKENS = re.compile(rb"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL)
_FIELD = re.compile(
    rb"\b\w*DECLARE_FIELD\s*\(\s*(\w+)\s*\)((?:\s*\.\s*\w+\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*)"
)
_ALIAS = re.compile(rb"\b\w*DECLARE_ALIAS\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)")
_DEFAULT = re.compile(r"\.\s*set_default\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_RANGE = re.compile(r"\.\s*set_(range|lower_bound|upper_bound)\s*\(([^()]*(?:\([^()]*\))?[^()]*)\)")
_DESCRIBED = re.compile(r"\.\s*describe\s*\(\s*\"([^\"]{0,300})", re.DOTALL)
_FLAG = re.compile(rb"\bDEFINE_(bool|int32|int64|uint32|uint64|double|string)\s*\(\s*(\w+)\s*,\s*([^,]{1,200}?)\s*,")
_ABSL = re.compile(rb"\bABSL_FLAG\s*\(\s*([\w:<>, ]{1,80}?)\s*,\s*(\w+)\s*,\s*([^,]{1,200}?)\s*,")
_OPTION = re.compile(rb"\bcl::(?:opt|list)\s*<\s*([\w:]+)[^>]*>\s*\w+\s*\(\s*\"([\w-]+)\"((?:[^;]){0,600});")
_INIT = re.compile(r"\bcl::init\s*\(([^()]*(?:\([^()]*\))?[^()]*)\)")
_TAKEN = re.compile(rb"\bGet(\w*)\s*\(\s*\w+\s*,\s*\"(\w+)\"\s*,\s*&\s*(?:\w+(?:\.|->))*(\w+)\s*[,)]")
_STRUCT = re.compile(
    rb"\bstruct\s+\w+\s*(?:final\s*)?(?::[^{;]{0,80})?\{[^{}]{0,300}?\b\w*\s*\*\s*Name\s*=\s*\"(\w+)\"\s*;([^{}]{0,1200})"
)
_KEY = re.compile(
    rb"\b(?:static\s+|inline\s+|constexpr\s+|const\s+)+(?:char|auto|std::string_view|std::string|string_view)\s*(?:const\s*)?\*?\s*"
    rb"(?:const\s+|constexpr\s+)*(k[A-Z]\w*|[A-Z][A-Z0-9_]{3,})\s*(?:\[\s*\])?\s*=\s*\"([a-z]\w*(?:\.\w+)+)\"\s*;"
)
_MEMBER = re.compile(
    rb"^[ \t]+(?:mutable\s+|static\s+|constexpr\s+|const\s+)*(?:int|unsigned|bool|double|float|"
    rb"size_t|std::size_t|std::string|u?int\d+_t|idx_t|data_size_t|string)\s+(\w+)\s*(?:=\s*|\{)([^;{}\n]{1,80}?)\}?\s*;",
    re.MULTILINE,
)
_PAIR = re.compile(rb"\{\s*\"(\w+)\"\s*,\s*\"(\w+)\"\s*\}")
_SIZED = {"bool": "bool", "double": "float", "float": "float", "string": "str", "std::string": "str"}


@dataclass
class Settings:
    """What crosses files: defaults of struct members by their names."""

    members: dict[str, str] = field(default_factory=dict)

    @classmethod
    def build(cls, files: Mapping[str, bytes]) -> Settings:
        """Members with a default, of those names that a file asks for by a literal."""
        wanted: set[bytes] = set()
        for raw in files.values():
            if b", &" in raw or b",&" in raw:
                wanted.update(m[2] for m in _TAKEN.finditer(raw))
        found = cls()
        if len(wanted) < 2:
            return found
        by_file: list[dict[str, str]] = []
        for path in sorted(files):
            raw = files[path]
            if b"struct" not in raw and b"class" not in raw:
                continue
            members = {m[1].decode(): m[2] for m in _MEMBER.finditer(raw) if m[1] in wanted}
            by_file.append({name: one_line(value.decode("utf-8", "replace")) for name, value in members.items()})
        # the structure with most of the names is the one that they are asked for
        for members_of in sorted(by_file, key=len, reverse=True):
            for name, value in members_of.items():
                found.members.setdefault(name, value)
        return found

    def default(self, name: str) -> str | None:
        """The default of a member."""
        return self.members.get(name)


def declares_settings(raw: bytes) -> bool:
    """Whether a file may declare settings."""
    return any(mark in raw for mark in _MARKS) or any(
        pattern.search(raw) for pattern in (_DEFINED, _ASKED, _NAMED, _DOTTED)
    )


def walk_settings(raw: bytes, file: str, role: Role, language: str, settings: Settings) -> list[Observation]:
    """Observations of the settings that a file declares."""
    if not declares_settings(raw):
        return []
    plain = _TOKENS.sub(lambda m: m[0] if m[0][:1] in b"\"'" else re.sub(rb"[^\n]", b" ", m[0]), raw)
    walk = _Walk(Cited(raw, file, role, language), line_index(raw), plain)
    found: list[Observation] = []
    for maker in (_fields, _flags, _options, _structs, _keys):
        found.extend(maker(walk))
    found.extend(_taken(walk, settings))
    return found[:MANY]


@dataclass
class _Walk:
    cited: Cited
    starts: list[int]
    plain: bytes

    def see(
        self,
        match: re.Match[bytes],
        name: str,
        *,
        value: str | None,
        value_type: str | None,
        detail: str,
        group: int = 0,
    ) -> Observation:
        line = line_at(self.starts, match.start(group))
        last = max(line, min(line_at(self.starts, max(match.end() - 1, match.start())), line + 8))
        return self.cited.observe(
            Kind.OPTION, name, (line, last), when=When.CALL, value=value, value_type=value_type, detail=detail
        )


def _text(raw: bytes | None) -> str:
    return one_line((raw or b"").decode("utf-8", "replace"))


def _guess(value: str | None) -> str | None:
    if value is None:
        return None
    if value in ("true", "false"):
        return "bool"
    if re.fullmatch(r"-?\d+[uUlL]*", value):
        return "int"
    if re.fullmatch(r"-?\d*\.\d*(e-?\d+)?f?", value):
        return "float"
    return "str" if value.startswith('"') else None


def _fields(walk: _Walk) -> Iterator[Observation]:
    aliases: dict[str, list[str]] = {}
    for match in _ALIAS.finditer(walk.plain):
        aliases.setdefault(_text(match[1]), []).append(_text(match[2]))
    for match in _FIELD.finditer(walk.plain):
        name, rest = _text(match[1]), _text_long(match[2])
        default = _DEFAULT.search(rest)
        value = one_line(default[1]) if default else None
        described, bound = _DESCRIBED.search(rest), _RANGE.search(rest)
        parts = [
            "parameter of a structure",
            f"{bound[1]}({one_line(bound[2])})" if bound else "",
            one_line(described[1], 100) if described else "",
        ]
        detail = "; ".join(part for part in parts if part)
        yield walk.see(match, name, value=value, value_type=_guess(value), detail=detail)
        for alias in aliases.get(name, []):
            yield walk.see(match, alias, value=value, value_type=_guess(value), detail=f"another name of `{name}`")


def _text_long(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")[:4_000]


def _flags(walk: _Walk) -> Iterator[Observation]:
    for match in _FLAG.finditer(walk.plain):
        kind = _text(match[1])
        yield walk.see(
            match,
            _text(match[2]),
            value=_text(match[3]),
            value_type=_SIZED.get(kind, "int"),
            detail="command line flag, also set by code and by FLAGS_ variables where that is switched on",
        )
    for match in _ABSL.finditer(walk.plain):
        kind = _text(match[1])
        value_type = _SIZED.get(kind, "int" if "int" in kind else None)
        yield walk.see(match, _text(match[2]), value=_text(match[3]), value_type=value_type, detail="command line flag")


def _options(walk: _Walk) -> Iterator[Observation]:
    for match in _OPTION.finditer(walk.plain):
        init = _INIT.search(_text_long(match[3]))
        kind = _text(match[1])
        value_type = _SIZED.get(kind, "int" if re.search(r"int|unsigned|long", kind) else None)
        value = one_line(init[1]) if init else None
        yield walk.see(match, _text(match[2]), value=value, value_type=value_type, detail="command line option")


def _structs(walk: _Walk) -> Iterator[Observation]:
    for match in _STRUCT.finditer(walk.plain):
        rest = _text_long(match[2])
        constants = dict(re.findall(r"\*\s*(\w+)\s*=\s*\"((?:[^\"\\]|\\.)*)\"", rest))
        scope = re.search(r"\b\w*Scope\w*\s+\w+\s*=\s*[\w:]*?(\w+)\s*;", rest)
        typed = {"InputType", "Type", "DefaultValue", "Default"} & constants.keys()
        if not (typed or scope) or {"Parameters", "Example"} & constants.keys():
            continue  # functions are described in the same way
        kind = (constants.get("InputType") or constants.get("Type") or "").upper()
        value = constants.get("DefaultValue", constants.get("Default"))
        text = one_line(constants.get("Description", ""), 100)
        detail = "; ".join(
            p for p in ("setting of a structure", f"scope {scope[1].lower()}" if scope else "", text) if p
        )
        yield walk.see(match, _text(match[1]), value=value, value_type=sql_type(kind), detail=detail, group=1)


def sql_type(kind: str) -> str | None:
    """`UBIGINT` -> `int`."""
    if re.search(r"\[\]|LIST", kind):
        return "list"
    if "INT" in kind:
        return "int"
    if "BOOL" in kind:
        return "bool"
    if re.search(r"DOUBLE|FLOAT|REAL|NUMBER", kind):
        return "float"
    return "str" if re.search(r"CHAR|STRING|TEXT|ENUM", kind) else None


def _keys(walk: _Walk) -> Iterator[Observation]:
    """`static const char* const kSessionKey = "session.intra_op.allow_spinning";`, several under one head."""
    found = list(_KEY.finditer(walk.plain))
    heads: dict[bytes, int] = {}
    for match in found:
        head = match[2].partition(b".")[0]
        heads[head] = heads.get(head, 0) + 1
    for match in found:
        if heads[match[2].partition(b".")[0]] >= 2:
            detail = f"configuration key, constant {_text(match[1])}"
            yield walk.see(match, _text(match[2]), value=None, value_type=None, detail=detail)


def _taken(walk: _Walk, settings: Settings) -> Iterator[Observation]:
    """`GetInt(params, "num_threads", &num_threads);`: a parameter asked for by its name."""
    found = [m for m in _TAKEN.finditer(walk.plain) if m[2] == m[3].rstrip(b"_")]
    if len(found) < 3:
        return
    for match in found:
        name = _text(match[2])
        value = settings.default(name)
        yield walk.see(match, name, value=value, value_type=_guess(value), detail="parameter asked for by its name")
    names = {_text(m[2]) for m in found}
    pairs = [m for m in _PAIR.finditer(walk.plain) if _text(m[2]) in names and _text(m[1]) not in names]
    for match in pairs if len(pairs) >= 3 else []:
        value = settings.default(_text(match[2]))
        detail = f"another name of `{_text(match[2])}`"
        yield walk.see(match, _text(match[1]), value=value, value_type=_guess(value), detail=detail)
