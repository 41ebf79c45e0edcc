"""The parser: values, several errors in one pass, and texts that want to break it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl import model as m
from lpcl.parse import comments, parse

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
TEXTS = [path.read_text("utf-8") for path in sorted(CORPUS.glob("*/contract.lpcl"))]


def inside(body):
    return f'lpcl 1\ncontract demo {{\n  package "demo"\n{body}\n}}\n'


def expression(text):
    parsed = parse(inside(f"  control t: int {{ default {text} }}"))
    assert parsed.ok, parsed.diagnostics
    return parsed.file.contracts[0].controls[0].default


def default(text):
    return inside(f"  control t: int {{ default {text} }}")


def spans_are_inside(text, diagnostics):
    lines = text.split("\n")
    for d in diagnostics:
        s = d.span
        assert 1 <= s.line <= s.end_line <= len(lines)
        # The caret of "ends too early" stands one behind the last character.
        assert 1 <= s.column <= len(lines[s.line - 1]) + 1
        assert 1 <= s.end_column <= len(lines[s.end_line - 1]) + 2
        assert (s.line, s.column) <= (s.end_line, s.end_column)
        assert 0 <= s.start <= s.end <= len(text) + 1


# --------------------------------------------------------------------- values


def test_a_contract_becomes_records():
    text = """lpcl 1
contract demo {
  package "demo" versions ">=1"
  package "demo-extra"
  native "libdemo*.so*", "libd.so"
  summary "a \\"demo\\"\\tof \\\\ \\n"
  uses openblas, libgomp
  uses numpy
  control threads: list(choice("a", "b")) {
    range 1 to 8 step 2 log
    default 4
    env "A" read load if machine.gpus == 0 deprecated "1.2"
    call demo.set(n, m) at call
    call demo.reset() at call
    param demo.Pool(threads) at session
    config "demo.threads" read import
    combine min
    special 0 means machine.affinity
    effect process
    bounds w.amount, w.idle
    switch live
    note "one"
    note "two"
    evidence e1, e2
    evidence e3
  }
}
"""
    parsed = parse(text, file="demo.lpcl")
    assert parsed.diagnostics == ()
    (contract,) = parsed.file.contracts
    assert contract.packages == (m.Package("demo", ">=1"), m.Package("demo-extra"))
    assert contract.natives == (m.Native(("libdemo*.so*", "libd.so")),)
    assert contract.summary == 'a "demo"\tof \\ \n'
    assert contract.uses == ("openblas", "libgomp", "numpy")
    control = contract.control("threads")
    assert control.type == m.Type("list", (), m.Type("choice", ("a", "b")))
    assert control.range == m.Range(m.Number(1), m.Number(8), m.Number(2), "log")
    condition = m.Operation("==", (m.Ref(("machine", "gpus")), m.Number(0)))
    assert control.ways == (
        m.Way("env", "A", "load", (), condition, "1.2"),
        m.Way("call", "demo.set", "call", ("n", "m")),
        m.Way("call", "demo.reset", "call"),
        m.Way("param", "demo.Pool", "session", ("threads",)),
        m.Way("config", "demo.threads", "import"),
    )
    assert [w.label for w in control.ways] == ["A", "demo.set()", "demo.reset()", "demo.Pool(threads=)", "demo.threads"]
    assert control.env_names() == ("A",)
    assert control.specials == (m.Special(m.Number(0), m.Ref(("machine", "affinity"))),)
    assert control.bounds == (m.Ref(("w", "amount")), m.Ref(("w", "idle")))
    assert (control.combine, control.effect, control.switch) == ("min", "process", "live")
    assert control.notes == ("one", "two")
    assert control.evidence == ("e1", "e2", "e3")
    assert contract.control("other") is None
    assert contract.demand("threads") is None


def test_every_clause_has_a_span_that_cuts_it_out_of_the_text():
    for text in TEXTS:
        for clause in parse(text).file.contracts[0].clauses:
            cut = text[clause.span.start : clause.span.end]
            assert cut.startswith(m.clause_label(clause))
            assert cut.endswith("}")
            line, column = clause.span.line, clause.span.column
            assert text.split("\n")[line - 1][column - 1 :].startswith(m.clause_label(clause))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", m.Number(1)),
        ("0.50", m.Number(0.5)),
        ("4GiB", m.Number(4, "GiB")),
        ("0.2s", m.Number(0.2, "s")),
        ("5min", m.Number(5, "min")),
        ("50%", m.Number(50, "%")),
        ('"a"', m.Text("a")),
        ("true", m.Truth(value=True)),
        ("unknown", m.Unknown()),
        ("trueish", m.Ref(("trueish",))),
        ("a.b.c", m.Ref(("a", "b", "c"))),
        ("f()", m.Apply("f", ())),
        ("f(1, a)", m.Apply("f", (m.Number(1), m.Ref(("a",))))),
        ("-1", m.Operation("neg", (m.Number(1),))),
        ("((1))", m.Number(1)),
    ],
)
def test_expressions(text, value):
    assert expression(text) == value


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("1 / 2 * 3", "(1 / 2) * 3"),
        ("1 + 2 * 3", "1 + (2 * 3)"),
        ("-1 * 2", "(-1) * 2"),
        ("a or b and c", "a or (b and c)"),
        ("not a and b", "(not a) and b"),
        ("not a == b", "not (a == b)"),
        ("1 + 2 < 3", "(1 + 2) < 3"),
        ("if a then b else c or d", "if a then b else (c or d)"),
        ("if a then if b then c else d else e", "if a then (if b then c else d) else e"),
    ],
)
def test_precedence(short, full):
    assert expression(short) == expression(full)


def test_references_are_not_the_same_object_twice():
    both = expression("a + a")
    assert both.operands[0] == both.operands[1]
    assert both.operands[0].span.column != both.operands[1].span.column


def test_words_of_the_language_may_be_names():
    text = inside("control control: int { evidence evidence } demand fork: cpu.threads { amount min evidence note }")
    parsed = parse(text)
    assert parsed.ok
    assert [c.name for c in parsed.file.contracts[0].clauses] == ["control", "fork"]


def test_comments_have_places():
    text = 'lpcl 1 // one\n// two  \r\ncontract a { package "// no" /// three\n}//'
    assert [(s.line, s.column, text[s.start : s.end], body) for s, body in comments(text)] == [
        (1, 8, "// one", "// one"),
        (2, 1, "// two", "// two"),
        (3, 30, "/// three", "/// three"),
        (4, 2, "//", "//"),
    ]


# --------------------------------------------------------------------- errors


def test_each_bad_clause_gives_one_error_and_the_good_ones_are_kept():
    text = inside(
        """
  control a: int { env "A" raed load }
  control good: int { default 4 env "G" read load evidence e }
  demand b: cpu.threads { amont 4 }
  summary 4
  signal c: gage { read call a.b() }
  summary "fine"
"""
    )
    parsed = parse(text, file="x.lpcl")
    assert not parsed.ok
    assert [(d.rule, d.span.line, d.help) for d in parsed.diagnostics] == [
        ("LP000", 5, "did you mean `read`?"),
        ("LP000", 7, "did you mean `amount`?"),
        ("LP000", 8, 'expected a string in `"`'),
        ("LP000", 9, "did you mean `gauge`?"),
    ]
    assert {d.file for d in parsed.diagnostics} == {"x.lpcl"}
    (contract,) = parsed.file.contracts
    assert [c.name for c in contract.clauses] == ["good"]
    assert contract.summary == "fine"
    spans_are_inside(text, parsed.diagnostics)


def test_errors_in_several_contracts():
    text = 'lpcl 1\ncontract a { package 1 }\ncontract b { package "b" }\ncontract c { natve "x" }\n'
    parsed = parse(text)
    assert [(d.span.line, d.span.column) for d in parsed.diagnostics] == [(2, 22), (4, 14)]
    assert [c.name for c in parsed.file.contracts] == ["a", "b", "c"]


def test_a_property_given_twice_is_found_in_a_damaged_file_too():
    parsed = parse(inside("control a: int { default 1 default 2 }\ncontrol b: int { defalt 1 }"))
    assert [d.rule for d in parsed.diagnostics] == ["LP005", "LP000"]


@pytest.mark.parametrize(
    ("text", "rule", "place"),
    [
        ("", "LP002", (1, 1)),
        ("\n\n", "LP002", (1, 1)),
        ("contract a {}", "LP002", (1, 1)),
        ("lpcl", "LP002", (1, 1)),
        ("lpcl x contract a {}", "LP002", (1, 1)),
        ("lpcl 2 contract a {}", "LP002", (1, 1)),
        ("lpcl 0 contract a {}", "LP002", (1, 1)),
        ("lpcl 1", "LP000", (1, 7)),
        ("lpcl 1\n// nothing\n", "LP000", None),
        ("lpcl 1 contrakt a {}", "LP000", (1, 8)),
        ("lpcl 1 contract {}", "LP000", (1, 17)),
        ("lpcl 1 contract a", "LP000", (1, 18)),
        ("lpcl 1 contract a {", "LP000", (1, 20)),
        ("lpcl 1 contract a {} }", "LP000", (1, 22)),
        ("lpcl 1 contract a {} contract", "LP000", (1, 30)),
        ('lpcl 1 contract a { package "x }', "LP000", (1, 29)),
        ('lpcl 1 contract a { package "\\x" }', "LP000", (1, 29)),
        ('lpcl 1 contract a { package "a\nb" }', "LP000", (1, 29)),
        ("lpcl 1 contract a { package 'x' }", "LP000", (1, 29)),
        ("lpcl 1 contract a { ; }", "LP000", (1, 21)),
        ("lpcl 1 contract ä {}", "LP000", (1, 17)),
        ("lpcl 1 contract a { # no comment\n }", "LP000", (1, 21)),
        ("lpcl 1 contract a { /* no */ }", "LP000", (1, 21)),
    ],
)
def test_bad_files(text, rule, place):
    parsed = parse(text)
    assert not parsed.ok
    assert [d.rule for d in parsed.diagnostics] == [rule]
    spans_are_inside(text, parsed.diagnostics)
    if place is not None:
        assert (parsed.diagnostics[0].span.line, parsed.diagnostics[0].span.column) == place


@pytest.mark.parametrize(
    "body",
    [
        "control t: int { range 1 to 5log }",
        "control t: int { default 5when true }",
        "control t: int { default 5seffect process }",
    ],
)
def test_a_number_and_a_word_that_are_written_together(body):
    assert [d.rule for d in parse(inside(body)).diagnostics] == ["LP004"]


@pytest.mark.parametrize(
    "body",
    [
        'controlthreads: int { env "A" read load }',
        "demand w: cpu.threads { created importscope process }",
        'mitigate m { sets env "A" to 1 in children unless_setnote "x" }',
    ],
)
def test_two_words_that_are_written_together(body):
    assert [d.rule for d in parse(inside(body)).diagnostics] == ["LP004"]


@pytest.mark.parametrize("text", ['package"demo"versions">=1"', 'native "a","b"', "uses a,b", 'summary//\n"x"'])
def test_what_needs_no_space(text):
    assert parse(f"lpcl 1 contract demo{{{text}}}").ok


# -------------------------------------------------------------------- mutation

PIECES = [
    *'{}()":,.+-*/<>=!%\\\n\t \0',
    *(
        '"',
        "//",
        "..",
        "lpcl",
        "contract",
        "control",
        "demand",
        "if",
        "then",
        "else",
        "not",
        "min(",
        "1",
        "4GiB",
        "0.5s",
    ),
    *("read", "evidence", "idle", "unknown", "value", "é", "\ud800", "\u2028", "\r\n"),
]


@st.composite
def damaged(draw):
    """A real text with some of its characters or words deleted, swapped, doubled or replaced."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 5))):
        i = draw(st.integers(0, len(text)))
        j = min(len(text), i + draw(st.integers(0, 40)))
        how = draw(st.integers(0, 4))
        if how == 0:
            text = text[:i] + text[j:]
        elif how == 1:
            text = text[:i] + draw(st.sampled_from(PIECES)) + text[i:]
        elif how == 2:
            text = text[:i] + draw(st.sampled_from(PIECES)) + text[j:]
        elif how == 3:
            k = draw(st.integers(0, len(text)))
            text = text[:k] + text[i:j] + text[k:]
        else:
            words = text.split(" ")
            a, b = (draw(st.integers(0, len(words) - 1)) for _ in range(2))
            words[a], words[b] = words[b], words[a]
            text = " ".join(words)
    return text


@settings(max_examples=150, deadline=None)
@given(damaged())
def test_damaged_texts_never_raise(text):
    parsed = parse(text)
    assert parsed.ok or any(d.severity == "error" for d in parsed.diagnostics)
    spans_are_inside(text, parsed.diagnostics)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_never_raises(text):
    for whole in (text, "lpcl 1 " + text, inside(text), default(text)):
        parsed = parse(whole)
        assert parsed.ok or parsed.diagnostics
        spans_are_inside(whole, parsed.diagnostics)
