"""The formatter: canonical, keeps comments, proves itself."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl import model as m
from lpcl.check import check
from lpcl.format import contract_text, expression, file_text, format_text, number, quote, type_text
from lpcl.parse import comments, parse, parser

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
TEXTS = [path.read_text("utf-8") for path in sorted(CORPUS.glob("*/contract.lpcl"))]

ALL = """lpcl 1
contract demo { uses a uses b summary "s" native "x*" package "p" versions ">=1" package "q"
 demand d: cpu.threads { evidence e note "n" fork safe runs native work io idle block if x idle spin(1s) scope thread
  created call amount min(1, 2 + 3) evidence f when x runtime r }
 assume q { remedy "r" consequence hang forbids fork after d unless d.amount <= 1 requires x == 1 ignores machine.quota
  ignores machine.cores sizes cpu.threads from machine.online, machine.cores evidence e }
 control x: list(choice("a", "b")) { requires 1 < 2 switch live affects d.idle bounds d.amount bounds d.idle
  effect process special 0 means 1 effective value combine min config "c" read call param f.g(h) at import
  call a.b(y, z) at call env "A" read load if 1 deprecated "0" default 1 range 1 to 5 step 1 log evidence e }
 signal s: gauge { unreliable "u" valid after load unit k observes d.amount observes d.idle read call a.b() }
 signal t: state { read file "/proc/x" } signal u: counter { read native "a", "b" }
 mitigate m { evidence e unless_set in children to 1 sets env "A" sets env "B", "C" } }
contract other {}
"""

CANONICAL = """lpcl 1

contract demo {
  package "p" versions ">=1"
  package "q"
  native "x*"
  summary "s"
  uses a, b

  demand d: cpu.threads {
    amount min(1, 2 + 3)
    created call
    scope thread
    idle block if x
    idle spin(1s)
    work io
    runs native
    fork safe
    runtime r
    when x
    note "n"
    evidence e, f
  }

  assume q {
    sizes cpu.threads from machine.online, machine.cores
    ignores machine.quota, machine.cores
    requires x == 1
    forbids fork after d unless d.amount <= 1
    consequence hang
    remedy "r"
    evidence e
  }

  control x: list(choice("a", "b")) {
    range 1 to 5 step 1 log
    default 1
    config "c" read call
    param f.g(h) at import
    call a.b(y, z) at call
    env "A" read load if 1 deprecated "0"
    combine min
    effective value
    special 0 means 1
    effect process
    bounds d.amount, d.idle
    affects d.idle
    switch live
    requires 1 < 2
    evidence e
  }

  signal s: gauge {
    read call a.b()
    observes d.amount, d.idle
    unit k
    valid after load
    unreliable "u"
  }

  signal t: state {
    read file "/proc/x"
  }

  signal u: counter {
    read native "a", "b"
  }

  mitigate m {
    sets env "A", "B", "C"
    to 1
    in children
    unless_set
    evidence e
  }
}

contract other {
}
"""


def formatted(text):
    result, diagnostics = format_text(text)
    assert result is not None, diagnostics
    assert format_text(result)[0] == result
    return result


def test_the_canonical_order():
    assert formatted(ALL) == CANONICAL


def test_a_built_file_prints_as_a_read_one():
    assert file_text(parse(ALL).file) == CANONICAL
    assert "lpcl 1\n\n" + "\n".join(contract_text(c) for c in parse(ALL).file.contracts) == CANONICAL


def test_the_shipped_contracts_are_canonical():
    for text in TEXTS:
        assert formatted(text) == text


def test_line_ends_and_spaces_do_not_matter():
    for text in TEXTS:
        assert formatted(text.replace("\n", "\r\n")) == text
        assert formatted(text.replace("\n", " \t\n\n\n")) == text


def test_a_bad_text_gives_its_diagnostics_and_no_text():
    result, diagnostics = format_text("lpcl 1 contract a { x }", file="a.lpcl")
    assert result is None
    assert [(d.rule, d.file) for d in diagnostics] == [("LP000", "a.lpcl")]


# ------------------------------------------------------------------- comments


def test_comments_keep_their_places():
    text = """// top
lpcl 1 // version
// above
contract a { // opens
  // before package
  package "p" // behind package
  // before demand
  demand d: files { // opens demand
    // before amount
    amount 1 // behind amount
    // end of demand
  }
  // end of contract
}
// between
contract b { // nothing in it
  // but this
}
// end of file
// really
"""
    assert (
        formatted(text)
        == """// top
lpcl 1  // version

// above
contract a {  // opens
  // before package
  package "p"  // behind package

  // before demand
  demand d: files {  // opens demand
    // before amount
    amount 1  // behind amount
    // end of demand
  }
  // end of contract
}

// between
contract b {  // nothing in it
  // but this
}
// end of file
// really
"""
    )


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("lpcl 1 contract a {}", "lpcl 1\n\ncontract a {\n}\n"),
        ("lpcl 1 contract a { // c\n}", "lpcl 1\n\ncontract a {  // c\n}\n"),
        ("lpcl 1 contract a {\n// c\n}", "lpcl 1\n\ncontract a {\n  // c\n}\n"),
        ("//a\n//b\nlpcl 1 contract a {}", "//a\n//b\nlpcl 1\n\ncontract a {\n}\n"),
        (
            "lpcl 1 contract a { uses b // x\nuses c // y\n}",
            "lpcl 1\n\ncontract a {\n  // y\n  uses b, c  // x\n}\n",
        ),
        (
            'lpcl 1 contract a { demand d: files { note "n" // n\namount 1 // a\n} }',
            'lpcl 1\n\ncontract a {\n  demand d: files {\n    amount 1  // a\n    note "n"  // n\n  }\n}\n',
        ),
        (
            "lpcl 1 contract a { demand d: files { amount 1 + // c\n 2 } }",
            "lpcl 1\n\ncontract a {\n  demand d: files {\n    amount 1 + 2\n    // c\n  }\n}\n",
        ),
    ],
    ids=["empty", "opening", "empty block", "top", "merged", "reordered", "in an expression"],
)
def test_comment_placement(text, canonical):
    if "c\n 2" in text:  # where it goes is free; that it stays is not
        assert "// c" in formatted(text)
    else:
        assert formatted(text) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "lpcl 1\n\ncontract a {\n}  // of a\n\ncontract b {\n}\n",
        "lpcl 1\n\ncontract a {\n  demand d: files {\n  }  // of d\n\n  demand e: files {\n  }\n}\n",
    ],
)
def test_a_comment_behind_a_closing_brace_stays_with_its_block(text):
    assert formatted(text) == text


MERGED = [
    ("uses a", "uses b"),
    ("demand d: files { evidence a", "evidence b }"),
    ("assume q { ignores a", "ignores b }"),
    ('mitigate m { sets env "A"', 'sets env "B" }'),
    ("control c: int { bounds a.b", "bounds c.d }"),
    ("control c: int { affects a.b", "affects c.d }"),
    ("signal s: gauge { observes a.b", "observes c.d }"),
]


@pytest.mark.parametrize(("first", "second"), MERGED)
@pytest.mark.parametrize("behind", [True, False])
def test_comments_on_two_lines_that_merge(first, second, behind):
    one, two = ("{} // one\n", "{} // two\n") if behind else ("// one\n{}\n", "// two\n{}\n")
    head, _, property_ = first.rpartition("{ ")
    opening = f"{head}{{\n" if head else ""
    body, closing = (second[:-2], "\n}\n") if head else (second, "")
    result = formatted("lpcl 1 contract x {\n" + opening + one.format(property_) + two.format(body) + closing + "}\n")
    assert result.count("// one") == 1
    assert result.count("// two") == 1


@st.composite
def commented(draw):
    """A text with comments between its tokens."""
    text = draw(st.sampled_from([ALL, *TEXTS]))
    cuts = [0, *(t.end_pos for t in parser().lex(text))]
    for cut in sorted(draw(st.lists(st.sampled_from(cuts), max_size=6, unique=True)), reverse=True):
        comment = draw(
            st.sampled_from(["//c{}\n", " // c{}\n", "\n//c{}\n\n", '\n// "c{}\n// {{\n', "\n\n//c{} // d \r\n"])
        )
        glue = " " if text[cut - 1 : cut] == "/" else ""  # `/` and a comment would be a longer comment
        text = text[:cut] + glue + comment.format(cut) + text[cut:]
    return text


@settings(max_examples=50, deadline=None)
@given(commented())
def test_comments_anywhere_are_kept_and_the_contract_is_the_same(text):
    result = formatted(text)
    assert parse(result).file == parse(text).file
    assert sorted(c for _, c in comments(result)) == sorted(c for _, c in comments(text))


# ----------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    "text",
    [
        "1 - 2 - 3",
        "1 - (2 - 3)",
        "-(1 + 2) * 3",
        "--1",
        "- 1 - -1",
        "not (a and b) or c",
        "not not a",
        "(not a) == b",
        "(a == b) == c",
        "(if a then b else c) + 1",
        "if a then b else c + 1",
        "if (if a then b else c) then d else e",
        "min(if a then b else c, -d)",
        "(a or b) and c",
        "a / (b / c)",
        "1cycles * 2%",
    ],
)
def test_parentheses_stand_where_they_are_needed_only(text):
    e = parse(f"lpcl 1 contract a {{ demand d: files {{ amount {text} }} }}").file.contracts[0].demands[0].amount
    short = expression(e)
    again = parse(f"lpcl 1 contract a {{ demand d: files {{ amount {short} }} }}").file.contracts[0].demands[0].amount
    assert again == e
    for hit in re.finditer(r"\((?=.*\))", short):
        start = hit.start()
        if start and (short[start - 1].isalnum() or short[start - 1] == "_"):
            continue
        depth, end = 0, start
        for end in range(start, len(short)):
            depth += (short[end] == "(") - (short[end] == ")")
            if not depth:
                break
        bare = short[:start] + short[start + 1 : end] + short[end + 1 :]
        other = parse(f"lpcl 1 contract a {{ demand d: files {{ amount {bare} }} }}")
        assert not other.ok or other.file.contracts[0].demands[0].amount != e


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (m.Number(1), "1"),
        (m.Number(1.0), "1.0"),
        (m.Number(0.2, "s"), "0.2s"),
        (m.Number(1e-7), "0.0000001"),
        (m.Number(1e22), "10000000000000000000000.0"),
        (m.Number(10**40, "GiB"), "1" + "0" * 40 + "GiB"),
        (m.Number(50, "%"), "50%"),
    ],
)
def test_numbers_have_no_exponent(value, text):
    assert number(value) == text


def test_strings_and_types():
    assert quote('a"b\\c\nd\te') == '"a\\"b\\\\c\\nd\\te"'
    assert type_text(m.Type("list", (), m.Type("choice", ('"',)))) == 'list(choice("\\""))'


# ----------------------------------------------------------------- any contract

RESERVED = {"if", "not", "true", "false", "unknown"}
names = st.sampled_from(
    [
        "a",
        "b",
        "threads",
        "x_1",
        "_",
        "Zz",
        "and",
        "then",
        "else",
        "step",
        "log",
        "fork",
        "note",
        "process",
        "env",
        "s",
        "if",
        "call",
    ]
)
strings = st.text(max_size=6) | st.sampled_from(['"', "\\", "\n\t", "// no", "\\n", "\r", "}", ""])
refs = st.lists(names, min_size=1, max_size=3).filter(lambda p: p[0] not in RESERVED).map(lambda p: m.Ref(tuple(p)))
plain_refs = st.lists(names, min_size=1, max_size=3).map(lambda p: m.Ref(tuple(p)))
units = st.sampled_from(["", "ns", "us", "ms", "s", "min", "h", "B", "KB", "GB", "KiB", "MiB", "TiB", "cycles", "%"])
numbers = st.builds(
    m.Number,
    st.integers(0, 10**30) | st.floats(0, 1e300, allow_nan=False, allow_subnormal=True).map(abs),
    units,
)
atoms = st.one_of(numbers, st.builds(m.Text, strings), st.builds(m.Truth, st.booleans()), st.just(m.Unknown()), refs)


def deeper(inner):
    binary = st.sampled_from(["+", "-", "*", "/", "and", "or", "==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(m.Operation, binary, st.tuples(inner, inner)),
        st.builds(m.Operation, st.sampled_from(["neg", "not"]), st.tuples(inner)),
        st.builds(m.Conditional, inner, inner, inner),
        st.builds(m.Apply, names.filter(lambda n: n not in RESERVED), st.lists(inner, max_size=3).map(tuple)),
    )


expressions = atoms
for _ in range(6):
    expressions = atoms | deeper(expressions)


def some(strategy, least=0, most=3):
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


def maybe(strategy):
    return st.none() | strategy


small = atoms | deeper(atoms)
bindings = st.sampled_from(["build", "process_start", "load", "import", "first_use", "session", "call", "unknown"])
scopes = st.sampled_from(["process", "thread", "children", "object", "session", "call", "machine", "unknown"])
common = {"condition": maybe(expressions), "notes": some(strings), "evidence": some(names)}

demands = st.builds(
    m.Demand,
    names,
    plain_refs,
    amount=maybe(expressions),
    created=maybe(bindings),
    scope=maybe(scopes),
    idle=some(
        st.builds(
            m.Idle,
            st.sampled_from(["block", "spin", "spin_then_block", "yield", "unknown"]),
            maybe(small),
            maybe(expressions),
        )
    ),
    work=maybe(st.sampled_from(["compute", "bandwidth", "latency", "io", "mixed", "unknown"])),
    runs=maybe(st.sampled_from(["native", "user_code", "unknown"])),
    fork=maybe(st.sampled_from(["safe", "unsafe", "recreated", "unknown"])),
    runtime=maybe(names),
    **common,
)
assumptions = st.builds(
    m.Assumption,
    names,
    sizes=some(st.builds(m.Sizes, plain_refs, some(plain_refs, 1))),
    ignores=some(plain_refs),
    requires=some(expressions),
    forbids=some(
        st.builds(m.Forbids, st.sampled_from(["fork", "nesting", "threads"]), maybe(plain_refs), maybe(expressions))
    ),
    consequence=maybe(st.sampled_from(["hang", "crash", "wrong_result", "slow"])),
    remedies=some(strings),
    **common,
)
types = st.recursive(
    st.sampled_from(["int", "float", "bool", "text", "size", "duration"]).map(m.Type)
    | some(strings, 1).map(lambda c: m.Type("choice", c)),
    lambda inner: inner.map(lambda t: m.Type("list", (), t)),
    max_leaves=3,
)
dotted = st.lists(names, min_size=1, max_size=3).map(".".join)
way_tail = {"condition": maybe(small), "deprecated": maybe(strings)}
ways = st.one_of(
    st.builds(m.Way, st.sampled_from(["env", "config"]), strings, bindings, **way_tail),
    st.builds(m.Way, st.just("call"), dotted, bindings, some(names), **way_tail),
    st.builds(m.Way, st.just("param"), dotted, bindings, names.map(lambda n: (n,)), **way_tail),
)
controls = st.builds(
    m.Control,
    names,
    types,
    range=maybe(st.builds(m.Range, small, small, maybe(small), maybe(st.sampled_from(["linear", "log"])))),
    default=maybe(expressions),
    ways=some(ways),
    combine=maybe(st.sampled_from(["first_set", "min", "max"])),
    effective=maybe(expressions),
    specials=some(st.builds(m.Special, small, small)),
    effect=maybe(scopes),
    bounds=some(plain_refs),
    affects=some(plain_refs),
    switch=maybe(st.sampled_from(["live", "session", "process"])),
    requires=some(expressions),
    **common,
)
reads = st.one_of(
    st.builds(m.Read, st.just("call"), dotted.map(lambda n: (n,))),
    st.builds(m.Read, st.just("native"), some(strings, 1)),
    st.builds(m.Read, st.just("file"), strings.map(lambda s: (s,)), maybe(strings)),
)
signals = st.builds(
    m.Signal,
    names,
    st.sampled_from(["gauge", "counter", "state"]),
    read=maybe(reads),
    observes=some(plain_refs),
    unit=maybe(names),
    valid_after=maybe(bindings),
    unreliable=maybe(strings),
    **common,
)
mitigations = st.builds(
    m.Mitigation,
    names,
    env=some(strings),
    value=maybe(expressions),
    target=maybe(st.sampled_from(["process", "children"])),
    unless_set=st.booleans(),
    **common,
)
clauses = st.one_of(demands, assumptions, controls, signals, mitigations)
contracts = st.builds(
    m.Contract,
    names,
    packages=some(st.builds(m.Package, strings, maybe(strings))),
    natives=some(st.builds(m.Native, some(strings, 1))),
    summary=maybe(strings),
    uses=some(names),
    clauses=some(clauses),
)
files = st.builds(m.File, st.just(1), some(contracts, 1, 2))


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_any_expression_reads_back(e):
    parsed = parse(f"lpcl 1 contract a {{ demand d: files {{ amount {expression(e)} }} }}")
    assert parsed.diagnostics == ()
    assert parsed.file.contracts[0].demands[0].amount == e


@settings(max_examples=70, deadline=None)
@given(files)
def test_any_file_reads_back(file):
    text = file_text(file)
    parsed = parse(text)
    assert parsed.diagnostics == ()
    assert parsed.file == file
    assert formatted(text) == text
    check(file)


# -------------------------------------------------------------------- mutation

TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|\s+|\w+|.')


@st.composite
def shuffled(draw):
    """A real text with tokens deleted, doubled, swapped or replaced by tokens of another place."""
    words = TOKENS.findall(draw(st.sampled_from([ALL, *TEXTS])))
    for _ in range(draw(st.integers(1, 4))):
        i, j = (draw(st.integers(0, len(words) - 1)) for _ in range(2))
        how = draw(st.integers(0, 3))
        if how == 0:
            del words[i]
        elif how == 1:
            words.insert(i, words[j])
        elif how == 2:
            words[i], words[j] = words[j], words[i]
        else:
            words[i] = words[j]
    return "".join(words)


@settings(max_examples=150, deadline=None)
@given(shuffled())
def test_damaged_texts_never_raise(text):
    parsed = parse(text)
    result, diagnostics = format_text(text)
    assert (result is not None) == parsed.ok
    assert diagnostics == parsed.diagnostics
    if result is not None:
        assert parse(result).file == parsed.file
    if parsed.file is not None:
        lines = text.split("\n")
        for d in check(parsed.file):
            assert 1 <= d.span.line <= len(lines)
            assert 1 <= d.span.column <= len(lines[d.span.line - 1]) + 1


def test_a_number_beyond_all_floats_is_no_bug_of_the_formatter():
    result, diagnostics = format_text(f"lpcl 1 contract a {{ demand d: files {{ amount {'9' * 400}.0 }} }}")
    assert result is None
    assert [d.rule for d in diagnostics] == ["LP006"]


def test_many_comments_take_time_in_proportion():
    text = "lpcl 1 contract a {\n" + '// c\npackage "a"\n' * 900 + "}\n"
    start = time.process_time()
    assert formatted(text).count("// c") == 900
    assert time.process_time() - start < 0.7


@pytest.mark.parametrize("type_", ["placement(a.b)", "sequence(int, 1 to 2)", "list(int)", 'choice("a")'])
def test_comments_around_a_type(type_):
    text = f"lpcl 1\ncontract a {{\n control y: {type_} // x\n {{ // z\n }}\n}}\n"
    result, diagnostics = format_text(text)
    assert diagnostics == ()
    assert "// x" in result
    assert "// z" in result
    assert format_text(result)[0] == result


def test_a_canonical_form_that_is_too_large_is_a_finding(monkeypatch):
    import lpcl.format

    text = 'lpcl 1\ncontract a { package "a" }\n'
    monkeypatch.setattr(lpcl.format, "MAX_BYTES", 20)
    result, diagnostics = format_text(text)
    assert result is None
    assert [d.rule for d in diagnostics] == ["LP001"]
