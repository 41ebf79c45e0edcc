"""What the user says about the application, and what its runs show that it loads."""

import collections
import importlib.metadata

import pytest

from syspilot.app import (
    MAX_VALUES,
    Application,
    Tunable,
    UsageError,
    _owners,
    discover,
    parse_tunable,
    static_imports,
)
from tests.syspilot.apps import made_up

# ------------------------------------------------------------------ tunables


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        ("1..4", ("1", "2", "3", "4")),
        ("1..16..5", ("1", "6", "11", "16")),
        ("1..4..2", ("1", "3")),
        ("-1..1", ("-1", "0", "1")),
        ("7..7", ("7",)),
        (" 1..2 ", ("1", "2")),
        ("on,off", ("on", "off")),
        ("on, off ,on,", ("on", "off")),
        ("4,2,8", ("4", "2", "8")),
        ("../a,../b", ("../a", "../b")),
        ("a=b,c", ("a=b", "c")),
    ],
)
def test_a_variable_and_its_values(domain, values):
    assert parse_tunable(f"APP_JOBS={domain}", "env") == Tunable("APP_JOBS", "env", values)


def test_the_values_as_numbers():
    assert parse_tunable("N=1..3", "env").numbers == (1, 2, 3)
    assert parse_tunable("N=1,x", "env").numbers == ()


@pytest.mark.parametrize("template", ["--workers {}", "--workers={}", "-j{}", "{}", "--pool size={}"])
def test_an_argument_and_its_values(template):
    tunable = parse_tunable(f"workers=1..3:{template}", "param")
    assert tunable == Tunable("workers", "param", ("1", "2", "3"), template)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "JOBS",
        "=1..4",
        "JOBS=",
        "JOBS=,",
        "JOBS= , ",
        "1JOBS=1..4",
        "MY JOBS=1..4",
        "JO$BS=1..4",
        "JOBS=4..1",
        "JOBS=1..4..0",
        f"JOBS=1..{MAX_VALUES + 1}",
    ],
)
def test_bad_variables_come_with_an_example(text):
    with pytest.raises(UsageError) as caught:
        parse_tunable(text, "env")
    if text:
        assert text in str(caught.value)
    assert "--env APP_JOBS=1..16" in caught.value.help or "STEP" in caught.value.help


@pytest.mark.parametrize("text", ["JOBS=1..", "JOBS=..4", "JOBS=0.5..2", "JOBS=1...4", "JOBS=1..4..", "JOBS=1..4..-1"])
def test_a_misspelt_range_is_no_word(text):
    with pytest.raises(UsageError):
        parse_tunable(text, "env")


@pytest.mark.parametrize(
    "text",
    [
        "workers=1..4",
        "workers=1..4:",
        "workers=1..4:--workers",
        "workers=1..4:--workers {} {}",
        "workers=1..4:--workers {n}",
        "workers=1..4:--workers {0}",
        "workers=1..4:--workers {",
        "workers=1..4:'--workers {}",
        "workers=:--workers {}",
        "=1..4:--workers {}",
    ],
)
def test_bad_arguments_come_with_an_example(text):
    with pytest.raises(UsageError) as caught:
        parse_tunable(text, "param")
    assert text in str(caught.value)
    assert '--param workers=1..16:"--workers {}"' in caught.value.help


def test_a_huge_range_is_refused_before_it_is_made():
    with pytest.raises(UsageError, match="more than"):
        parse_tunable("N=1..999999999", "env")
    assert parse_tunable("N=1..999999999..500000000", "env").numbers == (1, 500000001)


# ------------------------------------------------------------------- command


def prepared(command, template, value="4"):
    application = Application(tuple(command.split()), (Tunable("jobs", "param", (), template),))
    argv, env = application.prepare({"jobs": value}, {"PATH": "/bin"})
    assert env == {"PATH": "/bin"}
    return " ".join(argv)


@pytest.mark.parametrize(
    ("command", "template", "expected"),
    [
        ("python app.py --jobs 8 in.csv", "--jobs {}", "python app.py --jobs 4 in.csv"),
        ("python app.py --jobs=8 in.csv", "--jobs={}", "python app.py --jobs=4 in.csv"),
        ("python app.py -j8", "-j{}", "python app.py -j4"),
        ("python app.py -x 1", "--jobs {}", "python app.py -x 1 --jobs 4"),
        ("python app.py", "--jobs={}", "python app.py --jobs=4"),
        ("python app.py", "{}", "python app.py 4"),
        ("python app.py --pool size=8", "--pool size={}", "python app.py --pool size=4"),
        ("--jobs app.py", "--jobs {}", "--jobs app.py --jobs 4"),  # the program itself is no flag
    ],
)
def test_an_argument_replaces_the_one_that_is_there(command, template, expected):
    assert prepared(command, template) == expected


@pytest.mark.parametrize(
    ("command", "template", "flag"),
    [
        ("python app.py --jobs=8 in.csv", "--jobs {}", "--jobs"),
        ("python app.py --jobs 8 in.csv", "--jobs={}", "--jobs"),
    ],
)
def test_an_argument_replaces_one_that_is_written_the_other_way(command, template, flag):
    words = prepared(command, template).replace("=", " ").split()
    assert words.count(flag) == 1
    assert words[words.index(flag) + 1] == "4"
    assert "in.csv" in words


def test_a_value_stays_one_argument():
    application = Application(("app", "--mode", "x"), (Tunable("mode", "param", (), "--mode {}"),))
    assert application.prepare({"mode": "a b; $(c)"}, {})[0] == ["app", "--mode", "a b; $(c)"]


def test_variables_go_into_the_environment():
    application = Application(("app",), (Tunable("APP_JOBS", "env", ("1", "2")),))
    environ = {"APP_JOBS": "9", "HOME": "/root"}
    argv, env = application.prepare({"APP_JOBS": "2", "OMP_NUM_THREADS": "1"}, environ)
    assert argv == ["app"]
    assert env == {"APP_JOBS": "2", "HOME": "/root", "OMP_NUM_THREADS": "1"}
    assert environ == {"APP_JOBS": "9", "HOME": "/root"}
    assert application.prepare({}, environ) == (["app"], environ)


# ------------------------------------------------------------ static imports


def test_imports_are_read_from_the_text(tmp_path):
    (tmp_path / "app.py").write_text(
        "import os, numpy.linalg as la\nfrom sklearn.cluster import KMeans\nfrom . import mine\n"
        "def f():\n    import joblib\nraise SystemExit('never run')\n"
    )
    assert static_imports(["python", "-u", "app.py", "x"], tmp_path) == ("joblib", "numpy", "os", "sklearn")


@pytest.mark.parametrize("text", [b"def (:", b"\0", b"\xff\xfe", b"(" * 5000])
def test_what_cannot_be_read_imports_nothing(tmp_path, text):
    (tmp_path / "app.py").write_bytes(text)
    assert static_imports(["python", "app.py"], tmp_path) == ()


def test_no_script_no_imports(tmp_path):
    (tmp_path / "folder.py").mkdir()
    assert static_imports(["python", "-m", "numpy"], tmp_path) == ()
    assert static_imports(["python", "missing.py", "folder.py"], tmp_path) == ()


# -------------------------------------------------------------------- owners


def install(site, name, version, record, top_level=None):
    """A distribution's metadata, as pip leaves it."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n" + "text\n" * 50)
    (folder / "RECORD").write_text("".join(f"{path},,\n" for path in record))
    if top_level is not None:
        (folder / "top_level.txt").write_text(top_level)


def test_who_owns_a_module(tmp_path):
    install(tmp_path, "scikit-learn", "1.9", ["sklearn/__init__.py", "scikit_learn.libs/libgomp.so"])
    install(tmp_path, "six", "1.17", ["six.py", "../../bin/six", "bin/x"])
    install(tmp_path, "native", "2", ["_native.cpython-311-x86_64-linux-gnu.so", "native-2.dist-info/METADATA"])
    install(tmp_path, "old", "3", ["whatever/__init__.py"], top_level="old\n_old\n")
    owners = _owners([str(tmp_path)])
    assert owners["sklearn"] == ("scikit-learn", "1.9")
    assert owners["six"] == ("six", "1.17")
    assert owners["_native"] == ("native", "2")
    assert owners["old"] == owners["_old"] == ("old", "3")
    assert not {"scikit_learn", "bin", "..", "whatever", "native-2"} & set(owners)


def test_broken_metadata_owns_nothing(tmp_path):
    (tmp_path / "broken-1.dist-info").mkdir()
    (tmp_path / "empty-1.dist-info").mkdir()
    (tmp_path / "empty-1.dist-info" / "METADATA").write_text("")
    assert _owners([str(tmp_path)]) == {}
    assert _owners([str(tmp_path / "missing")]) == {}


def test_the_metadata_of_a_distribution_is_read_once(tmp_path, monkeypatch):
    install(tmp_path, "large", "1", [f"large/m{n}.py" for n in range(300)])
    reads = collections.Counter()
    read_text = importlib.metadata.PathDistribution.read_text

    def counted(self, name):
        reads[name] += 1
        return read_text(self, name)

    monkeypatch.setattr(importlib.metadata.PathDistribution, "read_text", counted)
    assert _owners([str(tmp_path)]) == {"large": ("large", "1")}
    assert reads["METADATA"] <= 3


# ------------------------------------------------------------------ discovery


def test_native_runtimes_by_process_and_copy():
    other = made_up.OPENBLAS.replace("numpy", "scipy")
    run = made_up.run(
        [made_up.process(10, [made_up.OPENBLAS, made_up.LIBGOMP, "/lib/libc.so.6"]), made_up.process(11, [other])],
        reports=[made_up.inside(12, libraries=[made_up.OPENBLAS])],
    )
    found = {x.name: x for x in discover(run, made_up.entries())}
    assert set(found) == {"openblas", "libgomp"}
    assert found["openblas"].copies == (made_up.OPENBLAS, other)
    assert found["openblas"].pids == (10, 11, 12)
    assert found["libgomp"].pids == (10,)
    assert all(x.kind == "native" and x.entry is not None for x in found.values())


def test_packages_by_their_metadata(tmp_path):
    install(tmp_path, "My-Lib", "2.5", ["mylib/__init__.py", "_mylib.py"])
    report = made_up.inside(10).model_copy(
        update={
            "modules": {
                "mylib": (None, f"{tmp_path}/mylib/__init__.py"),
                "_mylib": (None, f"{tmp_path}/_mylib.py"),
                "app_part": ("1.0", "/home/user/app_part.py"),
                "namespace": (None, None),
            }
        }
    )
    (library,) = discover(made_up.run(reports=[report]), made_up.entries())
    assert (library.name, library.kind, library.version, library.pids) == ("My-Lib", "package", "2.5", (10,))
    assert library.modules == ("_mylib", "mylib")
    assert library.entry is None


def test_nothing_loaded():
    assert discover(made_up.run(), made_up.entries()) == ()
