"""`lpcl compose`: one system from contracts and a machine, and why each number is what it is."""

import json

import pytest

from lpcl.cli import main
from lpcl.compose import compose, machine_values
from lpcl.corpus import load, shipped
from lpcl.explain import why

MACHINE = {"logical": 8, "online": 8, "affinity": 4, "physical": 4, "cores": 2, "quota": 2, "memory": 1 << 34}


@pytest.fixture
def machine(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(MACHINE))
    return str(path)


def composed(capsys, *arguments):
    code = main(["compose", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_pools_and_controls(capsys, machine):
    code, out, _ = composed(capsys, "openblas", "libgomp", "--machine", machine, "--set", "OMP_NUM_THREADS=3", "--json")
    assert code == 0
    data = json.loads(out)
    pools = {p["name"]: p for p in data["pools"]}
    assert pools["openblas.workers"]["amount"] == 3
    assert pools["libgomp.team"]["amount"] == 3
    controls = {c["name"]: c for c in data["controls"]}
    assert (controls["openblas.threads"]["value"], controls["openblas.threads"]["set_by"]) == (3, "OMP_NUM_THREADS")
    assert data["findings"] == []
    parameter = next(p for p in data["space"]["parameters"] if p["label"] == "OPENBLAS_NUM_THREADS")
    assert (parameter["controls"], parameter["low"]) == (["openblas.threads"], 1)


def test_a_setting_that_decides_nothing_is_said(capsys, machine):
    arguments = ("openblas", "--machine", machine, "--set", "OPENBLAS_NUM_THREADS=2", "--set", "OMP_NUM_THREADS=1")
    findings = json.loads(composed(capsys, *arguments, "--set", "NOBODYS=1", "--json")[1])["findings"]
    assert [(f["kind"], f["subject"]) for f in findings] == [("unread", "NOBODYS"), ("shadowed", "openblas.threads")]
    shown = composed(capsys, *arguments)[1]
    assert "`OMP_NUM_THREADS=1` is not taken for `openblas.threads`: `OPENBLAS_NUM_THREADS` wins" in shown


def test_why(capsys, machine):
    code, out, _ = composed(capsys, "openblas", "--machine", machine, "--why", "openblas.workers.amount")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert lines[0] == "openblas.workers.amount = 4  because amount is `threads`"
    assert "openblas.threads = 4  by default, which is `min(machine.affinity, max_threads)`" in lines
    assert "machine.affinity = 4" in lines


def test_why_this_machine_names_the_source(capsys):
    _, out, _ = composed(capsys, "libgomp", "--why", "threads")
    assert "machine.affinity = " in out
    assert "(/proc/self/status)" in out


def test_used_contracts_come_along(capsys, tmp_path, machine):
    contract = 'lpcl 1\n\ncontract demo {\n  package "demo"\n  uses openblas\n}\n'
    (tmp_path / "demo.lpcl").write_text(contract)
    _, out, _ = composed(capsys, str(tmp_path / "demo.lpcl"), "--machine", machine, "--json")
    assert [p["name"] for p in json.loads(out)["pools"]] == ["openblas.workers"]


def test_a_chain_of_controls_that_need_each_other_ends(tmp_path):
    entries, _ = load([shipped()])
    system = compose([e.contract for e in entries], machine_values(MACHINE))
    assert why(system, "libgomp.spincount")
    assert why(system, "nothing.of.it") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "no contract `nosuch`"),
        (["openblas", "--why", "openblas.nothing"], "`openblas.nothing` is nothing of this system"),
        (["openblas", "--set", "X"], "`X` sets nothing"),
        (["openblas", "--machine", "{}/no.json"], "no.json"),
        (["openblas", "--machine", "{}/bad.json"], "is not JSON"),
        (["openblas", "--machine", "{}/odd.json"], "`cpus` is no machine fact"),
        (["openblas", "--machine", "{}/text.json"], "`affinity` is not a number"),
        (["{}/broken.lpcl"], "error[LP002]"),
    ],
)
def test_bad_input(capsys, tmp_path, arguments, message):
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "odd.json").write_text('{"cpus": 3}')
    (tmp_path / "text.json").write_text('{"affinity": "3"}')
    (tmp_path / "broken.lpcl").write_text("contract {")
    code, out, err = composed(capsys, *(a.replace("{}", str(tmp_path)) for a in arguments))
    assert code == 2
    assert out == ""
    assert message in err
