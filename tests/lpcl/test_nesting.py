"""Pools inside of pools: demand multiplies, and what a library limits in its workers is applied."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpcl.compose import compose, machine_values
from lpcl.corpus import load, shipped
from lpcl.nesting import tree
from lpcl.parse import parse

MACHINE = machine_values({"affinity": 8, "online": 8, "cores": 8})
OUTER = """lpcl 1

contract outer {
  package "outer"
  uses openblas
  demand workers: cpu.processes { amount jobs runs user_code evidence e1 }
  control jobs: int { default 4 param outer.map(jobs) at call evidence e1 }
  mitigate inner {
    sets env "OPENBLAS_NUM_THREADS" to max(1, floor(machine.cores / jobs)) in children unless_set evidence e1
  }
}
"""


@cache
def native():
    return tuple(e.contract for e in load([shipped()])[0] if e.contract.name in {"openblas", "libgomp"})


def nested(text, environ):
    contracts = [*native(), *parse(text).file.contracts]
    nodes = tree(compose(contracts, MACHINE, environ))
    outer = next(n for n in nodes if n.pool.name == "outer.workers")
    return {n.pool.name: (n.pool.amount, n.total, n.limited_by) for n in outer.inside}


def test_a_library_limits_others_in_its_workers():
    inside = nested(OUTER, {})
    assert inside["openblas.workers"] == (2, 8, "outer.inner")
    assert inside["libgomp.team"] == (8, 32, "")


def test_what_the_user_set_stays():
    assert nested(OUTER, {"OPENBLAS_NUM_THREADS": "3"})["openblas.workers"] == (3, 12, "")


def test_a_name_that_the_library_does_not_set_is_overridden_by_one_that_it_does():
    # A user's OMP_NUM_THREADS does not reach a BLAS whose own variable the outer library sets.
    assert nested(OUTER, {"OMP_NUM_THREADS": "4"})["openblas.workers"] == (2, 8, "outer.inner")


def test_threads_get_no_protection_and_share_what_belongs_to_the_process():
    inside = nested(OUTER.replace("cpu.processes", "cpu.threads"), {})
    assert inside["openblas.workers"] == (8, 8, "")
    assert inside["libgomp.team"] == (8, 32, ""), "each thread that opens a region has a team of its own"


def test_a_limit_by_a_call():
    text = OUTER.replace('sets env "OPENBLAS_NUM_THREADS"', "limits openblas.workers.amount").replace("unless_set", "")
    assert nested(text, {})["openblas.workers"] == (2, 8, "outer.inner")


def test_an_unknown_size_stays_unknown():
    assert nested(OUTER.replace("default 4", "default unknown"), {})["libgomp.team"] == (8, None, "")


@settings(deadline=None)
@given(st.permutations(range(3)), st.integers(1, 64))
def test_the_order_of_contracts_makes_no_difference(order, jobs):
    contracts = [*native(), *parse(OUTER).file.contracts]
    environ = {"outer.map(jobs=)": str(jobs)}
    one = tree(compose(contracts, MACHINE, environ))
    assert tree(compose([contracts[i] for i in order], MACHINE, environ)) == one


@pytest.mark.parametrize("jobs", [1, 2, 8, 100])
def test_totals_multiply(jobs):
    inside = nested(OUTER, {"outer.map(jobs=)": str(jobs)})
    assert inside["libgomp.team"][1] == 8 * jobs
    assert inside["openblas.workers"][0] == max(1, 8 // jobs)
