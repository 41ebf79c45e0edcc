"""The Python walker: from one file's tree to observations."""

from __future__ import annotations

from synth.records import Observation, Role
from synth.walk.config_keys import Family, families, walk_keys
from synth.walk.index import RUNS, PackageIndex
from synth.walk.python_api import walk_api
from synth.walk.python_constants import walk_constants
from synth.walk.python_env import FileWalk, walk_environment
from synth.walk.python_pools import walk_pools
from synth.walk.python_settings import walk_settings
from synth.walk.syntax import PARSE_SECONDS, Cited


def walk_python(
    source: bytes,
    file: str,
    role: Role,
    index: PackageIndex,
    *,
    known: list[Family] | None = None,
    seconds: float = PARSE_SECONDS,
) -> list[Observation]:
    """Observe one Python file.

    Args:
        source: raw bytes of the file.
        file: path relative to the release's root, with `/`.
        role: what part of the release the file is.
        index: cross-file facts; `PackageIndex.build` of all Python files of the release.
        known: families of composed variables, from `families(index)`; looked up if not given.
        seconds: parse limit, where the index did not keep the tree.

    Raises:
        NotParsedError: the file took too long to parse.
    """
    pyfile = index.pyfile(file, source, seconds=seconds)
    walk = FileWalk(pyfile, Cited(source, file, role, "python"), index)
    found = walk_environment(walk)
    if role in RUNS or role is Role.BUILD:
        found += walk_keys(walk, families(index) if known is None else known)
        found += walk_pools(walk)
        found += walk_api(walk)
        found += walk_settings(walk)
    found += walk_constants(walk, found)
    return sorted(found, key=lambda seen: (seen.line, seen.end_line, seen.kind, seen.name))
