"""The command line as people use it: real processes, good and bad input, and nothing left behind."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from syspilot.cli import EXAMPLES, _parser
from syspilot.decision import Decision

APPS = Path(__file__).parent / "apps"
PYTHON = [sys.executable, "-S", "-E"]  # starts quickly
SYSPILOT = Path(sys.executable).with_name("syspilot")
COMMANDS = ("synth", "evidence", "doctor", "tune", "run", "export", "explain")
METRIC = ["--metric", "seconds ([0-9.]+)"]
LIMIT_S = 120
ENVIRON = {k: v for k, v in os.environ.items() if k not in {"KNOB", "COLUMNS", "PYTHONUNBUFFERED"}}


@pytest.fixture
def marker():
    """An argument by which the application's processes are found; none may be there at the end."""
    text = f"marker-{uuid.uuid4().hex}"
    yield text
    assert processes_with(text) == []


def processes_with(marker):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if marker.encode() in arguments:
            found.append(arguments)
    return found


@pytest.fixture
def syspilot(tmp_path):
    """Runs `syspilot` in an empty folder."""

    def call(*arguments):
        return subprocess.run(
            [SYSPILOT, *map(str, arguments)],
            cwd=tmp_path,
            env=ENVIRON,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return call


def misbehave(*arguments):
    return ["--", *PYTHON, APPS / "misbehave.py", *arguments]


def knob(*arguments):
    return ["--", *PYTHON, APPS / "knob.py", *arguments]


def refused(done, *words, code=2):
    """The command failed with a message and a fix, and printed no result."""
    assert done.returncode == code, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert re.search(r"^syspilot: error: .+\n  help: .+$", done.stderr, re.MULTILINE), done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


# ------------------------------------------------------------------------ help


def test_help_of_all(syspilot):
    done = syspilot("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^ +{command} +\w", done.stdout, re.MULTILINE)
    assert re.fullmatch(r"syspilot \d+\.\d+\S*\n", syspilot("--version").stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each(syspilot, command):
    done = syspilot(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: syspilot {command} ")
    assert "example" in done.stdout


def helps():
    """The help of the program and of each command."""
    parser = _parser()
    (commands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return [parser.format_help(), *(commands.choices[c].format_help() for c in COMMANDS)]


def test_each_example_can_be_typed():
    lines = [x for text in helps() for x in re.findall(r"(?:^  |example: )(syspilot [a-z]+ .*)", text, re.MULTILINE)]
    typed = [shlex.split(re.split(r" {3,}", line)[0])[1:] for line in lines]
    assert {words[0] for words in typed} == set(COMMANDS)
    assert len(typed) >= 12
    for words in typed:
        cut = words.index("--") if "--" in words else len(words)
        options = _parser().parse_args(words[:cut])  # exits where it cannot be read
        assert callable(options.call)
        assert words[cut + 1 :] or words[0] in {"synth", "evidence"}


def test_the_exit_codes_are_told():
    assert "exit codes: 0 fine" in EXAMPLES


def test_the_usage_names_what_is_needed():
    export = helps()[1 + COMMANDS.index("export")]
    assert "dockerfile" in export.partition("\n")[0]


# -------------------------------------------------------------------- bad usage


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["tune", "python", "app.py"], ["tune", "--nonsense", "--", "true"], ["export", "--", "true"]],
)
def test_usage_errors(syspilot, arguments):
    done = syspilot(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: syspilot" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("command", "arguments"), [("doctor", []), ("tune", ["--"])])
def test_no_application(syspilot, command, arguments):
    refused(syspilot(command, *arguments), "no application to run", f"syspilot {command} -- python app.py")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metric", "seconds (["], ["`seconds ([` is no regular expression"]),
        (["--env", "KNOB"], ["`KNOB` is no tunable", "--env APP_JOBS=1..16"]),
        (["--env", "KNOB=6..1"], ["the range of `KNOB=6..1` is empty"]),
        (["--env", "KNOB=1..100000"], ["more than", "LOW..HIGH..STEP"]),
        (["--param", "jobs=1..4"], ["has no argument with one `{}`", '--param workers=1..16:"--workers {}"']),
        (["--param", "jobs=1..4:--jobs"], ["has no argument"]),
        (["--contracts", "nowhere"], ["`nowhere` is no folder of contracts"]),
        (["--max-runs", "0"], ["`--max-runs` must be at least 1"]),
    ],
)
def test_bad_options(syspilot, options, words, tmp_path):
    started = tmp_path / "started"
    refused(syspilot("tune", "--json", *options, "--", "touch", started), *words)
    assert not started.exists(), "the application ran before its options were looked at"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--env", "A=1..2", "--param", 'A=1..2:"--a {}"'], "`A` is given twice"),
        (["--env", "A.B=1..2"], "`A.B=1..2` is no tunable"),
        (["--output", "x.env"], "`--output` without `--export`"),
    ],
    ids=["twice", "no variable", "output alone"],
)
def test_options_that_do_not_go_together(syspilot, options, word):
    refused(syspilot("tune", *options, *knob()), word)


@pytest.mark.parametrize("limit", ["0", "-1", "nan"])
def test_a_limit_that_is_no_time(syspilot, limit):
    done = syspilot("doctor", f"--timeout={limit}", "--", "true")
    refused(done, "--timeout")
    assert "did not end" not in done.stderr


@pytest.mark.parametrize("option", ["--state", "--report"])
def test_where_nothing_can_be_written(syspilot, tmp_path, option):
    (tmp_path / "file").touch()
    done = syspilot("doctor", option, tmp_path / "file" / "below", "--", "true")
    assert done.returncode in {2, 3}
    assert "Traceback" not in done.stderr
    assert "file" in done.stderr


# -------------------------------------------------------- applications that fail


@pytest.mark.parametrize("output", [[], ["--json"]], ids=["text", "json"])
def test_an_application_that_fails(syspilot, marker, output):
    done = syspilot("tune", *output, *misbehave("exit", marker))
    refused(done, "the application failed: exited with code 3", "run it without syspilot")
    tail = [line for line in done.stderr.splitlines() if line.startswith("  | ")]
    assert tail == [f"  | line {n} of the traceback" for n in range(3, 8)]


def test_an_application_that_hangs(syspilot, marker):
    done = syspilot("tune", "--json", "--timeout", "1", *misbehave("hang", marker))
    refused(done, "the application did not end within 1 s", "--timeout SECONDS")


def test_an_application_that_is_not_there(syspilot):
    refused(syspilot("tune", "--json", "--", "./nowhere", "x"), "could not be started", "behind `--`")


def test_an_application_that_forks_away(syspilot, marker):
    refused(syspilot("doctor", "--json", *misbehave("fork-away", marker)), "forks away", "foreground")


def test_an_application_without_its_number(syspilot, marker):
    done = syspilot("tune", "--json", *METRIC, *misbehave("quiet", marker))
    refused(done, "printed nothing that matches `seconds ([0-9.]+)`", "run it once by hand")


def test_an_application_in_which_nothing_helps(syspilot, marker):
    arguments = ["tune", *METRIC, "--env", "KNOB=1..3", *knob("--default", "0.5", "--marker", marker)]
    done = syspilot(*arguments)
    assert done.returncode == 1
    assert "leave it as it is" in done.stdout
    assert re.search(r"\d runs of the application", done.stdout)
    assert re.search(r"^run +1 .*default: 0.5", done.stderr, re.MULTILINE)
    as_json = syspilot("tune", "--json", "--exit-zero", *arguments[1:])
    assert (as_json.returncode, as_json.stderr) == (0, "")
    decision = Decision.model_validate_json(as_json.stdout)
    assert decision.configuration == {}
    assert not decision.improved


def test_values_that_fail_do_not_end_the_session(syspilot, marker):
    arguments = knob("--best", "1", "--hang-at", "4", "--marker", marker)
    done = syspilot("tune", "--json", "--timeout", "2", *METRIC, "--env", "KNOB=1,4", *arguments)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["configuration"] == {"KNOB": "1"}
    statuses = {t["configuration"].get("KNOB"): t["status"] for t in data["trials"]}
    assert statuses["4"] == "timeout"


# ---------------------------------------------------------- what comes after tune


@pytest.mark.parametrize("command", [["run"], ["run", "--dry-run"], ["export", "sh"], ["explain"]])
def test_no_decision_is_stored(syspilot, command):
    done = syspilot(*command, "--", "python", "my app.py")
    refused(done, "no decision is stored for `python 'my app.py'`", "syspilot tune -- python 'my app.py'")


def test_no_command_to_look_up(syspilot):
    refused(syspilot("run"), "no application named")


@pytest.mark.parametrize(
    ("text", "words"),
    [("{}", "is no decision of syspilot"), ('{"schema_version": 999}', "written by a newer release")],
)
def test_a_file_that_is_no_decision(syspilot, tmp_path, text, words):
    (tmp_path / "x.json").write_text(text)
    refused(syspilot("run", "--decision", "x.json", "--", "true"), words, "x.json")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A folder in which the knob application was tuned, and how."""
    folder = tmp_path_factory.mktemp("tuned")
    options = ["--best", "1", "--default", "5", "--jobs", "6"]  # one job is tried whatever the number of CPUs
    app = [*PYTHON, str(APPS / "knob.py"), *options]
    command = [SYSPILOT, "tune", *METRIC, "--param", "jobs=1..8:--jobs {}", "--export", "sh", "--", *app]
    done = subprocess.run(
        command, cwd=folder, env=ENVIRON, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    return folder, app, done


@pytest.fixture
def after(tuned):
    """Runs `syspilot` where something was tuned, for that application."""
    folder, app, _ = tuned

    def call(*arguments, stdout=subprocess.PIPE):
        return subprocess.run(
            [SYSPILOT, *arguments, "--", *app],
            cwd=folder,
            env=ENVIRON,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return call


def test_tune_says_what_it_found(tuned):
    folder, _, done = tuned
    assert done.returncode == 0, done.stderr
    assert re.search(r"3\.50x with jobs=1 +\(95 % interval", done.stdout)
    assert "# start it with --jobs 1" in done.stdout
    (state,) = (folder / ".syspilot").iterdir()
    assert {p.name for p in state.iterdir()} == {"tune.json", "tune.html", "tune-history.jsonl"}
    assert (state / "tune.html").read_text("utf-8").lower().startswith("<!doctype html>")
    decision = Decision.model_validate_json((state / "tune.json").read_bytes())
    assert len((state / "tune-history.jsonl").read_text("utf-8").splitlines()) == decision.runs


def test_run_uses_what_was_decided(tuned, after):
    _, app, _ = tuned
    done = after("run")
    assert (done.returncode, done.stdout) == (0, "seconds 1.000000\n")
    assert done.stderr.startswith("syspilot: ")
    dry = after("run", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert shlex.split(dry.stdout) == [*app[:-1], "1"]


def test_export_and_explain(after):
    for form in ("env", "sh", "dockerfile"):
        done = after("export", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert "# start it with --jobs 1" in done.stdout
    done = after("explain")
    assert done.returncode == 0
    assert "fresh interleaved pairs" in done.stdout


def stored(tuned, tmp_path, **changes):
    """The decision of `tuned`, changed, in a file."""
    (path,) = tuned[0].glob(".syspilot/*/tune.json")
    decision = Decision.model_validate_json(path.read_bytes()).model_copy(update=changes)
    (tmp_path / "decision.json").write_text(decision.model_dump_json())
    return ["--decision", "decision.json"]


@pytest.mark.parametrize("code", [0, 1, 7, 130])
def test_run_passes_the_exit_code_through(syspilot, tuned, tmp_path, code):
    decision = stored(tuned, tmp_path, configuration={"KNOB": "a b"}, params={})
    assert syspilot("run", *decision, *misbehave("code", code)).returncode == code


def test_run_sets_variables(syspilot, tuned, tmp_path):
    decision = stored(tuned, tmp_path, configuration={"KNOB": "it's $1\n"}, params={})
    show = ["--", sys.executable, "-S", "-c", "import os; print(ascii(os.environ['KNOB']))"]
    assert syspilot("run", *decision, *show).stdout == ascii("it's $1\n") + "\n"
    line = syspilot("run", "--dry-run", *decision, *show).stdout
    again = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert again.stdout == ascii("it's $1\n") + "\n"


def test_run_without_a_program(syspilot, tuned, tmp_path):
    refused_run = syspilot("run", *stored(tuned, tmp_path), "--", "./nowhere")
    assert refused_run.returncode == 2
    assert "`./nowhere` cannot be started" in refused_run.stderr
    assert "Traceback" not in refused_run.stderr


def test_a_decision_with_its_own_command(syspilot, tuned, tmp_path):
    assert syspilot("run", *stored(tuned, tmp_path)).stdout == "seconds 1.000000\n"


@pytest.mark.parametrize("command", [["explain"], ["export", "sh"]], ids=["explain", "export"])
def test_a_reader_that_went_away(after, command):
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = after(*command, stdout=write_end)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------------- doctor


def test_doctor_of_something_simple(syspilot, marker):
    done = syspilot("doctor", "--echo", *METRIC, *knob("--marker", marker))
    assert done.returncode == 0
    assert "no conflict between pools is predicted or seen" in done.stdout
    assert "seconds 4.000000" in done.stdout + done.stderr
    assert "1 runs of the application" in done.stdout


def test_doctor_json_and_a_report_elsewhere(syspilot, marker, tmp_path):
    report = tmp_path / "deep" / "report.html"
    done = syspilot("doctor", "--json", "--no-intervene", "--report", report, *knob("--marker", marker))
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert (data["mode"], data["runs"], data["configuration"]) == ("doctor", 1, {})
    assert report.is_file()
