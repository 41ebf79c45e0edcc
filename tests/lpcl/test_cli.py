"""The command line, as a program; and what importing the package does not do."""

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from lpcl.cli import main
from lpcl.corpus import shipped

BAD = """lpcl 1
contract demo {
  package "demo"
  demand w: cpu.treads { amount 1 evidence e1 }
}
"""
GOOD = BAD.replace("cpu.treads", "memory.bytes")
CANONICAL = """lpcl 1

contract demo {
  package "demo"

  demand w: memory.bytes {
    amount 1
    evidence e1
  }
}
"""
WARNING = GOOD.replace("evidence e1", "evidence e1, e1")
BROKEN = GOOD.replace("amount", "amont")


def write(folder, text, name="demo.lpcl"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def run(*arguments):
    """The installed program, as users start it."""
    program = Path(sys.executable).parent / "lpcl"
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


# ------------------------------------------------------------------- programs


def test_the_program_checks_formats_and_shows(tmp_path):
    path = write(tmp_path, BAD)
    done = run("check", path)
    assert done.returncode == 1
    assert done.stderr == ""
    assert done.stdout == (
        f"{path}:4:13: error[LP107]: `cpu.treads` is no resource\n"
        "    4 |   demand w: cpu.treads { amount 1 evidence e1 }\n"
        "      |             ^^^^^^^^^^\n"
        "  help: did you mean `cpu.threads`?\n"
        "1 contract: 1 errors, 0 warnings\n"
    )
    done = run("show", "openblas")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (shipped() / "openblas" / "contract.lpcl").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["check", "--help"], 0),
        (["--version"], 0),
        ([], 2),
        (["nonsense"], 2),
        (["check"], 2),
        (["fmt", "--json", "x"], 2),
    ],
)
def test_usage(arguments, code, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == code
    out, err = capsys.readouterr()
    assert (out if code == 0 else err).strip()
    assert not (err if code == 0 else out)


# ---------------------------------------------------------------------- check


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BAD, 1), (WARNING, 1), (BROKEN, 1), ("", 1), (b"\xff\0", 1)])
def test_check_exit_codes(text, code, tmp_path, capsys):
    assert main(["check", str(write(tmp_path, text))]) == code
    assert capsys.readouterr().err == ""


def test_check_of_the_shipped_corpus(capsys):
    assert main(["check", str(shipped())]) == 0
    assert capsys.readouterr().out.endswith("contracts: 0 errors, 0 warnings\n")


@pytest.mark.parametrize(("text", "count"), [(GOOD, 0), (BAD, 1), (BROKEN, 1)])
def test_check_json_is_json_and_nothing_else(text, count, tmp_path, capsys):
    path = write(tmp_path, text)
    assert main(["check", "--json", str(path)]) == min(count, 1)
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert len(found) == count
    assert all(d["file"] == str(path) for d in found)
    assert err == ""


def test_check_reads_folders_and_the_evidence_beside_a_contract(tmp_path, capsys):
    write(tmp_path, GOOD, "a/contract.lpcl")
    write(tmp_path, '{"id": "e9"}\n', "a/evidence.jsonl")
    write(tmp_path, GOOD, "b/contract.lpcl")
    write(tmp_path, BAD, "b/deep/other.lpcl")
    write(tmp_path, BAD, "b/other.txt")
    assert main(["check", "--json", str(tmp_path)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(Path(d["file"]).relative_to(tmp_path).as_posix(), d["rule"]) for d in found] == [
        ("a/evidence.jsonl", "LP152"),
        ("a/contract.lpcl", "LP155"),
        ("a/contract.lpcl", "LP156"),
        ("b/deep/other.lpcl", "LP107"),
    ]


@pytest.mark.parametrize("command", ["check", "fmt"])
def test_a_missing_file_is_bad_input(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "none.lpcl")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lpcl: error: ")
    assert "none.lpcl" in err


def test_a_folder_without_contracts_is_bad_input(tmp_path, capsys):
    assert main(["check", str(tmp_path)]) == 2
    assert "no `.lpcl` file" in capsys.readouterr().err


def test_a_folder_without_contracts_is_bad_input_of_fmt_too(tmp_path, capsys):
    assert main(["fmt", str(tmp_path)]) == 2
    assert "no `.lpcl` file" in capsys.readouterr().err


# ------------------------------------------------------------------------ fmt


def test_fmt_rewrites(tmp_path, capsys):
    path = write(tmp_path, GOOD)
    assert main(["fmt", str(path)]) == 0
    assert path.read_text() == CANONICAL
    assert capsys.readouterr().out == f"changed {path}\n"
    assert main(["fmt", str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_fmt_check_changes_nothing(tmp_path, capsys):
    path = write(tmp_path, GOOD)
    assert main(["fmt", "--check", str(path)]) == 1
    assert path.read_text() == GOOD
    assert capsys.readouterr().out == f"would change {path}\n"
    assert main(["fmt", "--check", str(write(tmp_path, CANONICAL))]) == 0


def test_fmt_leaves_bad_files_alone_and_does_the_others(tmp_path, capsys):
    bad, good = write(tmp_path, BROKEN, "a.lpcl"), write(tmp_path, GOOD, "b.lpcl")
    assert main(["fmt", str(tmp_path)]) == 2
    assert bad.read_text() == BROKEN
    assert good.read_text() == CANONICAL
    assert "error[LP000]" in capsys.readouterr().err


def test_fmt_check_of_the_shipped_corpus():
    assert main(["fmt", "--check", str(shipped())]) == 0


def test_fmt_of_a_file_that_is_no_text(tmp_path, capsys):
    path = write(tmp_path, GOOD.encode() + b"// \xff\n")
    assert main(["fmt", str(path)]) == 2
    assert path.read_bytes().endswith(b"\xff\n")
    assert "error" in capsys.readouterr().err


def test_fmt_writes_the_line_ends_that_it_promises(tmp_path):
    path = write(tmp_path, CANONICAL.replace("\n", "\r\n"))
    assert main(["fmt", "--check", str(path)]) == 1
    assert main(["fmt", str(path)]) == 0
    assert path.read_bytes() == CANONICAL.encode()


# ----------------------------------------------------------------------- show


def test_show_takes_a_file_a_folder_or_a_name(tmp_path, capsys):
    path = write(tmp_path, GOOD, "lib/contract.lpcl")
    for argument in (path, path.parent):
        assert main(["show", str(argument)]) == 0
        assert capsys.readouterr().out == GOOD
    assert main(["show", "libgomp"]) == 0
    assert "contract libgomp {" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nonsense", "", "openblas/none", "/none"])
def test_show_of_an_unknown_name_lists_the_known_ones(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["show", name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"no contract `{name}`" in err
    assert ", ".join(sorted(p.parent.name for p in shipped().glob("*/contract.lpcl"))) in err


def test_show_does_not_leave_the_corpus(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["show", "../../nonsense"]) == 2


def test_show_of_a_file_that_is_no_text(tmp_path, capsys):
    assert main(["show", str(write(tmp_path, b"\xff\xfe"))]) == 2
    assert "error" in capsys.readouterr().err


# What an import leaves alone.

HEAVY = ["pydantic", "openai", "tree_sitter", "requests", "rich", "jinja2", "bs4", "numpy", "synth", "syspilot"]
MODULES = sorted(
    f"lpcl.{p.name.removesuffix('.py')}" if p.name != "__init__.py" else "lpcl"
    for p in resources.files("lpcl").iterdir()
    if p.name.endswith(".py")
)

PROBE = """
import json, logging, os, signal, socket, sys, threading
def refuse(*a, **k): raise SystemExit("network")
socket.socket.connect = refuse
before = dict(os.environ), os.getcwd(), list(sys.path), logging.root.handlers[:], signal.getsignal(signal.SIGINT)
__import__(sys.argv[1])
after = dict(os.environ), os.getcwd(), list(sys.path), logging.root.handlers[:], signal.getsignal(signal.SIGINT)
heavy = [m for m in json.loads(sys.argv[2]) if m in sys.modules]
print(json.dumps({"same": before == after, "heavy": heavy, "threads": threading.active_count()}))
"""


@pytest.mark.parametrize("module", MODULES)
def test_importing_changes_nothing_and_loads_nothing_heavy(module):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, module, json.dumps(HEAVY)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"same": True, "heavy": [], "threads": 1}
    assert done.stderr == ""


def test_help_does_not_load_the_parser():
    code = """
import sys
from lpcl.cli import main
try:
    main(["--version"])
except SystemExit:
    print("lark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.endswith("False\n")


# ---- diff, schema, other forms of output


def test_diff_tells_what_a_tuned_configuration_may_notice(tmp_path, capsys):
    old = shipped() / "openblas" / "contract.lpcl"
    new = tmp_path / "new.lpcl"
    new.write_text(old.read_text().replace("default 28", "default 26"))
    assert main(["diff", str(old), str(new)]) == 1
    out, _ = capsys.readouterr()
    assert out.startswith("behavioural[default-changed]")
    assert main(["diff", str(old), str(new), "--format", "json"]) == 1
    [change] = json.loads(capsys.readouterr().out)
    assert (change["clause"], change["kind"]) == ("control thread_timeout", "default-changed")
    assert main(["diff", str(old), str(old)]) == 0


def test_diff_of_bad_input(tmp_path, capsys):
    (tmp_path / "two.lpcl").write_text("lpcl 1\ncontract a {}\ncontract b {}\n")
    (tmp_path / "bad.lpcl").write_text("contract {")
    for name, word in (
        ("two.lpcl", "more than one contract"),
        ("bad.lpcl", "error[LP002]"),
        ("no.lpcl", "no contract"),
    ):
        assert main(["diff", "openblas", str(tmp_path / name)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert word in err


def test_show_as_json_reads_back(capsys):
    from lpcl.exchange import read_json
    from lpcl.parse import parse

    assert main(["show", "openblas", "--json"]) == 0
    file = read_json(capsys.readouterr().out)
    assert file == parse((shipped() / "openblas" / "contract.lpcl").read_text()).file


def test_schema_is_json(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org/")


@pytest.mark.parametrize("form", ["sarif", "github"])
def test_findings_in_other_forms(form, tmp_path, capsys):
    path = tmp_path / "x.lpcl"
    path.write_text("lpcl 1\ncontract a {}\n")
    assert main(["check", str(path), "--format", form]) == 1
    out, _ = capsys.readouterr()
    if form == "sarif":
        [result] = json.loads(out)["runs"][0]["results"]
        assert result["ruleId"] == "LP102"
    else:
        assert out.startswith("::error ")
        assert "LP102" in out
