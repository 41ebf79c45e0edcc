"""The native libraries of a wheel beside the sources of its sdist: one says how, the other what it was built with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from synth.records import Release
from synth.walk.native import is_binary

MAX_BINARIES = 5_000


def add_binaries(release: Release, wheel: Release) -> int:
    """Move the native libraries of an unpacked wheel below the tree of a release.

    Args:
        release: of sources; gets a folder `<name>-<version>-wheel`.
        wheel: of the same project and version, unpacked elsewhere; it is not whole afterwards.

    Returns:
        How many were moved.
    """
    if wheel.kind != "wheel" or (wheel.name, wheel.version) != (release.name, release.version):
        return 0
    below = release.root / f"{wheel.name}-{wheel.version}-wheel"
    moved = 0
    for folder, folders, files in os.walk(wheel.root, followlinks=False):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if moved < MAX_BINARIES and is_binary(name) and path.is_file() and not path.is_symlink():
                target = below / path.relative_to(wheel.root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
                moved += 1
    return moved
