"""What the rules stand on: taking a contract apart, kinds, domains, ranges of versions; and that none ever raises."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from lpcl import model as m
from lpcl.check import RULES, check
from lpcl.expr import evaluate
from lpcl.parse import parse
from lpcl.rules.conditions import _exclude
from lpcl.rules.kinds import NUMERIC
from lpcl.rules.view import View
from lpcl.rules.ways import _meet
from tests.lpcl.test_format import ALL, TEXTS, files
from tests.lpcl.test_rare_forms import FORMS, HEAD

SEVERITY = {rule.id: rule.severity for rule in RULES}
REAL = [ALL, *TEXTS, *(f"{HEAD}  {form}\n}}\n" for form in FORMS.values())]

# ------------------------------------------------------------------ any model

NAMES = st.sampled_from(["a", "b", "c", "w", "maxX"])
OWN = ["a", "b", "c", "w", "w.amount", "w.idle", "w.size", "a.b.c", "nothing", "value"]
FOREIGN = ["machine.cores", "machine.os", "machine.x", "lib.t", "lib.team.amount"]
REFS = st.sampled_from([*OWN, *FOREIGN]).map(lambda name: m.Ref(tuple(name.split("."))))
WORDS = st.sampled_from(
    ["", "A", "a", "b", "linux", "Linux", "<2", ">=2", "two", "lib*", "libx*.so", "OMP_X", "PATH", ","]
)
NUMBERS = st.builds(
    m.Number,
    st.sampled_from([0, 1, 2, 64, 0.5, 10**30, 10**400, 1e300]),
    st.sampled_from(["", "s", "ns", "B", "GiB", "%", "cycles"]),
)
ATOMS = NUMBERS | REFS | st.builds(m.Text, WORDS) | st.builds(m.Truth, st.booleans()) | st.just(m.Unknown())
FUNCTIONS = [
    "min",
    "max",
    "floor",
    "clamp",
    "pow",
    "first",
    "is_set",
    "installed",
    "loaded",
    "copies",
    "divisor",
    "nope",
]


def deeper(inner):
    binary = st.sampled_from(["+", "-", "*", "/", "and", "or", "==", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(m.Operation, binary, st.tuples(inner, inner)),
        st.builds(m.Operation, st.sampled_from(["neg", "not"]), st.tuples(inner)),
        st.builds(m.Conditional, inner, inner, inner),
        st.builds(m.Apply, st.sampled_from(FUNCTIONS), st.lists(inner, max_size=3).map(tuple)),
    )


EXPRESSIONS = st.recursive(ATOMS, deeper, max_leaves=8)


def some(strategy, most=3):
    return st.lists(strategy, max_size=most).map(tuple)


def maybe(strategy):
    return st.none() | strategy


def word(*words):
    return st.sampled_from(words)


COMMON = {"condition": maybe(EXPRESSIONS), "evidence": some(NAMES, 2)}
LASTS = maybe(word("process", "context", "call"))
BINDINGS = word("build", "load", "import", "session", "call", "unknown")
TYPES = st.recursive(
    word("int", "float", "bool", "text", "size", "duration").map(m.Type)
    | some(WORDS).map(lambda c: m.Type("choice", c))
    | REFS.map(lambda r: m.Type("placement", resource=r)),
    lambda inner: (
        st.builds(m.Type, word("list", "map"), st.just(()), inner)
        | st.builds(m.Type, st.just("sequence"), st.just(()), inner, st.integers(0, 3), st.integers(0, 3))
    ),
    max_leaves=4,
)
WAYS = st.builds(
    m.Way,
    word("env", "call", "param", "config"),
    WORDS,
    BINDINGS,
    st.just(("n",)),
    condition=maybe(EXPRESSIONS),
    versions=maybe(WORDS),
    taken=maybe(EXPRESSIONS),
    lasts=LASTS,
)
SPECIALS = st.builds(m.Special, EXPRESSIONS, EXPRESSIONS) | st.builds(
    m.Special, EXPRESSIONS, st.none(), word("ignored", "fails")
)
CONTROLS = st.builds(
    m.Control,
    NAMES,
    TYPES,
    range=maybe(st.builds(m.Range, EXPRESSIONS, EXPRESSIONS, maybe(EXPRESSIONS), maybe(word("log")))),
    default=maybe(EXPRESSIONS),
    ways=some(WAYS),
    combine=maybe(word("min", "first_set")),
    effective=maybe(EXPRESSIONS),
    specials=some(SPECIALS),
    malformed=maybe(word("ignored", "fails", "prefix", "default", "unknown")),
    levels=maybe(WORDS),
    effect=maybe(word("process", "thread", "children")),
    inherited=some(word("threads", "fork", "children", "none")),
    bounds=some(REFS),
    affects=some(REFS),
    switch=maybe(word("live", "session", "process")),
    requires=some(EXPRESSIONS),
    **COMMON,
)
DEMANDS = st.builds(
    m.Demand,
    NAMES,
    REFS | word("cpu.threads", "memory.bytes", "gpu.memory", "files").map(lambda n: m.Ref(tuple(n.split(".")))),
    amount=maybe(EXPRESSIONS),
    idle=some(st.builds(m.Idle, word("block", "yield"), maybe(EXPRESSIONS), maybe(EXPRESSIONS))),
    inside=some(REFS),
    pinned=maybe(EXPRESSIONS),
    **COMMON,
)
ASSUMPTIONS = st.builds(
    m.Assumption,
    NAMES,
    sizes=some(st.builds(m.Sizes, REFS, some(REFS))),
    ignores=some(REFS),
    requires=some(EXPRESSIONS),
    forbids=some(st.builds(m.Forbids, word("fork"), maybe(REFS), maybe(EXPRESSIONS))),
    **COMMON,
)
SIGNALS = st.builds(
    m.Signal,
    NAMES,
    word("gauge", "counter", "state"),
    read=maybe(st.builds(m.Read, word("call", "attribute", "native", "file", "log"), some(WORDS))),
    observes=some(REFS),
    unit=maybe(word("threads", "bytes", "byte")),
    **COMMON,
)
MITIGATIONS = st.builds(
    m.Mitigation,
    NAMES,
    env=some(WORDS),
    limits=some(REFS),
    value=maybe(EXPRESSIONS),
    target=maybe(word("process", "children")),
    pool=maybe(REFS),
    unless_set=st.booleans(),
    lasts=LASTS,
    **COMMON,
)
CONTRACTS = st.builds(
    m.Contract,
    NAMES,
    packages=some(st.builds(m.Package, WORDS, maybe(WORDS))),
    natives=some(st.builds(m.Native, some(WORDS))),
    uses=some(word("lib", "a")),
    carries=some(st.builds(m.Carried, word("lib", "a"), maybe(WORDS))),
    clauses=some(st.one_of(DEMANDS, ASSUMPTIONS, CONTROLS, SIGNALS, MITIGATIONS), 6),
)


@settings(max_examples=150)
@given(st.lists(CONTRACTS, min_size=1, max_size=2))
def test_check_never_raises(contracts):
    for found in check(m.File(1, tuple(contracts))):
        assert found.severity == SEVERITY[found.rule]
        assert found.message


@settings(max_examples=100)
@given(files)
def test_check_never_raises_on_what_the_formatter_prints(file):
    assert isinstance(check(file), tuple)


# ---------------------------------------------------------------------- parts


@settings(max_examples=100)
@given(CONTRACTS)
def test_taking_apart_leaves_no_expression_out(contract):
    view = View(contract)
    apart = [id(n.expr) for n in view.nodes] + [id(n.ref) for n in view.named]
    whole = [id(e) for c in contract.clauses for e in m.walk_expressions(c)]
    assert sorted(apart) == sorted(whole)


@pytest.mark.parametrize("text", REAL)
def test_taking_apart_leaves_no_expression_of_a_real_text_out(text):
    for contract in parse(text).file.contracts:
        view = View(contract)
        apart = [n.expr for n in view.nodes] + [n.ref for n in view.named]
        whole = [e for c in contract.clauses for e in m.walk_expressions(c)]
        assert sorted(map(repr, apart)) == sorted(map(repr, whole))


# ------------------------------------------------------------ kinds and domains

HEAD_OF_VALUES = """lpcl 1 contract demo { package "demo"
  demand w: cpu.threads { amount n * 2 evidence e }
  control n: int { range 1 to 8 default 4 env "N" read load evidence e }
  control s: size { range 0B to 4GiB default unknown env "S" read load evidence e }
  control t: choice("on", "off") { default "on" env "T" read load evidence e }
  control p: bool { default false env "P" read load evidence e }
"""
KNOWN = {
    "n": st.integers(1, 8),
    "s": st.none() | st.integers(0, 4 << 30),
    "t": st.sampled_from(["on", "off"]),
    "p": st.booleans(),
    "machine.cores": st.none() | st.integers(1, 64),
    "machine.gpus": st.none() | st.integers(0, 8),
    "machine.memory": st.integers(1, 2**40),
    "machine.os": st.none() | st.sampled_from(["linux", "darwin"]),
}


@st.composite
def worlds(draw):
    """Values that the controls and facts may have together."""
    values = {name: draw(strategy) for name, strategy in KNOWN.items()}
    values = {k: v for k, v in values.items() if v is not None}
    if draw(st.booleans()):
        values["set:n"] = True
    return values | {"w.amount": values["n"] * 2}


LEAVES = (
    st.sampled_from([*KNOWN, "w.amount"]).map(lambda name: m.Ref(tuple(name.split("."))))
    | st.builds(m.Number, st.sampled_from([0, 1, 4, 8, 16, 0.5]), st.sampled_from(["", "MiB", "%", "ms"]))
    | st.builds(m.Text, st.sampled_from(["on", "linux", "x"]))
    | st.builds(m.Truth, st.booleans())
    | st.just(m.Unknown())
)


def inside(value, domain):
    if value is None:
        return True  # an operand of the wrong type, a division by zero
    if isinstance(value, str | bool):
        return domain.values is None or value in domain.values
    slack = 1e-9 + abs(value) * 1e-9
    return domain.low - slack <= value <= domain.high + slack


@settings(max_examples=300)
@given(st.recursive(LEAVES, deeper, max_leaves=8), worlds())
def test_a_value_is_of_its_kind_and_in_its_domain(e, values):
    base = parse(HEAD_OF_VALUES + "}").file.contracts[0]
    contract = m.Contract("demo", base.packages, clauses=(*base.clauses, m.Assumption("x", requires=(e,))))
    view = View(contract)
    value = evaluate(e, values)
    domain, kind = view.domains.of(e), view.kinds[e]
    assert inside(value, domain), (value, domain)
    if value is None or not kind:
        return
    wanted = bool if kind == "truth" else str if kind == "text" else int | float
    # The wrong operands make what the right ones do not: each has a finding of its own.
    if not any(d.severity == "error" and d.rule >= "LP141" for d in check(m.File(1, (contract,)))):
        assert isinstance(value, wanted), (value, kind)
        assert kind == "truth" or not isinstance(value, bool)


@settings(max_examples=200)
@given(st.recursive(LEAVES, deeper, max_leaves=6), worlds())
def test_what_never_or_always_holds_does_so(e, values):
    base = parse(HEAD_OF_VALUES + "}").file.contracts[0]
    contract = m.Contract("demo", base.packages, clauses=(*base.clauses, m.Assumption("x", requires=(e,))))
    view = View(contract)
    for node in view.comparisons:
        domain = view.domains.of(node)
        if domain.values == frozenset({False}):
            assert evaluate(node, values) is not True
        if domain.values == frozenset({True}) and not domain.unknown and view.comparable(node):
            assert evaluate(node, values) is True


def kind_of(text):
    contract = parse(f"{HEAD_OF_VALUES} demand x: files {{ amount {text} evidence e }} }}").file.contracts[0]
    return View(contract).kinds[contract.demand("x").amount]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("4", "number"),
        ("4MiB", "B"),
        ("4ms", "s"),
        ("50%", "ratio"),
        ("n", "count"),
        ("n * 50%", "count"),
        ("n * 1MiB", "B"),
        ("machine.memory / 1GiB", "number"),
        ("machine.memory / n", "B"),
        ("pow(2, n) * 1cycles", "cycles"),
        ("1MiB * 1s", ""),
        ("if p then 0 else n", "count"),
        ("first(s, 0)", "B"),
        ("first(t, unknown)", "text"),
        ("n + 1MiB", ""),
        ("w.amount", "count"),
        ("w.idle", "text"),
        ("n > 2 and p", "truth"),
        ("is_set(n)", "truth"),
        ("machine.os", "text"),
        ("nothing", ""),
    ],
)
def test_kinds(text, kind):
    assert kind_of(text) == kind
    assert kind in NUMERIC | {"text", "truth", ""}


# ------------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("first", "second"),
    list(itertools.product(itertools.product(["==", "!=", "<", "<=", ">", ">="], [1, 2]), repeat=2)),
)
def test_pairs_of_comparisons_exclude_each_other_where_no_number_is_both(first, second):
    tests = {
        "==": float.__eq__,
        "!=": float.__ne__,
        "<": float.__lt__,
        "<=": float.__le__,
        ">": float.__gt__,
        ">=": float.__ge__,
    }
    numbers = [x / 4 for x in range(-8, 20)]
    both = any(all(tests[op](n, float(k)) for op, k in (first, second)) for n in numbers)
    facts = [("a", operator, m.Number(k)) for operator, k in (first, second)]
    assert _exclude(*facts) == (not both)


# --------------------------------------------------------------------- versions

RELEASES = [Version(f"{a}.{b}.{c}") for a in range(4) for b in range(4) for c in range(4)]
RANGES = st.lists(
    st.builds(
        "{}{}".format,
        st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "~="]),
        st.sampled_from(["1.0", "1.2", "2.0", "2.1.2", "3.1"]),
    )
    | st.sampled_from(["==1.*", "==2.1.*", "!=2.*"]),
    max_size=2,
).map(",".join)


@settings(max_examples=200)
@given(RANGES, RANGES)
def test_ranges_of_versions_that_share_a_release_meet(a, b):
    shared = [r for r in RELEASES if SpecifierSet(a).contains(r) and SpecifierSet(b).contains(r)]
    if shared:
        assert _meet(a, b)
    elif _meet(a, b):  # then some other release is in both
        assert any(SpecifierSet(f"{a},{b}".strip(",")).contains(v, prereleases=True) for v in finer(a, b))


def finer(a, b):
    edges = [Version(s.version.removesuffix(".*")) for s in SpecifierSet(f"{a},{b}".strip(","))]
    steps = [(), (0, 1), (1,), (0, 0, 1)]
    found = [Version(".".join(map(str, (*e.release, *s)))) for e in edges for s in steps]
    found += [Version(f"{r.major}.{r.minor}.999999") for r in RELEASES]
    return [*found, *(Version(f"{r.major}.999999") for r in RELEASES), Version("999999"), Version("0")]


# ------------------------------------------------------------------------- time


def seconds(body):
    file = parse('lpcl 1 contract demo { package "demo"\n' + body + "}").file
    start = time.process_time()
    check(file)
    return time.process_time() - start


CHOICES = ", ".join(f'"c{i}"' for i in range(2000))
LARGE = {
    "a chain of controls": "".join(f"control a{i}: int {{ default a{i + 1} }}\n" for i in range(3000)),
    "a circle of controls": "".join(f"control a{i}: int {{ default a{(i + 1) % 300} }}\n" for i in range(300)),
    "many ways": "control a: int {" + "".join(f'env "A{i}" read load ' for i in range(8000)) + "}",
    "one way many times": "control a: int {" + 'env "A" read load if b == 1 ' * 4000 + "}",
    "many specials": "control a: int {" + "".join(f"special {i} ignored " for i in range(9000)) + "}",
    "many requirements": "control a: int {" + "requires b == 1 " * 8000 + "}",
    "misspelled choices": f"control a: choice({CHOICES}) {{ {'requires a == ' + chr(34) + 'd' + chr(34) + ' '} }}"
    + "".join(f'control b{i}: int {{ requires a == "cc{i}" }}\n' for i in range(2000)),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_contract_takes_time_in_proportion(name):
    assert seconds(LARGE[name]) < 3


def test_a_deep_expression_that_was_built_is_checked():
    deep = m.Number(1)
    for _ in range(300):
        deep = m.Operation("+", (deep, m.Number(1)))
    contract = m.Contract("demo", (m.Package("demo"),), clauses=(m.Demand("w", m.Ref(("files",)), amount=deep),))
    assert [d.rule for d in check(m.File(1, (contract,)))] == ["LP104"]


# --------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("body", "rule", "message", "help_text"),
    [
        (
            'control t: choice("active", "passive") { env "T" read load special "0" means "pasive" evidence e }',
            "LP160",
            "`pasive` is none of the choices of `t`",
            "did you mean `passive`?",
        ),
        (
            'control t: int { env "T" read load when machine.os == "Linux" evidence e }',
            "LP185",
            "`Linux` is no value of this fact",
            "did you mean `linux`?",
        ),
        (
            "assume x { requires machine.gpus > 2 and machine.gpus == 0 evidence e }",
            "LP165",
            "`machine.gpus == 0` excludes `machine.gpus > 2`",
            "both must hold at once: drop one",
        ),
        (
            "demand d: memory.bytes { amount machine.memory - 2s evidence e }",
            "LP141",
            "bytes and seconds do not mix in `machine.memory - 2s`",
            "multiply a plain number by its unit, for example `n * 1MiB`",
        ),
    ],
)
def test_messages(body, rule, message, help_text):
    (found,) = check(parse(f'lpcl 1 contract demo {{ package "demo" {body} }}').file)
    assert (found.rule, found.message, found.help) == (rule, message, help_text)


def test_suggestions_end_where_there_are_too_many():
    body = "".join(f'control a{i}: int {{ env "A{i}" read load when aa{i} == 1 evidence e }}\n' for i in range(60))
    found = check(parse(f'lpcl 1 contract demo {{ package "demo" {body} }}').file)
    assert 0 < sum(d.help.startswith("did you mean") for d in found) <= 20
    assert len(found) == 60
