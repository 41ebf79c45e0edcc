"""Findings for code review tools."""

import json
import re
from pathlib import Path

import pytest

from lpcl.annotate import TITLES, github, help_uri, sarif
from lpcl.diagnostics import Diagnostic
from lpcl.model import Span

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "lpcl.md").read_text("utf-8")
SPAN = Span(3, 5, 4, 9, 20, 40)
ONE = Diagnostic("LP108", "error", "`a` refers to nothing", SPAN, "name a control", "corpus/demo/contract.lpcl")
TWO = Diagnostic("LP112", "warning", "`t` reads `A` twice", SPAN, file="x.lpcl")
BARE = Diagnostic("LP000", "info", "the text ends too early")


def result(d):
    return sarif([d], "0.1.0")["runs"][0]["results"][0]


def test_titles_are_those_of_the_reference():
    assert dict(re.findall(r"^### (LP\d+): (.+)$", DOCS, re.MULTILINE)) == TITLES


def test_help_leads_to_the_anchor_that_the_reference_itself_uses():
    assert help_uri("LP108") == "docs/lpcl.md#lp108-dangling-reference"
    linked = set(re.findall(r"\]\(#(lp\d+-[^)]*)\)", DOCS))
    assert linked
    assert linked <= {help_uri(rule).partition("#")[2] for rule in TITLES}
    assert help_uri("LP999") == "docs/lpcl.md#rules"


def test_sarif_has_what_the_standard_requires():
    log = sarif([ONE, TWO, ONE, BARE], "0.1.0")
    assert json.loads(json.dumps(log)) == log
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("lpcl", "0.1.0")
    assert [r["id"] for r in driver["rules"]] == ["LP000", "LP108", "LP112"]
    assert all(r["shortDescription"]["text"] and r["helpUri"] for r in driver["rules"])
    assert [r["ruleId"] for r in run["results"]] == ["LP108", "LP112", "LP108", "LP000"]
    for r in run["results"]:
        assert driver["rules"][r["ruleIndex"]]["id"] == r["ruleId"]
        assert r["message"]["text"]
        assert r["level"] in {"error", "warning", "note"}


def test_sarif_of_nothing_is_a_run_without_results():
    (run,) = sarif([], "1")["runs"]
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []


def test_sarif_places():
    (place,) = result(ONE)["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "corpus/demo/contract.lpcl"},
        "region": {"startLine": 3, "startColumn": 5, "endLine": 4, "endColumn": 9},
    }
    assert "locations" not in result(BARE)
    assert [result(d)["level"] for d in (ONE, TWO, BARE)] == ["error", "warning", "note"]
    assert result(ONE)["message"]["text"] == "`a` refers to nothing; name a control"


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("./a/b.lpcl", "a/b.lpcl"),
        ("a b/ü.lpcl", "a%20b/%C3%BC.lpcl"),
        ("c:d.lpcl", "c%3Ad.lpcl"),
        ("/tmp/a b.lpcl", "file:///tmp/a%20b.lpcl"),
        ("../x#1?.lpcl", "../x%231%3F.lpcl"),
    ],
)
def test_sarif_paths_are_uris(path, uri):
    found = result(Diagnostic("LP101", "error", "m", SPAN, file=path))
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_a_finding_keeps_its_identity_when_lines_move():
    moved = Diagnostic(ONE.rule, ONE.severity, ONE.message, Span(90, 1, 90, 2), ONE.help, ONE.file)
    assert result(moved)["partialFingerprints"] == result(ONE)["partialFingerprints"]
    assert result(TWO)["partialFingerprints"] != result(ONE)["partialFingerprints"]


def test_github():
    assert github([ONE, TWO, BARE]) == (
        "::error file=corpus/demo/contract.lpcl,line=3,col=5,title=LP108::`a` refers to nothing%0Aname a control\n"
        "::warning file=x.lpcl,line=3,col=5,title=LP112::`t` reads `A` twice\n"
        "::notice title=LP000::the text ends too early\n"
    )
    assert github([]) == ""


@pytest.mark.parametrize(
    ("text", "message", "path"),
    [
        ("50%", "50%25", "50%25"),
        ("a\nb", "a%0Ab", "a%0Ab"),
        ("a\r\nb", "a%0D%0Ab", "a%0D%0Ab"),
        ("a,b", "a,b", "a%2Cb"),
        ("a:b", "a:b", "a%3Ab"),
        ("%0A", "%250A", "%250A"),
        ("x\n::set-output name=a::b", "x%0A::set-output name=a::b", "x%0A%3A%3Aset-output name=a%3A%3Ab"),
    ],
)
def test_github_escapes(text, message, path):
    line = github([Diagnostic("LP101", "error", text, SPAN, file=text)])
    assert line == f"::error file={path},line=3,col=5,title=LP101::{message}\n"
    assert len(line.splitlines()) == 1
