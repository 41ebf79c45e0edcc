"""Archives come out whole, or are refused and leave nothing behind."""

import bz2
import gzip
import io
import lzma
import random
import resource
import stat
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.records import SynthError
from synth.unpack import Limits, unpack

NOISE = random.Random(7).randbytes(3000)  # does not compress, so that a cut hits every part of an archive
FILES = {"demo-1.0/PKG-INFO": b"Name: demo\n", "demo-1.0/src/a.py": b"x = 1\n", "demo-1.0/noise": NOISE}
TAR_PACKERS = {
    ".tar.gz": lambda data: gzip.compress(data, mtime=0),
    ".tgz": lambda data: gzip.compress(data, mtime=0),
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
    ".tar": bytes,
}
SUFFIXES = [*TAR_PACKERS, ".zip", ".whl"]


def member(name, data=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, data


def tar_bytes(*members, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_bytes(entries, compression=zipfile.ZIP_DEFLATED):
    """Entries are (ZipInfo or name, data)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as zipped:
        for info, data in entries:
            zipped.writestr(info, data)
    return out.getvalue()


def archive_bytes(suffix, files):
    if suffix in {".zip", ".whl"}:
        return zip_bytes(files.items())
    return TAR_PACKERS[suffix](tar_bytes(*(member(name, data) for name, data in files.items())))


def write(tmp_path, suffix, data):
    archive = tmp_path / f"demo-1.0{suffix}"
    archive.write_bytes(data)
    return archive


def tree(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def refused(tmp_path, archive, **arguments):
    """Unpack what must be refused; nothing but the archive may remain."""
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(SynthError) as caught:
        unpack(archive, tmp_path / "out", **arguments)
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert caught.value.code == 2
    assert caught.value.help
    return str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_single_top_folder_is_the_root(tmp_path, suffix):
    root = unpack(write(tmp_path, suffix, archive_bytes(suffix, FILES)), tmp_path / "deep" / "out")
    assert root == tmp_path / "deep" / "out" / "demo-1.0"
    assert {f"demo-1.0/{name}": data for name, data in tree(root).items()} == FILES
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


@pytest.mark.parametrize("suffix", [".tar.gz", ".whl"])
def test_several_tops_or_a_single_file_keep_the_folder(tmp_path, suffix):
    several = {"a/x.py": b"", "a-1.dist-info/METADATA": b"Name: a"}
    assert unpack(write(tmp_path, suffix, archive_bytes(suffix, several)), tmp_path / "out") == tmp_path / "out"
    single = write(tmp_path, suffix, archive_bytes(suffix, {"x.py": b""}))
    assert unpack(single, tmp_path / "one") == tmp_path / "one"


def test_the_compression_is_known_by_content(tmp_path):
    root = unpack(write(tmp_path, ".tar.gz", archive_bytes(".tar.xz", FILES)), tmp_path / "out")
    assert (root / "src/a.py").read_bytes() == b"x = 1\n"


def test_archives_inside_stay_packed(tmp_path):
    inner = archive_bytes(".zip", FILES)
    root = unpack(write(tmp_path, ".zip", archive_bytes(".zip", {"d/inner.zip": inner})), tmp_path / "out")
    assert tree(root) == {"inner.zip": inner}


def test_folders_may_be_listed_twice_and_names_may_have_dots_and_slashes(tmp_path):
    folder = {"type": tarfile.DIRTYPE}
    data = tar_bytes(
        member("./", **folder),
        member("./d", **folder),
        member("./d//a", b"1"),
        member("d/", **folder),
        member("d/é", b"2"),
    )
    assert tree(unpack(write(tmp_path, ".tar", data), tmp_path / "out")) == {"a": b"1", "é": b"2"}


def test_modes_are_plain_whatever_the_archive_says(tmp_path):
    data = tar_bytes(member("d/a", b"1", mode=0o6777), member("d/b", b"1", mode=0))
    unpack(write(tmp_path, ".tar", data), tmp_path / "tar")
    info = zipfile.ZipInfo("d/a")
    info.external_attr = (stat.S_IFREG | 0o6777) << 16
    unpack(write(tmp_path, ".zip", zip_bytes([(info, b"1")])), tmp_path / "zip")
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    for file in (tmp_path / "tar/d/a", tmp_path / "tar/d/b", tmp_path / "zip/d/a"):
        assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


OUTSIDE = "outside of the archive"
BAD_NAMES = [
    ("/etc/passwd", OUTSIDE),
    ("../evil", OUTSIDE),
    ("d/../../evil", OUTSIDE),
    ("d/..", OUTSIDE),
    ("C:/evil", OUTSIDE),
    ("c:evil", OUTSIDE),
    ("\\evil", OUTSIDE),
    ("\\\\host\\share", OUTSIDE),
    ("d\\..\\..\\evil", OUTSIDE),
    ("n" * 256, "very long name"),
    ("d/" * 101 + "a", "very long name"),
    ("/".join(["n" * 200] * 6), "very long name"),
]


@pytest.mark.parametrize(("name", "message"), BAD_NAMES)
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, "zip", "zip folder"])
def test_bad_names(tmp_path, name, message, kind):
    if kind == "zip":
        archive = write(tmp_path, ".zip", zip_bytes([("ok", b""), (name, b"")]))
    elif kind == "zip folder":
        archive = write(tmp_path, ".zip", zip_bytes([("ok", b""), (name + "/", b"")]))
    else:
        archive = write(
            tmp_path, ".tar.gz", gzip.compress(tar_bytes(member("ok"), member(name, type=kind, linkname="ok")))
        )
    assert message in refused(tmp_path, archive)


def test_nul_in_a_name(tmp_path):
    data = zip_bytes([("ok", b""), ("badXname", b"")]).replace(b"badXname", b"bad\0name")
    assert "NUL" in refused(tmp_path, write(tmp_path, ".zip", data))
    data = tar_bytes(member("ok"), member("x" * 150)).replace(b"x" * 150, b"x" * 75 + b"\0" + b"x" * 74)
    assert "NUL" in refused(tmp_path, write(tmp_path, ".tar", data))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, "zip"])
@pytest.mark.parametrize(
    "linkname", ["/etc/passwd", "../../evil", "..\\..\\evil", "C:\\evil", "\\evil", "../d/../../evil", "../.."]
)
def test_links_that_point_outside(tmp_path, kind, linkname):
    if kind == "zip":
        info = zipfile.ZipInfo("d/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive = write(tmp_path, ".zip", zip_bytes([("d/ok", b""), (info, linkname.encode())]))
    else:
        data = tar_bytes(member("d/ok", b"1"), member("d/link", type=kind, linkname=linkname))
        archive = write(tmp_path, ".tar", data)
    assert "`d/link` points outside" in refused(tmp_path, archive)


def test_links_that_stay_inside_are_left_out_and_reported(tmp_path):
    skipped = []
    data = tar_bytes(
        member("d/ok", b"1"),
        member("d/sub/soft", type=tarfile.SYMTYPE, linkname="../ok"),
        member("d/hard", type=tarfile.LNKTYPE, linkname="d/ok"),
        member("d/sub/soft/below", b"2"),
    )
    root = unpack(write(tmp_path, ".tar", data), tmp_path / "out", on_skip=skipped.append)
    assert tree(root) == {"ok": b"1", "sub/soft/below": b"2"}
    assert not any(path.is_symlink() for path in root.rglob("*"))
    assert [(one.file, one.why) for one in skipped] == [
        ("d/sub/soft", "a link to `../ok`; links are not created"),
        ("d/hard", "a link to `d/ok`; links are not created"),
    ]
    info = zipfile.ZipInfo("d/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    zipped = write(tmp_path, ".zip", zip_bytes([("d/ok", b"1"), (info, b"ok")]))
    assert tree(unpack(zipped, tmp_path / "zip", on_skip=skipped.append)) == {"ok": b"1"}
    assert skipped[-1].file == "d/link"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_in_a_tar(tmp_path, kind):
    data = tar_bytes(member("ok"), member("dev", type=kind))
    assert "`dev` is a device or a pipe" in refused(tmp_path, write(tmp_path, ".tar", data))


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_devices_and_pipes_in_a_zip(tmp_path, kind):
    info = zipfile.ZipInfo("dev")
    info.external_attr = kind << 16
    archive = write(tmp_path, ".zip", zip_bytes([("ok", b""), (info, b"")]))
    assert "`dev` is a device or a pipe" in refused(tmp_path, archive)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["d/a", "d/a"], "two entries of the name `d/a`"),
        (["d/a", "d/./a"], "two entries of the name `d/a`"),
        (["d/a", "d/a/b"], "`d/a` is both a file and a folder"),
        (["d/a/b", "d/a"], "`d/a` is both a file and a folder"),
        (["d/a", "d/a/"], "`d/a` is both a file and a folder"),
    ],
)
@pytest.mark.parametrize("suffix", [".tar", ".zip"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_entries_that_contradict_each_other(tmp_path, names, message, suffix):
    if suffix == ".zip":
        data = zip_bytes([(name, str(i).encode()) for i, name in enumerate(names)])
    else:
        kinds = [tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE for name in names]
        contents = [b"" if kind == tarfile.DIRTYPE else str(i).encode() for i, kind in enumerate(kinds)]
        entries = zip(names, contents, kinds, strict=True)
        data = tar_bytes(*(member(name, content, type=kind) for name, content, kind in entries))
    assert message in refused(tmp_path, write(tmp_path, suffix, data))


@pytest.mark.parametrize("suffix", [".tar", ".zip"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_was_packed_twice_is_unpacked_once(tmp_path, suffix):
    skipped = []
    packed = [("d/a", b"1"), ("d/a", b"1")]
    data = zip_bytes(packed) if suffix == ".zip" else tar_bytes(*(member(*entry) for entry in packed))
    root = unpack(write(tmp_path, suffix, data), tmp_path / "out", on_skip=skipped.append)
    assert tree(root) == {"a": b"1"}
    assert [(one.file, one.why) for one in skipped] == [("d/a", "a second copy of the same file")]


def test_names_that_cannot_be_shown_are_left_out_and_reported(tmp_path):
    skipped = []
    data = tar_bytes(member("d/ok"), member("d/bell\x07", b"1"), member("d/lat\udce9", b"2"), form=tarfile.GNU_FORMAT)
    root = unpack(write(tmp_path, ".tar", data), tmp_path / "out", on_skip=skipped.append)
    assert tree(root) == {"ok": b""}
    assert [one.file for one in skipped] == ["d/bell\\x07", "d/lat\\xdce9"]


def test_sparse_and_unknown_entries_are_left_out_and_reported(tmp_path):
    skipped = []
    data = tar_bytes(
        member("d/ok"),
        member("d/sparse", b"1", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "99999999999"}),
        member("d/odd", type=b"Z"),
    )
    root = unpack(write(tmp_path, ".tar", data), tmp_path / "out", on_skip=skipped.append)
    assert tree(root) == {"ok": b""}
    assert [one.file for one in skipped] == ["d/sparse", "d/odd"]


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(entries=2), "more than 2 entries"),
        (Limits(total_bytes=3000), "unpacks to more than 3,000 bytes"),
        (Limits(file_bytes=2999), "`demo-1.0/noise` is larger than 2,999 bytes"),
        (Limits(name_bytes=16), "very long name"),
        (Limits(depth=2), "very long name"),
    ],
)
def test_limits(tmp_path, suffix, limits, message):
    assert message in refused(tmp_path, write(tmp_path, suffix, archive_bytes(suffix, FILES)), limits=limits)


def test_what_is_within_the_limits_is_unpacked(tmp_path):
    limits = Limits(entries=3, total_bytes=20480, file_bytes=3000, name_bytes=18, depth=3, ratio=1000)
    unpack(write(tmp_path, ".tar.gz", archive_bytes(".tar.gz", FILES)), tmp_path / "out", limits=limits)


def huge_tar_header(size):
    return member("d/zeros", size=size)[0].tobuf(tarfile.GNU_FORMAT)


def bombs():
    zeros = bytes(64 << 20)
    # Concatenated streams are one stream: 10 GB of zeros from 160 copies of a small one.
    header = huge_tar_header(160 * len(zeros))
    yield ".tar.gz", gzip.compress(header) + gzip.compress(zeros) * 160
    yield ".tar.bz2", bz2.compress(header) + bz2.compress(zeros) * 160
    yield ".tar.xz", lzma.compress(header) + lzma.compress(zeros, preset=0) * 160
    yield ".zip", zip_bytes([("d/zeros", zeros)])


@pytest.fixture(scope="module", params=[".tar.gz", ".tar.bz2", ".tar.xz", ".zip"])
def bomb(request):
    return next((suffix, data) for suffix, data in bombs() if suffix == request.param)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(total_bytes=8 << 20), "unpacks to more than 8,388,608 bytes"),
        (Limits(file_bytes=8 << 20), "`d/zeros` is larger than 8,388,608 bytes"),
        (Limits(ratio=2, ratio_floor_bytes=0), "more than 2 times its size, as a bomb does"),
    ],
)
def test_bombs_stop_while_they_stream(tmp_path, bomb, limits, message):
    suffix, data = bomb
    archive = write(tmp_path, suffix, data)
    tracemalloc.start()
    try:
        assert message in refused(tmp_path, archive, limits=limits)
        # Far below one block of any of the bombs: neither the sizes claimed nor the blocks are held at once.
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_small_files_may_compress_well(tmp_path):
    data = archive_bytes(".zip", {"d/zeros": bytes(5 << 20)})
    assert len(data) * 100 < 5 << 20
    assert tree(unpack(write(tmp_path, ".zip", data), tmp_path / "out")) == {"zeros": bytes(5 << 20)}


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_a_header_that_claims_gigabytes_is_not_believed(tmp_path, kind):
    header = member("h", type=kind, size=3 << 30)[0].tobuf(tarfile.GNU_FORMAT)
    archive = write(tmp_path, ".tar.gz", gzip.compress(header) + gzip.compress(bytes(1 << 20)) * 100)
    assert "truncated or damaged" in refused(tmp_path, archive)


def test_a_chain_of_headers_does_not_exhaust_the_stack(tmp_path):
    one = tar_bytes(member("a", pax_headers={"comment": "c"}))[:1024]
    assert "truncated or damaged" in refused(tmp_path, write(tmp_path, ".tar", one * 5000))


def test_a_negative_size_does_not_loop(tmp_path):
    info = member("a")[0]
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xfc\x00"  # -1024
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert tarfile.TarInfo.frombuf(bytes(header), "utf-8", "strict").size == -1024
    archive = write(tmp_path, ".tar", tar_bytes(member("ok"))[:512] + bytes(header) + bytes(1024))
    assert "truncated or damaged" in refused(tmp_path, archive)


def test_a_zip_that_lies_about_its_size(tmp_path):
    data = bytearray(zip_bytes([("d/a", NOISE)]))
    directory = data.rfind(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = (10).to_bytes(4, "little")
    assert "truncated or damaged" in refused(tmp_path, write(tmp_path, ".zip", bytes(data)))


def test_a_zip_whose_directory_differs_from_its_entries(tmp_path):
    data = zip_bytes([("d/good", b"1")])
    assert "truncated or damaged" in refused(tmp_path, write(tmp_path, ".zip", data.replace(b"d/good", b"d/evil", 1)))


def test_a_zip_directory_is_not_held_before_it_is_counted(tmp_path):
    archive = write(tmp_path, ".zip", zip_bytes([(f"d/{number}", b"") for number in range(20_000)]))
    tracemalloc.start()
    try:
        assert "more than 100 entries" in refused(tmp_path, archive, limits=Limits(entries=100))
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_global_header_does_not_rename_all_that_follows(tmp_path):
    first = tarfile.TarInfo.create_pax_global_header({"path": "d/renamed"})
    data = first + tar_bytes(member("d/a", b"1"), member("d/b", b"2"))
    assert tree(unpack(write(tmp_path, ".tar", data), tmp_path / "out")) == {"renamed": b"1", "b": b"2"}


def test_encrypted_and_oddly_compressed_zips(tmp_path):
    data = bytearray(zip_bytes([("d/a", b"1")]))
    for at, offset in ((0, 6), (data.rfind(b"PK\x01\x02"), 8)):
        data[at + offset] |= 1
    assert "`d/a` is encrypted" in refused(tmp_path, write(tmp_path, ".zip", bytes(data)))
    lzma_zip = write(tmp_path, ".zip", zip_bytes([("d/a", b"1")], zipfile.ZIP_LZMA))
    assert "compressed in a way that is not read" in refused(tmp_path, lzma_zip)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".tar", ".zip"])
def test_every_truncation_is_noticed(tmp_path, suffix):
    data = archive_bytes(suffix, FILES)
    # A plain tar may lose its padding, not more: all its content is then there.
    end = len(data.rstrip(b"\0")) if suffix == ".tar" else len(data)
    for size in {0, 1, 2, *range(3, end, 97), end - 1}:
        message = refused(tmp_path, write(tmp_path, suffix, data[:size]))
        assert message == f"archive is truncated or damaged: `demo-1.0{suffix}`"


def test_a_plain_tar_cut_between_two_entries_is_noticed(tmp_path):
    data = tar_bytes(member("a"), member("b"))
    assert "truncated" in refused(tmp_path, write(tmp_path, ".tar", data[:512]))
    # A damaged header is no end either.
    damaged = data[:512] + b"\x01" * 512 + data[1024:]
    assert "damaged" in refused(tmp_path, write(tmp_path, ".tar", damaged))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_no_archive(tmp_path, suffix):
    assert "truncated or damaged" in refused(tmp_path, write(tmp_path, suffix, b"<html>404</html>" * 100))


def test_an_empty_archive(tmp_path):
    assert "it holds no files" in refused(tmp_path, write(tmp_path, ".tar.gz", gzip.compress(tar_bytes())))
    assert "it holds no files" in refused(tmp_path, write(tmp_path, ".zip", zip_bytes([])))


def test_other_formats_and_taken_folders(tmp_path):
    assert "of a format that is not read" in refused(tmp_path, write(tmp_path, ".rar", b"Rar!"))
    (tmp_path / "out").symlink_to("nowhere")
    assert "exists already" in refused(tmp_path, write(tmp_path, ".tar", tar_bytes(member("a"))))


def test_a_link_on_disk_is_not_followed(tmp_path):
    """Even if someone plants one in the unpacked folder between two entries."""
    outside = tmp_path / "outside"
    outside.mkdir()

    def plant(_):
        part = next(tmp_path.glob(".out.*.part"))
        (part / "d").symlink_to(outside)

    data = tar_bytes(member("link", type=tarfile.SYMTYPE, linkname="x"), member("d/evil", b"1"))
    with pytest.raises(SynthError, match="both a file and a folder"):
        unpack(write(tmp_path, ".tar", data), tmp_path / "out", on_skip=plant)
    assert list(outside.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path):
    def interrupt(_):
        assert list(tmp_path.glob(".out.*.part/d/a"))
        raise KeyboardInterrupt

    data = tar_bytes(member("d/a", b"1"), member("d/link", type=tarfile.SYMTYPE, linkname="a"))
    archive = write(tmp_path, ".tar", data)
    with pytest.raises(KeyboardInterrupt):
        unpack(archive, tmp_path / "out", on_skip=interrupt)
    assert list(tmp_path.iterdir()) == [archive]


def test_a_folder_that_cannot_be_made(tmp_path):
    archive = write(tmp_path, ".tar", tar_bytes(member("a")))
    with pytest.raises(SynthError, match="cannot unpack") as caught:
        unpack(archive, archive / "out")
    assert caught.value.code == 3


def test_a_disk_that_takes_no_more(tmp_path):
    archive = write(tmp_path, ".tar", archive_bytes(".tar", FILES))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(SynthError, match="cannot unpack: file too large") as caught:
            unpack(archive, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.code == 3
    assert list(tmp_path.iterdir()) == [archive]


def test_a_missing_archive(tmp_path):
    with pytest.raises(SynthError, match="cannot unpack: no such file or directory"):
        unpack(tmp_path / "a-1.0.zip", tmp_path / "out")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_never_escape(tmp_path_factory, data):
    suffix = data.draw(st.sampled_from([".tar", ".tar.gz", ".zip"]))
    packed = bytearray(archive_bytes(suffix, FILES))
    for _ in range(data.draw(st.integers(1, 8))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("fuzz")
    archive = write(folder, suffix, bytes(packed))
    try:
        unpack(archive, folder / "out")
    except SynthError:
        assert list(folder.iterdir()) == [archive]
    else:
        assert {path.name for path in folder.iterdir()} == {archive.name, "out"}
