"""Contracts on a machine: what wins, what it becomes, and which setting brings what is wanted."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl import model as m
from lpcl.compose import compose, machine_values
from lpcl.expr import MACHINE_FACTS
from lpcl.parse import parse
from lpcl.resolve import AWAKE_S, parse_value, resolve
from lpcl.ways import Setting, ways_to

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
TWO = machine_values({"online": 2, "affinity": 2, "cores": 2, "logical": 2, "physical": 2, "memory": 2**33})


def shipped(name):
    return parse((CORPUS / name / "contract.lpcl").read_text("utf-8")).file.contracts[0]


OPENBLAS, LIBGOMP = shipped("openblas"), shipped("libgomp")


def contract(body):
    parsed = parse(f'lpcl 1 contract demo {{ package "demo" {body} }}')
    assert parsed.ok, parsed.diagnostics
    return parsed.file.contracts[0]


def variables(text):
    return dict(part.split("=", 1) for part in text.split())


def workers(of, environ, machine=TWO):
    (pool,) = resolve(of, machine, environ).pools
    return pool.amount


# -------------------------------------------------------------- text to values


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("4", "int", 4),
        (" 4 ", "int", 4),
        ("4,2", "int", None),
        ("1_000", "int", None),
        ("4GiB", "size", 4 << 30),
        ("60%", "size", "60%"),
        ("200ms", "duration", 0.2),
        ("-1", "int", -1),
        ("", "int", None),
        ("four", "int", None),
        ("4.5", "int", None),
        ("9" * 5000, "int", None),
        ("0.5", "float", 0.5),
        ("1e3", "size", 1000.0),
        ("x", "duration", None),
        ("1", "bool", True),
        ("TRUE", "bool", True),
        ("off", "bool", False),
        ("perhaps", "bool", None),
        ("", "bool", False),
        ("anything", "text", "anything"),
    ],
)
def test_parse_value(text, type_, value):
    assert parse_value(text, m.Type(type_)) == value


def test_choices_are_found_in_any_case():
    type_ = m.Type("choice", ("active", "Passive"))
    assert parse_value("ACTIVE", type_) == "active"
    assert parse_value("passive ", type_) == "Passive"
    assert parse_value("other", type_) is None


# ------------------------------------------------------------------ resolution


def three(combine):
    return contract(f"""
        control t: int {{
          default 7
          env "A" read load
          env "B" read load if machine.gpus == 0
          call demo.set(n) at call
          {combine}
        }}
        demand w: cpu.threads {{ amount t }}
    """)


@pytest.mark.parametrize(
    ("combine", "environ", "value"),
    [
        ("", {}, 7),
        ("", {"B": "2"}, 2),
        ("", {"A": "3", "B": "2"}, 3),
        ("", {"B": "2", "A": "3"}, 3),
        ("", {"demo.set()": "5", "B": "2"}, 2),
        ("", {"demo.set()": "5"}, 5),
        ("", {"A": "x", "B": "2"}, 2),
        ("", {"A": ""}, 7),
        ("", {"C": "1"}, 7),
        ("combine first_set", {"A": "3", "B": "2"}, 3),
        ("combine min", {"A": "3", "B": "2", "demo.set()": "5"}, 2),
        ("combine min", {"A": "3", "B": "x"}, 3),
        ("combine min", {}, 7),
        ("combine max", {"A": "3", "B": "2", "demo.set()": "5"}, 5),
        ("combine max", {"A": "x"}, 7),
    ],
)
def test_which_way_wins(combine, environ, value):
    resolved = resolve(three(combine), {"machine.gpus": 0}, environ)
    assert resolved.values == {"t": value}
    assert resolved.pools[0].amount == value
    winner = resolved.set_by.get("t")
    if winner is None:
        assert all(a.outcome == "ignored" for a in resolved.asked)
    else:
        assert parse_value(environ[winner.label], m.Type("int")) == value
        assert [a.way for a in resolved.asked if a.outcome == "wins"] == [winner]


def test_a_way_whose_condition_is_false_is_not_read_and_one_that_may_hold_is():
    for gpus, value in ((0, 2), (1, 7), (None, 2)):
        assert resolve(three(""), {"machine.gpus": gpus}, {"B": "2"}).values == {"t": value}


@pytest.mark.parametrize(
    ("asked", "value"),
    [("0", 2), ("-1", "all"), ("1", 2), ("5", 5), ("50", 8)],
)
def test_specials_come_before_the_effective_value(asked, value):
    of = contract("""
        control t: text { env "A" read load }
        control n: int {
          env "N" read load
          effective clamp(value, least, machine.logical * 4)
          special 0 means machine.affinity
          special -1 means "all"
        }
        control least: int { default 2 env "LEAST" read load }
    """)
    assert resolve(of, TWO, {"N": asked}).values["n"] == value


def test_a_special_that_means_unknown_is_not_set():
    of = contract('control n: int { default 3 env "A" read load env "B" read load special 0 means unknown }')
    assert resolve(of, TWO, {"A": "0"}).values == {"n": 3}
    assert resolve(of, TWO, {"A": "0", "B": "5"}).values == {"n": 5}


def test_an_effective_value_that_cannot_be_known_is_what_was_asked_for():
    of = contract('control n: int { env "A" read load effective min(value, machine.gpus) }')
    assert resolve(of, TWO, {"A": "5"}).values == {"n": 5}


def test_is_set_sees_controls_that_stand_further_down():
    of = contract("""
        control a: int { default if is_set(b) then b else 1 env "A" read load }
        control b: int { default 9 env "B" read load }
    """)
    assert resolve(of, TWO, {}).values == {"a": 1, "b": 9}
    assert resolve(of, TWO, {"B": "4"}).values == {"a": 4, "b": 4}


def test_cycles_end_in_unknown():
    of = contract('control a: int { default b + 1 env "A" read load } control b: int { default a env "B" read load }')
    assert resolve(of, TWO, {}).values == {"a": None, "b": None}
    assert resolve(of, TWO, {"B": "4"}).values == {"a": 5, "b": 4}


def test_idle_takes_the_first_line_that_holds():
    of = contract("""
        control s: int { default 5 env "S" read load }
        demand w: cpu.threads { idle block if s == 0 idle spin_then_block(s * 10ms) if s < 10 idle yield(s * 1cycles) }
        demand v: cpu.threads { idle spin if machine.gpus == 1 }
        demand u: cpu.threads { }
    """)

    def pools(s):
        return resolve(of, TWO, {"S": s}).pools

    assert (pools("0")[0].idle, pools("0")[0].awake_s, pools("0")[0].spins) == ("block", None, False)
    assert (pools("5")[0].idle, pools("5")[0].awake_s) == ("spin_then_block", pytest.approx(0.05))
    assert pools("5")[0].spins
    tired = pools("2500")[0]
    assert (tired.idle, tired.awake_s) == ("yield", pytest.approx(1e-6))
    assert tired.awake_s < AWAKE_S
    assert not tired.spins
    assert [p.idle for p in pools("5")[1:]] == ["unknown", "unknown"]
    assert [p.name for p in pools("5")] == ["demo.w", "demo.v", "demo.u"]
    assert [p.amount for p in pools("5")] == [None, None, None]


def test_an_inactive_control_is_not_set_and_an_inactive_demand_takes_nothing():
    of = contract("""
        control t: int { default 3 env "A" read load when machine.gpus == 1 }
        demand w: cpu.threads { amount t }
        demand g: cpu.threads { amount 9 when machine.gpus == 1 }
    """)
    assert [p.amount for p in resolve(of, {"machine.gpus": 0}, {"A": "5"}).pools] == [3]
    assert [p.amount for p in resolve(of, {"machine.gpus": 1}, {"A": "5"}).pools] == [5, 9]


# -------------------------------------------------------------------- OpenBLAS


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        # Seen with the OpenBLAS 0.3.31 of numpy 2.4.6 on two CPUs.
        ("", 2),
        ("OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=1", 2),
        ("GOTO_NUM_THREADS=1 OMP_NUM_THREADS=2", 1),
        ("OPENBLAS_DEFAULT_NUM_THREADS=1 OMP_NUM_THREADS=2", 1),
        ("OPENBLAS_NUM_THREADS=16", 2),
        ("OPENBLAS_NUM_THREADS=0", 2),
        ("OMP_NUM_THREADS=1", 1),
        ("OMP_NUM_THREADS=1,2", 1),
        ("OPENBLAS_NUM_THREADS= OMP_NUM_THREADS=1", 1),
        ("OPENBLAS_NUM_THREADS=abc OMP_NUM_THREADS=1", 1),
        ("MKL_NUM_THREADS=1", 2),
        ("OMP_THREAD_LIMIT=1", 2),
    ],
)
def test_openblas(environ, threads):
    assert workers(OPENBLAS, variables(environ)) == threads


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        # Seen likewise: zero and less count as not set, so the next variable decides.
        ("OPENBLAS_NUM_THREADS=0 OMP_NUM_THREADS=1", 1),
        ("OPENBLAS_NUM_THREADS=0 OPENBLAS_DEFAULT_NUM_THREADS=1 OMP_NUM_THREADS=2", 1),
        ("OPENBLAS_NUM_THREADS=-1", 2),
        ("OPENBLAS_NUM_THREADS=-1 OMP_NUM_THREADS=1", 1),
    ],
)
def test_openblas_takes_zero_and_less_as_not_set(environ, threads):
    assert workers(OPENBLAS, variables(environ)) == threads


def test_openblas_waits_for_seconds_unless_told_otherwise():
    (pool,) = resolve(OPENBLAS, TWO).pools
    assert (pool.idle, pool.awake_s) == ("yield", pytest.approx(2**28 / 2.5e9))
    assert pool.spins
    (quiet,) = resolve(OPENBLAS, TWO, {"OPENBLAS_THREAD_TIMEOUT": "4"}).pools
    assert not quiet.spins
    for text, exponent in (("1", 4), ("0", 28), ("99", 30)):
        assert resolve(OPENBLAS, TWO, {"OPENBLAS_THREAD_TIMEOUT": text}).values["thread_timeout"] == exponent


# --------------------------------------------------------------------- libgomp


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        # Seen with GCC 12.2 on two CPUs, by the size of a parallel region.
        ("", 2),
        ("OMP_NUM_THREADS=1", 1),
        ("OMP_NUM_THREADS=3", 3),
        ("OMP_NUM_THREADS=2,3", 2),
        ("OMP_NUM_THREADS=abc", 2),
        ("OMP_NUM_THREADS=8 OMP_THREAD_LIMIT=3", 3),
        ("OMP_THREAD_LIMIT=0", 2),
    ],
)
def test_libgomp(environ, threads):
    assert workers(LIBGOMP, variables(environ)) == threads


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        # Seen likewise: "Invalid value for environment variable", then as if it were not set.
        ("OMP_NUM_THREADS=0", 2),
        ("OMP_NUM_THREADS=-1", 2),
    ],
)
def test_libgomp_ignores_zero_and_less(environ, threads):
    assert workers(LIBGOMP, variables(environ)) == threads


def test_libgomp_limits_the_default_too():
    # Seen likewise: the region has one thread.
    assert workers(LIBGOMP, {"OMP_THREAD_LIMIT": "1"}) == 1


@pytest.mark.parametrize(
    ("environ", "idle", "awake_s"),
    [
        ("", "spin_then_block", 0.003),
        ("OMP_WAIT_POLICY=passive", "block", None),
        ("OMP_WAIT_POLICY=PASSIVE", "block", None),
        ("OMP_WAIT_POLICY=active", "spin_then_block", 300),
        ("OMP_WAIT_POLICY=rubbish", "spin_then_block", 0.003),
        ("GOMP_SPINCOUNT=0", "block", None),
        ("GOMP_SPINCOUNT=0 OMP_WAIT_POLICY=active", "block", None),
        ("GOMP_SPINCOUNT=1000000 OMP_WAIT_POLICY=passive", "spin_then_block", 0.01),
    ],
)
def test_libgomp_idle(environ, idle, awake_s):
    (pool,) = resolve(LIBGOMP, TWO, variables(environ)).pools
    assert pool.idle == idle
    assert pool.awake_s == (None if awake_s is None else pytest.approx(awake_s))
    assert pool.spins == (idle != "block")


# --------------------------------------------------------------------- compose


def test_a_system_has_the_pools_of_its_members():
    system = compose([OPENBLAS, LIBGOMP], TWO, {"OMP_NUM_THREADS": "1"})
    assert [r.contract.name for r in system.members] == ["libgomp", "openblas"]
    assert [(p.name, p.amount) for p in system.pools] == [("libgomp.team", 1), ("openblas.workers", 1)]
    assert system.member("openblas").values["threads"] == 1
    assert system.member("other") is None
    assert compose([], TWO).pools == ()


NAMES = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "OMP_THREAD_LIMIT",
]
TEXTS = ["0", "1", "2", "64", "-1", "", "active", "passive", "x", "1,2", "1e3", "true"]
environs = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS))
machines = st.fixed_dictionaries({f"machine.{f}": st.none() | st.integers(1, 256) for f in MACHINE_FACTS})
MORE = [
    contract('control t: int { default 4 env "T" read load } demand w: cpu.threads { amount t }'),
    m.Contract("empty"),
]


@settings(max_examples=80, deadline=None)
@given(st.permutations([OPENBLAS, LIBGOMP, *MORE]), machines, environs)
def test_the_order_of_contracts_variables_and_facts_makes_no_difference(order, machine, environ):
    usual = compose([OPENBLAS, LIBGOMP, *MORE], machine, environ)
    backwards = dict(reversed(environ.items()))
    assert compose(order, dict(reversed(machine.items())), backwards) == usual


@settings(max_examples=80, deadline=None)
@given(st.permutations(LIBGOMP.clauses), environs)
def test_the_order_of_clauses_makes_no_difference(clauses, environ):
    other = m.Contract(LIBGOMP.name, (), LIBGOMP.natives, clauses=tuple(clauses))
    one, two = resolve(LIBGOMP, TWO, environ), resolve(other, TWO, environ)
    assert one.values == two.values
    assert one.set_by == two.set_by
    assert one.pools == two.pools


@settings(max_examples=80, deadline=None)
@given(machines, environs | st.dictionaries(st.sampled_from(NAMES), st.text(max_size=5)))
def test_resolving_never_raises_and_changes_none_of_its_arguments(machine, environ):
    before = dict(machine), dict(environ)
    for of in (OPENBLAS, LIBGOMP):
        for pool in resolve(of, machine, environ).pools:
            assert pool.amount is None or isinstance(pool.amount, float)
    assert (machine, environ) == before


@pytest.mark.parametrize("digits", [400, 4000])
def test_a_variable_with_very_many_digits(digits):
    assert workers(LIBGOMP, {"OMP_NUM_THREADS": "9" * digits}) is not False
    free = contract('control t: int { env "T" read load } demand w: cpu.threads { amount t idle spin(t * 1cycles) }')
    assert workers(free, {"T": "9" * digits}) is not False


def test_a_long_chain_of_controls():
    body = "".join(f'control c{i}: int {{ default c{i + 1} env "C{i}" read load }}' for i in range(2000))
    of = contract(body + 'control c2000: int { default 1 env "Z" read load }')
    assert resolve(of, TWO).values["c2000"] == 1


# --------------------------------------------------------------------- ways_to


def labels(found):
    assert all(isinstance(s, Setting) for s in found)
    return [s.label for s in found]


POOL, TEAM = OPENBLAS.demands[0], LIBGOMP.demands[0]


def test_ways_to_a_size():
    assert labels(ways_to(OPENBLAS, TWO, POOL, amount=1)) == ["OPENBLAS_NUM_THREADS=1"]
    assert "OMP_NUM_THREADS=1" in labels(ways_to(LIBGOMP, TWO, TEAM, amount=1))


def test_a_size_that_the_library_clamps_is_not_proposed():
    assert ways_to(OPENBLAS, TWO, POOL, amount=3) == []
    assert ways_to(LIBGOMP, TWO, TEAM, amount=3, environ={"OMP_THREAD_LIMIT": "2"}) == []


def test_a_variable_that_another_one_overrides_is_not_proposed():
    found = ways_to(OPENBLAS, TWO, POOL, amount=1, environ={"OPENBLAS_NUM_THREADS": "2"})
    assert labels(found) == ["OPENBLAS_NUM_THREADS=1"]
    without = contract("""
        control t: int { env "OLD" read load deprecated "2.0" env "A" read load env "B" read load bounds w.amount }
        demand w: cpu.threads { amount t }
    """)
    found = ways_to(without, TWO, without.demands[0], amount=4, environ={"OLD": "1"})
    assert found == []
    found = ways_to(without, TWO, without.demands[0], amount=4, environ={"A": "1"})
    assert labels(found) == ["A=4"]


def test_only_variables_that_set_the_size_are_proposed_for_it():
    # Two is the size already: `OMP_PROC_BIND=2` "brings" it, but sets nothing.
    assert labels(ways_to(LIBGOMP, TWO, TEAM, amount=2)) in (
        ["OMP_NUM_THREADS=2"],
        ["OMP_NUM_THREADS=2", "OMP_THREAD_LIMIT=2"],
    )


def test_ways_to_quiet():
    assert labels(ways_to(OPENBLAS, TWO, POOL, quiet=True)) == ["OPENBLAS_THREAD_TIMEOUT=4"]
    assert labels(ways_to(LIBGOMP, TWO, TEAM, quiet=True)) == ["OMP_WAIT_POLICY=passive", "GOMP_SPINCOUNT=0"]
    found = ways_to(LIBGOMP, TWO, TEAM, quiet=True, environ={"GOMP_SPINCOUNT": "1000000"})
    assert labels(found) == ["GOMP_SPINCOUNT=0"]


def test_nothing_is_proposed_for_nothing():
    assert ways_to(OPENBLAS, TWO, POOL) == []


@settings(max_examples=80, deadline=None)
@given(environs, st.integers(1, 4), st.booleans())
def test_what_is_proposed_resolves_as_wanted(environ, amount, quiet):
    for of in (OPENBLAS, LIBGOMP):
        demand = of.demands[0]
        wanted = {"quiet": True} if quiet else {"amount": amount}
        for setting in ways_to(of, TWO, demand, environ=environ, **wanted):
            assert setting.contract == of.name
            (pool,) = resolve(of, TWO, environ | {setting.way.label: setting.value}).pools
            assert not pool.spins if quiet else pool.amount == amount


def test_a_demand_that_was_read_anew_is_the_same_demand():
    again = shipped("openblas").demands[0]
    assert labels(ways_to(OPENBLAS, TWO, again, amount=1)) == ["OPENBLAS_NUM_THREADS=1"]
