"""Unpack an archive that nobody has vouched for.

Only plain files and folders come out, with plain modes; links are never created. Sizes are counted while the
bytes stream, whatever the archive's headers claim, and an archive that is refused leaves nothing on disk.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import mmap
import os
import posixpath
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from synth.records import Skipped, SynthError

_CHUNK_BYTES = 64 << 10  # also the most that a tar header may ask for in one read
_BLOCK_BYTES = 512
_PART_BYTES = 255
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HELP = "get the archive again from a source that you trust"
_TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_ZIP_SUFFIXES = (".zip", ".whl")


@dataclass(frozen=True)
class Limits:
    """How much an archive may unpack to.

    Attributes:
        entries: entries of any kind.
        total_bytes: decompressed bytes of the whole archive, a tar's headers included.
        file_bytes: bytes of one file.
        ratio: decompressed bytes per byte of the archive, looked at beyond `ratio_floor_bytes` only: small
            archives of tables or test data compress well and harm nobody.
        ratio_floor_bytes: see `ratio`.
        name_bytes: bytes of one entry's whole name.
        depth: folders in one name.
    """

    entries: int = 200_000
    total_bytes: int = 8 << 30
    file_bytes: int = 3 << 30
    ratio: int = 100
    ratio_floor_bytes: int = 64 << 20
    name_bytes: int = 1024
    depth: int = 100


DEFAULT_LIMITS = Limits()


def unpack(
    archive: Path,
    dest: Path,
    *,
    limits: Limits = DEFAULT_LIMITS,
    on_skip: Callable[[Skipped], None] | None = None,
) -> Path:
    """Unpack `archive` into the new folder `dest`.

    Args:
        archive: a `.tar.gz`, `.tgz`, `.tar.bz2`, `.tar.xz`, `.tar`, `.zip` or `.whl` file. Archives inside it
            stay packed.
        dest: folder to create; it appears whole or not at all.
        limits: how much may come out.
        on_skip: told of each entry that was left out though harmless: links that stay inside, sparse files,
            names that cannot be shown.

    Returns:
        The archive's single top folder if it has one, else `dest`.

    Raises:
        SynthError: the archive is malicious, damaged, too large or of an unknown format (code 2), or the disk
            does not take it (code 3).
    """
    if not archive.name.endswith(_TAR_SUFFIXES + _ZIP_SUFFIXES):
        raise SynthError(
            f"`{archive.name}` is of a format that is not read",
            help_text=f"formats read: {', '.join(_TAR_SUFFIXES + _ZIP_SUFFIXES)}",
        )
    if os.path.lexists(dest):
        raise SynthError(f"`{dest}` exists already", help_text="remove it or unpack elsewhere")
    try:
        size = archive.stat().st_size
        dest.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", suffix=".part", dir=dest.parent))
    except OSError as error:
        raise _disk_error(error) from error
    try:
        tree = _Tree(part, limits, size, on_skip)
        if archive.name.endswith(_ZIP_SUFFIXES):
            _unpack_zip(archive, tree)
        else:
            _unpack_tar(archive, tree)
        root = _settle(part, dest)
    except BaseException:  # an interrupt cleans up too
        shutil.rmtree(part, ignore_errors=True)
        raise
    return root


def _settle(part: Path, dest: Path) -> Path:
    tops = list(part.iterdir())
    if not tops:
        raise _refused("it holds no files")
    try:
        part.rename(dest)
    except OSError as error:
        raise _disk_error(error) from error
    top = dest / tops[0].name
    return top if len(tops) == 1 and top.is_dir() else dest


class _DamagedError(Exception):
    """The archive's bytes are not what its format says."""


class _Tree:
    """The folder that entries are written to, and everything that is counted on the way."""

    def __init__(
        self, root: Path, limits: Limits, archive_bytes: int, on_skip: Callable[[Skipped], None] | None
    ) -> None:
        self.root = root
        self.limits = limits
        self.on_skip = on_skip
        self.entries = 0
        self.folders: set[tuple[str, ...]] = {()}
        self.spent_bytes = 0
        self.ratio_bytes = max(limits.ratio_floor_bytes, limits.ratio * archive_bytes)

    def spend(self, count: int) -> None:
        """Count decompressed bytes, and stop a bomb."""
        self.spent_bytes += count
        if self.spent_bytes > self.limits.total_bytes:
            raise _refused(f"it unpacks to more than {self.limits.total_bytes:,} bytes")
        if self.spent_bytes > self.ratio_bytes:
            raise _refused(f"it unpacks to more than {self.limits.ratio} times its size, as a bomb does")

    def count_entry(self) -> None:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise _refused(f"it has more than {self.limits.entries:,} entries")

    def parts(self, name: str) -> tuple[str, ...] | None:
        """Split an entry's name; `None` if the entry is left out for its name."""
        if "\0" in name:
            raise _refused(f"an entry has a NUL in its name: `{_shown(name)}`")
        parts = _inner_parts(name)
        if parts is None:
            raise _refused(f"an entry lies outside of the archive: `{_shown(name)}`")
        sizes = [len(part.encode(errors="surrogateescape")) for part in parts]
        if sum(sizes) + len(sizes) > self.limits.name_bytes or len(parts) > self.limits.depth:
            raise _refused(f"an entry has a very long name: `{_shown(name)}`")
        if any(size > _PART_BYTES for size in sizes):
            raise _refused(f"an entry has a very long name: `{_shown(name)}`")
        if _UNPRINTABLE.search(name):
            self.skip(name, "its name has control characters or is not UTF-8")
            return None
        return parts

    def skip(self, name: str, why: str) -> None:
        if self.on_skip is not None:
            self.on_skip(Skipped(file=_shown(name), why=why))

    def add_link(self, name: str, linkname: str, base: str) -> None:
        """Leave out a link that stays inside, refuse one that does not."""
        inside = not linkname.startswith(("/", "\\")) and "\0" not in linkname
        joined = posixpath.normpath(posixpath.join(base, linkname.replace("\\", "/")))
        if not inside or joined.split("/")[0] == ".." or re.match(r"[A-Za-z]:", linkname):
            raise _refused(f"link `{_shown(name)}` points outside of the archive")
        self.skip(name, f"a link to `{_shown(linkname)}`; links are not created")

    def add_folder(self, parts: tuple[str, ...]) -> None:
        for depth in range(1, len(parts) + 1):
            folder = parts[:depth]
            if folder in self.folders:
                continue
            try:
                self.root.joinpath(*folder).mkdir(mode=0o755)
            except FileExistsError:
                raise _refused(f"`{'/'.join(folder)}` is both a file and a folder in it") from None
            except OSError as error:
                raise _disk_error(error) from error
            self.folders.add(folder)

    def add_file(self, parts: tuple[str, ...], chunks: Iterator[bytes]) -> None:
        """Write one file; `chunks` are counted by whoever decompresses them."""
        shown = "/".join(parts)
        if not parts or parts in self.folders:
            raise _refused(f"`{shown}` is both a file and a folder in it")
        self.add_folder(parts[:-1])
        written = 0
        try:
            with self.root.joinpath(*parts).open("xb") as out:
                for chunk in chunks:
                    written += len(chunk)
                    if written > self.limits.file_bytes:
                        raise _refused(f"`{shown}` is larger than {self.limits.file_bytes:,} bytes")
                    out.write(chunk)
        except FileExistsError:
            # Some build tools write a file twice. Two names that this file system holds to be one come here too.
            if not self._same(self.root.joinpath(*parts), chunks):
                raise _refused(f"it has two entries of the name `{shown}`") from None
            self.skip(shown, "a second copy of the same file")
        except OSError as error:
            raise _disk_error(error) from error

    def _same(self, path: Path, chunks: Iterator[bytes]) -> bool:
        """Whether an entry holds what a file holds that was written before."""
        with path.open("rb") as file:
            for chunk in chunks:
                if file.read(len(chunk)) != chunk:
                    return False
            return not file.read(1)


class _TarStream:
    """A tar's decompressed bytes: forward only, counted, and never more than a chunk in memory.

    `tarfile` would hold a whole header in memory whatever size it claims, and its own decompressing stream
    expands a block of bzip2 without bound.
    """

    def __init__(self, raw: IO[bytes], tree: _Tree) -> None:
        self.raw = raw
        self.tree = tree
        self.position = 0
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _CHUNK_BYTES:
            raise _DamagedError
        data = b""
        try:
            while len(data) < size and (more := self.raw.read(size - len(data))):
                data += more
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
            raise _DamagedError from error
        self.position += len(data)
        self.tree.spend(len(data))
        self.last = data
        return data

    def tell(self) -> int:
        return self.position

    def seek(self, position: int) -> int:
        # Backwards would be a header with a negative size, which loops in some versions of tarfile.
        if position < self.position:
            raise _DamagedError
        while self.position < position:
            if not self.read(min(_CHUNK_BYTES, position - self.position)):
                raise _DamagedError
        return self.position

    def finish(self, *, checked: bool) -> None:
        """Make sure that the archive ends where it should.

        `tarfile` takes a damaged header for the end. A sound end is a block of zeros, or, where a compressed
        stream vouches for its own length, the end of the stream.
        """
        ended = len(self.last) == _BLOCK_BYTES and not self.last.strip(b"\0")
        if not ended and not (checked and not self.last):
            raise _DamagedError
        while self.read(_CHUNK_BYTES):
            pass


def _unpack_tar(archive: Path, tree: _Tree) -> None:
    try:
        with archive.open("rb") as packed:
            magic = packed.read(6)
            packed.seek(0)
            raw = _decompressed(packed, magic)
            stream = _TarStream(raw, tree)
            with closing(tarfile.TarFile(fileobj=cast("IO[bytes]", stream))) as tar:
                while (member := _next_member(tar)) is not None:
                    _add_member(tar, member, tree)
            stream.finish(checked=raw is not packed)
    except SynthError:
        raise
    except Exception as error:  # tarfile raises nearly anything on hostile bytes
        raise _damaged(archive) from error


def _decompressed(packed: IO[bytes], magic: bytes) -> IO[bytes]:
    # By content, as a .tgz is often something else.
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=packed))
    if magic.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(packed))
    if magic == b"\xfd7zXZ\0":
        return cast("IO[bytes]", lzma.LZMAFile(packed))
    return packed


def _next_member(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    member = tar.next()
    # Neither the members seen nor the global headers may grow with the archive.
    tar.members = []  # type: ignore[attr-defined]  # long standing, though undocumented
    tar.pax_headers = {}
    return member


def _add_member(tar: tarfile.TarFile, member: tarfile.TarInfo, tree: _Tree) -> None:
    tree.count_entry()
    if member.ischr() or member.isblk() or member.isfifo():
        raise _refused(f"`{_shown(member.name)}` is a device or a pipe")
    parts = tree.parts(member.name)
    if parts is None:
        return
    if member.issym():
        tree.add_link(member.name, member.linkname, posixpath.dirname("/".join(parts)))
    elif member.islnk():
        tree.add_link(member.name, member.linkname, "")
    elif member.isdir():
        tree.add_folder(parts)
    elif member.issparse():
        # A crafted map of holes makes tarfile loop for ever; build tools write none.
        tree.skip(member.name, "a sparse file")
    elif member.isreg():
        content = tar.extractfile(member)
        if content is not None:
            tree.add_file(parts, _chunks(content))
    else:
        tree.skip(member.name, "an entry of an unknown kind")


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    try:
        while chunk := content.read(_CHUNK_BYTES):
            yield chunk
    except OSError as error:
        # Not the disk that is written to: tarfile's and zipfile's own errors are of this class too.
        raise _DamagedError from error


def _unpack_zip(archive: Path, tree: _Tree) -> None:
    try:
        _count_zip_entries(archive, tree.limits)
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                _add_info(zipped, info, tree)
    except SynthError:
        raise
    except Exception as error:  # zipfile raises nearly anything on hostile bytes
        raise _damaged(archive) from error


def _count_zip_entries(archive: Path, limits: Limits) -> None:
    # zipfile makes an object of each entry of the directory before it shows the first, whatever their number.
    with archive.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found, at = 0, data.find(b"PK\x01\x02")
        while at >= 0:
            found += 1
            if found > limits.entries:
                raise _refused(f"it has more than {limits.entries:,} entries")
            at = data.find(b"PK\x01\x02", at + 4)


def _add_info(zipped: zipfile.ZipFile, info: zipfile.ZipInfo, tree: _Tree) -> None:
    tree.count_entry()
    name = info.orig_filename  # `filename` is cut at a NUL
    parts = tree.parts(name)
    if parts is None:
        return
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}:
        raise _refused(f"`{_shown(name)}` is a device or a pipe")
    if info.is_dir():
        tree.add_folder(parts)
        return
    if info.flag_bits & 0x41:
        raise _refused(f"`{_shown(name)}` is encrypted")
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        # zipfile expands a block of the others without bound, and wheels use none of them.
        raise _refused(f"`{_shown(name)}` is compressed in a way that is not read")
    with zipped.open(info) as content:
        if kind == stat.S_IFLNK:
            target = content.read(tree.limits.name_bytes).decode(errors="replace")
            tree.add_link(name, target, posixpath.dirname("/".join(parts)))
        else:
            tree.add_file(parts, _spending(_chunks(content), tree))


def _spending(chunks: Iterator[bytes], tree: _Tree) -> Iterator[bytes]:
    for chunk in chunks:
        tree.spend(len(chunk))
        yield chunk


def _inner_parts(name: str) -> tuple[str, ...] | None:
    """Split a name at its slashes; `None` if it is absolute or climbs, on this system or on Windows."""
    if not name or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        return None
    if ".." in re.split(r"[/\\]", name):
        return None
    return tuple(part for part in name.split("/") if part not in {"", "."})


def _shown(name: str) -> str:
    cut = name if len(name) <= 200 else name[:200] + "..."
    return _UNPRINTABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", cut)


def _refused(why: str) -> SynthError:
    return SynthError(f"archive is refused: {why}", help_text=_HELP)


def _damaged(archive: Path) -> SynthError:
    return SynthError(f"archive is truncated or damaged: `{archive.name}`", help_text=_HELP)


def _disk_error(error: OSError) -> SynthError:
    reason = os.strerror(error.errno).lower() if error.errno else "unknown error"
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    help_text = "free some space or unpack elsewhere" if full else "check the folder's permissions"
    return SynthError(f"cannot unpack: {reason}", help_text=help_text, code=3)
