"""What part of a release a file is, from its path alone."""

from __future__ import annotations

import re

from synth.records import Role

_TEST = re.compile(r"^(tests?|testing|test_?suite|unittests?|.*_tests?|tests?_.*|conftest)$", re.IGNORECASE)
_EXAMPLE = re.compile(r"^(examples?|demos?|tutorials?|samples?|notebooks?|gallery|auto_examples)$", re.IGNORECASE)
_BENCHMARK = re.compile(r"^(bench|benchmarks?|asv_benchmarks?|perf|profiling|.*_benchmarks?)$", re.IGNORECASE)
_DOC = re.compile(r"^(docs?|documentation|doc_.*|website|site|man)$", re.IGNORECASE)
_BUILD = re.compile(
    r"^(build_?tools?|buildscripts?|build_backend|ci|\.ci|\.github|\.circleci|\.azure.*|\.gitlab|cmake|tools?|scripts?|"
    r"packaging|conda|conda-?recipes?|maintainers?|devtools|dev|release|docker|_build_utils|ops|contrib)$",
    re.IGNORECASE,
)
_VENDORED = re.compile(
    r"^(externals?|external[-_]\w+|\w+[-_]external|vendor(ed)?|_vendor(ed)?|third_?party|third-party|3rd_?party|extern|_external|bundled|subprojects|"
    r"deps|dependencies)$",
    re.IGNORECASE,
)
_BUILD_FILE = re.compile(
    r"^(setup|versioneer|_version|_build|build|noxfile|tasks|fabfile|hatch_build|pavement|conanfile|conf|dodo|"
    r"setup_.*|runtests|waf|wscript|gen_.*|generate_.*)\.py$",
    re.IGNORECASE,
)
_TEST_FILE = re.compile(
    r"^(test_.*|_?testing(_.*)?|pytest(_.*)?|_test_.*|.*_tests?|conftest|tests?|.*_unittest)\.(py|pyi|c|cc|cpp|cxx|cu|h|hpp)$",
    re.IGNORECASE,
)
_BENCHMARK_FILE = re.compile(r"^(benchmarks?(_.*)?|.*_benchmarks?|bench_.*)\.(py|pyi|c|cc|cpp|cxx|cu)$", re.IGNORECASE)
_EXAMPLE_FILE = re.compile(r"^(demos?(_.*)?|examples?(_.*)?|tutorials?)\.(py|c|cc|cpp|cxx|cu)$", re.IGNORECASE)
_DOC_FILE = re.compile(r"\.(rst|md|txt|html?)$", re.IGNORECASE)


def role_of(path: str) -> Role:
    """Role of a file by its path relative to the release's root.

    The outermost folder that says something decides, except that a test stays a test inside a vendored library.
    """
    *folders, name = path.split("/")
    if _TEST_FILE.match(name) or any(_TEST.match(folder) for folder in folders):
        return Role.TEST
    for depth, folder in enumerate(folders):
        if (
            folder == "contrib"
            and depth < len(folders) - 1
            and folders[depth + 1] in ("libs", "lib", "python", "restricted")
        ):
            return Role.VENDORED  # other projects' code, in the manner of large source trees
        for pattern, role in (
            (_VENDORED, Role.VENDORED),
            (_EXAMPLE, Role.EXAMPLE),
            (_BENCHMARK, Role.BENCHMARK),
        ):
            if pattern.match(folder):
                return role
        # `tools`, `docs` and the like are support folders at the top of a release, but may be modules inside a package
        if _DOC.match(folder):
            return Role.DOC
        if (depth == 0 and _BUILD.match(folder)) or folder.startswith("."):
            return Role.BUILD
    if len(folders) == 0 and _BUILD_FILE.match(name):
        return Role.BUILD
    if name in ("setup.py", "meson.build", "CMakeLists.txt"):
        return Role.BUILD
    if _BENCHMARK_FILE.match(name):
        return Role.BENCHMARK
    if _EXAMPLE_FILE.match(name):
        return Role.EXAMPLE
    return Role.DOC if _DOC_FILE.search(name) else Role.LIBRARY
