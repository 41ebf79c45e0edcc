"""Systems of several contracts: references between them, copies of runtimes, what is set in vain, and joining."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl.compose import ComposeError, compose, installed_values, join, machine_values
from lpcl.corpus import load, shipped
from lpcl.explain import why
from lpcl.nesting import tree, walk
from lpcl.parse import parse

MACHINE = machine_values({"affinity": 8, "online": 8, "physical": 4, "cores": 8, "quota": None, "os": "linux"})


def contracts(*bodies):
    text = "lpcl 1\n" + "\n".join(f"contract {name} {{ {body} }}" for name, body in bodies)
    parsed = parse(text)
    assert parsed.ok, parsed.diagnostics
    return parsed.file.contracts


RUNTIME = (
    "runtime",
    """native "libruntime*.so*"
    control threads: int { range 1 to 64 default machine.affinity env "RUNTIME_THREADS" read load }
    demand team: cpu.threads { amount threads scope process runs native }""",
)
A = ("a", 'package "a" carries runtime "liba-runtime*.so*" uses runtime')
B = ("b", 'package "b" carries runtime "libb-runtime*.so*"')
USER = (
    "user",
    """package "user" uses runtime
    control size: int { range 1 to 64 default min(4, runtime.threads) env "SIZE" read import }
    demand pool: cpu.threads { amount max(size, runtime.team.amount / 4) }""",
)


# ------------------------------------------------------------------ references


def test_a_contract_speaks_of_what_another_one_has():
    system = compose(contracts(RUNTIME, USER), MACHINE, {"RUNTIME_THREADS": "2"})
    assert system.member("user").values["size"] == 2
    assert compose(contracts(RUNTIME, USER), MACHINE).member("user").values["size"] == 4


def test_without_the_other_contract_it_is_unknown():
    assert compose(contracts(USER), MACHINE).member("user").values["size"] is None


def test_a_contract_sees_only_what_it_says_that_it_uses():
    stranger = ("stranger", 'package "s" control size: int { default runtime.threads env "S" read import }')
    assert compose(contracts(RUNTIME, stranger), MACHINE).member("stranger").values["size"] is None


def test_whether_another_contracts_control_is_set():
    asks = (
        "asks",
        (
            'package "q" uses runtime control c: int '
            '{ default if is_set(runtime.threads) then 1 else 2 env "C" read import }'
        ),
    )
    assert compose(contracts(RUNTIME, asks), MACHINE).member("asks").values["c"] == 2
    assert compose(contracts(RUNTIME, asks), MACHINE, {"RUNTIME_THREADS": "3"}).member("asks").values["c"] == 1


def test_a_circle_of_contracts_ends_in_unknown():
    one = ("one", 'package "one" uses two control x: int { default two.y + 1 env "X" read import }')
    two = ("two", 'package "two" uses one control y: int { default one.x + 1 env "Y" read import }')
    both = compose(contracts(one, two), MACHINE)
    assert [r.values for r in both.members] == [{"x": None}, {"y": None}]


def test_what_is_loaded_and_installed():
    asks = (
        "asks",
        (
            'package "q" control c: int { default if loaded("runtime") then 1 else 2 env "C" read import } '
            'control d: int { default if installed("Tbb") then 1 else 2 env "D" read import }'
        ),
    )
    alone = compose(contracts(asks), MACHINE)
    assert alone.members[0].values == {"c": 2, "d": None}
    known = MACHINE | installed_values(["numpy", "TBB"])
    assert compose(contracts(asks, RUNTIME), known).member("asks").values == {"c": 1, "d": 1}
    assert compose(contracts(asks), MACHINE | installed_values([])).members[0].values == {"c": 2, "d": 2}


def test_a_way_of_other_releases_is_not_taken():
    renamed = (
        "renamed",
        (
            'package "renamed" control c: int { default 1 env "NEW" read import versions ">=2" '
            'env "OLD" read import versions "<2" }'
        ),
    )
    environ = {"NEW": "5", "OLD": "6"}
    for release, value in (("1.9", 6), ("2.0rc1", 5), ("2.1", 5), (None, 5)):
        releases = {} if release is None else {"Renamed": release}
        system = compose(contracts(renamed), MACHINE, environ, releases=releases)
        assert system.members[0].values["c"] == value, release
    old = compose(contracts(renamed), MACHINE, {"NEW": "5"}, releases={"renamed": "1.0"})
    assert [(f.kind, f.subject) for f in old.findings] == [("inactive", "renamed.c")]


# ---------------------------------------------------------------------- copies


def test_two_carriers_bring_two_copies_with_the_same_controls():
    system = compose(contracts(RUNTIME, A, B), MACHINE, {"RUNTIME_THREADS": "3"})
    assert [c.label for c in system.copies("runtime")] == ["runtime[a]", "runtime[b]"]
    assert [(n.name, n.total) for n in tree(system)] == [("runtime[a].team", 3), ("runtime[b].team", 3)]


def test_carriers_of_one_file_share_it():
    same = ("c", 'package "c" carries runtime "liba-runtime*.so*"')
    system = compose(contracts(RUNTIME, A, same), MACHINE)
    assert [c.label for c in system.copies("runtime")] == ["runtime[a+c]"]
    assert [n.name for n in tree(system)] == ["runtime.team"]


def test_who_only_uses_a_runtime_brings_no_copy():
    assert len(compose(contracts(RUNTIME, USER, A), MACHINE).copies("runtime")) == 1
    assert compose(contracts(RUNTIME, USER), MACHINE).copies("runtime")[0].carriers == ()


# --------------------------------------------------------------------- nesting

OUTER = (
    "outer",
    """package "outer" uses runtime
    control jobs: int { default 2 param outer.map(jobs) at call }
    demand workers: cpu.processes { amount jobs scope object runs user_code }
    demand threads: cpu.threads { amount 3 scope process runs user_code inside workers }""",
)


def places(system):
    return {"/".join(n.name for n in (*around, node)): node.total for around, node in walk(tree(system))}


def test_demand_multiplies_through_every_level():
    system = compose(contracts(RUNTIME, OUTER), MACHINE)
    assert places(system) == {
        "outer.workers": 2,
        "outer.workers/outer.threads": 6,
        # Three threads of one process share the pool that belongs to the process.
        "outer.workers/outer.threads/runtime.team": 16,
        "outer.workers/runtime.team": 16,
        "runtime.team": 8,
    }


def test_a_pool_whose_host_is_not_there_stands_alone():
    body = OUTER[1].replace("runs user_code }", "runs user_code when jobs > 100 }", 1)
    assert "outer.threads" in places(compose(contracts(RUNTIME, ("outer", body)), MACHINE))


def test_totals_are_explained():
    system = compose(contracts(RUNTIME, OUTER), MACHINE)
    assert why(system, "runtime.team.total") == [
        "16 = 2 outer.workers x 3 outer.threads x 8 runtime.team, of which there are 2",
        "16 = 2 outer.workers x 8 runtime.team",
        "8 = 8 runtime.team",
    ]


def test_a_lasting_limit_of_this_process_is_applied_and_followed():
    limiter = (
        "limiter",
        (
            'package "l" uses runtime mitigate m { limits runtime.team.amount to 2 in process lasts LASTS } '
            "demand rest: cpu.threads { amount 8 - runtime.team.amount }"
        ),
    )
    for lasts, team, rest in (("process", 2, 6), ("call", 8, 0)):
        system = compose(contracts(RUNTIME, (limiter[0], limiter[1].replace("LASTS", lasts))), MACHINE)
        assert {p.name: p.amount for p in system.pools} == {"runtime.team": team, "limiter.rest": rest}
    assert "limiter.m brings it to 2, during a call" in why(system, "runtime.team.amount")


def test_a_limit_in_the_children_of_one_pool():
    body = OUTER[1].replace(
        "demand threads", "demand others: cpu.processes { amount 3 runs user_code }\n demand threads"
    )
    limit = ' mitigate m { sets env "RUNTIME_THREADS" to 1 in children of workers }'
    found = places(compose(contracts(RUNTIME, ("outer", body + limit)), MACHINE))
    assert found["outer.workers/runtime.team"] == 2
    assert found["outer.others/runtime.team"] == 24


def test_copies_are_counted():
    asks = ("asks", 'package "q" assume one { requires copies("runtime") <= 1 consequence crash }')
    assert compose(contracts(RUNTIME, A, asks), MACHINE).findings == ()
    assert [f.subject for f in compose(contracts(RUNTIME, A, B, asks), MACHINE).findings] == ["asks.one"]


# -------------------------------------------------------------------- findings

FUSSY = (
    "fussy",
    """package "fussy"
    control mode: choice("fast", "safe") { default "safe" env "MODE" read import }
    control threads: int {
      range 1 to 64 default 2
      env "THREADS" read import
      env "OTHER_THREADS" read import
      effective min(value, 8)
      special 0 means 8
      special "auto" means machine.affinity
      special "" ignored
      special "none" fails
      malformed fails
    }
    control boost: int { range 1 to 9 default 1 env "BOOST" read import when mode == "fast" }
    control pair: bool { default false env "PAIR" read import requires threads > 2 }
    control any: bool { default false env "ANY" read import as true special "" means false }
    control lax: int { default 1 env "LAX" read import malformed prefix special 0 ignored levels "," }
    assume small { requires threads <= 4 consequence slow }""",
)


@pytest.mark.parametrize(
    ("environ", "values", "findings"),
    [
        ({}, {"threads": 2}, []),
        ({"THREADS": "3"}, {"threads": 3}, []),
        ({"THREADS": "0"}, {"threads": 8}, [("assumption", "fussy.small")]),
        ({"THREADS": "AUTO"}, {"threads": 8}, [("assumption", "fussy.small")]),
        ({"THREADS": "16"}, {"threads": 8}, [("assumption", "fussy.small"), ("clamped", "fussy.threads")]),
        ({"THREADS": ""}, {"threads": 2}, [("ignored", "fussy.threads")]),
        ({"THREADS": "", "OTHER_THREADS": "3"}, {"threads": 3}, [("ignored", "fussy.threads")]),
        ({"THREADS": "none"}, {}, [("fails", "fussy.threads")]),
        ({"THREADS": "4x"}, {}, [("fails", "fussy.threads")]),
        ({"THREADS": "3", "OTHER_THREADS": "4"}, {"threads": 3}, [("shadowed", "fussy.threads")]),
        ({"BOOST": "3"}, {"boost": 1}, [("inactive", "fussy.boost")]),
        ({"BOOST": "3", "MODE": "FAST"}, {"boost": 3}, []),
        ({"PAIR": "1"}, {"pair": True}, [("requires", "fussy.pair")]),
        ({"PAIR": "1", "THREADS": "3"}, {"pair": True}, []),
        ({"ANY": "0"}, {"any": True}, []),
        ({"ANY": ""}, {"any": False}, []),
        ({"LAX": "4,2"}, {"lax": 4}, []),
        ({"LAX": "4x"}, {"lax": 4}, []),
        ({"LAX": "x"}, {"lax": 1}, [("ignored", "fussy.lax")]),
        ({"NOBODYS": "1"}, {}, [("unread", "NOBODYS")]),
    ],
)
def test_what_is_set_in_vain_is_said(environ, values, findings):
    system = compose(contracts(FUSSY), MACHINE, environ)
    assert {k: v for k, v in system.members[0].values.items() if k in values} == values
    assert [(f.kind, f.subject) for f in system.findings] == findings


def test_the_reason_of_an_inactive_control_is_explained():
    system = compose(contracts(FUSSY), MACHINE, {"BOOST": "3"})
    assert system.members[0].inactive == {"boost": '`mode == "fast"` does not hold'}
    lines = why(system, "fussy.boost")
    assert 'setting it does nothing here: `mode == "fast"` does not hold' in lines
    assert '  fussy.mode = safe  by default, which is `"safe"`' in lines


# ----------------------------------------------------------------- association


@cache
def corpus():
    return tuple(e.contract for e in load([shipped()])[0])


ENVIRON = st.dictionaries(
    st.sampled_from(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT", "NUMBA_NUM_THREADS", "X"]),
    st.sampled_from(["1", "2", "64", "", "x"]),
)


@settings(deadline=None, max_examples=40)
@given(st.data(), ENVIRON)
def test_joining_is_associative_commutative_and_idempotent(data, environ):
    pick = st.lists(st.sampled_from(range(len(corpus()))), max_size=5)
    parts = [[corpus()[i] for i in data.draw(pick)] for _ in range(3)]
    a, b, c = (compose(p, MACHINE, environ) for p in parts)
    left, right = join(join(a, b), c), join(a, join(b, c))
    assert left == right == join(c, b, a) == join(left, a)
    assert left == compose([x for p in reversed(parts) for x in p], MACHINE, environ)
    assert tree(left) == tree(right)
    assert left.findings == right.findings


@settings(deadline=None, max_examples=40)
@given(st.permutations([RUNTIME, A, B, USER, OUTER]), st.integers(1, 64))
def test_the_order_of_contracts_that_speak_of_each_other_makes_no_difference(order, threads):
    environ = {"RUNTIME_THREADS": str(threads)}
    system = compose(contracts(*order), MACHINE, environ)
    usual = compose(contracts(RUNTIME, A, B, USER, OUTER), MACHINE, environ)
    assert system == usual
    assert tree(system) == tree(usual)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ComposeError, match="two different contracts are named `a`"):
        compose([*contracts(A), *contracts(("a", 'package "other"'))], MACHINE)
    with pytest.raises(ComposeError, match="different machines"):
        join(compose([], MACHINE), compose([], {}))
    with pytest.raises(ComposeError, match="nothing to join"):
        join()
