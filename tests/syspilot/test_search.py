"""Candidates: duplicates in effect, order by prediction, and the way out of it."""

import random

import pytest

from syspilot import search
from syspilot.app import parse_tunable
from syspilot.hypotheses import derive
from tests.syspilot.apps.made_up import LIBGOMP, OPENBLAS, inside, machine, process, run, situation, threads

BOTH = (OPENBLAS, LIBGOMP)


@pytest.fixture
def spinning():
    return situation(run([process(100, BOTH)], threads(100, 4), [inside(100, libraries=BOTH)]))


@pytest.fixture
def space(spinning):
    return search.Space(spinning, ())


# ---------------------------------------------------------------- signatures


@pytest.mark.parametrize(
    "configuration",
    [
        {"OPENBLAS_NUM_THREADS": "2"},
        {"OPENBLAS_NUM_THREADS": "16"},
        {"OPENBLAS_NUM_THREADS": "0"},
        {"OPENBLAS_NUM_THREADS": "no number"},
        {"OPENBLAS_THREAD_TIMEOUT": "28"},
        {"OMP_NUM_THREADS": "2"},
        {"GOMP_SPINCOUNT": "300000"},
    ],
)
def test_what_comes_out_as_the_default_is_the_default(space, configuration):
    assert space.signature(configuration) == space.signature({})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"OPENBLAS_NUM_THREADS": "1"}, {"GOTO_NUM_THREADS": "1"}, True),
        ({"OPENBLAS_THREAD_TIMEOUT": "1"}, {"OPENBLAS_THREAD_TIMEOUT": "4"}, True),
        ({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"}, {"OPENBLAS_NUM_THREADS": "1"}, True),
        ({"OPENBLAS_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "2"}, False),
        ({"OMP_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "1"}, False),
        ({"UNKNOWN": "1"}, {}, False),
        ({"UNKNOWN": "1"}, {"UNKNOWN": "2"}, False),
    ],
)
def test_the_same_in_effect(space, one, other, same):
    assert (space.signature(one) == space.signature(other)) is same


def test_what_the_environment_says_already_is_the_default():
    environ = {"OPENBLAS_NUM_THREADS": "1"}
    result = run([process(100, BOTH)], threads(100, 4), [inside(100, libraries=BOTH)])
    space = search.Space(situation(result, environ=environ), ())
    assert space.signature({"OPENBLAS_NUM_THREADS": "1"}) == space.signature({})
    assert space.signature({"OMP_NUM_THREADS": "1"}) != space.signature({})


def test_a_tunable_of_the_application_counts_as_itself(spinning):
    """The application may do with the variable what it likes, whatever a contract says of it."""
    space = search.Space(spinning, (parse_tunable("OPENBLAS_NUM_THREADS=1..16", "env"),))
    assert space.signature({"OPENBLAS_NUM_THREADS": "2"}) != space.signature({"OPENBLAS_NUM_THREADS": "16"})


# ---------------------------------------------------------------- candidates


def test_candidates_are_distinct_in_effect_and_ordered(spinning, space):
    found = search.candidates(space, derive(spinning), 20)
    signatures = [space.signature(c.configuration) for c in found]
    assert len(set(signatures)) == len(signatures) >= 4
    assert space.signature({}) not in signatures
    assert all(c.source for c in found)
    first = found[0].configuration
    assert space.penalty(first) < space.penalty({})


def test_candidates_keep_to_the_limit(spinning, space):
    found = derive(spinning)
    for limit in (0, 1, 2, 3):
        assert len(search.candidates(space, found, limit)) == limit


def test_each_hypothesis_gets_a_first_remedy_before_one_gets_a_third(spinning, space):
    found = derive(spinning)
    sources = [c.source for c in search.candidates(space, found, 4)]
    assert max(map(sources.count, sources)) <= 2 or len(set(sources)) == 1


def test_without_hypotheses_no_candidates(space):
    assert search.candidates(space, (), 10) == []


def test_the_prediction_prefers_quiet_pools(space):
    assert space.penalty({"OPENBLAS_NUM_THREADS": "1"}) < space.penalty({})
    assert space.penalty({"OMP_WAIT_POLICY": "active"}) >= space.penalty({})
    assert space.penalty({"OPENBLAS_THREAD_TIMEOUT": "4"}) < space.penalty({})


def test_everything_at_one(space):
    everything = search.quiet_everywhere(space)
    assert set(everything.values()) == {"1"}
    pools = space.system(everything).pools
    assert {p.amount for p in pools} == {1.0}


# ------------------------------------------------------------------ tunables


@pytest.mark.parametrize(
    ("domain", "cores", "expected"),
    [
        ("1..16", 2, ["2", "1", "4"]),
        ("1..16", 8, ["8", "1", "4", "16"]),
        ("4..8", 2, ["4"]),
        ("1..2", 16, ["2", "1"]),
        ("10,30,20", 2, ["10"]),
        ("a,b,c,d,e,f", 2, ["a", "b", "c", "d"]),
    ],
)
def test_the_first_values_to_look_at(domain, cores, expected):
    assert search.tunable_values(parse_tunable(f"N={domain}", "env"), cores) == expected


# -------------------------------------------------------------------- escape


def test_the_escape_leaves_what_was_predicted(spinning):
    space = search.Space(spinning, (parse_tunable("BATCH=1..8", "env"),))
    predicted = search.candidates(space, derive(spinning), 100)
    tried = {space.signature({}), *(space.signature(c.configuration) for c in predicted)}
    found = search.escape(space, tried, {}, random.Random(0))
    assert found.source == "outside"
    assert "BATCH" in found.configuration
    assert space.signature(found.configuration) not in tried


def test_the_escape_goes_through_a_whole_space_and_then_ends(spinning):
    space = search.Space(spinning, (parse_tunable("BATCH=1..6", "env"),))
    tried, rng = {space.signature({})}, random.Random(3)
    values = []
    while (found := search.escape(space, tried, {}, rng)) is not None:
        signature = space.signature(found.configuration)
        assert signature not in tried, "measured twice"
        tried.add(signature)
        values.append(found.configuration.get("BATCH"))
    assert sorted(v for v in values if v) == ["1", "2", "3", "4", "5", "6"]


def test_the_escape_is_decided_by_the_seed(spinning):
    space = search.Space(spinning, (parse_tunable("BATCH=1..100", "env"),))
    one, same, other = (search.escape(space, set(), {}, random.Random(s)).configuration for s in (1, 1, 2))
    assert one == same != other


def test_nothing_outside_of_an_empty_space():
    space = search.Space(situation(run(), on=machine()), ())
    assert search.escape(space, {space.signature({})}, {}, random.Random(0)) is None
    assert search.quiet_everywhere(space) == {}
