"""`syspilot synth` as a user runs it: a process with arguments, an exit code, and two streams of text."""

import io
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("syspilot")
SOURCE = """\
import os

threads = int(os.environ.get("PKG_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or "4")
checked = os.environ.get("PKG_THREADS_DEBUG")
os.environ["MKL_NUM_THREADS"] = "1"


def set_num_threads(n):
    global threads
    threads = n


def run(work, n_jobs=2):
    return work, n_jobs
"""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def folder(base, source=SOURCE, name="pkg"):
    root = base / f"{name}-src"
    (root / name).mkdir(parents=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1.0"\n')
    (root / name / "__init__.py").write_text(source)
    return root


@pytest.fixture
def synth(tmp_path):
    def run(*args, **env):
        command = [COMMAND, "synth", *map(str, args), "--cache", str(tmp_path / "cache")]
        clean = {k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONWARNINGS"}}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False, env=clean | env
        )

    return run


@pytest.fixture
def entry(tmp_path, synth):
    """A corpus with one entry, in `out`."""
    done = synth(folder(tmp_path), "--out", "out")
    assert done.returncode == 0, done.stderr
    return tmp_path / "out"


def one_message(stderr):
    """The message, if stderr holds exactly one, with its help."""
    lines = stderr.splitlines()
    assert lines[0].startswith("syspilot: error: ")
    assert len(lines) <= 2
    assert all(line.startswith("  help: ") for line in lines[1:])
    return lines[0].removeprefix("syspilot: error: ")


# ------------------------------------------------------------------------ text


def test_text(tmp_path, synth):
    done = synth(folder(tmp_path), "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *rest = done.stdout.splitlines()
    assert first == "pkg 1.0: 2 controls, 1 mitigation"
    assert re.fullmatch(
        r"  from pkg-src \(unverified\), 1 files, 0\.00 MB, \d+ pieces of evidence, \d+\.\d s; "
        r"drafter: rules, no model was used",
        second,
    )
    assert rest == ["  no controls: PKG_THREADS_DEBUG", "  out/pkg"]


def test_nothing_to_state(tmp_path, synth):
    done = synth(folder(tmp_path, "def add(a, b):\n    return a + b\n"), "--out", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "pkg 1.0: nothing to state: no control, pool or signal in 1 files\n"


def test_the_default_folder(tmp_path, synth):
    assert synth(folder(tmp_path)).returncode == 0
    assert (tmp_path / "contracts/pkg/contract.lpcl").is_file()


def test_json(tmp_path, synth):
    done = synth(folder(tmp_path), tmp_path / "missing.whl", "--out", "out", "--json")
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert list(found) == ["results"]
    good, bad = found["results"]
    assert good | {"seconds": 0, "bytes": 0, "sha256": ""} == {
        "target": str(tmp_path / "pkg-src"),
        "name": "pkg",
        "version": "1.0",
        "kind": "folder",
        "sha256": "",
        "verified": "unverified",
        "folder": "out/pkg",
        "drafter": "rules",
        "clauses": {"demands": 0, "assumptions": 0, "controls": 2, "signals": 0, "mitigations": 1},
        "evidence": good["evidence"],
        "rejected": [
            {
                "name": "PKG_THREADS_DEBUG",
                "why": "diagnostics: it changes what is printed, not what is taken from the machine",
                "place": "pkg/__init__.py:4",
            }
        ],
        "dropped": [],
        "skipped": [],
        "files": 1,
        "bytes": 0,
        "seconds": 0,
        "nothing": "",
        "error": None,
    }
    assert re.fullmatch("[0-9a-f]{64}", good["sha256"])
    assert good["bytes"] == len(SOURCE)
    assert set(bad) == set(good)
    assert (bad["name"], bad["folder"], bad["clauses"]) == (None, None, {})
    assert bad["error"]["code"] == 2
    assert bad["error"]["message"].startswith("no file or folder")
    assert bad["error"]["help"]


def test_skipped_files_are_in_the_json(tmp_path, synth):
    root = folder(tmp_path)
    (root / "pkg/broken.py").write_text("def (:\n")
    (root / "pkg/link.py").symlink_to("/etc/passwd")
    (root / "pkg/binary.c").write_bytes(b"\0\0")
    done = synth(root, "--out", "out", "--json")
    skipped = {s["file"]: s["why"] for s in json.loads(done.stdout)["results"][0]["skipped"]}
    assert skipped["pkg/link.py"] == "symbolic link"
    assert skipped["pkg/binary.c"] == "binary"


# ------------------------------------------------------------------ exit codes


def test_no_targets(synth):
    done = synth("--out", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert one_message(done.stderr) == "no target named"


def test_unknown_options(synth):
    done = synth("x", "--prefer", "source")
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'source'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing.tar.gz", "missing.tar.gz: no file or folder `missing.tar.gz`"),
        ("./missing", "./missing: no file or folder `./missing`"),
        ("not a name", "not a name: `not a name` is not a project, requirement or path"),
        ("pkg=1.0", "pkg=1.0: `pkg=1.0` is not a project, requirement or path"),
        ("", ": the target is empty"),
        (
            "no-such-project-of-ours",
            "no-such-project-of-ours: no project named `no-such-project-of-ours` on the configured index",
        ),
    ],
)
def test_bad_targets(tmp_path, synth, target, message):
    (tmp_path / "links").mkdir()
    done = synth(target, "--out", "out", "--no-index", "--find-links", tmp_path / "links")
    assert (done.returncode, done.stdout) == (2, "")
    assert one_message(done.stderr) == message
    assert not (tmp_path / "out").exists()


def test_a_url_is_refused_and_its_password_not_shown_by_us(tmp_path, synth):
    done = synth("https://user:hunter2@example.invalid/pkg-1.0.tar.gz", "--out", "out", "--json")
    assert done.returncode == 2
    assert "hunter2" not in json.loads(done.stdout)["results"][0]["error"]["message"]


def test_a_password_in_a_target_is_not_shown(synth):
    done = synth("https://user:hunter2@example.invalid/pkg-1.0.tar.gz", "--out", "out")
    assert "hunter2" not in done.stderr


def closed_port():
    """A loopback port on which nobody listens: bound, never listening, as long as the socket lives."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return held


def test_an_index_that_cannot_be_reached(tmp_path, synth):
    with closed_port() as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}/simple"
        done = synth(
            "pkg==1.0",
            "--out",
            "out",
            "--index-url",
            url,
            PIP_CONFIG_FILE="/dev/null",
            PIP_RETRIES="0",
            PIP_FIND_LINKS="",
        )
    assert (done.returncode, done.stdout) == (3, "")
    assert one_message(done.stderr).startswith("pkg==1.0: ")
    assert not (tmp_path / "out").exists()


def test_the_worst_code_wins_and_good_targets_are_written(tmp_path, synth):
    root = folder(tmp_path)
    with closed_port() as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}/simple"
        done = synth(
            *(root, "missing.whl", "pkg==1.0"),
            *("--out", "out", "--index-url", url),
            PIP_CONFIG_FILE="/dev/null",
            PIP_RETRIES="0",
            PIP_FIND_LINKS="",
        )
    assert done.returncode == 3
    assert done.stdout.startswith("pkg 1.0: ")
    assert done.stderr.count("syspilot: error: ") == 2
    assert (tmp_path / "out/pkg/contract.lpcl").is_file()


def test_offline_without_a_cache(synth):
    done = synth("numexpr", "--offline", "--no-index", "--out", "out")
    assert done.returncode == 2
    assert one_message(done.stderr)


def test_the_output_folder_is_a_file(tmp_path, synth):
    (tmp_path / "file").touch()
    done = synth(folder(tmp_path), "--out", "file")
    assert (done.returncode, done.stdout) == (2, "")
    assert one_message(done.stderr) == "`file` is not a folder"


# ------------------------------------------------------------- hostile archives


def hostile(base, members):
    path = base / "pkg-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {
            "pkg-1.0/PKG-INFO": "Name: pkg\nVersion: 1.0\n",
            "pkg-1.0/pkg/__init__.py": SOURCE,
        }.items():
            add(tar, tarfile.TarInfo(name), content.encode())
        for member in members:
            add(tar, member, b"pwned" if member.isreg() else None)
    return path


def add(tar, member, content):
    member.size = len(content or b"")
    tar.addfile(member, None if content is None else io.BytesIO(content))


def member(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def outside(tmp_path):
    return {
        "absolute": [member(str(tmp_path / "pwned"))],
        "above": [member("pkg-1.0/../../../../../../../../../../" + str(tmp_path / "pwned").lstrip("/"))],
        "through a link": [
            member("pkg-1.0/pkg/away", tarfile.SYMTYPE, str(tmp_path)),
            member("pkg-1.0/pkg/away/pwned"),
        ],
        "over the file of a link": [
            member("pkg-1.0/pkg/note", tarfile.SYMTYPE, str(tmp_path / "pwned")),
            member("pkg-1.0/pkg/note"),
        ],
        "hard link": [
            member("pkg-1.0/pkg/hard", tarfile.LNKTYPE, "../../../../../../../../etc/hostname"),
            member("pkg-1.0/../pwned"),
        ],
    }


@pytest.mark.parametrize("attack", ["absolute", "above", "through a link", "over the file of a link", "hard link"])
def test_a_malicious_sdist(tmp_path, synth, attack):
    (tmp_path / "dist").mkdir()
    path = hostile(tmp_path / "dist", outside(tmp_path)[attack])
    done = synth(path, "--out", "out")
    assert not (tmp_path / "pwned").exists()
    assert {p.name for p in tmp_path.iterdir()} <= {"dist", "out", "cache"}
    assert "Traceback" not in done.stderr
    if done.returncode != 0:
        # refused whole
        assert done.returncode == 2
        assert done.stdout == ""
        assert one_message(done.stderr)
        assert not (tmp_path / "out").exists()
    else:
        # or the entry of the archive was left out
        assert sorted(p.name for p in (tmp_path / "out/pkg").iterdir()) == [
            "METADATA.toml",
            "contract.lpcl",
            "evidence.jsonl",
        ]
        assert "pwned" not in (tmp_path / "out/pkg/evidence.jsonl").read_text()


@pytest.mark.parametrize("attack", ["absolute", "above"])
def test_a_path_out_of_the_archive_is_refused(tmp_path, synth, attack):
    (tmp_path / "dist").mkdir()
    done = synth(hostile(tmp_path / "dist", outside(tmp_path)[attack]), "--out", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert one_message(done.stderr)


# ------------------------------------------------------------------- explain


def test_explain_a_clause(entry, synth):
    done = synth("--explain", "pkg.threads", "--out", entry)
    assert (done.returncode, done.stderr) == (0, "")
    assert "control threads: int {" in done.stdout
    assert 'env "PKG_NUM_THREADS" read import' in done.stdout
    assert "pkg/__init__.py:3" in done.stdout
    line = SOURCE.splitlines()[2]
    assert f"      3 | {line}" in done.stdout


@pytest.mark.parametrize(
    "wanted",
    ["threads", "PKG_NUM_THREADS", "OMP_NUM_THREADS", "pkg.set_num_threads", "pkg.set_num_threads()"],
)
def test_explain_by_any_of_its_names(entry, synth, wanted):
    done = synth("--explain", wanted, "--out", entry)
    assert done.returncode == 0
    assert "contract pkg {\n  control threads: int {" in done.stdout


def test_explain_a_parameter_and_a_mitigation(entry, synth):
    assert "param pkg.run(n_jobs) at call" in synth("--explain", "pkg.run(n_jobs=)", "--out", entry).stdout
    assert 'sets env "MKL_NUM_THREADS"' in synth("--explain", "MKL_NUM_THREADS", "--out", entry).stdout


@pytest.mark.parametrize("wanted", ["pkg.thread", "pkg.nothing", "other.threads", "NO_SUCH", ".", "\x1b[31m"])
def test_explain_an_unknown_clause(entry, synth, wanted):
    done = synth("--explain", wanted, "--out", entry)
    assert (done.returncode, done.stdout) == (2, "")
    assert one_message(done.stderr).startswith("no clause `")
    assert "pkg." in done.stderr or "for example" in done.stderr


def test_explain_knows_the_shipped_contracts(tmp_path, synth):
    done = synth("--explain", "OPENBLAS_NUM_THREADS", "--out", tmp_path / "missing")
    assert done.returncode == 0
    assert "contract openblas {" in done.stdout


def test_the_file_s_own_evidence_is_shown(entry, synth):
    # the lines come from the sidecar, not from a release that may be gone
    (entry.parent / "pkg-src/pkg/__init__.py").unlink()
    assert SOURCE.splitlines()[2] in synth("--explain", "pkg.threads", "--out", entry).stdout


# ------------------------------------------------------------------- terminals


ESC = "\x1b]0;pwned\x07\x1b[31m\x9b2J"


def test_control_characters_of_sources_do_not_reach_the_terminal(tmp_path, synth):
    source = f'import os\nthreads = int(os.environ.get("PKG_NUM_THREADS", "4"))  # {ESC}\n'
    done = synth(folder(tmp_path, source), "--out", "out")
    told = synth("--explain", "pkg.threads", "--out", "out")
    assert done.returncode == told.returncode == 0
    assert "PKG_NUM_THREADS" in told.stdout
    assert CONTROL.findall(done.stdout + done.stderr + told.stdout + told.stderr) == []


@pytest.mark.parametrize("where", ["note", "file", "detail"])
def test_control_characters_elsewhere_do_not_reach_the_terminal(tmp_path, synth, where):
    source = {
        "note": f'import os\nthreads = int(os.environ.get("PKG_NUM_THREADS", f("{ESC}")))\n',
        "file": 'import os\nthreads = int(os.environ.get("PKG_NUM_THREADS", "4"))\n',
        "detail": (
            "import os\nfrom concurrent.futures import ThreadPoolExecutor\n"
            f'threads = int(os.environ.get("PKG_NUM_THREADS", "4"))  # {ESC}\npool = ThreadPoolExecutor(threads)\n'
        ),
    }[where]
    root = folder(tmp_path, source)
    if where == "file":
        (root / "pkg/__init__.py").rename(root / f"pkg/{ESC}.py")
    if where == "detail":
        source = source.replace("# ", "if os else f('").replace("\npool", "')\npool")
        (root / "pkg/__init__.py").write_text(source)
    done = synth(root, "--out", "out")
    assert done.returncode == 0
    wanted = "pkg.thread_pool_executor" if where == "detail" else "pkg.threads"
    told = synth("--explain", wanted, "--out", "out")
    # a file with such a name may be left out
    assert told.returncode == 0 or where == "file", told.stderr
    assert CONTROL.findall(done.stdout + done.stderr + told.stdout + told.stderr) == []


def test_control_characters_of_targets_do_not_reach_the_terminal(tmp_path, synth):
    root = folder(tmp_path).rename(tmp_path / "a\x1b[31mb")
    done = synth(root, "./no\x1b[31msuch", "--out", "out")
    assert CONTROL.findall(done.stdout + done.stderr) == []


def test_no_progress_where_colour_is_forced(tmp_path, synth):
    done = synth(folder(tmp_path), "--out", "out", FORCE_COLOR="1")
    assert (done.returncode, done.stderr) == (0, "")


def on_a_terminal(tmp_path, *args):
    """Run with stderr and stdout on a pseudo-terminal; what came out, and the exit code."""
    master, slave = pty.openpty()
    command = [COMMAND, "synth", *map(str, args), "--cache", str(tmp_path / "cache")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=tmp_path) as process:
        os.close(slave)
        out = b""
        while True:
            ready, _, _ = select.select([master], [], [], 120)
            assert ready, "the command hangs"
            try:
                part = os.read(master, 65536)
            except OSError:  # the last writer went away
                break
            if not part:
                break
            out += part
        code = process.wait(120)
    os.close(master)
    return out.decode(errors="replace"), code


def test_progress_on_a_terminal(tmp_path):
    out, code = on_a_terminal(tmp_path, folder(tmp_path), "--out", "out")
    assert code == 0
    assert "\x1b[?25l" in out, "progress hides the cursor ..."
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h"), "... and shows it again"
    assert "pkg 1.0: 2 controls, 1 mitigation" in out


def test_a_target_that_looks_like_mark_up(tmp_path):
    root = folder(tmp_path)
    (tmp_path / "[").mkdir()
    root.rename(tmp_path / "[/red]")
    out, code = on_a_terminal(tmp_path, "./[/red]", "--out", "out")
    assert "Traceback" not in out
    assert code == 0
