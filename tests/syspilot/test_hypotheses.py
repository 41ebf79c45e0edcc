"""Which conflicts and hazards the shipped contracts see in runs that are made up by hand."""

import pytest

from lpcl.compose import compose, machine_values
from syspilot.hypotheses import WEAK, concurrent, derive, hazards, observed, runnable
from tests.syspilot.apps.made_up import (
    LIBGOMP,
    OPENBLAS,
    TEAM,
    WORKERS,
    entries,
    inside,
    machine,
    process,
    run,
    situation,
    threads,
)

BOTH = (OPENBLAS, LIBGOMP)
SPINNING = f"two_spinning_pools:{TEAM}+{WORKERS}"


def loud(configuration, *, on=None, environ=None):
    """The pools that still have more than one spinning thread under a configuration."""
    facts = machine_values(on or machine().values())
    system = compose([e.contract for e in entries()], facts, (environ or {}) | dict(configuration))
    return [p.name for p in system.pools if p.spins and (p.amount or 0) > 1]


def by_kind(found, kind):
    return [h for h in found if h.kind == kind]


def one_process(*, running=0.5, count=4, **readings):
    """One process in which numpy and scikit-learn take turns."""
    report = inside(100, libraries=BOTH, **readings)
    return run([process(100, BOTH)], threads(100, count, running=running), [report])


def workers(count, libraries, *, team_size=None, pool_size=None, busy=2, forked=True, parent_threads=None):
    """A parent that only waits, and workers with busy threads of their own."""
    pids = [100 * n for n in range(2, count + 2)]
    reports = [
        inside(
            p,
            parent=100,
            libraries=libraries,
            team_size=team_size,
            pool_size=pool_size,
            threads_at_fork=parent_threads if forked else None,
        )
        for p in pids
    ]
    processes = [process(100, libraries), *(process(p, libraries, parent=100) for p in pids)]
    traces = [t for p in pids for t in threads(p, busy, running=2 / (count * busy))]
    return run(processes, traces, [inside(100, libraries=libraries), *reports])


# -------------------------------------------------------- two spinning pools


def test_two_spinning_pools_of_one_process():
    found = by_kind(derive(situation(one_process())), "two_spinning_pools")
    (hypothesis,) = found
    assert hypothesis.id == SPINNING
    assert hypothesis.pools == (TEAM, WORKERS)
    assert hypothesis.strength > 0.5
    assert {(c.contract, c.clause) for c in hypothesis.clauses} == {
        ("libgomp", "demand team"),
        ("openblas", "demand workers"),
    }
    assert all(c.places for c in hypothesis.clauses), "a claim without evidence"
    assert "2 cores" in hypothesis.claim
    assert hypothesis.predicts


def test_its_remedies_leave_at_most_one_pool_spinning():
    (hypothesis,) = by_kind(derive(situation(one_process())), "two_spinning_pools")
    assert len(loud({})) == 2
    assert hypothesis.remedies
    for remedy in hypothesis.remedies:
        assert len(loud(remedy.configuration)) <= 1, remedy
        assert remedy.why
    configurations = [r.configuration for r in hypothesis.remedies]
    assert {"OPENBLAS_NUM_THREADS": "1"} in configurations
    assert {"OMP_NUM_THREADS": "1"} in configurations
    assert any(k == "OPENBLAS_THREAD_TIMEOUT" for c in configurations for k in c)
    assert not any(c.get("OMP_WAIT_POLICY", "").lower() == "active" for c in configurations), "that one is worse"


@pytest.mark.parametrize(
    "environ",
    [
        {"OPENBLAS_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "1"},
        {"OMP_WAIT_POLICY": "passive"},
        {"GOMP_SPINCOUNT": "0"},
        {"OPENBLAS_THREAD_TIMEOUT": "4"},
        {"OPENBLAS_DEFAULT_NUM_THREADS": "1"},
    ],
)
def test_what_the_user_has_set_already_silences_it(environ):
    assert len(loud({}, environ=environ)) <= 1
    assert by_kind(derive(situation(one_process(), environ=environ)), "two_spinning_pools") == []


@pytest.mark.parametrize(
    "environ", [{"OPENBLAS_NUM_THREADS": "2"}, {"OMP_WAIT_POLICY": "active"}, {"OMP_NUM_THREADS": "x"}]
)
def test_what_cures_nothing_does_not(environ):
    assert [h.id for h in by_kind(derive(situation(one_process(), environ=environ)), "two_spinning_pools")] == [
        SPINNING
    ]


def test_pools_of_different_processes_do_not_meet():
    apart = run(
        [process(100, [OPENBLAS]), process(200, [LIBGOMP])],
        [*threads(100, 2), *threads(200, 2)],
        [inside(100, libraries=[OPENBLAS]), inside(200, libraries=[LIBGOMP])],
    )
    assert by_kind(derive(situation(apart)), "two_spinning_pools") == []


def test_one_core_has_no_pools():
    assert derive(situation(one_process(), on=machine(cores=1))) == ()


def test_a_remedy_is_never_a_variable_that_another_one_overrides():
    environ = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    for hypothesis in derive(situation(one_process(), environ=environ)):
        for remedy in hypothesis.remedies:
            assert loud(remedy.configuration, environ=environ) != loud({}, environ=environ), remedy


def test_workers_that_limit_both_pools_have_no_spinning_pools():
    limited = workers(2, BOTH, team_size=1, pool_size=1, busy=1, forked=False)
    report = inside(100)  # the parent has neither
    limited = limited.model_copy(
        update={
            "processes": (process(100), *limited.processes[1:]),
            "inside": (report, *limited.inside[1:]),
        }
    )
    assert by_kind(derive(situation(limited)), "two_spinning_pools") == []


# ------------------------------------------------------------- crowded pools


def test_many_workers_with_a_pool_each():
    found = derive(situation(workers(8, [LIBGOMP], parent_threads=1)))
    (hypothesis,) = by_kind(found, "crowded_spinning_pool")
    assert hypothesis.pools == (TEAM,)
    assert hypothesis.observed["processes"] == 8
    assert hypothesis.strength == pytest.approx(1.0)
    assert [h.kind for h in found] == ["crowded_spinning_pool"]
    configurations = [r.configuration for r in hypothesis.remedies]
    assert {"OMP_NUM_THREADS": "1"} in configurations
    assert any("OMP_WAIT_POLICY" in c or "GOMP_SPINCOUNT" in c for c in configurations)
    for configuration in configurations:
        assert loud(configuration) != loud({}), configuration


def test_each_worker_may_have_its_share_of_the_cores():
    found = derive(situation(workers(4, [LIBGOMP], busy=8, parent_threads=1), on=machine(cores=8)))
    (hypothesis,) = by_kind(found, "crowded_spinning_pool")
    values = {r.configuration.get("OMP_NUM_THREADS") for r in hypothesis.remedies}
    assert {"1", "2"} <= values


@pytest.mark.parametrize(
    ("libraries", "sizes"), [([LIBGOMP], {"team_size": 1}), ([OPENBLAS], {"pool_size": 1})], ids=["libgomp", "openblas"]
)
def test_workers_that_were_limited_stay_silent(libraries, sizes):
    """As loky does: each worker has one thread, whatever the contract says of the default."""
    assert derive(situation(workers(8, libraries, forked=False, **sizes))) == ()
    loud_ones = derive(situation(workers(8, libraries, forked=False, **dict.fromkeys(sizes, 2))))
    assert [h.kind for h in loud_ones] == ["crowded_spinning_pool"]


def test_threads_that_are_never_used_do_not_crowd():
    assert derive(situation(workers(8, [LIBGOMP], busy=1, parent_threads=1))) == ()


def test_a_pool_that_sleeps_is_a_weaker_claim():
    environ = {"OMP_WAIT_POLICY": "passive"}
    (hypothesis,) = derive(situation(workers(8, [LIBGOMP], parent_threads=1), environ=environ))
    assert hypothesis.kind == "crowded_pool"
    assert WEAK < hypothesis.strength <= 0.4


def test_a_pool_that_fits_is_no_conflict():
    fits = run([process(100, [LIBGOMP])], threads(100, 2, running=1.0), [inside(100, libraries=[LIBGOMP])])
    assert derive(situation(fits)) == ()


# --------------------------------------------------------------------- quota


def test_a_pool_larger_than_the_quota():
    found = by_kind(derive(situation(one_process(), on=machine(cores=2, quota=1.0))), "ignores_quota")
    assert {h.pools[0] for h in found} == {TEAM, WORKERS}
    for hypothesis in found:
        assert hypothesis.observed["quota_cores"] == 1.0
        assert {v for r in hypothesis.remedies for v in r.configuration.values()} == {"1"}
        assert "quota" in hypothesis.claim
        assert [c.clause for c in hypothesis.clauses] == ["assume visible_cpus"]


@pytest.mark.parametrize(("quota", "value"), [(1.5, "1"), (0.5, "1"), (3.0, "3")])
def test_the_remedy_is_what_the_quota_pays_for(quota, value):
    on = machine(cores=8, quota=quota)
    found = by_kind(derive(situation(one_process(), on=on)), "ignores_quota")
    assert {v for h in found for r in h.remedies for v in r.configuration.values()} == {value}


@pytest.mark.parametrize(("quota", "environ"), [(None, {}), (2.0, {}), (1.0, {"OMP_NUM_THREADS": "1"})])
def test_a_quota_that_is_kept_is_no_conflict(quota, environ):
    on = machine(cores=2, quota=quota)
    assert by_kind(derive(situation(one_process(), environ=environ, on=on)), "ignores_quota") == []


# ------------------------------------------------------------------- hazards


def test_forked_children_of_a_parent_with_a_team():
    (hazard,) = hazards(situation(workers(2, [LIBGOMP], parent_threads=2)))
    assert hazard.kind == "fork_after_use"
    assert hazard.consequence == "hang"
    assert "2 processes forked" in hazard.claim
    assert TEAM in hazard.claim
    assert [(c.contract, c.clause) for c in hazard.clauses] == [("libgomp", "assume no_fork_after_region")]
    assert hazard.id == "fork_after_use:libgomp.no_fork_after_region"


def test_a_hazard_is_never_answered_with_a_thread_count_alone():
    for hazard in hazards(situation(workers(2, BOTH, parent_threads=4))):
        text = " ".join(hazard.remedies)
        assert "spawn" in text
        assert "forkserver" in text


@pytest.mark.parametrize(
    ("changes", "environ"),
    [
        ({"parent_threads": 2}, {"OMP_NUM_THREADS": "1"}),  # then the parent has no team
        ({"parent_threads": 1}, {}),  # it had no other thread yet
        ({"forked": False}, {}),  # spawned
    ],
    ids=["one thread", "before use", "spawn"],
)
def test_no_hazard(changes, environ):
    assert hazards(situation(workers(2, [LIBGOMP], **changes), environ=environ)) == ()


def test_threads_that_exist_from_loading_on_are_no_use_of_another_pool():
    """OpenBLAS has its second thread as soon as it is loaded: libgomp was not used before this fork."""
    assert hazards(situation(workers(2, BOTH, parent_threads=2))) == ()
    assert len(hazards(situation(workers(2, BOTH, parent_threads=3)))) == 1


def test_openblas_survives_a_fork():
    assert hazards(situation(workers(2, [OPENBLAS], parent_threads=2))) == ()


def test_a_parent_without_the_library_is_no_hazard():
    only_children = workers(2, [LIBGOMP], parent_threads=2)
    only_children = only_children.model_copy(
        update={
            "processes": (process(100), *only_children.processes[1:]),
            "inside": (inside(100), *only_children.inside[1:]),
        }
    )
    assert hazards(situation(only_children)) == ()


# -------------------------------------------------------------------- figures


def test_runnable_threads_are_counted_over_the_busy_part():
    both = run([process(100)], threads(100, 3))
    assert runnable(both) == pytest.approx((3.0, 3.0))
    assert runnable(both, [999]) == (0.0, 0.0)
    assert runnable(run()) == (0.0, 0.0)
    assert runnable(both.model_copy(update={"sample_times_s": ()})) == (0.0, 0.0)


def test_processes_one_after_the_other_are_not_concurrent():
    after = run(
        [process(100, first_s=0.0, last_s=0.9), process(200, first_s=1.0, last_s=2.0), process(300)],
        [*threads(100, 1), *threads(200, 1)],
    )
    assert concurrent(after, [100, 200]) == 1
    assert concurrent(after, [100, 200, 300]) == 1, "one that does nothing does not count"
    assert concurrent(run([process(1), process(2)], [*threads(1, 1), *threads(2, 1)]), [1, 2]) == 2
    assert concurrent(run(), []) == 0


def test_figures_of_nothing():
    empty = observed(run(wall_s=0.0), 2)
    assert empty["cpu_per_wall"] == 0.0
    assert empty["peak_threads_of_a_process"] == 0
    assert derive(situation(run())) == ()
    assert hazards(situation(run())) == ()
