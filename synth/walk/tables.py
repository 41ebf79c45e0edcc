"""Settings in JSON, TOML and INI files of a release: tables of names that code is made from, and files of defaults."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from synth.records import Kind, Observation, Role, When
from synth.walk.c_settings import sql_type
from synth.walk.syntax import Cited, one_line

TABLE_SUFFIXES = frozenset({".json", ".toml", ".ini", ".cfg", ".yaml", ".yml"})
MAX_BYTES = 2_000_000
MANY = 2_000  # settings of one file
_DEPTH = 6
_NAMED = re.compile(
    r"(^|[._-])(settings?|options?|configs?|configuration|defaults?|params?|parameters|flags|properties)([._-]|$)",
    re.IGNORECASE,
)
_WORDS = frozenset(
    {"description", "type", "default", "default_value", "doc", "help", "scope", "default_scope", "desc", "sql_type"}
)
_IDENTIFIER = re.compile(r"^[A-Za-z_][\w.-]{1,80}$")


def is_settings_file(path: str) -> bool:
    """Whether a file is named as one that holds settings."""
    name = path.rpartition("/")[2]
    stem, _, suffix = name.rpartition(".")
    if name in ("package.json", "tsconfig.json", "setup.cfg", "tox.ini", "pytest.ini", "mypy.ini", "pyproject.toml"):
        return False
    return f".{suffix.lower()}" in TABLE_SUFFIXES and bool(_NAMED.search(stem))


def walk_table(raw: bytes, file: str, role: Role) -> list[Observation]:
    """Observations of the settings in one file; what cannot be read holds none."""
    if len(raw) > MAX_BYTES or not is_settings_file(file):
        return []
    cited = Cited(raw, file, role, "text")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return []
    suffix = file.rpartition(".")[2].lower()
    try:
        if suffix == "json":
            found = list(_records(json.loads(text)))
        elif suffix == "toml":
            found = [(k, v, "", "") for k, v in _plain(tomllib.loads(text), "", 0)]
        elif suffix in ("ini", "cfg"):
            found = [(k, v, "", "") for k, v in _sections(text)]
        else:
            return []
    except (ValueError, RecursionError, configparser.Error):
        return []
    lines = _lines(text)
    return [_observed(cited, entry, lines) for entry in found[:MANY]]


Entry = tuple[str, str | None, str, str]  # name, default, type, remark


def _records(data: Any) -> Iterator[Entry]:
    """Objects with a name and what describes a setting, in lists at any depth."""
    stack: list[tuple[Any, int]] = [(data, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > _DEPTH:
            continue
        if isinstance(item, dict):
            stack.extend((v, depth + 1) for v in item.values() if isinstance(v, (dict, list)))
            continue
        if not isinstance(item, list):
            continue
        named = [e for e in item if isinstance(e, dict) and isinstance(e.get("name"), str)]
        described = [e for e in named if len(_WORDS & e.keys()) >= 2]
        if len(described) >= 2 and len(described) * 2 >= len(item):
            for entry in described:
                yield from _record(entry)
        else:
            stack.extend((e, depth + 1) for e in item if isinstance(e, (dict, list)))


def _record(entry: dict[str, Any]) -> Iterator[Entry]:
    default = next((entry[k] for k in ("default_value", "default") if k in entry), None)
    kind = str(entry.get("sql_type", entry.get("type", "")))
    scope = str(entry.get("scope", entry.get("default_scope", "")))
    remark = "; ".join(
        p for p in (f"scope {scope}" if scope else "", one_line(str(entry.get("description", "")), 100)) if p
    )
    value = None if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    if _IDENTIFIER.match(entry["name"]):
        yield entry["name"], value, kind, remark
    aliases = entry.get("aliases")
    for alias in aliases if isinstance(aliases, list) else []:
        if isinstance(alias, str) and _IDENTIFIER.match(alias):
            yield alias, value, kind, f"another name of `{entry['name']}`"


def _plain(table: dict[str, Any], head: str, depth: int) -> Iterator[tuple[str, str | None]]:
    for key, value in table.items():
        name = f"{head}.{key}" if head else key
        if isinstance(value, dict) and depth < _DEPTH:
            yield from _plain(value, name, depth + 1)
        elif isinstance(value, (str, int, float, bool)) and _IDENTIFIER.match(name):
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


def _sections(text: str) -> Iterator[tuple[str, str | None]]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read_string(text)
    for section in parser.sections():
        for key, value in parser.items(section):
            if _IDENTIFIER.match(f"{section}.{key}"):
                yield f"{section}.{key}", value


def _lines(text: str) -> dict[str, int]:
    """First line on which each quoted or leading name stands."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        for name in re.findall(r"\"([A-Za-z_][\w.-]{1,80})\"|^\s*([A-Za-z_][\w-]{1,80})\s*[=:]", line[:2_000]):
            found.setdefault(name[0] or name[1], number)
    return found


def _observed(cited: Cited, entry: Entry, lines: dict[str, int]) -> Observation:
    name, value, kind, remark = entry
    line = lines.get(name) or lines.get(name.rpartition(".")[2], 1)
    return cited.observe(
        Kind.OPTION,
        name,
        (line, line),
        when=When.CALL,
        value=value,
        value_type=sql_type(kind.upper()) or ("bool" if value in ("true", "false") else None),
        detail="; ".join(p for p in ("entry of a table of settings", remark) if p),
    )
