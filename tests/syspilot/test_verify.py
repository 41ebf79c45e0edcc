"""Whether a setting is in effect, by what the processes report."""

from dataclasses import replace

import pytest

from lpcl import model as m
from lpcl.compose import compose, machine_values
from lpcl.corpus import load, shipped
from lpcl.parse import parse
from syspilot.app import parse_tunable
from syspilot.records import Reading
from syspilot.verify import inside_spec, observed_system, reported_by_pid, settings_seen
from tests.syspilot.apps.made_up import LIBGOMP, OPENBLAS, entries, inside, machine, process, run

CONTRACTS = [e.contract for e in entries()]


def system(environ=None, on=None):
    return compose(CONTRACTS, machine_values(on or machine().values()), environ or {})


def seen(configuration, *reports, environ=None, tunables=()):
    result = run([process(100, [OPENBLAS, LIBGOMP])], reports=reports)
    return {s.name: s for s in settings_seen(result, configuration, system(environ), environ or {}, tunables)}


def test_a_reading_shows_that_a_setting_took():
    (found,) = seen({"OPENBLAS_NUM_THREADS": "1"}, inside(100, pool_size=1)).values()
    assert found.in_effect == "yes"
    assert found.affects == ("openblas.workers",)
    assert "openblas.pool_size reads 1" in found.how_seen


def test_a_reading_shows_that_it_did_not():
    (found,) = seen({"OPENBLAS_NUM_THREADS": "1"}, inside(100, pool_size=1), inside(200, pool_size=2)).values()
    assert found.in_effect == "no"
    assert "reads 2" in found.how_seen
    assert "expected 1" in found.how_seen


def test_a_clamped_value_is_expected_clamped():
    (found,) = seen({"OPENBLAS_NUM_THREADS": "16"}, inside(100, pool_size=2)).values()
    assert found.in_effect == "yes"


def test_one_variable_of_two_libraries():
    both = {"OMP_NUM_THREADS": "1"}
    assert seen(both, inside(100, pool_size=1, team_size=1))["OMP_NUM_THREADS"].in_effect == "yes"
    assert seen(both, inside(100, pool_size=2, team_size=1))["OMP_NUM_THREADS"].in_effect == "no"
    affects = seen(both, inside(100, pool_size=1))["OMP_NUM_THREADS"].affects
    assert set(affects) == {"libgomp.team", "openblas.workers"}


def test_where_another_variable_wins_only_that_one_counts():
    found = seen({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2"}, inside(100, pool_size=2, team_size=1))
    assert {k: s.in_effect for k, s in found.items()} == {"OMP_NUM_THREADS": "yes", "OPENBLAS_NUM_THREADS": "yes"}


def test_what_no_signal_shows_is_not_observable():
    found = seen({"OPENBLAS_THREAD_TIMEOUT": "4", "NOBODY_KNOWS": "1"}, inside(100, pool_size=2, team_size=2))
    assert {s.in_effect for s in found.values()} == {"not_observable"}


@pytest.mark.parametrize("reports", [(), (inside(100),)])
def test_a_signal_that_nobody_read(reports):
    assert seen({"OPENBLAS_NUM_THREADS": "1"}, *reports)["OPENBLAS_NUM_THREADS"].in_effect == "not_read"


def test_a_reading_that_failed_is_no_reading():
    failed = inside(100).model_copy(
        update={"readings": (Reading(pid=100, signal="openblas.pool_size", value=None, error="no symbol"),)}
    )
    assert seen({"OPENBLAS_NUM_THREADS": "1"}, failed)["OPENBLAS_NUM_THREADS"].in_effect == "not_read"


def test_a_tunable_of_the_application_is_handed_over_only():
    tunables = (parse_tunable("OMP_NUM_THREADS=1..4", "env"),)
    found = seen({"OMP_NUM_THREADS": "1"}, inside(100, team_size=2), tunables=tunables)["OMP_NUM_THREADS"]
    assert (found.in_effect, found.affects) == ("not_observable", ())


def test_sizes_by_process_and_the_largest_of_several_copies():
    contract = next(c for c in CONTRACTS if c.name == "openblas")
    two = inside(100, pool_size=1).model_copy(
        update={"readings": tuple(Reading(pid=100, signal="openblas.pool_size", value=v) for v in (1, 4, True, "9"))}
    )
    result = run(reports=[two, inside(200, pool_size=2), inside(300)])
    assert reported_by_pid(result, contract, "workers.amount") == {100: 4.0, 200: 2.0}
    assert reported_by_pid(result, contract, "workers.idle") == {}


def test_a_size_that_the_contract_leaves_open_is_filled_in_from_the_run():
    text = """lpcl 1
contract openpool {
  native "libopen*.so*"
  demand workers: cpu.threads {
    amount threads
    created load
    scope process
    idle block
    evidence e1
  }
  control threads: int {
    default unknown
    env "OPEN_THREADS" read load
    effect process
    bounds workers.amount
    switch process
    evidence e1
  }
  signal size: gauge {
    read native "open_size"
    observes workers.amount
    valid after load
    evidence e1
  }
}
"""
    (contract,) = parse(text).file.contracts
    open_system = compose([contract], machine_values(machine().values()))
    assert open_system.pools[0].amount is None
    report = inside(100).model_copy(update={"readings": (Reading(pid=100, signal="openpool.size", value=6),)})
    assert observed_system(open_system, run(reports=[report])).pools[0].amount == 6.0
    assert observed_system(open_system, run()).pools[0].amount is None
    known = system()
    assert observed_system(known, run(reports=[inside(100, pool_size=9)])).pools == known.pools


def calling(target):
    text = f"""lpcl 1
contract mylib {{
  package "mylib"
  demand pool: cpu.threads {{ created load evidence e1 }}
  signal size: gauge {{ read call {target}() observes pool.amount evidence e1 }}
}}
"""
    (contract,) = parse(text).file.contracts
    return contract


def test_the_hook_is_asked_for_the_signals_of_the_contracts():
    spec = inside_spec(CONTRACTS)
    assert {s.signal for s in spec.signals} == {"libgomp.team_size", "openblas.pool_size"}
    assert all(s.kind == "native" for s in spec.signals)
    assert inside_spec([], ("PATH",)).environ == ("PATH",)


@pytest.mark.parametrize(
    ("target", "read"),
    [("mylib.pool.size", True), ("MyLib.size", True), ("os.abort", False), ("mylib_evil.f", False)],
)
def test_a_contract_calls_only_its_own_package(target, read):
    assert bool(inside_spec([calling(target)]).signals) is read


def test_the_hook_never_calls_the_standard_library():
    text = calling("mylib.get_size")
    (package,) = text.packages
    for name in ("signal", "os", "time"):
        posing = replace(text, packages=(replace(package, name=name),))
        posing = replace(
            posing,
            clauses=tuple(
                replace(c, read=replace(c.read, target=(f"{name}.pause",))) if isinstance(c, m.Signal) else c
                for c in posing.clauses
            ),
        )
        assert inside_spec([posing]).signals == ()
    assert [s.module for s in inside_spec([text]).signals] == ["mylib"]


def test_what_misleads_is_not_read():
    text = calling("mylib.get_size")
    clauses = tuple(replace(c, unreliable="it lies") if isinstance(c, m.Signal) else c for c in text.clauses)
    assert inside_spec([replace(text, clauses=clauses)]).signals == ()


def test_a_setting_names_the_pool_of_another_contract():
    entry = next(e for e in load([shipped()])[0] if e.contract.name == "torch")
    alone = compose([entry.contract], machine_values(machine().values()), {})
    (found,) = settings_seen(run(), {"OMP_NUM_THREADS": "1"}, alone, {})
    assert found.affects == ("libgomp.team",)
