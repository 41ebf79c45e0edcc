"""Evidence: ids, order, duplicates, disk, verification."""

import json
from pathlib import Path

import pytest

from synth.evidence import collect, digest_of_lines, identify, read_jsonl, verify, write_jsonl
from synth.records import SCHEMA_VERSION, Kind, Observation, Release, Role, SynthError, Walk, When


def seen(name="A_THREADS", kind=Kind.ENV_READ, **values) -> Observation:
    base = {"file": "pkg/a.py", "line": 1, "end_line": 1, "text": "x", "sha256": "1" * 64, "when": When.CALL}
    return Observation(kind=kind, name=name, **{**base, **values})


def walk(*observations: Observation, root: Path = Path("/nowhere")) -> Walk:
    release = Release(
        name="pkg",
        version="1.0",
        root=root,
        kind="sdist",
        filename="pkg-1.0.tar.gz",
        sha256="0" * 64,
        verified="unverified",
        location="index",
    )
    return Walk(release=release, observations=observations, skipped=(), files=1, bytes=1, seconds=0.1)


def test_ids_survive_a_move_but_not_a_change():
    assert identify(seen()) == identify(seen(line=7, end_line=7, file="pkg/b.py"))
    assert identify(seen()) != identify(seen(sha256="2" * 64))
    assert identify(seen()) != identify(seen(name="B"))


def test_same_content_is_one():
    (one,) = collect(walk(seen(), seen(file="pkg/z.py", line=9), seen(file="pkg/b.py", line=3)))
    assert one.seen.file == "pkg/a.py"
    assert one.also == ("pkg/b.py:3", "pkg/z.py:9")
    assert one.source == "pkg==1.0:pkg-1.0.tar.gz"


def test_different_values_stay_apart_with_different_ids():
    first, second = collect(walk(seen(value="1"), seen(value="2")))
    assert first.id != second.id


def test_rank():
    best = collect(
        walk(
            seen("DOCUMENTED", sha256="a" * 64),
            seen("DOCUMENTED", Kind.DOC, role=Role.DOC),
            seen("PLAIN"),
            seen("WEAK", method="text"),
            seen("TEST", role=Role.TEST),
            seen("BUILD", role=Role.BUILD, when=When.BUILD),
            seen("VENDORED", role=Role.VENDORED),
            seen("pkg.f(n_jobs=)", Kind.PARAM),
        )
    )
    order = [item.seen.name for item in best if item.seen.kind is not Kind.DOC]
    assert order == ["DOCUMENTED", "PLAIN", "VENDORED", "pkg.f(n_jobs=)", "WEAK", "TEST", "BUILD"]
    assert all(0 <= item.rank <= 1 for item in best)


def test_order_does_not_depend_on_the_walk():
    observations = [seen(f"V{i}", sha256=f"{i:064x}") for i in range(20)]
    assert collect(walk(*observations)) == collect(walk(*reversed(observations)))


def test_round_trip(tmp_path):
    evidence = collect(walk(seen(), seen("B", value="é\u2028"), seen("C", Kind.POOL)))
    write_jsonl(tmp_path / "e.jsonl", evidence)
    assert read_jsonl(tmp_path / "e.jsonl") == evidence
    assert (tmp_path / "e.jsonl").read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (json.dumps({"schema_version": SCHEMA_VERSION + 1}), "schema version"),
        ("{", "is not evidence"),
        ("[]", "is not evidence"),
        (json.dumps({"schema_version": 1, "id": "e1"}), "is not evidence"),
    ],
)
def test_unreadable(tmp_path, line, message):
    (tmp_path / "e.jsonl").write_text(line + "\n")
    with pytest.raises(SynthError, match=message) as caught:
        read_jsonl(tmp_path / "e.jsonl")
    assert "line 1" in str(caught.value)
    assert caught.value.help


def test_missing_file(tmp_path):
    with pytest.raises(SynthError, match="cannot read"):
        read_jsonl(tmp_path / "none.jsonl")


def test_verify(tmp_path):
    raw = b"one\r\ntwo\nthree"
    (tmp_path / "a.py").write_bytes(raw)
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    good = seen("GOOD", file="a.py", line=2, end_line=3, sha256=digest_of_lines(raw, 2, 3))
    moved = seen("MOVED", file="a.py", line=1, end_line=1, sha256=digest_of_lines(raw, 2, 2))
    gone = seen("GONE", file="b.py")
    outside = seen("OUTSIDE", file="../../etc/passwd")
    linked = seen("LINKED", file="link.py")
    evidence = collect(walk(good, moved, gone, outside, linked))
    problems = {e.seen.name: verify([e], tmp_path) for e in evidence}
    assert problems["GOOD"] == []
    assert "differ" in problems["MOVED"][0]
    assert all("not in the release" in problems[name][0] for name in ("GONE", "OUTSIDE", "LINKED"))


def test_digest_counts_line_feeds_only():
    raw = b"a\rb\x0cc\n\xe2\x80\xa8d\n"
    assert digest_of_lines(raw, 2, 2) == digest_of_lines(b"\xe2\x80\xa8d\n", 1, 1)
