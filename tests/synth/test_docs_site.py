"""Definitions in documents of many layouts, and reading them from folders and sites."""

# ruff: noqa: E501 - documents as strings

import subprocess
import zlib

import pytest

from evaluation.eval_docs import NoSiteError, measure, served, unpacked
from synth.docs import is_document, passages
from synth.docs_changes import changes, is_changelog
from synth.docs_entries import default_in, deprecated_in, kind_of, parameters_of, variables_in
from synth.docs_html import html_entries, links_of
from synth.docs_items import documents_of, joined, with_changes
from synth.docs_site import Document, documentation_urls, from_folder, from_web, inventory, kind_by_name, read_documents
from synth.docs_text import help_entries, is_man, man_entries, markdown_entries, rst_entries
from synth.items import Item, Place
from synth.records import SynthError
from synth.web import Web, WebLimits

SPHINX = """<html><body><nav><code>NAV_THREADS</code></nav><div role="main">
<h1>Variables<a class="headerlink" href="#x">\u00b6</a></h1>
<dl class="std envvar">
<dt class="sig sig-object std" id="envvar-A_NUM_THREADS">
<span class="sig-name descname"><span class="pre">A_NUM_THREADS</span></span></dt>
<dd><p>How many. <em>Default value:</em> 4.</p><div class="deprecated"><p>Deprecated since version 1.2: use
<code>B_THREADS</code>.</p></div></dd></dl>
<dl class="py function"><dt class="sig sig-object py" id="pkg.pool">
<span class="sig-prename descclassname">pkg.</span><span class="sig-name descname">pool</span>
<span class="sig-paren">(</span><em class="sig-param"><span class="n">n_jobs</span><span class="o">=</span><span
class="default_value">None</span></em>, <em class="sig-param"><span class="n">size</span><span class="p">:</span> <span
class="n">int</span> = <span class="default_value">(1, 2)</span></em><span class="sig-paren">)</span></dt>
<dd><p>Make a pool.</p><dl class="field-list"><dt class="field-odd">Parameters<span class="colon">:</span></dt>
<dd class="field-odd"><dl><dt><strong>n_jobs</strong><span class="classifier">int, default=None</span></dt>
<dd><p>Number of jobs.</p></dd></dl></dd></dl></dd></dl>
<dl class="py data"><dt id="worker.memory.target"><code class="descname">worker.memory.target</code>
<em class="property">&nbsp;&nbsp;0.6</em></dt><dd><p>A share.</p></dd></dl>
<dl class="std option"><dt class="sig sig-object std" id="cmdoption-tool-nthreads">
<span class="sig-name descname">--nthreads</span><span class="sig-prename descclassname"> &lt;n&gt;</span></dt>
<dd><p>Threads, 2 by default.</p></dd></dl>
<table><thead><tr><th>Variable</th><th>Default</th><th>What</th></tr></thead>
<tr><td><code>C_WORKERS</code></td><td>8</td><td>workers</td></tr></table>
<h4>1.2. <code>D_CACHE_SIZE</code></h4><p>In bytes. Defaults to 100.</p>
<ul><li><code>E_THREADS</code>: of E</li></ul><p>Also <code>F_THREADS=3</code> and <code>G_*_THREADS</code>.</p>
<pre>usage: tool
  --n-workers N   how many (default: 7)
</pre><pre>pool:
  worker:
    limit: 5
</pre></div></body></html>
"""


def found(entries):
    return {(e.kind, e.name, e.default) for e in entries if e.how != "prose"}


def test_sphinx():
    entries = html_entries(SPHINX, "x.html")
    assert found(entries) == {
        ("env", "A_NUM_THREADS", "4"),
        ("api", "pkg.pool", ""),
        ("param", "pkg.pool(n_jobs=)", "None"),
        ("param", "pkg.pool(size=)", "(1, 2)"),
        ("config", "worker.memory.target", "0.6"),
        ("option", "--nthreads", "2"),
        ("env", "C_WORKERS", "8"),
        ("env", "D_CACHE_SIZE", "100"),
        ("env", "E_THREADS", ""),
        ("option", "--n-workers", "7"),
    }
    first = entries[0]
    assert (first.line, first.how, first.deprecated) == (4, "directive", "deprecated since 1.2, use B_THREADS")
    listed = next(e for e in entries if e.name == "pkg.pool(n_jobs=)" and e.how == "list")
    assert (listed.type, listed.said) == ("int", "Number of jobs.")
    mentioned = {e.name for e in entries if e.how == "prose"}
    assert mentioned == {"B_THREADS", "F_THREADS", "pool.worker.limit"}
    assert "NAV_THREADS" not in str(entries)


MKDOCS = """<main><div class="md-content"><div class="doc doc-object doc-function">
<h2 id="pkg.run" class="doc doc-heading"><code>run(n_jobs=1, *, queue: int = 8)</code></h2>
<div class="doc doc-contents"><p>Run.</p><p><span class="doc-section-title">Parameters:</span></p>
<table><thead><tr><th>Name</th><th>Type</th><th>Description</th><th>Default</th></tr></thead><tbody>
<tr class="doc-section-item"><td><code>n_jobs</code></td><td><code>int</code></td><td><p>Jobs.</p></td>
<td><code>1</code></td></tr></tbody></table></div></div></div></main>"""
PDOC = """<main><h1 class="modulename">pkg</h1><section id="run"><div class="attr function"><span class="def">def</span>
<span class="name">run</span><span class="signature pdoc-code">(<span class="param">n_jobs=1</span>,
<span class="param">limit: int = 3</span>)</span></div><div class="docstring"><h6 id="parameters">Parameters</h6>
<ul><li><strong>n_jobs</strong> (int): jobs</li></ul></div></section></main>"""
PDOC3 = """<article><dl><dt id="pkg.run"><code class="name flex"><span>def <span class="ident">run</span></span>(<span>n_jobs=1)
</span></code></dt><dd><div class="desc"><p>Run.</p></div></dd></dl></article>"""


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (MKDOCS, {"pkg.run", "pkg.run(n_jobs=)", "pkg.run(queue=)"}),
        (PDOC, {"pkg.run", "pkg.run(n_jobs=)", "pkg.run(limit=)"}),
        (PDOC3, {"pkg.run", "pkg.run(n_jobs=)"}),
    ],
)
def test_other_layouts(page, names):
    entries = html_entries(page, "x")
    assert {e.name for e in entries} == names
    jobs = [e for e in entries if e.name.endswith("(n_jobs=)")]
    assert jobs[0].default == "1"


def test_markdown():
    text = "# T\n\n## `A_NUM_THREADS`\n\nThreads. Default: `4`.\n\n| Option | Default |\n|---|---|\n| `b.c-d` | 5 |\n\n- `--jobs`: many\n"
    entries = markdown_entries(text, "x.md")
    assert [(e.line, e.name, e.default) for e in entries] == [
        (3, "A_NUM_THREADS", "4"),
        (9, "b.c-d", "5"),
        (11, "--jobs", ""),
    ]


RST = """\
.. envvar:: A_THREADS

   How many.
   :default: 3

.. include:: /etc/hostname

.. py:function:: pkg.run(n_jobs=1, x=[1, 2])

   :param int n_jobs: how many jobs

.. confval:: pool.size
   :default: 9

``B_WORKERS``
    workers, 2 by default

* ``C_MEMORY`` limit

Set ``D_CACHE`` first.

E_CACHE_SIZE
============
Of E.
"""


def test_rst():
    entries = rst_entries(RST, "x.rst")
    assert [(e.line, e.name, e.default, e.how) for e in entries] == [
        (1, "A_THREADS", "3", "directive"),
        (8, "pkg.run", "", "signature"),
        (8, "pkg.run(n_jobs=)", "1", "signature"),
        (8, "pkg.run(x=)", "[1, 2]", "signature"),
        (10, "pkg.run(n_jobs=)", "", "list"),
        (12, "pool.size", "9", "directive"),
        (15, "B_WORKERS", "2", "list"),
        (18, "C_MEMORY", "", "list"),
        (20, "D_CACHE", "", "prose"),
        (22, "E_CACHE_SIZE", "", "heading"),
    ]


def test_man_and_help():
    page = '.TH TOOL 1\n.SH OPTIONS\n.TP\n.BR \\-j ", " \\-\\-jobs =\\fIN\\fR\nJobs (default: 4).\n.SH ENVIRONMENT\n.TP\n.B A_THREADS\nThreads.\n.IP "\\fBB_CACHE\\fR" 4\nCache.\n'
    assert [(e.kind, e.name, e.default, e.line) for e in man_entries(page, "tool.1")] == [
        ("option", "--jobs", "4", 4),
        ("env", "A_THREADS", "", 8),
        ("env", "B_CACHE", "", 10),
    ]
    text = "usage: tool [-j N]\n\noptions:\n  -h, --help            show this\n  -j N, --jobs N        how many\n                        (default: 4)\n  --cache-size=BYTES\n                        of the cache\n"
    assert [(e.name, e.default, e.type) for e in help_entries(text, "x")] == [
        ("--help", "", ""),
        ("--jobs", "4", "N"),
        ("--cache-size", "", "BYTES"),
    ]


@pytest.mark.parametrize(
    ("path", "is_page"),
    [
        ("man/tool.1", True),
        ("tool.1", True),
        ("libx.so.1", False),
        ("a/x.1.2", False),
        ("share/man/man7/x.7", True),
        ("x.py", False),
    ],
)
def test_manual_pages_by_name(path, is_page):
    assert is_man(path) is is_page


CHANGES = """\
Version 2.1
===========
* ``n_thread`` is deprecated, use ``n_threads`` instead.
* Renamed the parameter ``old_size`` to ``new_size``.

Version 2.0.1
=============
* Removed the option `--old-jobs`.
* Nothing else was removed here.
"""


def test_changes():
    seen = list(changes(passages(CHANGES.encode(), "x.rst"), "CHANGES.rst"))
    assert [(c.name, c.what, c.version, c.by, c.line) for c in seen] == [
        ("n_thread", "deprecated", "2.1", "n_threads", 3),
        ("old_size", "renamed", "2.1", "new_size", 4),
        ("--old-jobs", "removed", "2.0.1", "", 8),
    ]
    assert is_changelog("docs/whats_new/v1.2.html")
    assert is_changelog("CHANGELOG.md")
    assert not is_changelog("docs/exchange.md")


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("int, default=None", "None"), ("Default: `4`.", "4"), ("defaults to 'auto', or", "auto"), ("3 by default", "3"),
        ("By default, 10 jobs", "10"), ("the default is the number of cores", ""), ("no word", ""),
    ],
)  # fmt: skip
def test_defaults(text, default):
    assert default_in(text) == default


def test_words():
    assert [kind_of(n) for n in ("A_B", "OMP_PLACES", "a.b-c", "--x-y", "word", "Word", "n_jobs", "A")] == [
        "env", "env", "config", "option", None, None, "config", None,
    ]  # fmt: skip
    assert list(variables_in("A_B, *_C_D, x.E_F and G_H(I_J)")) == ["A_B", "I_J"]
    assert deprecated_in("Deprecated in 1.0, use `x.y`") == "deprecated since 1.0, use x.y"
    assert deprecated_in("undeprecated") == ""
    assert parameters_of("self, a=1, *, b: dict[str, int] = {1: 2}, **kw") == [
        ("self", "", ""), ("a", "", "1"), ("b", "dict[str, int]", "{1: 2}"), ("kw", "", ""),
    ]  # fmt: skip


def item(name, **more):
    facts = {"kind": "env", "verdict": "control", "resource": "cpu.threads", "type": "int", "default": "unset"}
    facts |= {"read_when": "import", "scope": "process", "precedence": "", "provider": "pkg", "certain": True}
    return Item(name=name, evidence=(Place(where="a.py", line=1),), why="read", rank=0.5, **(facts | more))


def test_what_documents_add():
    documents = [Document("x.html", "html", SPHINX.encode()), Document("CHANGES.rst", "text", CHANGES.encode())]
    read = read_documents(documents, ["A_NUM_THREADS"], lambda skip: pytest.fail(str(skip)))
    code = [
        item("A_NUM_THREADS"),
        item("pkg.core.pool(n_jobs=)", kind="param", default="None"),
        item("n_thread", kind="config"),
    ]
    items = {i.name: i for i in joined(code, read)}
    first = items["A_NUM_THREADS"]
    assert first.default == "4 (documented)"
    assert first.why == "read; documented as directive; deprecated since 1.2, use B_THREADS"
    assert [(p.where, p.line) for p in first.evidence] == [("a.py", 1), ("x.html", 4)]
    assert items["pkg.core.pool(n_jobs=)"].default == "None"
    assert "documented as signature" in items["pkg.core.pool(n_jobs=)"].why
    assert "pkg.pool(n_jobs=)" not in items
    assert items["n_thread"].why == "read; deprecated in 2.1, use n_threads"
    new = items["C_WORKERS"]
    assert (new.verdict, new.certain, new.provider, new.default) == ("control", False, "documentation", "8")
    assert items["--nthreads"].kind == "config"
    assert "pkg.pool(size=)" not in items


def test_a_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "_modules").mkdir()
    for name in ("a.html", "sub/b.md", "c.py", "_modules/d.html", "genindex.html", "tool.1", "big.txt"):
        (tmp_path / name).write_text("A_THREADS" if name != "big.txt" else "x" * 9_000_000)
    (tmp_path / "sub" / "loop").symlink_to("..")
    (tmp_path / "link.html").symlink_to("a.html")
    skipped = []
    assert [d.where for d in from_folder(tmp_path, skipped.append)] == ["a.html", "tool.1", "sub/b.md"]
    assert [s.file for s in skipped] == ["big.txt"]


def make_site(folder):
    rows = "".join(f"{n} py:function 1 api{i}.html#$ -\n" for i, n in enumerate(["pkg.a", "pkg.b"]))
    rows += "A_THREADS std:envvar 1 ref/env.html#envvar-$ -\n"
    head = b"# Sphinx inventory version 2\n# Project: x\n# Version: 1\n# compressed using zlib.\n"
    (folder / "ref").mkdir()
    (folder / "objects.inv").write_bytes(head + zlib.compress(rows.encode()))
    links = '<a href="z.html">z</a> <a href="http://example.org/">out</a> <a href="../up.html">up</a> <a href="n.html#x">Threads</a>'
    (folder / "index.html").write_text(f"<p>{links}</p>")
    for name in ("z.html", "n.html", "api0.html", "api1.html", "ref/env.html", "up.html"):
        (folder / name).write_text("<a href='index.html'>home</a><p>environment variable A_NUM_THREADS</p>")


def test_a_site_the_most_telling_pages_first(tmp_path):
    make_site(tmp_path)
    skipped = []
    with served(tmp_path) as url, Web(named=frozenset({"127.0.0.1"})) as web:
        order = [d.where.rpartition(":")[2].partition("/")[2] for d in from_web(url, web, ["pkg.b"], skipped.append)]
    assert order == ["index.html", "api1.html", "ref/env.html", "n.html", "api0.html", "z.html"] or order[:2] == [
        "index.html",
        "api1.html",
    ]
    assert set(order) >= {"ref/env.html", "n.html", "z.html", "api0.html"}
    assert [s.file.rpartition("/")[2] for s in skipped if "404" not in s.why] == []
    with served(tmp_path) as url, Web(named=frozenset({"127.0.0.1"}), limits=WebLimits(pages=5)) as web:
        assert (
            len(list(from_web(url, web, [], skipped.append))) == 3
        )  # index, and two of the rest: two lists were asked for
    assert "more than 5 pages" in skipped[-1].why


def test_places(tmp_path):
    make_site(tmp_path)
    none = tmp_path / "none"
    none.mkdir()
    with served(tmp_path) as url:
        read = documents_of(url, none, [], cache=tmp_path / "c", offline=False, on_skip=lambda _: None)
        assert {e.name for e in read.entries} == {"A_NUM_THREADS"}
        (none / "PKG-INFO").write_text(
            f"Metadata-Version: 2.1\nName: x\nVersion: 1\nProject-URL: Documentation, {url}\n"
        )
        assert documentation_urls(none) == [url]
        with pytest.raises(SynthError, match="none of the addresses"):  # a private address that only metadata names
            documents_of("project", none, [], cache=tmp_path / "c", offline=False, on_skip=lambda _: None)
    read = documents_of(str(tmp_path), none, [], cache=tmp_path / "c", offline=False, on_skip=lambda _: None)
    assert read.documents >= 6
    with pytest.raises(SynthError, match="no folder"):
        documents_of(str(tmp_path / "x"), none, [], cache=tmp_path, offline=False, on_skip=lambda _: None)
    (none / "PKG-INFO").unlink()
    with pytest.raises(SynthError, match="names no documentation"):
        documents_of("project", none, [], cache=tmp_path, offline=False, on_skip=lambda _: None)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"# Sphinx inventory version 2\n\n\n\nxx",
        b"# Sphinx inventory version 2\n\n\n\n" + zlib.compress(b"a\n" * 9),
    ],
)
def test_odd_inventories(raw):
    assert list(inventory(raw)) == []


@pytest.mark.parametrize(
    "text",
    [
        "<div>" * 3000 + "<code>A_THREADS</code>",
        "<dl><dt>A_THREADS" * 2000,
        "<table><tr><td>" * 1000 + "A_THREADS",
        "<a href=" * 20_000,
        "<a " * 50_000,
        "<li><code>A_THREADS</code>" * 5_000,
        "<dl class='function'><dt id='a.b'>" + "(" * 50_000,
        "\0<p><code>A_THREADS</code>\ufeff",
        "default " * 20_000 + "deprecated " * 20_000,
    ],
)
def test_hostile_pages(text):
    html_entries(text, "x")
    list(links_of(text))
    markdown_entries(text[:20_000], "x")
    rst_entries(text, "x")
    man_entries(".TP\n" + text, "x")
    list(changes(passages(text[:50_000].encode(), "x.txt"), "x"))


def test_kinds_by_name():
    names = ["a.HTML", "b.md", "c.rst", "d.txt", "man/e.8", "README", "f.py", "g.so.1"]
    assert [kind_by_name(n) for n in names] == ["html", "markdown", "rst", "text", "man", "text", None, None]


@pytest.mark.index
def test_a_real_site_through_the_fetcher(tmp_path):
    """A site built by Sphinx, from a Debian package: what it defines is found, and read again only where it changed."""
    try:
        site = unpacked("numba-doc", tmp_path)
    except (NoSiteError, subprocess.SubprocessError) as error:
        pytest.skip(str(error))
    gold = {
        "controls": [
            {"name": n, "scoring": "required"}
            for n in ("NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "numba.set_num_threads")
        ]
    }
    row = measure(site, gold, tmp_path / "cache", 30)
    assert row["missing"] == []
    assert row["defined"] >= 2
    assert row["pages"] == 30


def test_changelogs_of_a_release(tmp_path):
    (tmp_path / "CHANGES.rst").write_text(CHANGES)
    (tmp_path / "other.rst").write_text(CHANGES.replace("n_thread", "n_other"))
    items = with_changes([item("n_thread", kind="config"), item("n_other", kind="config")], tmp_path)
    assert [i.why for i in items] == ["read; deprecated in 2.1, use n_threads", "read"]
    assert [(p.where, p.line) for p in items[0].evidence] == [("a.py", 1), ("CHANGES.rst", 3)]


def test_manual_pages_are_documents_of_a_release(tmp_path):
    page = ".TH TOOL 1\n.SH ENVIRONMENT\n.TP\n.B A_NUM_THREADS\nThreads.\n"
    found = [(p.line, p.end_line) for p in passages(page.encode(), "man/tool.1") if "A_NUM_THREADS" in p.text]
    assert found == [(4, 5)]
    assert is_document("man/tool.1")
    assert not is_document("lib/libx.so.1")
