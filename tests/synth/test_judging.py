"""What stands beside a name: tables of old names, installed packages, assignments in documents, defaults worked out."""

import textwrap
import time

import pytest

from synth import lexicon
from synth.assigned import assigned
from synth.items import items_of
from synth.records import Release, Role
from synth.shipped import packages
from synth.walk.tree import walk_release


def release_of(root, name="pkg"):
    return Release(
        name=name,
        version="1.0",
        root=root,
        kind="folder",
        filename=name,
        sha256="0" * 64,
        verified="unverified",
        location=name,
    )


@pytest.fixture
def tree(tmp_path):
    """Write files and give the root."""

    def made(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(textwrap.dedent(text))
        return tmp_path

    return made


@pytest.fixture
def items(tree):
    """Items of a package made of files, by name."""
    return lambda files: {i.name: i for i in items_of(walk_release(release_of(tree(files))))}


# what is installed

READ = 'import os\nN = int(os.environ.get("{}", 4))\n'


def test_python_beside_the_installed_packages_is_no_library_code(items):
    found = items(
        {
            "pyproject.toml": '[tool.setuptools]\npackages = ["pkg"]\n',
            "pkg/__init__.py": READ.format("PKG_NUM_THREADS"),
            "trackers/run.py": READ.format("TRACKER_NUM_THREADS"),
        }
    )
    assert found["PKG_NUM_THREADS"].verdict == "control"
    assert (found["TRACKER_NUM_THREADS"].verdict, found["TRACKER_NUM_THREADS"].why) == (
        "not_control",
        "read only outside of the packages that are installed",
    )


def test_a_package_called_like_the_project_shows_where_packages_lie(items):
    found = items(
        {
            "pyproject.toml": '[project]\nname = "the-pkg"\n',
            "src/the_pkg/__init__.py": "",
            "src/extra_pkg/__init__.py": READ.format("EXTRA_NUM_THREADS"),
            "cpp/tracker/launch.py": READ.format("TRACKER_NUM_THREADS"),
        }
    )
    assert found["EXTRA_NUM_THREADS"].verdict == "control"
    assert found["TRACKER_NUM_THREADS"].verdict == "not_control"


def test_without_metadata_all_python_counts(items):
    found = items({"pkg/__init__.py": "", "other/run.py": READ.format("OTHER_NUM_THREADS")})
    assert found["OTHER_NUM_THREADS"].verdict == "control"


def test_metadata_that_fits_no_code_is_not_believed(items):
    found = items(
        {"pyproject.toml": '[tool.setuptools]\npackages = ["gone"]\n', "pkg/a.py": READ.format("PKG_NUM_THREADS")}
    )
    assert found["PKG_NUM_THREADS"].verdict == "control"


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("x.egg-info/top_level.txt", "pkg\n_pkg\n", {"pkg", "_pkg"}),
        ("pyproject.toml", '[tool.scikit-build]\nwheel.packages = ["python/pkg"]\n', {"pkg"}),
        ("pyproject.toml", '[tool.hatch.build.targets.wheel]\npackages = ["src/pkg"]\n', {"pkg"}),
        ("pyproject.toml", '[[tool.poetry.packages]]\ninclude = "pkg"\n', {"pkg"}),
        ("pyproject.toml", '[tool.maturin]\nmodule-name = "pkg._native"\n', {"pkg"}),
        ("setup.cfg", "[options]\npackages =\n  pkg\n  pkg.sub\n", {"pkg"}),
        ("setup.cfg", "[options]\npackages = find:\n", None),
        ("setup.cfg", "no section", None),
        ("pyproject.toml", "[tool", None),
        ("pyproject.toml", "tool = 3\n", None),
    ],
)
def test_metadata_names_packages(tree, path, text, names):
    try:
        found = dict(packages(tree({path: text})))
    except AttributeError:
        pytest.fail("metadata of another shape must be passed over")
    assert found.get("") == (frozenset(names) if names else None)


def test_a_release_that_was_moved_into_another_keeps_its_own_packages(items):
    found = items(
        {
            "pkg.egg-info/top_level.txt": "pkg\n",
            "pkg/__init__.py": "",
            "part-1.0/part/__init__.py": READ.format("PART_NUM_THREADS"),
        }
    )
    assert found["PART_NUM_THREADS"].verdict == "control"


# assignments in documents


USE = """from pkg import config, run

    config.THREADING_LAYER = 'omp'
    pkg.x = 1
    run.Y.z = 2
"""


def test_an_attribute_that_the_documentation_assigns(items):
    found = items(
        {
            "pkg/__init__.py": "",
            "docs/use.rst": USE,
        }
    )
    item = found["pkg.config.THREADING_LAYER"]
    assert (item.kind, item.verdict, item.certain) == ("config", "control", False)
    assert [(p.where, p.line) for p in item.evidence] == [("docs/use.rst", 3)]
    assert not {"pkg.x", "pkg.run.Y.z"} & set(found)


def test_assignments_to_others_and_outside_of_documents_are_not_taken(tree):
    root = tree({"docs/a.md": "import other\nother.config.N = 1\n", "pkg/a.py": "pkg.config.N = 1\n"})
    assert list(assigned(release_of(root))) == []


def test_an_alias_in_a_document(tree):
    root = tree({"docs/a.md": ">>> import pkg as p\n>>> p.options.chunk_size = 3  # rows\n"})
    (seen,) = assigned(release_of(root))
    assert (seen.name, seen.line, seen.role) == ("pkg.options.chunk_size", 2, Role.LIBRARY)


def test_a_hostile_document_takes_no_long_time(tree):
    spaces = " " * 300_000
    text = (
        f"from pkg import{spaces};\npkg.a{'.b' * 100_000} = 1\n" + "pkg.config.n = '" * 20_000 + "\npkg.config.n = 1\n"
    )
    root = tree({"docs/a.md": ""})
    (root / "docs/a.md").write_text(text)
    started = time.monotonic()
    assert [seen.name for seen in assigned(release_of(root))] == ["pkg.config.n"]
    assert time.monotonic() - started < 5


# defaults


def test_a_default_through_a_local_name_and_a_function(items):
    found = items(
        {
            "pkg/__init__.py": """
            import os
            def _read(name, kind, default):
                return kind(os.environ.get(name, default))
            def load():
                def cpus():
                    if hasattr(os, "sched_getaffinity"):
                        return len(os.sched_getaffinity(0))
                    return os.cpu_count()
                standard = cpus()
                return _read("PKG_NUM_THREADS", int, standard)
            """
        }
    )
    assert found["PKG_NUM_THREADS"].default == "unset -> len(os.sched_getaffinity(0)), else os.cpu_count()"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("sys.maxsize", "unlimited (sys.maxsize)"),
        ("float('inf')", "infinity (float('inf'))"),
        ("16 * 1024 * 1024", "16777216 (16 MiB)"),
    ],
)
def test_a_default_as_people_write_it(items, given, shown):
    text = f"import os, sys\nN = os.environ.get('PKG_MAX_MEMORY', {given})\n"
    assert items({"pkg/__init__.py": text})["PKG_MAX_MEMORY"].default == shown


def test_a_setter_starts_from_the_variable_that_it_writes(items):
    found = items(
        {
            "pkg/__init__.py": """
            import os
            N = int(os.environ.get("PKG_MORSEL_SIZE", 1000))
            def set_chunk_size(size):
                os.environ["PKG_MORSEL_SIZE"] = str(size)
            """
        }
    )
    assert found["pkg.set_chunk_size"].default == "1000 (PKG_MORSEL_SIZE)"


# verdicts


def test_a_switch_with_a_number_is_not_yet_an_amount(items):
    found = items({"pkg/__init__.py": READ.replace("4", "0").format("PKG_LINK_WORKAROUND")})
    assert found["PKG_LINK_WORKAROUND"].verdict == "not_control"


def test_a_start_method_says_what_a_variable_is(items):
    text = 'import os\nM = os.environ.get("PKG_CONTEXT", "forkserver")\n'
    assert items({"pkg/__init__.py": text})["PKG_CONTEXT"].verdict == "control"


def test_where_scratch_data_goes_is_a_control(items):
    text = 'import os\nM = os.environ.get("PKG_CACHE_DIR", "")\nP = os.environ.get("PKG_PLUGIN_DIR", "")\n'
    found = items({"pkg/__init__.py": text})
    assert (found["PKG_CACHE_DIR"].verdict, found["PKG_PLUGIN_DIR"].verdict) == ("control", "not_control")


@pytest.mark.parametrize(
    ("name", "counted"), [("PKG_THREAD_NAME", False), ("PKG_NUM_THREAD", True), ("PKG_NTHREADS", True)]
)
def test_a_thread_counts_after_a_word_for_a_number_only(name, counted):
    assert lexicon.counts(name) is counted


@pytest.mark.parametrize(("name", "against"), [("PKG_FILE_READ_CONCURRENCY", False), ("PKG_THREADS_CONFIG_PATH", True)])
def test_a_place_ends_in_a_word_for_places(name, against):
    assert bool(lexicon.read(name).against) is against


def test_a_parameter_of_an_outdated_module_is_none(items):
    found = items(
        {
            "pkg/__init__.py": "from . import old_cluster, cluster\n",
            "pkg/old_cluster.py": "def make(n_workers=1): pass\n",
            "pkg/cluster.py": "def make(n_workers=1): pass\n",
        }
    )
    assert found["pkg.cluster.make(n_workers=)"].verdict == "control"
    assert found["pkg.old_cluster.make(n_workers=)"].verdict == "not_control"


def test_code_for_debugging_makes_no_control(items):
    found = items({"pkg/__init__.py": "", "pkg/_debug_alloc.py": READ.format("PKG_ALLOC_COUNT_MAX")})
    assert found["PKG_ALLOC_COUNT_MAX"].verdict == "not_control"
