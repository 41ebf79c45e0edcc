"""Texts that want to take too much time or memory: each ends in a diagnostic, after work that is counted, not timed."""

from pathlib import Path

import pytest

from lpcl.check import check
from lpcl.format import format_text
from lpcl.parse import MAX_BYTES, MAX_DEPTH, MAX_FINDINGS, MAX_STACK, MAX_WORDS, parse, read_text

N = 20_000
MB = 1_000_000
# No word is given to the parser more than twice. Words that are glued count as one until the parser sees them, and it
# stops at the hundredth such pair.
MAX_WORK = 2 * MAX_WORDS + 3 * MAX_FINDINGS
# The worst that a few diagnostics of a text without words may cost.
FEW = 10


def inside(body):
    return f'lpcl 1\ncontract demo {{\n  package "demo"\n{body}\n}}\n'


def default(text):
    return inside(f"  control t: int {{ default {text} }}")


def spans_are_inside(text, diagnostics):
    lines = text.split("\n")
    for d in diagnostics:
        s = d.span
        assert 1 <= s.line <= s.end_line <= len(lines)
        assert 1 <= s.column <= len(lines[s.line - 1]) + 1
        assert 1 <= s.end_column <= len(lines[s.end_line - 1]) + 2
        assert (s.line, s.column) <= (s.end_line, s.end_column)
        assert 0 <= s.start <= s.end <= len(text) + 1


def ends_in(text, rules, work=MAX_WORK):
    parsed = parse(text)
    assert not parsed.ok
    assert {d.rule for d in parsed.diagnostics} == rules
    assert parsed.work <= work
    assert len(parsed.diagnostics) <= MAX_FINDINGS
    for d in parsed.diagnostics:
        assert len(d.message) < 300
        assert len(d.help) < 600
    spans_are_inside(text[: MAX_BYTES + 1], parsed.diagnostics[:50])
    return parsed


def just_below(piece, around="{}"):
    """So many pieces that the whole is as large as a file may be."""
    count = (MAX_BYTES - len(around.format("").encode())) // len(piece.encode())
    return around.format(piece * count)


# ------------------------------------------------------------------ more than a file may have

CONTRACT = inside('  control t: int { default 1 env "T" read load evidence e }')
LARGE = {
    "a valid contract and spaces": lambda: CONTRACT + " " * 10 * MB,
    "a valid contract and comments": lambda: inside("// x\n" * 2 * MB),
    "many valid contracts": lambda: CONTRACT * (10 * MB // len(CONTRACT)),
    "braces": lambda: "{" * 10 * MB,
    "quotes": lambda: '"' * 10 * MB,
    "one name": lambda: "x" * 10 * MB,
    "digits": lambda: "9" * 10 * MB,
    "comments": lambda: "//\n" * (10 * MB // 3),
    "newlines": lambda: "\n" * 10 * MB,
    "zeros": lambda: "\0" * 10 * MB,
    "one string": lambda: default('"' + "a" * 10 * MB + '"'),
    "not UTF-8": lambda: "\udcff" * 10 * MB,
    "two bytes a character": lambda: "é" * (MAX_BYTES // 2 + 1),
    "one character too many": lambda: CONTRACT.ljust(MAX_BYTES + 1),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_text_that_is_too_large_is_not_looked_at(name):
    ends_in(LARGE[name](), {"LP001"}, work=0)


def test_the_size_is_bounded_from_both_sides():
    for text in ("lpcl 1 contract a { }", 'lpcl 1 contract a { summary "é" }'):
        spaces = MAX_BYTES - len(text.encode())
        assert parse(text + " " * spaces).ok
        assert not parse(text + " " * (spaces + 1)).ok


# ------------------------------------------------------------------ as much as a file may have

GLUED = inside("demand d: files { " + "createdimport" * (MAX_BYTES // 13 - 100) + " }")
FULL = {
    "braces": (just_below("{"), {"LP007"}, 0),
    "braces in a contract": (just_below("{", "lpcl 1 contract a {}"), {"LP007"}, 0),
    "signs": (just_below("=.,;:", "lpcl 1 contract a {}"), {"LP007"}, 0),
    "quotes": (just_below('"'), {"LP007"}, 0),
    "one name": (just_below("x"), {"LP002"}, FEW),
    "one name in a contract": (just_below("x", "lpcl 1 contract a {} b"), {"LP000"}, FEW),
    "digits": (just_below("9"), {"LP002"}, FEW),
    "digits as a version": (just_below("9", "lpcl {} contract a"), {"LP002"}, FEW),
    "comments": (just_below("//\n"), {"LP007"}, 0),
    "newlines": (just_below("\n"), {"LP002"}, FEW),
    "zeros": (just_below("\0"), {"LP007"}, 0),
    "not UTF-8": (just_below("x")[1:] + "\udcff", {"LP008"}, 0),
    "valid sums": (default("1+" * (MAX_BYTES // 2 - 200) + "1"), {"LP007"}, 0),
    "valid clauses": (inside('  package "a"\n' * 70_000), {"LP007"}, 0),
    "words without a space": (GLUED, {"LP004"}, 2 * MAX_FINDINGS),
    "words without a space, damaged": (GLUED.rstrip()[:-1] + "x }", {"LP004"}, 2 * MAX_FINDINGS),
    "words without a space, damaged before": (GLUED.replace("package", "pack"), {"LP000", "LP004"}, 2 * MAX_FINDINGS),
    "keywords that are one name": (default("if" * (MAX_BYTES // 2 - 200) + " 1"), {"LP000"}, 3 * FEW),
    "numbers without a space": (default("1s" * (MAX_BYTES // 2 - 200)), {"LP000"}, 100),
    "string without end": (just_below("a", 'lpcl 1 contract a {{ summary "{}'), {"LP000"}, 2 * FEW),
    "escapes in a string without end": (just_below("\\", 'lpcl 1 contract a {{ summary "{}'), {"LP000"}, 2 * FEW),
}


@pytest.mark.parametrize("name", FULL)
def test_a_text_of_the_greatest_size(name):
    text, rules, work = FULL[name]
    ends_in(text, rules, work)


@pytest.mark.parametrize(
    ("text", "work"),
    [
        (inside("\n" * (MAX_BYTES - 100)), FEW),
        (inside("//" + "x" * (MAX_BYTES - 100)), FEW),
        (inside('summary "' + "a" * (MAX_BYTES - 100) + '"'), 2 * FEW),
        (default('"' + '\\"' * (MAX_BYTES // 2 - 100) + '"'), 2 * FEW),
        (default("a" * (MAX_BYTES - 200)), 2 * FEW),
        (inside("//\n" * (MAX_WORDS - 20)), FEW),
        (inside('package "a"\n' * (MAX_WORDS // 2 - 20)), MAX_WORDS),
        (default("(" * (MAX_STACK // 2) + "1" + ")" * (MAX_STACK // 2)), MAX_STACK + 2 * FEW),
    ],
    ids=["newlines", "comment", "string", "escapes", "name", "comments", "clauses", "parentheses"],
)
def test_large_texts_that_are_right(text, work):
    parsed = parse(text)
    assert parsed.diagnostics == ()
    assert parsed.work <= work


@pytest.mark.parametrize(
    "text",
    [default('"\0\u2028\ufeff"'), default("1").replace("\n", "\r\n"), inside("// é\n")],
    ids=["odd characters", "CRLF", "not ASCII"],
)
def test_odd_texts_that_are_right(text):
    assert parse(text).diagnostics == ()


# ------------------------------------------------------------------ as many words as a file may have

BOMBS = {
    "minus": (default("-" * N + "1"), {"LP003"}),
    "not": (default("not " * N + "true"), {"LP003"}),
    "sum": (default("1+" * N + "1"), {"LP003"}),
    "open sum": (default("1+" * N), {"LP000"}),
    "conditionals": (default("if a then " * 5000 + "1" + " else 1" * 5000), {"LP003"}),
    "conditionals to the right": (default("if a then 1 else " * 7000 + "1"), {"LP003"}),
    "conditions": (default("if " * 5000 + "a" + " then 1 else 1" * 5000), {"LP003"}),
    "calls": (default("f(" * 10_000 + ")" * 10_000), {"LP003"}),
    "parentheses": (default("(" * N + "1" + ")" * N), {"LP003"}),
    "parentheses open": (default("(" * N), {"LP003"}),
    "parentheses closed": (default("1" + ")" * N), {"LP000"}),
    "lists": (inside("control t: " + "list(" * 10_000 + "int" + ")" * 10_000 + " {}"), {"LP003"}),
    "maps": (inside("control t: " + "map(" * 10_000 + "int" + ")" * 10_000 + " {}"), {"LP003"}),
    "braces": (inside("{" * N + "}" * N), {"LP000"}),
    "braces open": ("lpcl 1 contract a " + "{" * N, {"LP000"}),
    "braces closed": ("lpcl 1 contract a " + "}" * N, {"LP000"}),
    "contracts open": ("lpcl 1" + " contract a {" * 12_000, {"LP000"}),
    "deep in each clause": (inside(f"control t: int {{ default {'(' * 2000} }}\n" * 20), {"LP003"}),
    "too deep, and an error": (inside("summary 1\n control t: int { default " + "-" * N + "1 }"), {"LP000", "LP003"}),
    "digits": (default("9" * 100_000), {"LP006"}),
    "digits with a unit": (default("9" * 100_000 + "s"), {"LP006"}),
    "two names": (default("a" * 500_000 + " b"), {"LP000"}),
    "dots": (default("a" + ".a" * N + "."), {"LP000"}),
    "zeros": ("\0" * N, {"LP002"}),
    "zero inside": (default("1\0"), {"LP000"}),
    "lone surrogate": (default("\ud800"), {"LP008"}),
    "lone surrogate in a string": (default('"\ud800"'), {"LP008"}),
    "BOM": ("\ufeff" + default("1"), {"LP002"}),
    "unicode name": (default("na\u00efve"), {"LP000"}),
    "combining mark": (default("a\u0301"), {"LP000"}),
    "fullwidth digit": (default("\uff11"), {"LP000"}),
    "no-break space": (default("\u00a01"), {"LP000"}),
    "line separator": (default("1\u2028"), {"LP000"}),
    "form feed": (default("1\f"), {"LP000"}),
    "many bad clauses": (inside("summary 1\n" * 2_000), {"LP000"}),
    "many properties twice": (inside("control t: int {" + " default 1" * 10_000 + "}"), {"LP005"}),
    "many glued words": (inside("summary 1\n" + "control t: int { default 1when true }\n" * 500), {"LP000", "LP004"}),
    "clauses without end": (inside("control c: int {\n default 1\n" * 5_000), {"LP000"}),
    "wrong clauses without end": (inside("control c: int {\n default raed wrong\n" * 4_000), {"LP000"}),
    "misspelt properties": (inside("control c: int {\n" + "defalt 1\n" * 10_000 + "}"), {"LP000"}),
    "quotes in a string without end": (default('"' + '\\"' * N), {"LP000"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_end_in_a_diagnostic(name):
    text, rules = BOMBS[name]
    parsed = ends_in(text, rules)
    if parsed.file is not None:
        check(parsed.file)
    assert format_text(text)[0] is None


def test_a_damaged_text_is_read_twice_at_most():
    right = inside('  package "a"\n' * (MAX_WORDS // 2 - 20))
    whole = parse(right)
    damaged = parse(right.rstrip()[:-1] + "x }")
    assert whole.ok
    assert not damaged.ok
    assert damaged.work <= 2 * whole.work + FEW


def test_depth_is_bounded_from_both_sides():
    def depth(n):
        return parse(default("-" * n + "1"))

    assert depth(MAX_DEPTH - 8).ok
    assert [d.rule for d in depth(MAX_DEPTH).diagnostics] == ["LP003"]


def test_findings_are_bounded_and_the_first_are_kept():
    found = parse(inside("summary 1\n" * 500)).diagnostics
    assert [d.span.line for d in found] == list(range(4, 4 + MAX_FINDINGS))


def test_a_version_of_5000_digits():
    for text in (f"lpcl {'9' * 5000} contract a {{}}", f"lpcl {'9' * 5000} contract a {{"):
        assert "LP002" in {d.rule for d in parse(text).diagnostics}


def test_a_number_beyond_all_floats():
    assert {d.rule for d in parse(default("9" * 400 + ".0")).diagnostics} == {"LP006"}


# ------------------------------------------------------------------ files


def test_no_more_of_a_file_is_read_than_shows_that_it_is_too_large(tmp_path):
    path = tmp_path / "x.lpcl"
    path.write_bytes(CONTRACT.encode() + b" " * 10 * MB)
    assert len(read_text(path)) == MAX_BYTES + 1
    assert len(read_text(Path("/dev/zero"))) == MAX_BYTES + 1
    assert [d.rule for d in parse(read_text(path)).diagnostics] == ["LP001"]


def test_a_character_that_is_cut_by_the_limit_is_no_finding_of_its_own(tmp_path):
    path = tmp_path / "x.lpcl"
    path.write_bytes(b"x" * MAX_BYTES + "é".encode())
    assert [d.rule for d in parse(read_text(path)).diagnostics] == ["LP001"]


@pytest.mark.parametrize(
    ("data", "rule", "place"),
    [
        (b'lpcl 1\ncontract demo { summary "d\xe9mo" }', "LP008", (2, 27)),
        (b"lpcl 1 // \xff\xfe", "LP008", (1, 11)),
        ("lpcl 1 contract demo { }".encode("utf-16"), "LP008", (1, 1)),
        (b"lpcl 1\ncontract demo \x00{ }", "LP000", (2, 15)),
        (b"\xef\xbb\xbflpcl 1 contract demo { }", "LP002", (1, 1)),
    ],
)  # fmt: skip
def test_bytes_that_are_no_text(tmp_path, data, rule, place):
    path = tmp_path / "x.lpcl"
    path.write_bytes(data)
    (found,) = parse(read_text(path)).diagnostics
    assert (found.rule, (found.span.line, found.span.column)) == (rule, place)
