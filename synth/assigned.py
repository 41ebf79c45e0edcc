"""Attributes of modules that a package's documentation assigns: `pkg.config.NAME = value` is a way to set `NAME`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from synth.records import Kind, Observation, Release, Role, When
from synth.shipped import packages
from synth.walk.roles import role_of

_SUFFIXES = frozenset({".rst", ".md", ".txt"})
_FILES = 2_000
_BYTES = 1 << 20
_PER_FILE = 50
_ASSIGNED = re.compile(
    r"^[ \t]{0,80}(?:>>>[ \t]{1,8}|\.\.\.[ \t]{1,8})?([a-zA-Z_]\w{0,80}(?:\.[a-zA-Z_]\w{0,80}){1,6})"
    r"[ \t]{0,80}=[ \t]{0,8}"
    r"(-?[\d._]{1,40}(?:e-?\d{1,4})?|True|False|None|'[^'\n]{0,200}'|\"[^\"\n]{0,200}\")[ \t]{0,80}(?:#.*)?$",
    re.MULTILINE,
)
# every repetition has a limit, so that a line of blanks costs no more than its length
_IMPORTED = re.compile(
    r"^[ \t]{0,80}(?:>>>[ \t]{1,8})?(?:from[ \t]{1,8}([\w.]{1,200})[ \t]{1,8}import[ \t]{1,8}\(?(\w[\w, \t]{0,400})"
    r"\)?$|import[ \t]{1,8}([\w.]{1,200})(?:[ \t]{1,8}as[ \t]{1,8}(\w{1,80}))?[ \t]{0,8}$)",
    re.MULTILINE,
)


def assigned(release: Release) -> Iterator[Observation]:
    """Options that the documentation of a release sets by assignment, each where that is first written."""
    tops = {name for base, names in packages(release.root) if not base for name in names} or {
        release.name.replace("-", "_")
    }
    seen: set[str] = set()
    for path in _documents(release.root):
        text = _text(path)
        if not any(top in text for top in tops):
            continue
        known = dict(_imports(text))
        file = path.relative_to(release.root).as_posix()
        for match, _ in zip(_ASSIGNED.finditer(text), range(_PER_FILE), strict=False):
            first, _, rest = match[1].partition(".")
            name = f"{known.get(first, first)}.{rest}"
            # an attribute of the package itself or of a class says less than one of a module for settings
            modules = name.split(".")[1:-1]
            if name.partition(".")[0] in tops and modules and name not in seen and all(m.islower() for m in modules):
                seen.add(name)
                yield _observation(name, match, file, text)


def _documents(root: Path) -> Iterator[Path]:
    found = 0
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix not in _SUFFIXES or path.is_symlink() or found >= _FILES:
                continue
            if role_of(path.relative_to(root).as_posix()) in (Role.DOC, Role.EXAMPLE):
                found += 1
                yield path


def _text(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > _BYTES:
            return ""
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _imports(text: str) -> Iterator[tuple[str, str]]:
    for match in _IMPORTED.finditer(text):
        if match[1]:
            for name in re.findall(r"\w+(?:[ \t]{1,8}as[ \t]{1,8}\w+)?", match[2]):
                what, _, alias = re.sub(r"[ \t]+", " ", name).partition(" as ")
                yield alias or what, f"{match[1]}.{what}"
        elif match[4]:
            yield match[4], match[3]


def _observation(name: str, match: re.Match[str], file: str, text: str) -> Observation:
    line = text.count("\n", 0, match.start(1)) + 1
    cited = text.split("\n", line)[line - 1]
    return Observation(
        kind=Kind.OPTION,
        name=name,
        key=name,
        file=file,
        line=line,
        end_line=line,
        text=cited[:2000],
        sha256=hashlib.sha256(cited.encode()).hexdigest(),
        when=When.CALL,
        method="text",
        language="rst",
        detail="weak: an attribute that the documentation assigns",
    )
