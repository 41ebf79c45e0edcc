"""Settings that a package keeps in classes, registries, tables and docstrings."""

import textwrap

import pytest

from synth.records import Kind, Role
from synth.walk.index import PackageIndex
from synth.walk.python import walk_python


def walk(files, file="pkg/config.py"):
    files = {file: files} if isinstance(files, str) else files
    sources = {name: textwrap.dedent(text).encode() for name, text in files.items()}
    sources.setdefault("pkg/__init__.py", b"")
    return walk_python(sources[file], file, Role.LIBRARY, PackageIndex.build(sources))


def by_name(seen, kind):
    return {o.name: o for o in seen if o.kind is kind}


def test_a_class_attribute_names_the_variable_that_a_base_in_another_file_reads():
    files = {
        "pkg/base.py": """
            import os
            class Variable:
                varname = None
                @classmethod
                def get(cls):
                    return os.environ[cls.varname]
        """,
        "pkg/config.py": """
            import os
            from pkg.base import Variable
            class Cpus(Variable, type=int):
                varname = "PKG_CPUS"
                @classmethod
                def _get_default(cls):
                    return os.cpu_count()
            class Rows(Variable):
                type = int
                varname = "PKG_ROWS"
                default = 32
            class Other:
                varname = "PKG_OTHER"
        """,
    }
    found = by_name(walk(files), Kind.ENV_READ)
    assert set(found) == {"PKG_CPUS", "PKG_ROWS"}
    assert (found["PKG_CPUS"].value, found["PKG_CPUS"].value_type) == ("os.cpu_count()", "int")
    assert (found["PKG_ROWS"].value, found["PKG_ROWS"].value_type) == ("32", "int")


def test_registered_options_with_the_prefix_of_the_block_around_them():
    found = by_name(
        walk(
            """
            import registry as cf
            N = 7
            with cf.config_prefix("compute"):
                cf.register_option("use_threads", True, "docs", validator=bool)
                cf.register_option("chunk_size", N)
            cf.define_flag(name="lonely", default="auto")
            cf.register_option(unknown, 3)
            parser.add_option("--jobs", 3)
            """,
            "pkg/other.py",
        ),
        Kind.OPTION,
    )
    assert {name: o.value for name, o in found.items()} == {
        "compute.use_threads": "True",
        "compute.chunk_size": "7",
        "lonely": "'auto'",
    }


def test_sibling_classes_with_a_name_and_a_default():
    classes = "\n".join(f'class S{i}(Setting):\n    name = "opt_{i}"\n    default = {i}\n' for i in range(5))
    found = by_name(walk(f"class Setting: pass\n{classes}", "pkg/server.py"), Kind.OPTION)
    assert {name: o.value for name, o in found.items()} == {f"opt_{i}": str(i) for i in range(5)}
    few = "class Setting: pass\n" + classes.partition("class S2")[0]
    assert by_name(walk(few, "pkg/server.py"), Kind.OPTION) == {}


def test_option_objects_and_nested_tables():
    found = by_name(
        walk(
            """
            OPTIONS = Namespace(worker=Namespace(concurrency=Option(0, type="int"), pool=Option("prefork")))
            defaults = {"async": {"concurrency": 10, "timeout": None}, "flat": 3, "f": compute()}
            """
        ),
        Kind.OPTION,
    )
    values = {name: o.value for name, o in found.items()}
    assert values["worker.concurrency"] == "0"
    assert values["async.concurrency"] == "10"
    assert values["async.timeout"] == "None"
    assert "flat" not in values


def test_attributes_of_a_configuration_module_but_not_of_others():
    code = "compile_threads = 4\n_hidden = 3\nDEFAULT_X = 1\nimport os\nfrom_env = os.environ.get('PKG_Y', '2')\n"
    assert set(by_name(walk(code), Kind.OPTION)) == {"pkg.config.compile_threads"}
    assert by_name(walk(code, "pkg/core.py"), Kind.OPTION) == {}


@pytest.mark.parametrize(
    "entry",
    [
        "Parameters\n    ----------\n    n_jobs : int, default=2\n        How many.",
        "Args:\n        n_jobs (int): how many, defaults to `2`",
        ":param n_jobs: how many (default: 2)",
        ":param int n_jobs: how many. Default is 2.",
    ],
)
def test_what_goes_through_kwargs_by_the_docstring(entry):
    code = f'def run(work, **kwargs):\n    """Run.\n\n    {entry}\n    """\n    return start(**kwargs)\n'
    found = by_name(walk(code, "pkg/api.py"), Kind.PARAM)
    assert found["pkg.api.run(n_jobs=)"].value == "2"


def test_a_word_of_prose_is_no_default():
    code = 'def run(**kwargs):\n    """Run.\n\n    :param n_jobs: defaults to the number of cores\n    """\n'
    assert by_name(walk(code, "pkg/api.py"), Kind.PARAM)["pkg.api.run(n_jobs=)"].value is None


def test_a_docstring_adds_nothing_to_a_closed_signature():
    code = 'def run(work):\n    """Run.\n\n    :param n_jobs: how many\n    """\n'
    assert by_name(walk(code, "pkg/api.py"), Kind.PARAM) == {}


def test_options_that_a_constructor_keeps_for_its_methods_and_heirs():
    code = """
        class Base:
            def __init__(self, **options):
                self.options = options
        class Threads(Base):
            def start(self):
                return self.options.get("idle_worker_timeout", 300)
        BACKENDS = {"threads": Threads, "base": Base}
        def configure(backend, **options):
            return BACKENDS[backend](**options)
    """
    found = by_name(walk(code, "pkg/api.py"), Kind.PARAM)
    assert found["pkg.api.configure(idle_worker_timeout=)"].value == "300"


def test_comments_at_a_place_belong_to_it():
    code = 'import os\n# how many\n# workers run\nN = os.environ.get("PKG_N")  # at most\n'
    (seen,) = by_name(walk(code, "pkg/api.py"), Kind.ENV_READ).values()
    assert seen.about == "how many workers run at most"


def test_hostile_tables_stay_bounded():
    deep = "defaults = " + '{"a": ' * 200 + "1" + "}" * 200
    wide = "defaults = {" + ", ".join(f'"k{i}": {{"x": {i}}}' for i in range(5000)) + "}"
    assert by_name(walk(deep), Kind.OPTION) == {}
    assert len(by_name(walk(wide), Kind.OPTION)) <= 5000
