"""The joint space, and its round trip through the real ConfigSpace."""

import json
import random
import warnings

import ConfigSpace
import pytest

from lpcl.cli import main
from lpcl.compose import compose, machine_values
from lpcl.configspace import export
from lpcl.corpus import load, shipped
from lpcl.parse import parse
from lpcl.space import UNSET, space

MACHINE = machine_values({"affinity": 8, "online": 8, "physical": 4, "cores": 8, "os": "linux"})


def joint(*bodies, machine=MACHINE, environ=None):
    text = "lpcl 1\n" + "\n".join(f"contract {name} {{ {body} }}" for name, body in bodies)
    parsed = parse(text)
    assert parsed.ok, parsed.diagnostics
    return space(compose(parsed.file.contracts, machine, environ))


POOLS = (
    "pools",
    """package "pools"
    control most: int { range 1 to 64 default 16 env "MOST" read import }
    control threads: int { range 1 to most default min(machine.affinity, most) env "THREADS" read import
      env "SHARED" read import }
    control least: int { range 1 to 8 default 1 env "LEAST" read import requires least < threads }
    control layer: choice("omp", "tbb", "queue") { default "omp" env "LAYER" read import }
    control chunk: int { range 1 to 100 log default 10 env "CHUNK" read import when layer == "tbb" and threads >= 2 }
    control grain: float { range 0.5 to 8 default 1 env "GRAIN" read import when layer != "queue" }
    control steps: int { range 8 to 64 step 8 default 16 env "STEPS" read import }
    control pin: bool { default false env "PIN" read import requires layer == "omp" or not pin }
    control where: text { default "" env "WHERE" read import }
    control gpu: int { range 0 to 7 default 0 env "GPU" read import when machine.os == "darwin" }
    assume few { requires threads + least <= 60 consequence hang }""",
)


def test_parameters_have_the_widest_domain_that_they_can_have():
    found = joint(POOLS)
    threads = found.parameter("THREADS")
    assert (threads.low, threads.high, threads.default, threads.controls) == (1, 64, 8, ("pools.threads",))
    assert found.parameter("pools.threads") is threads
    assert found.parameter("SHARED") is None, "one parameter for one control"
    assert found.parameter("WHERE").open
    assert found.parameter("GPU").inactive == '`machine.os == "darwin"` does not hold'


def test_a_variable_that_two_contracts_read_is_one_parameter():
    one = ("one", 'package "one" control t: int { range 1 to 8 default 4 env "T" read load }')
    two = (
        "two",
        (
            'package "two" control t: int { range 2 to 64 default 4 env "T" read load } '
            'control u: int { range 1 to 9 default 1 env "U" read load env "T" read load }'
        ),
    )
    found = joint(one, two).parameter("T")
    assert (found.low, found.high, found.default) == (2, 8, 4)
    assert found.controls == ("one.t", "two.t")
    assert found.also == ("two.u",)


def test_what_is_set_already_is_no_parameter():
    assert joint(POOLS, environ={"MOST": "4"}).parameter("MOST") is None
    assert joint(POOLS, environ={"MOST": "4"}).violations({"THREADS": 5}) != ()


@pytest.mark.parametrize(
    ("values", "broken"),
    [
        ({}, set()),
        ({"THREADS": 16}, set()),
        ({"THREADS": 17}, {"bound pools.threads"}),
        ({"THREADS": 17, "MOST": 32}, set()),
        ({"LEAST": 8}, {"requires pools.least"}),
        ({"LEAST": 8, "THREADS": 9}, set()),
        ({"CHUNK": 5}, {"when pools.chunk"}),
        ({"CHUNK": 5, "LAYER": "tbb"}, set()),
        ({"CHUNK": 5, "LAYER": "tbb", "THREADS": 1}, {"when pools.chunk"}),
        ({"GRAIN": 2.0, "LAYER": "queue"}, {"when pools.grain"}),
        ({"PIN": True, "LAYER": "tbb"}, {"requires pools.pin"}),
        ({"PIN": False, "LAYER": "tbb"}, set()),
        ({"THREADS": 60, "MOST": 64}, {"assumption pools.few"}),
    ],
)
def test_violations(values, broken):
    assert {f"{c.kind} {c.subject}" for c in joint(POOLS).violations(values)} == broken


# ----------------------------------------------------------------- ConfigSpace


def legal(there, values):
    """Whether the real library takes an assignment; its parameters that are inactive are left out."""
    try:
        ConfigSpace.Configuration(there, values=values)
    except (ConfigSpace.ForbiddenValueError, ConfigSpace.InactiveHyperparameterSetError, ValueError):
        return False
    return True


def drawn(there, rng):
    """Any value of each parameter, as if nothing depended on anything."""
    result = {}
    for name, h in there.items():
        values = getattr(h, "choices", None) or getattr(h, "sequence", None)
        result[name] = rng.choice(values) if values else h.to_value(rng.random())
    return result


def round_trip(found, samples):
    exported = export(found)
    there = exported.space
    there.seed(1)
    kept = set(exported.exported)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for configuration in there.sample_configuration(samples):
            values = dict(configuration)
            assert not kept & set(found.violations(values)), values
    rng = random.Random(1)
    counts = {True: 0, False: 0}
    for _ in range(samples):
        values = drawn(there, rng)
        broken = kept & set(found.violations(values))
        # ConfigSpace wants what is inactive to be left out; whatever depends on that is then not set either.
        inactive = {found.parameter(c.subject).label for c in broken if found.decides_activity(c)}
        values = {k: v for k, v in values.items() if k not in inactive}
        ok = not (kept & set(found.violations(values)))
        counts[ok] += 1
        assert legal(there, values) == ok, (values, found.violations(values))
    return exported, counts


def test_constraints_survive_the_round_trip():
    exported, counts = round_trip(joint(POOLS), 300)
    kinds = {(c.kind, c.subject) for c in exported.exported}
    assert kinds == {
        ("bound", "pools.threads"),
        ("requires", "pools.least"),
        ("when", "pools.chunk"),
        ("when", "pools.grain"),
        ("requires", "pools.pin"),
    }
    assert set(exported.left_out) == {"WHERE", "GPU", "pools.few"}
    assert exported.space.meta["left_out"] == exported.left_out
    assert min(counts.values()) > 20, "both sides were tried"


def test_a_choice_whose_default_is_not_known_can_be_left_unset():
    body = 'package "p" control policy: choice("a", "b") { default unknown env "POLICY" read load }'
    exported = export(joint(("p", body)))
    assert exported.space["POLICY"].choices == (UNSET, "a", "b")
    assert exported.space["POLICY"].default_value == UNSET
    assert joint(("p", body)).environ({"POLICY": UNSET}) == {}


def test_the_shipped_contracts_survive_the_round_trip():
    contracts = [e.contract for e in load([shipped()])[0]]
    found = space(compose(contracts, MACHINE))
    exported, _ = round_trip(found, 15)
    assert len(list(exported.space.values())) + len(exported.left_out) >= len(found.parameters)
    for label in exported.space:
        assert found.parameter(label) is not None


def test_the_command_writes_what_configspace_reads(capsys, tmp_path):
    path = tmp_path / "space.json"
    assert main(["compose", "openblas", "libgomp", "--configspace", str(path)]) == 0
    there = ConfigSpace.ConfigurationSpace.from_json(path)
    assert "OPENBLAS_NUM_THREADS" in there
    assert "left out: " in capsys.readouterr().err
    assert main(["compose", "openblas", "--configspace", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "lpcl"
