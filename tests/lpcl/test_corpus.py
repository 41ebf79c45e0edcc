"""Folders of contracts: the shipped ones are right, damaged ones are refused with a reason."""

import json
import re
import shutil
from pathlib import Path

import pytest

import lpcl.corpus
from lpcl.cli import main
from lpcl.corpus import CorpusError, Entry, covers, covers_library, load, load_entry, read_evidence, shipped
from lpcl.parse import parse

CONTRACT = """lpcl 1
contract demo {
  package "demo" versions ">=1.2, <2"
  native "libdemo*.so*", "demo.so"
  demand cache: memory.bytes { amount 1GiB evidence e1, e2 }
}
"""
METADATA = 'name = "demo"\n'
ESCAPE = {"file": "../secret", "line": 1, "text": ""}


def record(id_="e1", **changes):
    seen = {"file": "demo/cache.py", "line": 7, "text": "SIZE = 1 << 30"}
    return {"id": id_, "seen": seen, "source": "demo==1.2", "vouched": "rule"} | changes


def lines(*records):
    return "".join(json.dumps(r) + "\n" for r in records)


GOOD = {
    "contract.lpcl": CONTRACT,
    "evidence.jsonl": lines(record("e1"), record("e2")),
    "METADATA.toml": METADATA,
}


def folder(path, **changes):
    """A library's folder; a file that is None is left out."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in (GOOD | {k.replace("_", "."): v for k, v in changes.items()}).items():
        if isinstance(content, bytes):
            (path / name).write_bytes(content)
        elif content is not None:
            (path / name).write_text(content, "utf-8")
    return path


def rules(path):
    loaded = load_entry(path)
    return [d.rule for d in (loaded.diagnostics if isinstance(loaded, Entry) else loaded)]


# --------------------------------------------------------------------- shipped


def test_the_shipped_corpus_loads_clean():
    entries, diagnostics = load([shipped()])
    assert diagnostics == ()
    assert {"libgomp", "openblas"} <= {e.contract.name for e in entries}
    for entry in entries:
        assert entry.folder.name == entry.metadata["name"]
        assert entry.contract.name == entry.folder.name.replace("-", "_")
        for clause in entry.contract.clauses:
            assert entry.evidence(clause)
            assert entry.trust(clause) in {"grounded", "reviewed"}
        used = {i for c in entry.contract.clauses for i in c.evidence}
        assert used <= set(entry.cited)


def test_every_contract_that_is_used_is_there():
    entries, _ = load([shipped()])
    names = {e.contract.name for e in entries}
    assert all(set(e.contract.uses) <= names for e in entries)


def test_shipped_evidence_names_places_and_releases():
    entries, _ = load([shipped()])
    for cited in (c for e in entries for c in e.cited.values()):
        assert cited.source
        assert cited.vouched in {"rule", "model", "person"}
        file, _, line = cited.place.rpartition(":")
        assert file
        assert line.isdigit()


# --------------------------------------------------------------------- damaged


def test_a_good_folder(tmp_path):
    entry = load_entry(folder(tmp_path))
    assert isinstance(entry, Entry)
    assert entry.diagnostics == ()
    assert entry.metadata == {"name": "demo"}
    (clause,) = entry.contract.clauses
    assert [c.place for c in entry.evidence(clause)] == ["demo/cache.py:7"] * 2
    assert entry.evidence(clause)[0].raw["id"] == "e1"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"evidence_jsonl": None}, ["LP150", "LP156", "LP156"]),
        ({"evidence_jsonl": ""}, ["LP156", "LP156"]),
        ({"evidence_jsonl": "\n \n"}, ["LP156", "LP156"]),
        ({"evidence_jsonl": "{"}, ["LP152", "LP156", "LP156"]),
        ({"evidence_jsonl": lines(record("e1"), record("e1"), record("e2"))}, ["LP153"]),
        ({"evidence_jsonl": lines(record("e1"))}, ["LP156"]),
        ({"evidence_jsonl": lines(record("e1"), record("e2", seen={}))}, ["LP152", "LP156"]),
        ({"evidence_jsonl": lines(record("e1"), record("e2", seen=None))}, ["LP152", "LP156"]),
        ({"evidence_jsonl": lines(record("e1"), record("e2", seen="file"))}, ["LP152", "LP156"]),
        ({"evidence_jsonl": lines(record("e1"), record("e2"), [], 1, "x", None)}, ["LP152"] * 4),
        ({"evidence_jsonl": lines(record("e1"), record("e2")) + "[" * 100_000 + "\n"}, ["LP152"]),
        ({"evidence_jsonl": lines(record("e1"), record("e2")) + "9" * 5000 + "\n"}, ["LP152"]),
        ({"evidence_jsonl": b"\xff\xfe\n" + lines(record("e1"), record("e2")).encode()}, ["LP152"]),
        ({"METADATA_toml": None}, ["LP155"]),
        ({"METADATA_toml": "name = demo"}, ["LP155"]),
        ({"METADATA_toml": b"name = '\xff'"}, ["LP155"]),
        ({"METADATA_toml": "#" * ((1 << 20) + 1)}, ["LP155"]),
        (
            {"evidence_jsonl": lines(record("e1"), record("e2", more=[[]] * 2)).replace("[]", "[" * 40 + "]" * 40)},
            ["LP152", "LP156"],
        ),
        ({"contract_lpcl": "lpcl 1"}, ["LP000"]),
        ({"contract_lpcl": b"\xff\xfe"}, ["LP008"]),
        ({"contract_lpcl": ""}, ["LP002"]),
        ({"contract_lpcl": CONTRACT + "contract other { package 'x' }"}, ["LP000"]),
        ({"contract_lpcl": CONTRACT + 'contract other { package "x" }'}, ["LP154"]),
        ({"contract_lpcl": CONTRACT.replace("memory.bytes", "memory.byte")}, ["LP107"]),
    ],
)
def test_damaged_folders(tmp_path, changes, found):
    assert rules(folder(tmp_path, **changes)) == found
    entries, diagnostics = load([tmp_path])
    assert entries == ()
    assert [d.rule for d in diagnostics] == found
    assert all(d.file.startswith(str(tmp_path)) for d in diagnostics)


@pytest.mark.parametrize("metadata", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "9" * 5000])
def test_metadata_that_is_no_sound_toml(tmp_path, metadata):
    assert rules(folder(tmp_path, METADATA_toml=metadata)) == ["LP155"]


def test_line_separators_inside_of_a_record_end_no_line(tmp_path):
    seen = record()["seen"] | {"text": "a\u2028b\u0085c"}
    text = json.dumps(record("e1", seen=seen), ensure_ascii=False) + "\n" + lines(record("e2"))
    entry = load_entry(folder(tmp_path, evidence_jsonl=text))
    assert entry.diagnostics == ()
    assert entry.cited["e1"].text == "a\u2028b\u0085c"


def test_huge_evidence_is_not_read(tmp_path, monkeypatch):
    path = folder(tmp_path) / "evidence.jsonl"
    with path.open("ab") as file:
        file.truncate(lpcl.corpus.MAX_EVIDENCE_BYTES + 1)  # a hole: it takes no disk
    cited, found = read_evidence(path)
    assert cited == {}
    assert [d.rule for d in found] == ["LP151"]


def test_many_records_load(tmp_path):
    many = lines(*(record(f"e{i}") for i in range(20_000)))
    assert load_entry(folder(tmp_path, evidence_jsonl=many)).diagnostics == ()


def test_findings_in_evidence_name_its_line(tmp_path):
    path = folder(tmp_path, evidence_jsonl=lines(record("e1"), record("e2")) + "\nnonsense\n") / "evidence.jsonl"
    _, (found,) = read_evidence(path)
    assert (found.span.line, found.span.column, found.file) == (4, 1, str(path))


def test_no_folder_at_all(tmp_path):
    with pytest.raises(CorpusError, match="no folder of contracts"):
        load([tmp_path / "none"])
    with pytest.raises(OSError, match="contract"):
        load_entry(tmp_path)
    assert load([tmp_path]) == ((), ())


# ------------------------------------------------------------------------ load


def test_an_earlier_corpus_wins(tmp_path):
    folder(tmp_path / "one" / "demo", METADATA_toml='name = "one"')
    folder(tmp_path / "two" / "demo", METADATA_toml='name = "two"')
    folder(tmp_path / "two" / "zeta", contract_lpcl=CONTRACT.replace("contract demo", "contract alpha"))
    (tmp_path / "two" / "README").write_text("no folder")
    (tmp_path / "two" / "empty").mkdir()
    entries, diagnostics = load([tmp_path / "one", tmp_path / "two"])
    assert diagnostics == ()
    assert [(e.contract.name, e.metadata["name"]) for e in entries] == [("alpha", "demo"), ("demo", "one")]
    assert [e.metadata["name"] for e in load([tmp_path / "two" / "demo"])[0]] == ["two"]


def test_warnings_do_not_keep_an_entry_out(tmp_path):
    folder(tmp_path, contract_lpcl=CONTRACT.replace("e1, e2", "e1, e1"))
    entries, diagnostics = load([tmp_path])
    assert len(entries) == 1
    assert [d.rule for d in diagnostics] == ["LP106"]


def test_trust_grows_with_records_and_reviews(tmp_path, capsys):
    path = folder(tmp_path, evidence_jsonl=lines(record("e1")))
    (clause,) = load_entry(path).contract.clauses
    assert load_entry(path).trust(clause) == "drafted", "e2 has no record"
    folder(tmp_path)
    assert load_entry(path).trust(clause) == "grounded"
    assert main(["review", str(path), "--accept", "cache", "--by", "A. Reader", "--comment", "measured"]) == 0
    entry = load_entry(path)
    assert entry.trust(clause) == "reviewed"
    assert (entry.review(clause).by, entry.review(clause).comment) == ("A. Reader", "measured")
    assert "1 clauses accepted by A. Reader" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes",
    [
        {"contract_lpcl": CONTRACT.replace("1GiB", "2GiB")},
        {"evidence_jsonl": lines(record("e1"), record("e2", source="demo==1.3"))},
        {"evidence_jsonl": lines(record("e1"), record("e2", seen={"file": "x.py", "line": 7, "text": ""}))},
    ],
)
def test_a_review_counts_only_for_what_was_read(tmp_path, changes):
    path = folder(tmp_path)
    main(["review", str(path), "--accept", "all", "--by", "A. Reader"])
    folder(tmp_path, **changes)
    entry = load_entry(path)
    assert entry.trust(entry.contract.clauses[0]) == "grounded"
    assert [d.rule for d in entry.diagnostics] == ["LP158"]
    main(["review", str(path), "--accept", "all", "--by", "A. Reader"])
    assert load_entry(path).diagnostics == ()


def test_a_review_survives_what_says_nothing(tmp_path):
    path = folder(tmp_path)
    main(["review", str(path), "--accept", "all", "--by", "A. Reader"])
    spread = CONTRACT.replace("amount 1GiB evidence e1, e2", "\n\n amount 1GiB // size\n evidence e1\n evidence e2\n")
    folder(tmp_path, contract_lpcl=spread, evidence_jsonl=lines(record("e2"), record("e1")))
    entry = load_entry(path)
    assert entry.trust(entry.contract.clauses[0]) == "reviewed"


def test_the_sheet_shows_the_cited_lines_and_only_what_is_open(tmp_path, capsys):
    path = folder(tmp_path / "corpus", evidence_jsonl=lines(record("e1"), record("e2", seen=ESCAPE)))
    source = tmp_path / "src" / "demo"
    source.mkdir(parents=True)
    (source / "cache.py").write_text("\n" * 6 + "SIZE = 1 << 30\x1b[2J\n")
    (tmp_path / "secret").write_text("secret\n")
    assert main(["review", str(path), "--source", str(tmp_path / "src")]) == 0
    out = capsys.readouterr().out
    assert "# demand cache: grounded" in out
    assert "      7  SIZE = 1 << 30" in out
    assert "\x1b" not in out
    assert "secret" not in out.replace("../secret", "")
    assert "0 of 1 clauses reviewed" in out
    main(["review", str(path), "--accept", "all", "--by", "A. Reader"])
    capsys.readouterr()
    assert main(["review", str(path)]) == 0
    assert capsys.readouterr().out == "demo: 1 of 1 clauses reviewed\n"
    assert main(["review", str(path), "--accept", "cash", "--by", "A. Reader"]) == 2
    assert "its clauses are cache" in capsys.readouterr().err


def test_a_copy_of_the_shipped_corpus_is_as_good(tmp_path):
    shutil.copytree(shipped(), tmp_path / "corpus")
    assert load([tmp_path / "corpus"])[1] == ()


# ---------------------------------------------------------------------- covers

DEMO = parse(CONTRACT).file.contracts[0]


@pytest.mark.parametrize(
    ("package", "version", "covered"),
    [
        ("demo", "1.2", True),
        ("Demo", "1.5.1", True),
        ("demo", "1.1", False),
        ("demo", "2.0", False),
        ("demo", "2.0rc1", False),
        ("demo", "1.3rc1", True),
        ("demo", "1.3.dev0+local", True),
        ("demo", None, True),
        ("demo", "no version", True),
        ("other", "1.2", False),
        ("other", None, False),
    ],
)
def test_covers(package, version, covered):
    assert covers(DEMO, package, version) is covered


def test_covers_names_as_the_index_does():
    of = parse('lpcl 1 contract a { package "Scikit_Learn" package "b" versions ">=2" package "b" versions "<1" }').file
    assert covers(of.contracts[0], "scikit-learn", "0.1")
    assert covers(of.contracts[0], "scikit.learn", None)


def test_what_is_no_range_covers_everything():
    of = parse('lpcl 1 contract a { package "b" versions "2 or newer" }').file.contracts[0]
    assert covers(of, "b", "1.0")
    assert not covers(of, "c", "1.0")


def test_a_package_may_be_covered_by_several_ranges():
    of = parse('lpcl 1 contract a { package "b" versions ">=2" package "b" versions "<1" }').file.contracts[0]
    assert covers(of, "b", "3")
    assert covers(of, "b", "0.5")
    assert not covers(of, "b", "1.5")


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("libdemo.so", True),
        ("libdemo-1a2b.so.3", True),
        ("demo.so", True),
        ("Libdemo.so", False),
        ("libother.so", False),
        ("xlibdemo.so", False),
        ("", False),
    ],
)
def test_covers_library(name, covered):
    assert covers_library(DEMO, name) is covered


def test_every_clause_that_the_page_names_is_there_and_the_table_is_new():
    page = Path(__file__).resolve().parents[2] / "docs" / "corpus.md"
    text = page.read_text("utf-8")
    entries, _ = load([shipped()])
    there = {f"{e.contract.name}.{c.name}" for e in entries for c in e.contract.clauses}
    named = re.findall(r"`(\w+\.\w+)`", text[text.index("## Cases") : text.index("## Where")])
    assert len(named) > 40
    assert set(named) - there == set()
    copy = page.parent / ".corpus-test.md"
    copy.write_text(text, "utf-8")
    try:
        assert main(["corpus", "--into", str(copy)]) == 0
        assert copy.read_text("utf-8") == text, "run `make corpus-table`"
    finally:
        copy.unlink()
