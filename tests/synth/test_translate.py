"""Defaults and sizes from Python and C become LPCL expressions of the same value, or nothing."""

import math
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lpcl import format as fmt
from lpcl import model as m
from lpcl.expr import evaluate
from lpcl.parse import parse
from synth.translate import MAX_TEXT, expression

NAMES = {
    "n_jobs": m.Ref(("n_jobs",)),
    "max_level": m.Ref(("max_level",)),
    "cpu_count()": m.Ref(("machine", "online")),
}
VALUES = {"n_jobs": 3, "max_level": 5, "machine.online": 8}


def text_of(text, names=NAMES):
    found = expression(text, names)
    return None if found is None else fmt.expression(found)


@pytest.mark.parametrize(
    ("source", "lpcl"),
    [
        ("1", "1"),
        (" 1 ", "1"),
        ("-1", "-1"),
        ("1.5", "1.5"),
        ("1.0", "1"),
        ("1e3", "1000"),
        ("1e-9", "0.000000001"),
        ("1_000", "1000"),
        ("0x10", "16"),
        ("0o10", "8"),
        ("True", "true"),
        ("false", "false"),  # C and C++
        ("'auto'", '"auto"'),
        ("'é'", '"é"'),
        ("'say \"x\"'", '"say \\"x\\""'),
        ("1024 * 1024", "1024 * 1024"),
        ("n_jobs - 1", "n_jobs - 1"),
        ("2 * (n_jobs + 1)", "2 * (n_jobs + 1)"),
        ("n_jobs // 2", "floor(n_jobs / 2)"),
        ("self.n_jobs", "n_jobs"),
        ("min(32, os.cpu_count() + 4)", "min(32, machine.online + 4)"),
        ("max(multiprocessing.cpu_count() - 1, 1)", "max(machine.online - 1, 1)"),
        ("int(n_jobs)", "n_jobs"),
        ("str(max(1, n_jobs))", "max(1, n_jobs)"),
        ("--1", "--1"),
    ],
)
def test_python(source, lpcl):
    assert text_of(source) == lpcl


@pytest.mark.parametrize(
    ("source", "lpcl"),
    [
        ("64L", "64"),
        ("64u", "64"),
        ("64UL", "64"),
        ("64ull", "64"),
        ("0xFFu", "255"),
        ("(int)(n_jobs)", "n_jobs"),
        ("static_cast<size_t>(n_jobs)", "n_jobs"),
        ("std::min(1, n_jobs)", "min(1, n_jobs)"),
        ("2 * 1024L * 1024L", "2 * 1024 * 1024"),
    ],
)
def test_c(source, lpcl):
    assert text_of(source) == lpcl


@pytest.mark.parametrize(
    "source",
    [
        None,
        "",
        "   ",
        "None",
        "...",
        "unknown_name",
        "cpu_count",  # the function itself, not what it returns
        "os.cpu_count(1)",
        "cpu_count(logical=False)",
        "n_jobs()",
        "min()",
        "max([1, 2])",
        "max(*n_jobs)",
        "__import__('os').system(1)",
        "__import__('os').system('touch pwned')",
        "eval('1')",
        "open('/etc/passwd').read()",
        "n_jobs.__class__.__mro__",
        "lambda: 1",
        "(lambda: n_jobs)()",
        "f'{n_jobs}'",
        "(x := 1)",
        "await n_jobs",
        "(yield)",
        "[i for i in n_jobs]",
        "1 if n_jobs else 2",
        "n_jobs or 1",
        "n_jobs % 2",
        "2 ** 1000000000",
        "1 << 20",
        "~1",
        "n_jobs[0]",
        "1, 2",
        "{}",
        "1j",
        "b'x'",
        "nan",
        "1e999",
        "1e15",
        "9" * MAX_TEXT,
        "9" * 10_000,
        "1 + " * 2_500 + "1",
        "1" + " + 1" * 40,  # nested deeper than what a person would write
        "-" * 60 + "1",
        "(" * 95 + "1",
        "(" * 95 + "-" + ")" * 95,
        "010",  # octal in C, no number in Python
        "1.5f",
        "(size_t)4",
        "n_jobs ? 1 : 2",
        "sizeof(int)",
        "1; 2",
        "1\n2",
        "import os",
        "#include <x>",
        "# 1",
        "\0",
        "1\0",
        "\ufeff1",
        "\ud800",
        "'\ud800'",
        "'a\\x1b[31m'",
        "'a\\nb'",
        "'unterminated",
        "\N{FULLWIDTH DIGIT ONE}",
    ],
)
def test_not_understood(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert expression(source, NAMES) is None
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None)  # the machine may be busy
@given(st.text(max_size=250) | st.text("0123456789.xXuUlLeE+-*/()<>:_ min,max'\"", max_size=60))
@example("static_cast<")
@example("std::")
def test_anything_is_an_expression_that_prints_and_parses_or_nothing(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `test_no_warnings` is about these
        found = expression(source, NAMES)
    if found is not None:
        evaluate(found, VALUES)
        assert parsed_default(fmt.expression(found)) is not None


def parsed_default(text):
    parsed = parse(f'lpcl 1 contract x {{ package "x" control c: int {{ default {text} env "X" read import }} }}')
    assert parsed.ok, (text, parsed.diagnostics)
    return parsed.file.contracts[0].controls[0].default


# ------------------------------------------------------ the same value as Python

CONTEXT = {"n_jobs": 3, "max_level": 5, "cpu_count": lambda: 8, "min": min, "max": max, "int": int, "__builtins__": {}}


@st.composite
def whole(draw, depth=3):
    """Source of an integer, small enough to be exact as a float."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.integers(0, 64).map(str) | st.sampled_from(["n_jobs", "cpu_count()"]))
    left, right = draw(whole(depth=depth - 1)), draw(whole(depth=depth - 1))
    form = draw(
        st.sampled_from(
            ["({} + {})", "({} - {})", "({} * {})", "({} // {})", "min({}, {})", "max({}, {})", "(-{})", "int({})"]
        )
    )
    return form.format(left, right)


@st.composite
def real(draw, depth=3):
    """Source of a number."""
    if depth == 0 or draw(st.booleans()):
        return draw(whole(depth=1) | st.floats(0, 1e6, allow_subnormal=False).map(repr))
    left, right = draw(real(depth=depth - 1)), draw(real(depth=depth - 1))
    return draw(
        st.sampled_from(["({} + {})", "({} - {})", "({} * {})", "({} / {})", "min({}, {})", "max({}, {})", "(-{})"])
    ).format(left, right)


@settings(deadline=None)
@given(whole() | real())
def test_the_value_is_that_of_python(source):
    found = expression(source, NAMES)
    if found is None:
        assert len(source) > MAX_TEXT
        return
    try:
        wanted = eval(source, dict(CONTEXT))
    except ZeroDivisionError:
        wanted = None
    value = evaluate(found, VALUES)
    if wanted is None or value is None:
        assert value == wanted
    else:
        assert math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-9)
    # What is printed means the same too: parentheses, signs, no exponents.
    again = evaluate(parsed_default(fmt.expression(found)), VALUES)
    assert again == value or math.isclose(again, value, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("source", "value"), [("int(4.7)", 4), ("int(n_jobs / 2)", 1), ("int(cpu_count() * 0.7)", 5), ("(int)(4.7)", 4)]
)
def test_int_cuts_the_fraction_off(source, value):
    found = expression(source, NAMES)
    assert found is None or evaluate(found, VALUES) == value


@pytest.mark.parametrize(
    ("source", "lpcl"),
    [("'serial'", '"serial"'), ("'parallel'", '"parallel"'), ("'4l'", '"4l"'), ("max_level", "max_level")],
)
def test_words_that_end_like_a_suffix(source, lpcl):
    assert text_of(source) == lpcl


@pytest.mark.parametrize("source", ["'a' + 'b'", "-'a'", "'x' * 3", "'/tmp/' + n_jobs"])
def test_no_arithmetic_over_text(source):
    assert expression(source, NAMES) is None


@pytest.mark.parametrize("source", ["'\\d'", "5and 3", "0x1for x"])
def test_no_warnings(source):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expression(source, NAMES)
    assert caught == []
