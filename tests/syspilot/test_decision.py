"""The record of a decision: kept, read back, refused, and exported for others to load."""

import json
import os
import re
import subprocess

import pytest

from syspilot.app import parse_tunable
from syspilot.decision import Decision, export, key_of, load, save
from syspilot.records import SCHEMA_VERSION
from syspilot.tune import tune
from tests.syspilot.apps import made_up

NASTY = {
    "PLAIN": "1",
    "DOTTED": "1.5",
    "EMPTY": "",
    "SPACES": "  two  words ",
    "QUOTES": 'it\'s "quoted"',
    "DOLLAR": "$HOME ${PATH} $(id) $",
    "BACKSLASHES": "a\\b\\\\c\\n \\$ \\",
    "BACKTICKS": "`id`",
    "HASH": "a # b",
    "EQUALS": "a=b=c",
    "BANG": "hi!there",
    "TILDE": "~",
    "GLOB": "*?[a-z]",
    "SEMICOLON": "a; exit 1 & | < >",
    "UNICODE": "grün ②",
    "TAB": "a\tb",
}
LINES = {"LINES": "one\ntwo\n", "LAST": "x\n"}


@pytest.fixture(scope="module")
def found():
    """A decision of a session that never ran, with a gain."""
    session = made_up.session(
        lambda c, _: made_up.run(wall_s=1.0 if c.get("KNOB") == "2" else 4.0),
        tunables=[parse_tunable("KNOB=1..3", "env")],
    )
    decision = tune(session)
    assert decision.configuration == {"KNOB": "2"}
    return decision


def having(found, configuration, **changes):
    return found.model_copy(update={"configuration": dict(configuration), **changes})


# ----------------------------------------------------------------------- store


def test_what_is_saved_is_read_back(found, tmp_path):
    path = save(found, tmp_path / "deep" / "folder")
    assert path.name == "tune.json"
    assert load(path) == found
    assert [p.name for p in path.parent.iterdir()] == ["tune.json"], "no temporary file stays"
    save(having(found, {}), path.parent)
    assert load(path).configuration == {}


@pytest.mark.parametrize("configuration", [NASTY, LINES], ids=["nasty", "lines"])
def test_any_value_is_kept(found, tmp_path, configuration):
    assert load(save(having(found, configuration), tmp_path)).configuration == configuration


def test_modes_do_not_overwrite_each_other(found, tmp_path):
    save(found, tmp_path)
    save(found.model_copy(update={"mode": "doctor"}), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["doctor.json", "tune.json"]


def test_a_newer_schema_is_refused(found, tmp_path):
    path = tmp_path / "tune.json"
    data = {**json.loads(found.model_dump_json()), "schema_version": SCHEMA_VERSION + 1, "news": 1}
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="newer release") as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert f"schema {SCHEMA_VERSION + 1}, this one reads {SCHEMA_VERSION}" in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "{}", "null", '"decision"', "3", '{"schema_version": "1"}'])
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "tune.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is no decision of syspilot") as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"not json", b"\xff\xfe", b'{"schema_version": 1}', b"[" * 100_000])
def test_a_broken_file_is_refused_by_name(tmp_path, data):
    path = tmp_path / "tune.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is no decision of syspilot") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_command_is_known_by_its_arguments_and_folder(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    keys = {
        key_of(["python", "a b"], tmp_path),
        key_of(["python", "a", "b"], tmp_path),
        key_of(["python", "a b"], other),
    }
    assert len(keys) == 3
    assert key_of(["python", "a b"], other / "..") in keys
    assert all(re.fullmatch(r"[0-9a-f]{16}", k) for k in keys)


# --------------------------------------------------------------------- exports


def in_bash(text, tmp_path, names, script):
    """The values that these names have in the environment of a program that bash starts after the script."""
    (tmp_path / "file").write_text(text, "utf-8")
    done = subprocess.run(
        ["bash", "-c", script + "\nenv -0"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == b""
    pairs = dict(x.split("=", 1) for x in done.stdout.decode().split("\0") if x)
    return {k: pairs.get(k) for k in names}


@pytest.mark.parametrize("configuration", [NASTY, LINES], ids=["nasty", "lines"])
@pytest.mark.parametrize(
    ("form", "script"), [("env", "set -a; . ./file; set +a"), ("sh", ". ./file")], ids=["env", "sh"]
)
def test_bash_reads_what_was_decided(found, tmp_path, form, script, configuration):
    text = export(having(found, configuration), form)
    assert in_bash(text, tmp_path, configuration, script) == configuration


def env_file(text):
    """Strictly `NAME=word` or `NAME="text"` with backslashes before what needs them, comments and empty lines."""
    values = {}
    line = re.compile(
        r"""(?: \#[^\n]* | ([A-Za-z_][A-Za-z0-9_]*) = (?: ([\w.]+) | "((?:[^"\\$`]|\\["\\$`])*)" ) | ) \n""", re.VERBOSE
    )
    at = 0
    while at < len(text):
        match = line.match(text, at)
        assert match, text[at : at + 80]
        at = match.end()
        if match[1]:
            assert match[1] not in values
            values[match[1]] = match[2] if match[3] is None else re.sub(r"\\(.)", r"\1", match[3])
    return values


def test_an_env_file_is_strict(found):
    assert env_file(export(having(found, NASTY | LINES), "env")) == NASTY | LINES
    assert env_file(export(found, "env")) == {"KNOB": "2"}
    assert env_file(export(having(found, {}), "env")) == {}


def dockerfile(text):
    """`ENV NAME="text"` as a Dockerfile's own rules read it: a backslash escapes only `"`, `$` and itself."""
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r'ENV ([A-Za-z_]\w*)="((?:[^"\\$]|\\.)*)"', line)
        assert match, line
        values[match[1]] = re.sub(r'\\(["$\\])', r"\1", match[2])
    return values


def test_a_dockerfile_has_a_line_for_each(found):
    nasty = {k: v for k, v in NASTY.items() if k != "BACKTICKS"}
    text = export(having(found, nasty), "dockerfile")
    assert dockerfile(text) == nasty
    assert len(text.splitlines()) == 2 + len(nasty)


def test_a_backtick_in_a_dockerfile(found):
    assert dockerfile(export(having(found, {"X": "`id`"}), "dockerfile")) == {"X": "`id`"}


def test_a_dockerfile_cannot_hold_lines(found):
    text = export(having(found, {"X": "one\nRUN two"}), "dockerfile")
    assert not any(line.startswith("RUN") for line in text.splitlines())


@pytest.mark.parametrize("form", ["env", "sh", "dockerfile"])
def test_arguments_are_named_in_a_comment(found, form):
    decision = having(found, {"OMP_NUM_THREADS": "1", "jobs": "2"}, params={"jobs": "--jobs {}"})
    lines = export(decision, form).splitlines()
    assert "# start it with --jobs 2" in lines
    assert not any("jobs" in line for line in lines if not line.startswith("#"))
    assert any("OMP_NUM_THREADS" in line for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("form", ["env", "sh", "dockerfile"])
def test_the_head_says_what_it_is(found, form):
    text = export(found, form)
    assert text.startswith("# syspilot: python app.py\n# 4.00x the default (95 % interval")
    nothing = export(having(found, {}, ratio=None, ci95=None), form)
    assert "no setting is better than the default" in nothing
    assert all(line.startswith("#") for line in nothing.splitlines())


@pytest.mark.parametrize("form", ["env", "sh", "dockerfile"])
def test_nothing_of_the_command_escapes_its_comment(found, form):
    decision = having(found, {"A": "1"}, command=("python", "-c", "x\nB=1\r\nexport C=2"), params={})
    lines = re.split(r"[\n\r]", export(decision, form))
    assert not any(re.match(r"(B|export C|ENV B)", line) for line in lines)


def test_a_decision_is_strict():
    with pytest.raises(ValueError, match="Field required"):
        Decision.model_validate({"schema_version": 1})
