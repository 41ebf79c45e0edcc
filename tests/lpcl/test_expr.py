"""The value of expressions."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl import model as m
from lpcl.expr import FUNCTIONS, MACHINE_FACTS, evaluate, references
from lpcl.parse import parse
from lpcl.units import dimension, in_base, split_quantity

VALUES = {
    "machine.cores": 8,
    "machine.memory": 2**34,
    "machine.quota": None,
    "threads": 4,
    "set:threads": True,
    "policy": "active",
    "pin": True,
    "value": 16,
}


def read(text):
    parsed = parse(f"lpcl 1 contract a {{ demand d: files {{ amount {text} }} }}")
    assert parsed.ok, parsed.diagnostics
    return parsed.file.contracts[0].demands[0].amount


def value(text):
    return evaluate(read(text), VALUES)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ('"a"', "a"),
        ("true", True),
        ("unknown", None),
        ("threads", 4),
        ("nothing", None),
        ("machine.cores", 8),
        ("machine.quota", None),
        # units come out in seconds, bytes, ratios and cycles
        ("10ns * 100", pytest.approx(1e-6)),
        ("200ms", pytest.approx(0.2)),
        ("2min", 120),
        ("1h", 3600),
        ("4GiB", 2**32),
        ("1KB", 1000),
        ("50%", 0.5),
        ("3cycles", 3),
        # arithmetic
        ("1 + 2 * 3", 7),
        ("7 / 2", 3.5),
        ("-threads", -4),
        ("1 - 2 - 3", -4),
        ("machine.memory / 2", 2**33),
        ("1 / 0", None),
        ("0 / 0", None),
        ("1.0 / 0.0", None),
        ("1 / (threads - 4)", None),
        ('"a" + 1', None),
        ('-"a"', None),
        ('"a" * 3', None),
        ("1 + nothing", None),
        # comparisons
        ("1 < 2", True),
        ("2 <= 2", True),
        ("1 > 2", False),
        ("2 >= 3", False),
        ("1 == 1.0", True),
        ("1 != 2", True),
        ('policy == "active"', True),
        ('policy != "passive"', True),
        ('"1" == 1', False),
        ('"1" != 1', True),
        ('"a" < 1', None),
        ('"a" < "b"', None),
        ("1 == nothing", None),
        ("nothing != 1", None),
        ("unknown == unknown", None),
        # logic
        ("true and false", False),
        ("true and nothing", None),
        ("false and nothing", False),
        ("nothing and false", False),
        ("true or nothing", True),
        ("nothing or true", True),
        ("false or nothing", None),
        ("nothing or nothing", None),
        ("false or false", False),
        ("true and true", True),
        ("not true", False),
        ("not nothing", None),
        ("not (1 > 2)", True),
        # conditions
        ("if threads == 4 then 1 else 2", 1),
        ("if threads == 5 then 1 else 2", 2),
        ("if nothing then 1 else 2", None),
        ("if nothing then 3 else 3", 3),
        ("if true then 1 else nothing", 1),
        ("if false then 1 else nothing", None),
        # functions
        ("min(3, threads, 5)", 3),
        ("max(3, threads, 5.5)", 5.5),
        ("min(1, nothing)", None),
        ('max(1, "a")', None),
        ("min(1, true)", None),
        ("floor(3.7)", 3),
        ("floor(-3.2)", -4),
        ("ceil(3.2)", 4),
        ("clamp(value, 4, 8)", 8),
        ("divisor(48, pow(48, 0.5))", 6),
        ("divisor(49, pow(49, 0.5))", 7),
        ("divisor(7, 3)", 1),
        ("divisor(8, 100)", 8),
        ("divisor(0, 3)", None),
        ("divisor(7.5, 3)", None),
        ("divisor(9000000, 3000)", None),
        ('copies("x")', None),
        ('loaded("x")', None),
        ("clamp(1, 4, 8)", 4),
        ("clamp(5, 4, 8)", 5),
        ("clamp(5, 4, nothing)", None),
        ("first(nothing, 3)", 3),
        ("first(threads, 3)", 4),
        ("first(nothing)", None),
        ("is_set(threads)", True),
        ("is_set(policy)", False),
        ("is_set(nothing)", False),
        ("is_set(1)", False),
        ("pow(2, 28)", 2**28),
        ("pow(2, 0.5)", pytest.approx(math.sqrt(2))),
        ("pow(2, -1)", 0.5),
        ("pow(2, 128)", 2**128),
        ("pow(2, 129)", None),
        ("pow(2, -129)", None),
        ("pow(1000000, 2)", 10**12),
        ("pow(1000001, 2)", None),
        ("pow(0, -1)", None),
        ("pow(-8, 0.5)", None),
        ("pow(pow(10, 100), 2)", None),
        ("pow(nothing, 2)", None),
        # what the checker refuses is unknown, not an error
        ("min()", None),
        ("clamp(1, 2)", None),
        ("floor(1, 2)", None),
        ("pow(2)", None),
        ("first()", None),
        ("is_set()", False),
        ("nonsense(1)", None),
    ],
)
def test_values(text, wanted):
    found = value(text)
    assert found == wanted
    if isinstance(wanted, bool) or wanted is None:
        assert found is wanted


@pytest.mark.parametrize(("text", "wanted"), [("min(threads)", 4), ("max(threads)", 4), ("min(0.5)", 0.5)])
def test_least_and_greatest_of_one(text, wanted):
    assert value(text) == wanted


def test_a_control_that_is_set_to_an_unknown_value_is_set():
    assert evaluate(read("is_set(x)"), {"set:x": True, "x": None}) is True


def test_references():
    assert references(read("if is_set(a) then b.c + min(d, 1) else machine.cores")) == {
        "a",
        "b.c",
        "d",
        "machine.cores",
    }
    assert references(None) == set()


def test_every_function_and_fact_is_in_the_reference():
    from pathlib import Path

    text = (Path(__file__).resolve().parents[2] / "docs" / "lpcl.md").read_text("utf-8")
    assert all(f"`{name}(" in text for name in FUNCTIONS)
    assert all(f"`machine.{name}` | {meaning}" in text for name, meaning in MACHINE_FACTS.items())


# ---------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    "text",
    [
        "1.0 * " + "9" * 400,
        "9" * 400 + " / 3",
        "9" * 400 + " * 1.5",
        "floor(" + "*".join(["pow(10.5, 128)"] * 9) + ")",
        "ceil(0.0 * " + "*".join(["pow(10.5, 128)"] * 9) + ")",
    ],
)
def test_huge_numbers_end_in_a_number_that_prints_or_in_unknown(text):
    found = value(text)
    assert found is None or (isinstance(float(found), float) and str(found))


@pytest.mark.parametrize(
    "text",
    [
        "9" * 400 + "ns",
        "9" * 400 + "KB",
        "9" * 400 + "min",
        "*".join(["pow(1000000, 128)"] * 12),
        "-(" + "*".join(["pow(1000000, 128)"] * 12) + ")",
    ],
)
def test_huge_whole_numbers_do_too(text):
    found = value(text)
    assert found is None or (isinstance(float(found), float) and str(found))


facts = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats() | st.text(max_size=3)
names = st.sampled_from(["a", "b", "machine.cores", "value"])
atoms = st.one_of(
    st.builds(m.Number, st.integers(0, 10**12) | st.floats(0, 1e12), st.sampled_from(["", "s", "GiB", "%", "ns"])),
    st.builds(m.Text, st.text(max_size=3)),
    st.builds(m.Truth, st.booleans()),
    st.just(m.Unknown()),
    names.map(lambda n: m.Ref(tuple(n.split(".")))),
)
OPERATORS = ["+", "-", "*", "/", "and", "or", "==", "!=", "<", "<=", ">", ">="]
expressions = st.recursive(
    atoms,
    lambda e: st.one_of(
        st.builds(m.Operation, st.sampled_from(OPERATORS), st.tuples(e, e)),
        st.builds(m.Operation, st.sampled_from(["neg", "not"]), st.tuples(e)),
        st.builds(m.Conditional, e, e, e),
        st.builds(m.Apply, st.sampled_from([*FUNCTIONS, "other"]), st.lists(e, max_size=3).map(tuple)),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(expressions, st.dictionaries(names | names.map(lambda n: f"set:{n}"), facts))
def test_evaluation_never_raises_and_does_not_change_its_facts(e, values):
    before = dict(values)
    found = evaluate(e, values)
    assert found is None or isinstance(found, int | float | str | bool)
    assert list(values) == list(before)


@settings(max_examples=200, deadline=None)
@given(expressions, st.dictionaries(names, st.integers(1, 64)))
def test_what_is_known_from_some_facts_stays_so_with_more(e, values):
    """Unknown is no value of its own: learning a fact never changes what was known."""
    if any(isinstance(x, m.Apply) and x.function in {"first", "is_set"} for x in m.walk_expressions(e)):
        return
    known = evaluate(e, values)
    more = {"a": 3, "b": 5, "machine.cores": 8, "value": 2} | values
    if known is not None and known == known:  # noqa: PLR0124  # not a number is not equal to itself
        assert evaluate(e, more) == known


# ----------------------------------------------------------------------- units


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1", (1, "")),
        ("0.2s", (0.2, "s")),
        ("5min", (5, "min")),
        ("5m", None),
        ("4GiB", (4, "GiB")),
        ("1cycles", (1, "cycles")),
    ],
)
def test_quantities(text, wanted):
    if wanted is None:
        with pytest.raises(ValueError, match="unit"):
            split_quantity(text)
    else:
        assert split_quantity(text) == wanted


@pytest.mark.parametrize("text", ["", "s", "x", "1.2.3s"])
def test_what_is_no_quantity(text):
    with pytest.raises(ValueError):  # noqa: PT011  # any message will do
        split_quantity(text)


def test_dimensions():
    assert [dimension(u) for u in ("", "ms", "GiB", "%", "cycles")] == ["", "s", "B", "ratio", "cycles"]
    assert in_base(4, "GiB") == 2**32
    assert isinstance(in_base(4, "GiB"), int)
    assert isinstance(in_base(0.5, "GiB"), float)
    assert in_base(3, "") == 3
