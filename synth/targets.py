"""What the user names on the command line: a project, a requirement, a local archive or a folder.

Everything is read statically: a folder's name and version come from its metadata files, never from running
its build.
"""

from __future__ import annotations

import configparser
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import (
    InvalidName,
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from synth.records import SynthError, Target

SDIST_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip")
WHEEL_SUFFIX = ".whl"

_EXAMPLES = "for example `numexpr`, `numexpr==2.14.2`, `./numexpr-2.14.2.tar.gz` or a folder such as `./numexpr`"
# Whatever holds `://` is a URL too.
_URL = re.compile(r"file:|(git|hg|svn|bzr)\+")
# Names that an index or an archive hands us become file names of ours, so nothing beyond what PEP 503 names
# and PEP 440 versions are made of passes.
_PLAIN_FILENAME = re.compile(r"[A-Za-z0-9_.!+-]{1,200}")
_INSTALLED = "installed:"
_METADATA_BYTES = 4 << 20
_SHOWN_CHARACTERS = 200


class ArchiveName(NamedTuple):
    """What an archive's file name says."""

    name: str
    version: Version
    kind: Literal["sdist", "wheel"]
    tags: frozenset[Tag]


def parse_target(text: str) -> Target:
    """Read one target as typed.

    Extras and environment markers are accepted and ignored: they select dependencies, and a contract is about
    one release's own files.

    Args:
        text: `name`, `name==version`, any PEP 508 requirement without a URL, `installed:NAME`, or a path. As with
            pip, a bare word is a project name even where a folder of that name exists; `./word` is the folder.

    Returns:
        The target; `path` is set for archives and folders only.

    Raises:
        SynthError: the text is none of these.
    """
    text = text.strip()
    if not text or "\0" in text:
        raise SynthError("the target is empty" if not text else "the target holds a NUL", help_text=_EXAMPLES)
    # The text of a URL is not shown: it can hold credentials.
    if "://" in text or _URL.match(text):
        raise _url_refused()
    if text.startswith(_INSTALLED):
        return _installed_target(text)
    if _looks_like_path(text):
        return _path_target(text)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise _not_a_requirement(text) from error
    if requirement.url is not None:
        if "/" in requirement.url or ":" in requirement.url:
            raise _url_refused()
        fix = f"write `{requirement.name}=={_shown(requirement.url)}` to name a version"
        raise SynthError(f"`{_shown(text)}` is not a requirement", help_text=fix)
    name = canonicalize_name(requirement.name)
    return Target(text=text, name=name, specifier=str(requirement.specifier))


def read_filename(filename: str) -> ArchiveName | None:
    """Read name and version off an archive's file name; `None` if it is no sdist's and no wheel's.

    Unlike `packaging`, this knows the older sdist suffixes (`.tgz`, `.tar.bz2`, `.tar.xz`, `.tar`).
    """
    if not _PLAIN_FILENAME.fullmatch(filename):
        return None
    try:
        if filename.endswith(WHEEL_SUFFIX):
            wheel, version, _, tags = parse_wheel_filename(filename)
            return ArchiveName(wheel, version, "wheel", tags)
        suffix = next((s for s in SDIST_SUFFIXES if filename.endswith(s)), None)
        if suffix is None:
            return None
        sdist, version = parse_sdist_filename(filename.removesuffix(suffix) + ".tar.gz")
        return ArchiveName(canonicalize_name(sdist, validate=True), version, "sdist", frozenset())
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion, InvalidName):
        return None


def folder_identity(folder: Path) -> tuple[str, str]:
    """Find a folder's project name and version in its metadata files.

    Sources, first that knows wins: `pyproject.toml`, `PKG-INFO`, a lone `*.dist-info/METADATA`, `setup.cfg`.
    A version that only a build could tell (`dynamic`, `attr:`) counts as unknown.

    Returns:
        Normalised name and version; the folder's own name and `0` where no file says.
    """
    name = version = None
    for reader in (_from_pyproject, metadata_identity, _from_setup_cfg):
        found_name, found_version = reader(folder)
        # A version belongs to the name it stands beside: two files that disagree are not mixed.
        if name and found_name and canonicalize_name(found_name) != canonicalize_name(name):
            continue
        name, version = name or found_name, version or found_version
    return _folder_name(folder) if not name else canonicalize_name(name), version or _commit(folder) or "0"


def _commit(folder: Path) -> str | None:
    """The commit of a git checkout as a local version, read off its files; git is not run."""
    text = next((data.decode("ascii", "replace").strip() for data in _contents([folder / ".git" / "HEAD"])), "")
    reference = re.fullmatch(r"ref: (refs/[\w./+-]{1,200})", text)
    if reference and ".." not in text:
        files = [folder / ".git" / reference[1]]
        text = next((data.decode("ascii", "replace").strip() for data in _contents(files)), "")
        if not text:
            packed = next(iter(_contents([folder / ".git" / "packed-refs"])), b"").decode("ascii", "replace")
            found = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(reference[1])}$", packed, re.MULTILINE)
            text = found[1] if found else ""
    return f"0+g{text[:12]}" if re.fullmatch(r"[0-9a-f]{40,64}", text) else None


def metadata_identity(root: Path) -> tuple[str | None, str | None]:
    """Read name and version from an sdist's `PKG-INFO` or a wheel's `METADATA` under `root`."""
    files = [root / "PKG-INFO", *_dist_info_metadata(root)]
    for data in _contents(files):
        raw, _ = parse_email(data)
        name, version = _valid_name(raw.get("name")), _valid_version(raw.get("version"))
        if name or version:
            return name, version
    return None, None


def _looks_like_path(text: str) -> bool:
    # pip's own rule, plus `~` for shells that did not expand it.
    # What follows `;` is a marker, what follows `@` a URL.
    return os.sep in re.split("[;@]", text)[0] or text[0] in ".~" or text.endswith(_suffixes())


def _suffixes() -> tuple[str, ...]:
    return (*SDIST_SUFFIXES, WHEEL_SUFFIX)


def _installed_target(text: str) -> Target:
    """`installed:NAME`: a distribution of the environment that this program runs in."""
    name = text.removeprefix(_INSTALLED).strip()
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,100}[A-Za-z0-9])?", name):
        raise SynthError(f"`{_shown(name)}` is no name of a distribution", help_text="for example `installed:numpy`")
    return Target(text=text, name=canonicalize_name(name), installed=True)


def _path_target(text: str) -> Target:
    path = Path(text)
    try:
        path = path.expanduser()
        is_folder, is_file, exists = path.is_dir(), path.is_file(), path.exists()
    except (OSError, RuntimeError) as error:
        raise SynthError(f"cannot look at `{_shown(text)}`", help_text=_EXAMPLES) from error
    if is_folder and path.name.endswith(".dist-info") and (path / "RECORD").is_file():
        name = canonicalize_name(path.name.removesuffix(".dist-info").partition("-")[0])
        return Target(text=text, name=name, path=path, installed=True)
    if is_folder:
        return Target(text=text, name=folder_identity(path)[0], path=path)
    if not exists:
        raise SynthError(f"no file or folder `{_shown(text)}`", help_text=f"check the path; {_EXAMPLES}")
    if not is_file or not path.name.endswith(_suffixes()):
        raise SynthError(
            f"`{_shown(text)}` is not an archive that can be read",
            help_text=f"give a folder or a file that ends in {', '.join(_suffixes())}",
        )
    parsed = read_filename(path.name)
    if parsed is None:
        raise SynthError(
            f"`{_shown(path.name)}` does not say which project and version it holds",
            help_text="name the archive `<project>-<version>.tar.gz`, or unpack it and give the folder",
        )
    return Target(text=text, name=parsed.name, specifier=f"=={parsed.version}", path=path)


def _url_refused() -> SynthError:
    return SynthError(
        "the target is a URL, and URLs are not read",
        help_text="give the project's name, or download the archive and give its path",
    )


def _not_a_requirement(text: str) -> SynthError:
    single = re.fullmatch(r"\s*([A-Za-z0-9._-]+)\s*=\s*([^=\s]+)\s*", text)
    help_text = f"write `{single[1]}=={single[2]}`" if single else _EXAMPLES
    return SynthError(f"`{_shown(text)}` is not a project, requirement or path", help_text=help_text)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _folder_name(folder: Path) -> str:
    # A folder can be called anything; what is left of its name must still be a project name.
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("._-")
    return canonicalize_name(plain or "unnamed")


def _valid_name(value: object) -> str | None:
    try:
        return canonicalize_name(value, validate=True) if isinstance(value, str) else None
    except InvalidName:
        return None


def _valid_version(value: object) -> str | None:
    try:
        return str(Version(value)) if isinstance(value, str) else None
    except InvalidVersion:
        return None


def _contents(files: list[Path]) -> Iterator[bytes]:
    for file in files:
        try:
            # Only plain files: a pipe or a device under one of these names must not be waited for.
            if file.is_file():
                with file.open("rb") as stream:
                    yield stream.read(_METADATA_BYTES)
        except OSError:
            continue


def _dist_info_metadata(root: Path) -> list[Path]:
    try:
        found = sorted(root.glob("*.dist-info/METADATA"))
    except OSError:
        return []
    # Several mean a site-packages folder, which is no one release.
    return found if len(found) == 1 else []


def _from_pyproject(folder: Path) -> tuple[str | None, str | None]:
    def parse(data: bytes) -> dict[str, Any]:
        return tomllib.loads(data.decode())

    table = _first_table(folder / "pyproject.toml", parse)
    tool = table.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    for section in (table.get("project"), poetry):
        if isinstance(section, dict) and "name" in section:
            return _valid_name(section["name"]), _valid_version(section.get("version"))
    return None, None


def _from_setup_cfg(folder: Path) -> tuple[str | None, str | None]:
    def parse(data: bytes) -> dict[str, Any]:
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(data.decode())
        return dict(parser["metadata"]) if parser.has_section("metadata") else {}

    table = _first_table(folder / "setup.cfg", parse)
    return _valid_name(table.get("name")), _valid_version(table.get("version"))


def _first_table(file: Path, parse: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    for data in _contents([file]):
        try:
            return parse(data)
        except (ValueError, RecursionError, configparser.Error):
            # A damaged metadata file names nothing; the folder can still be read.
            return {}
    return {}
