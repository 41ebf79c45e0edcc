"""Native libraries of a wheel beside the sources of its sdist."""

from pathlib import Path

from synth.binaries import add_binaries
from synth.records import Release


def release(root: Path, kind: str, version: str = "1.0") -> Release:
    root.mkdir(parents=True, exist_ok=True)
    return Release(
        name="demo",
        version=version,
        root=root,
        kind=kind,
        filename="demo",
        sha256="0" * 64,
        verified="unverified",
        location="demo",
    )


def test_only_libraries_move(tmp_path):
    sources, wheel = release(tmp_path / "s", "sdist"), release(tmp_path / "w", "wheel")
    (wheel.root / "demo.libs").mkdir()
    (wheel.root / "demo").mkdir()
    (wheel.root / "demo.libs/libomp.so.5").write_bytes(b"1")
    (wheel.root / "demo/_x.abi3.so").write_bytes(b"2")
    (wheel.root / "demo/x.py").write_bytes(b"3")
    (wheel.root / "demo/link.so").symlink_to("/etc/passwd")
    assert add_binaries(sources, wheel) == 2
    found = sorted(p.relative_to(sources.root).as_posix() for p in sources.root.rglob("*") if p.is_file())
    assert found == ["demo-1.0-wheel/demo.libs/libomp.so.5", "demo-1.0-wheel/demo/_x.abi3.so"]


def test_another_version_is_left_alone(tmp_path):
    sources, wheel = release(tmp_path / "s", "sdist"), release(tmp_path / "w", "wheel", "2.0")
    (wheel.root / "x.so").write_bytes(b"1")
    assert add_binaries(sources, wheel) == 0
    assert add_binaries(sources, sources) == 0
