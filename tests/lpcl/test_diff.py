"""The semantic diff: each kind of change, its severity, and what is no change."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl import model as m
from lpcl.change import KINDS, SEVERITIES, Change
from lpcl.diff import compare
from lpcl.diff_render import render_json, render_markdown, render_text
from lpcl.format import contract_text
from lpcl.parse import parse
from tests.lpcl.test_format import ALL, TEXTS, contracts

BASE = """lpcl 1

contract demo {
  package "demo" versions ">=2, <3"
  native "libdemo*.so*"
  summary "s"
  uses openblas

  demand pool: cpu.threads {
    amount min(threads, 1GiB)
    created import
    scope process
    idle spin if threads == 1
    idle block
    work compute
    runs native
    fork safe
    runtime libgomp
    note "n"
    evidence e1, e2
  }

  assume alone {
    sizes cpu.threads from machine.online, machine.cores
    ignores machine.quota, machine.memory
    requires threads > 0
    forbids fork after pool unless pool.amount <= 1
    consequence hang
    remedy "r"
    evidence e1
  }

  control threads: int {
    range 1 to 64 step 2
    default 4
    env "DEMO_THREADS" read load
    env "OMP_NUM_THREADS" read load
    call demo.set_threads(n) at call
    param demo.Pool(n) at session versions ">=2"
    effective min(value, 8)
    special 0 means 1
    effect process
    bounds pool.amount
    affects pool.idle, pool.created
    switch session
    requires threads > 0
    evidence e1
  }

  control policy: choice("a", "b") {
    default "a"
    env "DEMO_POLICY" read import if threads > 1
    combine min
    evidence e1
  }

  signal size: gauge {
    read call demo.size()
    observes pool.amount
    unit threads
    valid after import
    unreliable "u"
    evidence e1
  }

  mitigate inner {
    sets env "A", "B"
    to 1
    in children
    evidence e1
  }
}
"""


def contract(text):
    parsed = parse(text)
    assert parsed.diagnostics == ()
    return parsed.file.contracts[0]


def edited(*edits):
    text = BASE
    for old, new in edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return contract(text)


def block(opening):
    return re.search(rf"  {re.escape(opening)}.*?\n  }}\n", BASE, re.DOTALL)[0]


THREADS, POLICY = block("control threads"), block("control policy")
# old text, new text, and (kind, severity) of what `compare` finds; a second pair is for the way back.
CASES = [
    ("contract demo {", "contract other {", "contract-renamed breaking", ""),
    ('summary "s"', 'summary "t"', "summary-changed editorial", ""),
    ("uses openblas", "uses libgomp", "uses-changed behavioural", ""),
    ("uses openblas", "uses openblas carries libgomp", "carries-changed behavioural", ""),
    ('"libdemo*.so*"', '"libdemo*.so*", "libdem*"', "native-changed compatible", "native-changed breaking"),
    (">=2, <3", ">=2, <4", "package-versions-changed compatible", "package-versions-changed breaking"),
    (">=2, <3", "==2.*", "package-versions-changed compatible", ""),
    (">=2, <3", ">=2, !=2.5, <3", "package-versions-changed breaking", "package-versions-changed compatible"),
    (">=2, <3", ">=3", "package-versions-changed breaking", "package-versions-changed breaking"),
    ("  native", '  package "two"\n  native', "package-added compatible", "package-removed breaking"),
    # demands
    (block("demand pool"), "", "demand-removed behavioural", "demand-added behavioural"),
    ("pool: cpu.threads", "pool: cpu.processes", "resource-changed breaking", ""),
    ("1GiB", "2GiB", "amount-changed behavioural", ""),
    ("created import", "created load", "created-changed behavioural", ""),
    ("scope process", "scope thread", "scope-changed behavioural", ""),
    ("idle block", "idle yield", "idle-changed behavioural", ""),
    ("work compute", "work io", "work-changed behavioural", ""),
    ("runs native", "runs user_code", "runs-changed behavioural", ""),
    ("fork safe", "fork unsafe", "fork-changed breaking", "fork-changed compatible"),
    ("fork safe", "fork unknown", "fork-changed behavioural", ""),
    ("runtime libgomp", "", "runtime-changed behavioural", ""),
    ("    runtime", "    inside libgomp.team\n    runtime", "inside-changed behavioural", ""),
    ("    runtime", "    pinned true\n    runtime", "pinned-changed behavioural", ""),
    ("    runtime", "    when threads > 1\n    runtime", "condition-changed behavioural", ""),
    ('note "n"', 'note "m"', "note-changed editorial", ""),
    ("evidence e1, e2", "evidence e1, e3", "evidence-changed editorial", ""),
    # assumptions
    (block("assume"), "", "assumption-removed compatible", "assumption-added breaking"),
    ("sizes cpu.threads from", "sizes cpu.threads from machine.gpus,", "assumption-changed behavioural", ""),
    ("machine.quota, ", "", "assumption-changed behavioural", ""),
    ("    forbids", "    forbids nesting\n    forbids", "assumption-changed breaking", "assumption-changed compatible"),
    ("requires threads > 0\n    forb", "forb", "assumption-changed compatible", "assumption-changed breaking"),
    ("consequence hang", "consequence crash", "assumption-changed behavioural", ""),
    ('remedy "r"', 'remedy "q"', "note-changed editorial", ""),
    # controls
    (THREADS, "", "control-removed breaking", "control-added compatible"),
    ("control policy:", "control wait:", "control-renamed breaking", ""),
    ('choice("a", "b")', 'choice("a", "c", "b")', "type-changed compatible", "type-changed breaking"),
    ("threads: int", "threads: float", "type-changed compatible", "type-changed breaking"),
    ("threads: int", "threads: list(int)", "type-changed breaking", ""),
    ("1 to 64", "1 to 128", "range-widened compatible", "range-narrowed breaking"),
    ("1 to 64", "2 to 128", "range-changed breaking", ""),
    ("1 to 64", "0 to 64", "range-widened behavioural", "range-narrowed breaking"),
    ("1 to 64", "1 to machine.cores", "range-changed breaking", ""),
    ("step 2", "step 1", "range-changed compatible", "range-changed behavioural"),
    ("step 2", "", "range-changed compatible", "range-changed behavioural"),
    ("step 2", "step 2 log", "range-changed compatible", ""),
    ("range 1 to 64 step 2", "", "range-widened compatible", "range-narrowed breaking"),
    ("default 4", "default 5", "default-changed behavioural", ""),
    ("default 4", "", "default-changed behavioural", ""),
    ("effective min(value, 8)", "effective value", "effective-changed behavioural", ""),
    ("special 0 means 1", "special 0 means 2", "special-changed behavioural", ""),
    ("special 0 means 1", "", "special-changed breaking", "special-changed behavioural"),
    ("special 0 means 1", "special 0 fails", "special-changed behavioural", ""),
    ("effect process", "malformed fails effect process", "malformed-changed breaking", "malformed-changed behavioural"),
    ("effect process", 'levels "," effect process', "levels-changed behavioural", ""),
    ("effect process", "effect process inherited by fork", "inherited-changed behavioural", ""),
    ("effect process", "effect thread", "effect-changed breaking", "effect-changed behavioural"),
    ("effect process", "effect children", "effect-changed behavioural", ""),
    ("effect process", "effect process per session", "entity-changed breaking", ""),
    ("bounds pool.amount", "bounds pool.idle", "bounds-changed behavioural", ""),
    ("affects pool.idle, ", "affects ", "affects-changed behavioural", ""),
    ("switch session", "switch live", "switch-changed compatible", "switch-changed behavioural"),
    ("requires threads > 0\n    evidence", "evidence", "requires-changed compatible", "requires-changed breaking"),
    ("switch session", "switch session when threads > 2", "condition-changed breaking", "condition-changed compatible"),
    # ways
    ('env "OMP_NUM_THREADS" read load', "", "way-removed breaking", "way-added behavioural"),
    ('>=2"\n', '>=2"\n    config "k" read load\n', "way-added compatible", "way-removed breaking"),
    ("combine min", 'env "X" read load combine min', "way-added behavioural", "way-removed breaking"),
    ('"DEMO_THREADS"', '"DEMO_NUM"', "way-added behavioural, way-removed breaking", ""),
    ('DEMO_THREADS" read load', 'DEMO_THREADS" read import', "binding-changed breaking", ""),
    (
        'DEMO_THREADS" read load',
        'DEMO_THREADS" read unknown',
        "binding-changed breaking",
        "binding-changed behavioural",
    ),
    ("combine min", "combine max", "precedence-changed behavioural", ""),
    ("set_threads(n)", "set_threads(k)", "way-changed breaking", ""),
    (" if threads > 1\n    comb", "\n    comb", "way-changed compatible", "way-changed breaking"),
    ('session versions ">=2"', 'session versions ">=1"', "way-changed compatible", "way-changed breaking"),
    ("load\n    call", 'load deprecated "x"\n    call', "way-changed compatible", "way-changed editorial"),
    ('DEMO_THREADS" read load', 'DEMO_THREADS" read load as 1', "way-changed behavioural", ""),
    ("set_threads(n) at call", "set_threads(n) at call lasts context", "way-changed breaking", ""),
    # signals and mitigations
    (block("signal"), "", "signal-removed behavioural", "signal-added compatible"),
    ("demo.size()", "demo.count()", "signal-changed behavioural", ""),
    ("size: gauge", "size: counter", "signal-changed behavioural", ""),
    ("unit threads", "unit workers", "signal-changed behavioural", ""),
    ("valid after import", "valid after load", "signal-changed behavioural", ""),
    ("observes pool.amount", "observes pool.idle", "signal-changed behavioural", ""),
    ('unreliable "u"', 'unreliable "v"', "signal-changed editorial", ""),
    (block("mitigate"), "", "mitigation-removed behavioural", "mitigation-added behavioural"),
    ('"A", "B"', '"A"', "mitigation-changed behavioural", ""),
    ("to 1\n", "to 2\n", "mitigation-changed behavioural", ""),
    ("in children", "in process", "mitigation-changed behavioural", ""),
    ("in children", "in children of pool", "mitigation-changed behavioural", ""),
    ("in children", "in children lasts call", "mitigation-changed behavioural", ""),
    ("call demo.size()", "attribute demo.size", "signal-changed behavioural", ""),
    ("in children", "in children unless_set", "mitigation-changed behavioural", ""),
]
MIRROR = {"added": "removed", "removed": "added", "widened": "narrowed", "narrowed": "widened"}


def kinds(changes):
    return ", ".join(sorted(f"{c.kind} {c.severity}" for c in changes))


@pytest.mark.parametrize(("old", "new", "there", "back"), CASES, ids=[f"{c[0][:25]}->{c[1][:25]}" for c in CASES])
def test_each_kind(old, new, there, back):
    before, after = contract(BASE), edited((old, new))
    found = compare(before, after)
    assert kinds(found) == there
    for c in found:
        assert c.kind in KINDS
        assert re.match(r"[a-z`]", c.message)
        assert not c.message.endswith(".")
        assert c.message.count("`") % 2 == 0
        assert "\n" not in c.message
        assert re.fullmatch(r"[0-9a-f]{16}", c.fingerprint)
        assert c.old != c.new
    if back:
        assert kinds(compare(after, before)) == back


def test_every_kind_has_a_case():
    seen = {word.split()[0] for case in CASES for word in f"{case[2]}, {case[3]}".split(", ") if word}
    assert seen == KINDS.keys()


SAME = [
    ("1GiB", "1024MiB"),
    ("default 4", "default 4.0"),
    (">=2, <3", "<3.0,>=2"),
    ("evidence e1, e2", "evidence e2, e1"),
    ("machine.online, machine.cores", "machine.cores, machine.online"),
    ("from machine.online, machine.cores", "from machine.cores sizes cpu.threads from machine.online"),
    ("machine.quota, machine.memory", "machine.memory ignores machine.quota"),
    ("pool.idle, pool.created", "pool.created, pool.idle"),
    ('choice("a", "b")', 'choice("b", "a")'),
    ("effect process", "effect process combine first_set"),
    ('"A", "B"', '"B", "A"'),
    ('package "demo"', 'package "Demo"'),
    ("amount min(threads, 1GiB)", "amount (min((threads), 1GiB)) // why"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_is_no_change(old, new):
    assert compare(contract(BASE), edited((old, new))) == ()
    assert compare(edited((old, new)), contract(BASE)) == ()


def test_precedence():
    one, two = 'env "DEMO_THREADS" read load\n', 'env "OMP_NUM_THREADS" read load\n'
    found = compare(contract(BASE), edited((one, "@"), (two, one), ("@", two)))
    assert kinds(found) == "precedence-changed behavioural"
    assert found[0].new.startswith("env OMP_NUM_THREADS, env DEMO_THREADS, call demo.set_threads()")


def test_the_order_of_ways_says_nothing_if_the_least_wins():
    two = 'env "DEMO_POLICY" read import if threads > 1\n'
    a = edited((two, two + 'env "B" read load\n'))
    b = edited((two, 'env "B" read load\n' + two))
    assert compare(a, b) == ()


def test_order_of_idle_lines_matters():
    found = compare(contract(BASE), edited(("idle block\n", ""), ("    idle spin", "    idle block\n    idle spin")))
    assert kinds(found) == "idle-changed behavioural"


@pytest.mark.parametrize("wrong", ["0", "two", ">=" + "9" * 5000, "===x", ">=2, two"])
def test_what_is_no_range_of_versions(wrong):
    a, b = contract(BASE), edited((">=2, <3", wrong))
    assert [c.kind for c in compare(a, b)] == [c.kind for c in compare(b, a)] == ["package-versions-changed"]
    assert compare(b, b) == ()
    none = replace(b, packages=(m.Package("demo"),))
    assert [c.kind for c in compare(b, none)] == [c.kind for c in compare(none, b)] == ["package-versions-changed"]


def test_specials_that_may_be_one_value_are_tried_in_order():
    a = edited(("special 0 means 1", "special 0 means 1 special machine.gpus means 2"))
    b = edited(("special 0 means 1", "special machine.gpus means 2 special 0 means 1"))
    assert kinds(compare(a, b)) == "special-changed behavioural"
    a = edited(("special 0 means 1", "special 0 means 1 special 3 means 2"))
    b = edited(("special 0 means 1", "special 3 means 2 special 0 means 1"))
    assert compare(a, b) == ()


def test_a_renamed_control_is_renamed_in_what_refers_to_it():
    text = re.sub(r"(?<![.\w])threads(?=[,: ])", "workers", BASE)
    found = compare(contract(BASE), contract(text))
    assert [(c.kind, c.clause, c.old, c.new) for c in found] == [
        ("control-renamed", "control threads", "threads", "workers")
    ]


def test_a_renamed_control_may_change_too():
    found = compare(contract(BASE), edited(("control policy:", "control wait:"), ('default "a"', 'default "b"')))
    assert kinds(found) == "control-renamed breaking, default-changed behavioural"


def test_two_controls_of_the_same_ways_are_no_renaming():
    twin = POLICY.replace("policy", "one") + POLICY.replace("policy", "two")
    found = compare(contract(BASE), edited((POLICY, twin)))
    assert [c.kind for c in found] == ["control-removed", "control-added", "control-added"]


def test_a_binding_time_that_comes_earlier_breaks():
    (change,) = compare(contract(BASE), edited(("at call", "at import")))
    assert (change.kind, change.severity) == ("binding-changed", "breaking")
    assert "too late" in change.message


def test_spans_are_those_of_the_line():
    (change,) = compare(contract(BASE), edited(("  summary", "\n\n  summary"), ("1 to 64", "1 to 65")))
    line = BASE[: BASE.index("range 1")].count("\n") + 1
    assert (change.old_span.line, change.new_span.line) == (line, line + 2)
    (change,) = compare(contract(BASE), edited((block("signal"), "")))
    assert change.old_span.line == BASE[: BASE.index("signal size")].count("\n") + 1
    assert change.new_span is None


# ---------------------------------------------------------------- fingerprints


def shuffled(c, seed):
    """The contract with everything moved that may be moved."""
    turn = (lambda x: x[::-1]) if seed % 2 else (lambda x: (*x[1:], *x[:1]))
    clauses = [replace(x, notes=turn(x.notes), evidence=turn(x.evidence)) for x in c.clauses]
    clauses = [replace(x, bounds=turn(x.bounds), affects=turn(x.affects)) if hasattr(x, "ways") else x for x in clauses]
    clauses = [replace(x, ignores=turn(x.ignores)) if hasattr(x, "forbids") else x for x in clauses]
    return replace(c, clauses=tuple(turn(clauses)), packages=turn(c.packages), uses=turn(c.uses))


@pytest.mark.parametrize("case", range(len(CASES)))
def test_fingerprints_survive_formatting_and_order(case):
    old, new, *_ = CASES[case]
    before, after = contract(BASE), edited((old, new))
    expected = [(c.fingerprint, c.message, c.severity) for c in compare(before, after)]
    loose = contract(loosened(after))
    assert [(c.fingerprint, c.message, c.severity) for c in compare(before, loose)] == expected
    for seed in (1, 2):
        found = compare(shuffled(before, seed), shuffled(after, seed + 1))
        assert [(c.fingerprint, c.message, c.severity) for c in found] == expected


def loosened(c):
    """Other spaces, lines and a comment; what stands in strings is the contract's own."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', "// c\nlpcl 1\n" + contract_text(c))
    return "".join(x if x.startswith('"') else re.sub(r"(?<!/) (?!c)", " \n\t", x) for x in parts)


def test_fingerprints_tell_changes_apart():
    every = [c for old, new, *_ in CASES for c in compare(contract(BASE), edited((old, new)))]
    identity = {(c.contract, c.clause, c.kind, c.old, c.new) for c in every}
    assert len({c.fingerprint for c in every}) == len(identity)
    # A golden value: approvals refer to fingerprints, so they may not change between releases.
    assert Change(
        "demo", "control threads", "default-changed", "behavioural", "", "default 4", "default 5"
    ).fingerprint == ("1f262823a3443ca9")


# ------------------------------------------------------------------ properties


@pytest.mark.parametrize("text", [*TEXTS, ALL, BASE])
def test_a_contract_does_not_differ_from_itself(text):
    for c in parse(text).file.contracts:
        assert compare(c, c) == ()
        assert compare(c, shuffled(c, 1)) == ()


@settings(max_examples=60, deadline=None)
@given(contracts, st.randoms(use_true_random=False))
def test_any_contract_does_not_differ_from_itself(c, random):
    clauses = list(c.clauses)
    random.shuffle(clauses)
    assert compare(c, c) == ()
    assert compare(c, replace(c, clauses=tuple(clauses))) == ()
    assert compare(c, parse("lpcl 1\n" + contract_text(c)).file.contracts[0]) == ()


def mirrored(change):
    head, _, tail = change.kind.rpartition("-")
    return (f"{head}-{MIRROR.get(tail, tail)}", change.old, change.new)


@settings(max_examples=80, deadline=None)
@given(contracts, contracts)
def test_the_way_back_mirrors_the_way_there(a, b):
    b = replace(b, name=a.name)
    there, back = compare(a, b), compare(b, a)
    assert Counter(mirrored(c) for c in there) == Counter((c.kind, c.new, c.old) for c in back)
    assert there == compare(shuffled(a, 1), shuffled(b, 1)) or [c.fingerprint for c in there] == [
        c.fingerprint for c in compare(shuffled(a, 1), shuffled(b, 1))
    ]
    for c in there:
        assert c.kind in KINDS
        assert c.severity in SEVERITIES
        assert c.message.count("`") % 2 == 0
        assert "\n" not in c.message
    assert [SEVERITIES.index(c.severity) for c in there] == sorted(SEVERITIES.index(c.severity) for c in there)
    for render in (render_text, render_json, render_markdown):
        render(there).encode("utf-8")


@settings(max_examples=60, deadline=None)
@given(contracts, st.data())
def test_one_clause_less_is_one_removal(c, data):
    names = Counter((type(x), x.name) for x in c.clauses)
    unique = [x for x in c.clauses if names[type(x), x.name] == 1]
    if not unique:
        return
    gone = data.draw(st.sampled_from(unique))
    less = replace(c, clauses=tuple(x for x in c.clauses if x is not gone))
    (change,) = compare(c, less)
    assert change.kind.endswith("-removed")
    assert change.clause == m.clause_label(gone)
    (change,) = compare(less, c)
    assert change.kind.endswith("-added")


# ------------------------------------------------------------------- rendering


def test_text():
    found = compare(contract(BASE), edited(("default 4", "default 5"), ('summary "s"', 'summary "t"')))
    assert render_text(found) == (
        "behavioural[default-changed]: `control threads` says `default 5`, no longer `default 4`: "
        f"a configuration that leaves it unset runs otherwise  ({found[0].fingerprint})\n"
        "  -   35 | default 4\n"
        "  +   35 | default 5\n"
        f"editorial[summary-changed]: the summary is another one  ({found[1].fingerprint})\n"
        "  -    3 | s\n"
        "  +    3 | t\n"
        "2 changes: 1 behavioural, 1 editorial\n"
    )
    assert render_text(()) == "no changes\n"


def test_json():
    found = compare(contract(BASE), edited(("default 4", "default 5")))
    (record,) = json.loads(render_json(found))
    assert record["fingerprint"] == found[0].fingerprint
    assert (record["old"], record["new"], record["old_line"]) == ("default 4", "default 5", 35)
    assert json.loads(render_json(())) == []


def test_markdown_cells_hold_what_stands_in_them():
    found = compare(contract(BASE), edited(('note "n"', 'note "a | b `c` ``d`` | <x>" note "e"')))
    text = render_markdown(found)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert "``` note" in text
    assert render_markdown(()) == "**no changes**\n"


def test_text_of_a_contract_moves_no_cursor():
    found = compare(contract(BASE), edited(('note "n"', 'note "\x1b[2J\u202e"')))
    for render in (render_text, render_json, render_markdown):
        assert "\x1b" not in render(found)
        assert "\u202e" not in render(found)
