"""Which Python of a source release is installed: its metadata names it; the rest serves the project."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from configparser import ConfigParser, Error
from pathlib import Path
from typing import Any

from synth.records import Observation, Release, Role

_BYTES = 1 << 20
_FILES = 64  # metadata files that are read
_RELEASE = re.compile(r"[^/]+-\d[^/]*/")  # a release that was moved into the one that it belongs to
_LANGUAGES = frozenset({"python", "cython"})
OUTSIDE = "outside of the packages that are installed"


def mark_unshipped(release: Release, seen: Iterable[Observation]) -> list[Observation]:
    """Observations, with those in Python that is not installed marked as serving the project only.

    Nothing is marked where the metadata names no package, or none that library code is in: then it is not understood.
    """
    found = list(seen)
    for base, names in () if release.kind == "wheel" else packages(release.root):
        if not any(_own(o) and _within(o.file, base, names) for o in found):
            continue
        found = [
            o.model_copy(update={"role": Role.BUILD, "detail": f"{OUTSIDE}; {o.detail}"})
            if _own(o) and _below(o.file, base) and not _within(o.file, base, names)
            else o
            for o in found
        ]
    return found


def _own(seen: Observation) -> bool:
    return seen.role in (Role.LIBRARY, Role.VENDORED) and seen.language in _LANGUAGES


def _below(file: str, base: str) -> bool:
    """Whether a file belongs to a release: by its folder, or as one of those that are in no release's folder."""
    return file.startswith(f"{base}/") if base else not _RELEASE.match(file)


def _within(file: str, base: str, names: frozenset[str]) -> bool:
    if not _below(file, base):
        return False
    *folders, last = file.removeprefix(f"{base}/").split("/")
    return any(folder in names for folder in folders) or last.partition(".")[0] in names


def packages(root: Path) -> list[tuple[str, frozenset[str]]]:
    """(folder, top-level packages and modules) of a release and of those moved into it, where metadata names them."""
    others = [p for p in sorted(root.glob("*-[0-9]*")) if p.is_dir()][:_FILES]
    found = [(base.name if base != root else "", frozenset(_of_one(base))) for base in (root, *others)]
    return [(base, names) for base, names in found if names]


def _of_one(base: Path) -> set[str]:
    infos = [*base.glob("*.egg-info"), *base.glob("*/*.egg-info"), *base.glob("*.dist-info")][:_FILES]
    tops = {line.strip() for info in infos for line in _text(info / "top_level.txt").splitlines()}
    tops.update(_from_project(base / "pyproject.toml"))
    tops.update(_from_setup(base / "setup.cfg"))
    return {top for name in tops if (top := _top(name))} or _importable(base)


def _importable(base: Path) -> set[str]:
    """Packages that lie where packages lie, if one is called like the project or is in its wheel."""
    wheels = {_top(p.name) for p in base.glob("*-wheel/*") if p.is_dir()}
    try:
        project = tomllib.loads(_text(base / "pyproject.toml")).get("project", {})
    except ValueError:
        project = {}
    name = project.get("name") if isinstance(project, dict) else None
    known = wheels | ({re.sub(r"[-.]+", "_", name).lower()} if isinstance(name, str) else set())
    found = {p.parent.name for where in ("", "src/", "python/", "lib/") for p in base.glob(f"{where}*/__init__.py")}
    return found if found & (known - {""}) else set()


def _top(name: str) -> str:
    parts = [part for part in name.replace("\\", "/").replace(".", "/").split("/") if part not in ("", "..")]
    if parts[:1] in (["src"], ["python"], ["lib"]) and len(parts) > 1:
        parts = parts[1:]
    return parts[0] if parts and parts[0].isidentifier() else ""


def _from_project(path: Path) -> Iterator[str]:
    try:
        tool = tomllib.loads(_text(path)).get("tool", {})
    except ValueError:
        return
    for keys in (
        ("setuptools", "packages"),
        ("setuptools", "py-modules"),
        ("scikit-build", "wheel", "packages"),
        ("hatch", "build", "targets", "wheel", "packages"),
        ("poetry", "packages"),
        ("flit", "module", "name"),
        ("maturin", "module-name"),
        ("maturin", "python-packages"),
    ):
        value: Any = tool
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        for entry in value if isinstance(value, list) else [value]:
            name = entry.get("include") if isinstance(entry, dict) else entry
            if isinstance(name, str):
                yield name


def _from_setup(path: Path) -> Iterator[str]:
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_text(path))
    except Error:
        return
    for key in ("packages", "py_modules"):
        value = parser.get("options", key, fallback="")
        if "find" not in value:
            yield from value.replace(",", "\n").split()


def _text(path: Path) -> str:
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _BYTES:
            return ""
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
