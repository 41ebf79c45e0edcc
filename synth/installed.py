"""An installed distribution as a release: the files that its RECORD lists, and no others of its folder."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from synth.records import Release, SynthError, Target

MAX_FILES = 200_000
_RECORD_BYTES = 64 << 20
_HELP = "name one that is installed beside this program, or the path of its `.dist-info` folder"


def find_distribution(target: Target, paths: Sequence[str] | None = None) -> Path:
    """The metadata folder of an installed distribution; nothing of it is imported.

    Args:
        target: with a path to the metadata folder, or a name to look for.
        paths: folders to look in; those of this program if not given.

    Raises:
        SynthError: it is not installed.
    """
    if target.path is not None:
        return target.path
    for folder in paths if paths is not None else sys.path:
        for found in sorted(Path(folder or ".").glob("*.dist-info")) if folder else []:
            name = found.name.removesuffix(".dist-info").partition("-")[0]
            if canonicalize_name(name) == target.name and (found / "RECORD").is_file():
                return found
    raise SynthError(f"`{target.name}` is not installed", help_text=_HELP)


def installed_release(target: Target, work_dir: Path, paths: Sequence[str] | None = None) -> Release:
    """A tree of the files of an installed distribution.

    The files are linked into a folder of their own where the file system allows it, and copied elsewhere, so that a
    walker sees nothing of other distributions.

    Raises:
        SynthError: it is not installed, or has no list of its files.
    """
    info = find_distribution(target, paths)
    site = info.parent.resolve()
    name, version = target.name, "0"
    match = re.fullmatch(r"(.+)-([^-]+)\.dist-info", info.name)
    if match:
        name, version = canonicalize_name(match[1]), match[2]
    root = work_dir / f"{name}-{version}-installed"
    shutil.rmtree(root, ignore_errors=True)
    digest, count = hashlib.sha256(), 0
    for relative in _recorded(info / "RECORD", site):
        source, copy = site / relative, root / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            _place(source, copy)
            digest.update(f"{relative}\0{source.stat().st_size}\n".encode())
        except OSError:
            continue
        count += 1
    if not count:
        raise SynthError(f"`{name}` lists no files that are there", help_text="install it again")
    return Release(
        name=name,
        version=version,
        root=root,
        kind="folder",
        filename=f"{name}-{version} (installed)",
        sha256=digest.hexdigest(),
        verified="unverified",
        location=f"{name}-{version}",
    )


def _place(source: Path, copy: Path) -> None:
    try:
        os.link(source, copy)
    except FileExistsError:
        return
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, copy)


def _recorded(record: Path, site: Path) -> Iterator[str]:
    """Paths below the folder of an installation that its list names: plain files, each once."""
    try:
        if record.stat().st_size > _RECORD_BYTES:
            raise SynthError(f"the list of files of `{record.parent.name}` is too long", help_text=_HELP)
        rows = list(csv.reader(record.read_text("utf-8", errors="replace").splitlines()))
    except (OSError, csv.Error) as error:
        raise SynthError(f"`{record.parent.name}` has no list of its files", help_text=_HELP) from error
    for row in rows[:MAX_FILES]:
        parts = row[0].split("/") if row else []
        if not parts or ".." in parts or parts[0] == "" or "__pycache__" in parts:
            continue
        path = site / row[0]
        if not path.is_symlink() and path.is_file() and path.resolve().is_relative_to(site):
            yield row[0]
