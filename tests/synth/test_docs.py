"""What the documents of a release say about controls."""

import pytest

from synth.docs import Names, passages, walk_docs
from synth.records import Kind, Role
from synth.walk.syntax import digest_of_lines

NAMES = ["A_THREADS", "pkg.set_threads", "pkg.Pool(n_jobs=)", "pkg.get"]


def docs(text: str | bytes, file: str) -> list[tuple[str, int, int]]:
    raw = text.encode() if isinstance(text, str) else text
    seen = walk_docs(raw, file, Role.DOC, NAMES)
    for observation in seen:
        assert observation.kind is Kind.DOC
        assert observation.sha256 == digest_of_lines(raw, observation.line, observation.end_line)
    return [(o.name, o.line, o.end_line) for o in seen]


RST = """\
=====
Title
=====

Controls
--------

Set ``A_THREADS`` to the number
of threads.

* first item
* second item names A_THREADS
  and goes on
* third

.. envvar:: A_THREADS

   How many.

.. include:: /etc/passwd

term
   ``n_jobs`` of ``Pool``: how many.

Call :func:`pkg.set_threads`.
"""


def test_rst():
    assert docs(RST, "docs/use.rst") == [
        ("A_THREADS", 8, 9),
        ("A_THREADS", 12, 13),
        ("A_THREADS", 16, 18),
        ("pkg.Pool(n_jobs=)", 22, 23),
        ("pkg.set_threads", 25, 25),
    ]
    seen = walk_docs(RST.encode(), "docs/use.rst", Role.DOC, NAMES)
    assert {o.detail for o in seen} == {"Title > Controls"}
    assert {o.language for o in seen} == {"rst"}


def test_directives_are_text():
    text = ".. raw:: html\n\n   <b>A_THREADS</b>\n\n.. include:: /etc/hostname\n"
    found = list(passages(text.encode(), "x.rst"))
    assert [(p.line, p.end_line) for p in found] == [(1, 3), (5, 5)]
    assert "hostname" in found[-1].text


def test_markdown():
    text = (
        "# Title\n\n## Threads\n\nSet `A_THREADS`\nto something.\n\n- one\n- two: A_THREADS\n\n"
        "```sh\nexport A_THREADS=4\n```\n"
    )
    assert docs(text, "README.md") == [("A_THREADS", 5, 6), ("A_THREADS", 9, 9), ("A_THREADS", 11, 13)]
    assert walk_docs(text.encode(), "README.md", Role.DOC, NAMES)[0].detail == "Title > Threads"


def test_markdown_table():
    text = "| name | what |\n|---|---|\n| A_THREADS | threads |\n"
    assert ("A_THREADS", 3) in [(name, line) for name, line, _ in docs(text, "README.md")]


def test_html():
    text = (
        "<html><h1>T</h1>\n<p>no</p>\n<p>Set <code>A_THREADS</code>\n please</p><script>A_THREADS</script>\n</html>\n"
    )
    assert docs(text, "x.html") == [("A_THREADS", 3, 4)]


@pytest.mark.parametrize("kind", ["", "Description-Content-Type: text/markdown\n"])
def test_metadata(kind):
    text = f"Metadata-Version: 2.1\nName: x\n{kind}\nFirst.\n\nSet A_THREADS.\n"
    line = text.split("\n").index("Set A_THREADS.") + 1
    assert docs(text, "PKG-INFO") == [("A_THREADS", line, line)]


def test_upper_case_resource_words_are_found_unasked():
    assert [n for n, _, _ in docs("Set OTHER_NUM_WORKERS or SOME_NAME.\n", "x.rst")] == ["OTHER_NUM_WORKERS"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("use pkg.set_threads(4)", ["pkg.set_threads"]),
        ("use `set_threads`", ["pkg.set_threads"]),
        ("use reset_threads", []),
        ("get it", []),
        ("Pool(n_jobs=2)", ["pkg.Pool(n_jobs=)"]),
        ("n_jobs alone", []),
        ("MY_A_THREADS_2", ["MY_A_THREADS_2"]),
    ],
)
def test_names(text, found):
    assert Names(NAMES).named_in(text) == found


@pytest.mark.parametrize(
    ("raw", "file"),
    [
        (b"caf\xe9\r\n\r\nA_THREADS here\r\n", "x.rst"),
        (b"\xef\xbb\xbfone\n\nA_THREADS here\n", "x.md"),
        (b"one\x0c\n\rA_THREADS here\n", "x.txt"),
        (b"\n\n" + b"A_THREADS " * 100_000, "x.txt"),
        (b"\n\n" + b"[" * 2000 + b" A_THREADS", "x.md"),
        (b"\n\n" + b"<div>" * 150 + b"<p>A_THREADS", "x.html"),
        (b"\n\n" + b"* A_THREADS\n" * 3, "x.rst"),
    ],
)
def test_hostile(raw, file):
    found = docs(raw, file)
    assert found
    assert found[0][0] == "A_THREADS"


def test_lists_of_requirements_are_no_prose():
    assert docs("A_THREADS\n", "requirements.txt") == []
