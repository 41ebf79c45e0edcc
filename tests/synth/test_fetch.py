"""Releases come from real servers, folders and caches, with their digests checked."""

import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from synth.fetch import FetchLimits, fetch, folder_digest
from synth.indexes import IndexConfig, index_config
from synth.records import SynthError
from synth.targets import parse_target
from synth.unpack import Limits

JSON_TYPE = "application/vnd.pypi.simple.v1+json"


def sdist(name="demo", version="1.0", files=None, info=None):
    """An sdist whose set-up would leave a trace if anyone ran it."""
    trap = b"import pathlib; pathlib.Path(__file__).with_name('RAN').touch()\n"
    content = {"PKG-INFO": (info or f"Name: {name}\nVersion: {version}\n").encode(), "setup.py": trap}
    content |= {f"{name}/__init__.py": trap} | (files or {})
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, data in content.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def wheel(name="demo", version="1.0"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as zipped:
        zipped.writestr(f"{name}/__init__.py", "")
        zipped.writestr(f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
    return out.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Site:
    """A web server with routes; a route is a body, or a function that gets the request's handler."""

    def __init__(self):
        self.routes = {}
        self.asked = []
        self.released = threading.Event()  # lets handlers that hang go
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append(self.path)
                route = site.routes.get(self.path, 404)
                if callable(route):
                    route(self)
                elif isinstance(route, int):
                    self.reply(b"", status=route)
                else:
                    self.reply(route)

            def reply(self, body, *, status=200, length=None, **headers):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                for key, value in headers.items():
                    self.send_header(key.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # Ends soon after `shutdown`, which is waited for.
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def hang(self, _handler):
        self.released.wait()

    def publish(self, name, files, *, form="json", digests=None):
        """Serve a project: `files` maps file names to content, or to (content, more JSON fields)."""
        entries = []
        for filename, given in files.items():
            content, more = given if isinstance(given, tuple) else (given, {})
            self.routes[f"/files/{filename}"] = content
            digest = (digests or {}).get(filename, sha256(content) if isinstance(content, bytes) else "0" * 64)
            hashes = {"sha256": digest} if digest else {}
            entries.append({"filename": filename, "url": f"../../files/{filename}", "hashes": hashes, **more})
        self.routes[f"/simple/{name}/"] = self.json_page(name, entries) if form == "json" else self.html_page(entries)

    @staticmethod
    def json_page(name, entries):
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": entries, "versions": []}).encode()

        def route(handler):
            assert JSON_TYPE in handler.headers["Accept"]
            handler.reply(body, Content_Type=JSON_TYPE)

        return route

    @staticmethod
    def html_page(entries):
        links = []
        for entry in entries:
            fragment = "".join(f"#{key}={value}" for key, value in entry["hashes"].items())
            yanked = ' data-yanked=""' if entry.get("yanked") else ""
            links.append(f'<a href="{entry["url"]}{fragment}"{yanked}>{entry["filename"]}</a><br>')
        body = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        return lambda handler: handler.reply(body, Content_Type="text/html; charset=utf-8")


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """No proxy of this machine stands between a test and its own server."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NETRC", os.devnull)


@pytest.fixture
def site():
    server = Site()
    yield server
    server.close()


@pytest.fixture
def get(tmp_path, site):
    """Fetch from the site; keyword arguments override."""

    def call(text, *, config=None, **arguments):
        arguments = {"cache_dir": tmp_path / "cache", "work_dir": tmp_path / "work"} | arguments
        return fetch(parse_target(text), config=config or config_for(site), **arguments)

    return call


def config_for(site, **fields):
    return IndexConfig(**{"index_urls": (f"{site.url}/simple",), "timeout_seconds": 5, "retries": 0} | fields)


def failing(get, text, **arguments):
    with pytest.raises(SynthError) as caught:
        get(text, **arguments)
    error = caught.value
    assert error.help
    assert str(error)[0] == "`" or str(error)[0].islower()
    assert not str(error).endswith(".")
    return error


def leftovers(tmp_path):
    """Files that are neither an archive in its place, nor a note, nor unpacked."""
    return [path for path in tmp_path.rglob("*") if ".part" in path.name]


@pytest.mark.parametrize("form", ["json", "html"])
def test_an_sdist_from_an_index(site, get, tmp_path, form):
    data = sdist()
    site.publish("demo", {"demo-1.0.tar.gz": data, "demo-1.0-py3-none-any.whl": wheel()}, form=form)
    seen = []
    release = get("demo", progress=lambda done, total: seen.append((done, total)))
    assert (release.name, release.version, release.kind) == ("demo", "1.0", "sdist")
    assert release.filename == "demo-1.0.tar.gz"
    assert release.sha256 == sha256(data)
    assert release.verified == "index"
    assert release.location == "index"
    assert release.root.name == "demo-1.0"
    assert (release.root / "demo/__init__.py").is_file()
    assert not list(tmp_path.rglob("RAN"))
    assert seen[-1] == (len(data), len(data))
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("form", ["json", "html"])
def test_the_preferred_kind_and_the_fallback(site, get, form):
    site.publish("demo", {"demo-1.0.tar.gz": sdist(), "demo-1.0-py3-none-any.whl": wheel()}, form=form)
    release = get("demo", prefer="wheel")
    assert (release.kind, release.filename) == ("wheel", "demo-1.0-py3-none-any.whl")
    assert (release.root / "demo-1.0.dist-info/METADATA").is_file()
    site.publish("demo", {"demo-1.0.tar.gz": sdist(), "demo-2.0-py3-none-any.whl": wheel(version="2.0")}, form=form)
    # The version comes first: an older sdist is not what the user would install.
    assert (get("demo").version, get("demo").kind) == ("2.0", "wheel")
    assert (get("demo<2", prefer="wheel").version, get("demo<2", prefer="wheel").kind) == ("1.0", "sdist")


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        (["py3-none-any", "cp32-cp32m-win_amd64"], "py3-none-any"),
        (["cp32-cp32m-win_amd64", "cp32-cp32m-manylinux1_x86_64"], "cp32-cp32m-manylinux1_x86_64"),
        (["cp32-cp32m-manylinux1_i686", "cp32-cp32m-win32"], "cp32-cp32m-win32"),
    ],
)
def test_any_wheel_will_do_but_a_fitting_one_is_better(site, get, tags, chosen):
    sizes = {"cp32-cp32m-win32": 10}
    files = {f"demo-1.0-{tag}.whl": (wheel(), {"size": sizes.get(tag, 1000)}) for tag in tags}
    site.publish("demo", files)
    assert get("demo").filename == f"demo-1.0-{chosen}.whl"


VERSIONS = {"1.0": {}, "1.1": {}, "1.2": {"yanked": "bad"}, "2.0rc1": {}, "1.1.post1": {}, "0.9": {}}


@pytest.mark.parametrize("form", ["json", "html"])
@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("demo", "1.1.post1"),
        ("demo<1.1", "1.0"),
        ("demo==1.1", "1.1"),
        ("demo==1.1.*", "1.1.post1"),
        ("demo==1.1.0", "1.1"),
        ("demo==1.2", "1.2"),
        ("demo==2.0rc1", "2.0rc1"),
        ("demo>=2.0rc1", "2.0rc1"),
        ("demo>1.1,!=1.1.post1", "2.0rc1"),
        ("demo~=1.0,<1.1", "1.0"),
        ("demo[extra]>=0.9", "1.1.post1"),
    ],
)
def test_the_version_is_the_one_that_pip_would_take(site, get, form, text, version):
    files = {f"demo-{v}.tar.gz": (sdist(version=v), more) for v, more in VERSIONS.items()}
    site.publish("demo", files, form=form)
    assert get(text).version == version


def test_nothing_fits(site, get):
    site.publish("demo", {f"demo-{v}.tar.gz": (sdist(version=v), more) for v, more in VERSIONS.items()})
    error = failing(get, "demo==9")
    assert (str(error), error.code) == ("no version of `demo` fits `==9`", 2)
    assert error.help == "the newest are 2.0rc1, 1.1.post1, 1.1, 1.0, 0.9"
    error = failing(get, "demo~=1.2,>=1.2")
    assert (str(error), error.code) == ("every release of `demo` that fits was yanked", 2)
    assert "`demo==1.2`" in error.help
    error = failing(get, "absent")
    assert (str(error), error.code) == ("no project named `absent` on the configured index", 2)
    assert "PIP_INDEX_URL" in error.help
    site.publish("eggs", {"eggs-1.0-py2.7.egg": b"", "eggs-1.0.exe": b""})
    error = failing(get, "eggs")
    assert (str(error), error.code) == ("`eggs` has no sdist and no wheel on the configured index", 2)
    error = failing(get, "demo", config=IndexConfig(index_urls=()))
    assert (str(error), error.code) == ("neither an index nor a find-links place is configured", 2)


def test_all_indexes_and_links_are_asked(site, get, tmp_path):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    entry = {"filename": "demo-1.0.tar.gz", "url": "/files/demo-1.0.tar.gz", "hashes": {}}
    site.routes["/more/demo/"] = site.html_page([entry])
    (tmp_path / "links").mkdir()
    (tmp_path / "links/demo-1.5.tar.gz").write_bytes(sdist(version="1.5"))
    places = {
        "index_urls": (f"{site.url}/more/", f"{site.url}/simple"),
        "find_links": ((tmp_path / "links").as_uri(),),
    }
    release = get("demo", config=config_for(site, **places))
    assert (release.version, release.verified, release.location) == ("1.5", "unverified", "demo-1.5.tar.gz")
    assert get("demo<1.5", config=config_for(site, **places)).version == "1.0"
    # Of the same file, the copy whose digest is known.
    assert get("demo==1.0", config=config_for(site, **places)).verified == "index"
    # A folder that is gone does not hide what is found elsewhere.
    gone = config_for(site, find_links=((tmp_path / "gone").as_uri(),))
    assert get("demo", config=gone).version == "1.0"
    assert "is no folder" in str(failing(get, "absent", config=gone))


def test_a_find_links_page_on_a_server(site, get):
    site.routes["/page.html"] = site.html_page(
        [
            {"filename": "x", "url": "files/demo-1.0.tar.gz", "hashes": {}},
            {"filename": "y", "url": "o-1.tar.gz", "hashes": {}},
        ]
    )
    site.routes["/files/demo-1.0.tar.gz"] = sdist()
    release = get("demo", config=config_for(site, index_urls=(), find_links=(f"{site.url}/page.html",)))
    assert (release.verified, release.location) == ("unverified", "demo-1.0.tar.gz")
    direct_link = f"{site.url}/files/demo-1.0.tar.gz#sha256={sha256(sdist())}"
    release = get("demo", config=config_for(site, index_urls=(), find_links=(direct_link,)))
    assert (release.verified, release.location) == ("index", "demo-1.0.tar.gz")


def test_a_local_simple_index(get, tmp_path):
    (tmp_path / "simple/demo").mkdir(parents=True)
    (tmp_path / "files").mkdir()
    (tmp_path / "files/demo-1.0.tar.gz").write_bytes(sdist())
    page = tmp_path / "simple/demo/index.html"
    page.write_text(f'<a href="../../files/demo-1.0.tar.gz#sha256={sha256(sdist())}">demo-1.0.tar.gz</a>')
    config = index_config(index_url=(tmp_path / "simple").as_uri(), environ={"PIP_CONFIG_FILE": os.devnull})
    release = get("demo", config=config, offline=True)
    assert (release.verified, release.location) == ("index", "index")
    page.write_text('<a href="../../files/demo-2.0.tar.gz">demo-2.0.tar.gz</a>')
    error = failing(get, "demo", config=config)
    assert (str(error), error.code) == ("`demo-2.0.tar.gz` is listed but missing", 3)


@pytest.mark.parametrize("form", ["json", "html"])
def test_a_wrong_digest_is_refused_and_nothing_is_kept(site, get, tmp_path, form):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()}, form=form, digests={"demo-1.0.tar.gz": "ab" * 32})
    error = failing(get, "demo")
    assert "`demo-1.0.tar.gz` is not the file that the index lists: its sha256 digest differs" in str(error)
    assert error.code == 3
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("form", ["json", "html"])
def test_without_a_digest_the_release_is_unverified(site, get, form):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()}, form=form, digests={"demo-1.0.tar.gz": ""})
    assert get("demo").verified == "unverified"


@pytest.mark.parametrize(("algorithm", "verified"), [("md5", "unverified"), ("sha512", "index"), ("egg", "unverified")])
def test_other_digests_are_compared_too(site, get, algorithm, verified):
    right = hashlib.new(algorithm, sdist()).hexdigest() if algorithm != "egg" else "demo"
    for digest in (right, "00"):
        entry = {"filename": "demo-1.0.tar.gz", "url": "/files/demo-1.0.tar.gz", "hashes": {algorithm: digest}}
        site.routes["/simple/demo/"] = site.json_page("demo", [entry])
        site.routes["/files/demo-1.0.tar.gz"] = sdist()
        if digest == right or algorithm == "egg":
            assert get("demo").verified == verified
        else:
            assert f"its {algorithm} digest differs" in str(failing(get, "demo"))


def test_the_cache_spares_the_download_but_not_the_check(site, get, tmp_path):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    first = get("demo")
    (first.root / "planted").write_text("left by someone in the unpacked folder")
    second = get("demo")
    assert second == first
    assert not (second.root / "planted").exists()
    assert site.asked.count("/files/demo-1.0.tar.gz") == 1
    archive = next((tmp_path / "cache/archives").rglob("demo-1.0.tar.gz"))
    archive.write_bytes(sdist(files={"evil": b""}))
    assert get("demo") == first
    assert site.asked.count("/files/demo-1.0.tar.gz") == 2
    assert archive.read_bytes() == sdist()


def test_offline_uses_the_cache_only(site, get, tmp_path):
    site.publish("demo", {f"demo-{v}.tar.gz": (sdist(version=v), more) for v, more in VERSIONS.items()})
    error = failing(get, "demo", offline=True)
    assert (str(error), error.code) == ("no archive of `demo` is on this machine", 2)
    online = {text: get(text) for text in ("demo<1.1", "demo==1.2")}
    asked = list(site.asked)
    for text, release in online.items():
        assert get(text, offline=True) == release
    assert get("demo", offline=True).version == "1.0"  # 1.2 is yanked offline too
    error = failing(get, "demo==1.1", offline=True)
    assert (str(error), error.help) == ("no version of `demo` fits `==1.1`", "the newest are 1.0")
    archive = next((tmp_path / "cache/archives").rglob("demo-1.0.tar.gz"))
    archive.write_bytes(b"changed")
    error = failing(get, "demo<1.1", offline=True)
    assert (str(error), error.code) == ("the cached `demo-1.0.tar.gz` is damaged, and was removed", 2)
    assert failing(get, "demo<1.1", offline=True).code == 2
    for note in (tmp_path / "cache/entries").rglob("*.json"):
        note.write_text("{" if "1.0" in note.name else '{"schema_version": 99}')
    assert "is on this machine" in str(failing(get, "demo", offline=True))
    assert site.asked == asked


def test_what_was_unverified_stays_so_offline(site, get, tmp_path):
    (tmp_path / "demo-1.0.tar.gz").write_bytes(sdist())
    config = config_for(site, index_urls=(), find_links=(tmp_path.as_uri(),))
    release = get("demo", config=config)
    (tmp_path / "demo-1.0.tar.gz").unlink()
    assert get("demo", config=config, offline=True) == release
    assert (release.verified, release.location) == ("unverified", "demo-1.0.tar.gz")


def test_an_exact_version_survives_a_dead_network(site, get):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    release = get("demo")
    site.routes["/simple/demo/"] = 503
    assert get("demo==1.0") == release
    assert site.asked.count("/files/demo-1.0.tar.gz") == 1
    # What is newest is not known then.
    assert failing(get, "demo").code == 3
    assert failing(get, "demo==2.0").code == 3


@pytest.mark.parametrize("status", [500, 503, 401, 403, 429])
def test_a_server_that_fails(site, get, status):
    site.routes["/simple/demo/"] = status
    error = failing(get, "demo")
    assert (str(error), error.code) == (f"`127.0.0.1:{site.port}` answered with HTTP status {status}", 3)
    assert ("user name" if status in {401, 403} else "--find-links") in error.help


def test_a_failure_that_passes_is_tried_again(site, get):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    page, answers = site.routes["/simple/demo/"], iter([503])

    def once(handler):
        status = next(answers, None)
        handler.reply(b"", status=status) if status else page(handler)

    site.routes["/simple/demo/"] = once
    assert get("demo", config=config_for(site, retries=1)).version == "1.0"


@pytest.mark.parametrize("status", [404, 410, 500])
def test_a_listed_file_that_is_not_there(site, get, tmp_path, status):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    site.routes["/files/demo-1.0.tar.gz"] = status
    error = failing(get, "demo")
    assert error.code == 3
    assert ("is listed but missing" if status != 500 else "HTTP status 500") in str(error)
    assert not leftovers(tmp_path)


def test_a_truncated_download(site, get, tmp_path):
    data = sdist()
    site.publish("demo", {"demo-1.0.tar.gz": data})
    site.routes["/files/demo-1.0.tar.gz"] = lambda handler: handler.reply(data[:100], length=len(data))
    error = failing(get, "demo")
    assert (str(error), error.code) == (f"the connection to `127.0.0.1:{site.port}` broke before the end", 3)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_truncated_page(site, get):
    site.routes["/simple/demo/"] = lambda handler: handler.reply(b"{", length=99, Content_Type=JSON_TYPE)
    assert "broke before the end" in str(failing(get, "demo"))


@pytest.mark.parametrize("path", ["/simple/demo/", "/files/demo-1.0.tar.gz"])
def test_a_server_that_hangs(site, get, tmp_path, path):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    site.routes[path] = site.hang
    error = failing(get, "demo", config=config_for(site, timeout_seconds=0.2))
    assert (str(error), error.code) == (f"`127.0.0.1:{site.port}` did not answer in time", 3)
    assert not leftovers(tmp_path)


def test_a_server_that_stops_in_the_middle(site, get, tmp_path):
    data = sdist()
    site.publish("demo", {"demo-1.0.tar.gz": data})

    def stall(handler):
        handler.reply(data[:100], length=len(data))
        site.hang(handler)

    site.routes["/files/demo-1.0.tar.gz"] = stall
    error = failing(get, "demo", config=config_for(site, timeout_seconds=0.2))
    assert (str(error), error.code) == (f"`127.0.0.1:{site.port}` did not answer in time", 3)
    assert not leftovers(tmp_path)


def test_a_download_that_takes_too_long_in_all(site, get, tmp_path):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    error = failing(get, "demo", limits=FetchLimits(download_seconds=-1))
    assert "did not finish within" in str(error)
    assert error.code == 3
    assert not leftovers(tmp_path)


def test_a_download_that_is_too_large(site, get, tmp_path):
    data = sdist()
    site.publish("demo", {"demo-1.0.tar.gz": data})
    limits = FetchLimits(download_bytes=len(data) - 1)
    assert f"has {len(data):,} bytes" in str(failing(get, "demo", limits=limits))

    def unsized(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(data)

    site.routes["/files/demo-1.0.tar.gz"] = unsized
    assert "sent more than" in str(failing(get, "demo", limits=limits))
    assert not leftovers(tmp_path)
    assert get("demo", limits=FetchLimits(download_bytes=len(data))).version == "1.0"


def test_redirects_are_followed_to_servers_only(site, get):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    site.routes["/old/demo/"] = lambda handler: handler.reply(b"", status=301, Location="/simple/demo/")
    site.routes["/elsewhere"] = site.routes["/files/demo-1.0.tar.gz"]
    site.routes["/files/demo-1.0.tar.gz"] = lambda handler: handler.reply(
        b"", status=302, Location=f"{site.url}/elsewhere"
    )
    release = get("demo", config=config_for(site, index_urls=(f"{site.url}/old",)))
    assert (release.filename, release.verified) == ("demo-1.0.tar.gz", "index")
    site.publish(
        "other",
        {"other-1.0.tar.gz": lambda handler: handler.reply(b"", status=302, Location="file:///etc/passwd")},
    )
    assert failing(get, "other").code == 3
    site.routes["/simple/loop/"] = lambda handler: handler.reply(b"", status=302, Location="/simple/loop/")
    assert failing(get, "loop").code == 3


def test_a_server_cannot_make_us_read_our_own_files(site, get, tmp_path):
    (tmp_path / "demo-1.0.tar.gz").write_bytes(sdist())
    entry = {"filename": "demo-1.0.tar.gz", "url": (tmp_path / "demo-1.0.tar.gz").as_uri(), "hashes": {}}
    for page in (site.json_page("demo", [entry]), site.html_page([entry])):
        site.routes["/simple/demo/"] = page
        assert "has no sdist and no wheel" in str(failing(get, "demo"))


@pytest.mark.parametrize(
    "name", ["..%2F..%2Fdemo-1.0.tar.gz", "a%5Cdemo-1.0.tar.gz", "demo-1.0.tar.gz%00", "demo-1.0%0A.tar.gz"]
)
def test_a_file_name_cannot_climb(site, get, tmp_path, name):
    for page in (site.json_page, lambda _, entries: site.html_page(entries)):
        site.routes["/simple/demo/"] = page("demo", [{"filename": name, "url": f"/files/{name}", "hashes": {}}])
        assert "has no sdist and no wheel" in str(failing(get, "demo"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", JSON_TYPE),
        (b"[" * 100_000, JSON_TYPE),
        (b'{"meta": {"api-version": "1.0"}}', JSON_TYPE),
        (b'{"meta": {"api-version": "9.0"}, "name": "demo", "files": []}', JSON_TYPE),
        (b"GIF89a", "image/gif"),
        (b'<meta name="pypi:repository-version" content="9.0">', "text/html"),
    ],
)
def test_pages_that_are_no_index(site, get, body, kind):
    site.routes["/simple/demo/"] = lambda handler: handler.reply(body, Content_Type=kind)
    assert failing(get, "demo").code == 3


def test_a_page_that_is_compressed(site, get):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    body = site.html_page([{"filename": "x", "url": "/files/demo-1.0.tar.gz", "hashes": {}}])
    plain = []
    body(type("Handler", (), {"reply": staticmethod(lambda data, **_: plain.append(data))}))
    site.routes["/simple/demo/"] = lambda handler: handler.reply(
        gzip.compress(plain[0]), Content_Type="text/html", Content_Encoding="gzip"
    )
    # A server that takes the archive's own compression for the transfer's changes nothing.
    site.routes["/files/demo-1.0.tar.gz"] = lambda handler: handler.reply(sdist(), Content_Encoding="gzip")
    assert get("demo").sha256 == sha256(sdist())


def test_an_unreachable_server(get, site):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound, but nobody listens
        error = failing(get, "demo", config=config_for(site, index_urls=(f"http://127.0.0.1:{port}/simple",)))
    assert (str(error), error.code) == (f"cannot connect to `127.0.0.1:{port}`", 3)
    assert "PIP_INDEX_URL" in error.help
    assert "--find-links" in error.help
    error = failing(get, "demo", config=config_for(site, index_urls=("http://no-such-host.invalid/simple",)))
    assert (str(error), error.code) == ("`no-such-host.invalid` has no address: its name cannot be looked up", 3)


def test_a_proxy(site, get):
    page = site.html_page([{"filename": "x", "url": "/f/demo-1.0.tar.gz", "hashes": {}}])
    site.routes["http://index.invalid/simple/demo/"] = page
    site.routes["http://index.invalid/f/demo-1.0.tar.gz"] = sdist()
    config = config_for(site, index_urls=("http://index.invalid/simple",), proxy=site.url)
    assert get("demo", config=config).version == "1.0"
    error = failing(get, "demo", config=config_for(site, index_urls=("https://index.invalid/simple",), proxy=site.url))
    assert error.code == 3
    assert "PIP_PROXY" in error.help


@pytest.fixture
def secure(site, tmp_path):
    """The site behind TLS, with a certificate that only `tmp_path/ca.pem` vouches for."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.pem"]
    folder = tmp_path / "tls"
    folder.mkdir()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    site.server.socket = context.wrap_socket(site.server.socket, server_side=True)
    site.server.handle_error = lambda *_: None  # clients that turn away are what is tested
    site.url = f"https://127.0.0.1:{site.port}"
    return folder / "ca.pem"


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_certificates(site, get, secure, monkeypatch):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    error = failing(get, "demo")
    assert (str(error), error.code) == (f"the certificate of `127.0.0.1:{site.port}` was not accepted", 3)
    assert "PIP_CERT" in error.help
    assert get("demo", config=config_for(site, cert=str(secure))).version == "1.0"
    assert get("demo", config=config_for(site, trusted_hosts=("127.0.0.1",))).version == "1.0"
    assert get("demo", config=config_for(site, trusted_hosts=(f"127.0.0.1:{site.port}",))).version == "1.0"
    assert failing(get, "demo", config=config_for(site, trusted_hosts=("127.0.0.1:1", "other"))).code == 3
    # pip's setting beats the environment's, which requests by itself would prefer.
    import certifi

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    assert get("demo", config=config_for(site, cert=str(secure))).version == "1.0"


def guarded(route, user):
    expected = "Basic " + base64.b64encode(user.encode()).decode()

    def answer(handler):
        if handler.headers["Authorization"] != expected:
            handler.reply(b"", status=401)
        elif callable(route):
            route(handler)
        else:
            handler.reply(route)

    return answer


def test_credentials_are_used_and_kept_to_ourselves(site, get, tmp_path, capfd):
    site.publish("demo", {"demo-1.0.tar.gz": sdist(), "demo-2.0.tar.gz": sdist(version="2.0")})
    absolute = {"filename": "x", "url": f"{site.url}/files/demo-2.0.tar.gz", "hashes": {}}
    relative = {"filename": "x", "url": "../../files/demo-1.0.tar.gz", "hashes": {}}
    site.routes["/simple/demo/"] = site.json_page("demo", [absolute, relative])
    for path, route in list(site.routes.items()):
        site.routes[path] = guarded(route, "me:pass@word")
    right = config_for(site, index_urls=(f"http://me:pass%40word@127.0.0.1:{site.port}/simple",))
    for text in ("demo==1.0", "demo==2.0"):
        assert "pass" not in get(text, config=right).model_dump_json().replace(str(tmp_path), "")
    wrong = config_for(site, index_urls=(f"http://me:wrongword@127.0.0.1:{site.port}/simple",))
    error = failing(get, "demo", config=wrong)
    assert error.code == 3
    assert "user name and password" in error.help
    seen = str(error) + error.help + repr(error.__cause__) + repr(wrong) + "".join(capfd.readouterr())
    assert "wrongword" not in seen
    dead = config_for(site, index_urls=("http://me:wrongword@no-such-host.invalid/simple",))
    error = failing(get, "demo", config=dead)
    assert "wrongword" not in str(error) + error.help + repr(error.__cause__)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "cache").rglob("*.json"))
    assert b"pass" not in kept
    assert b"127.0.0.1" not in kept


def test_credentials_do_not_go_to_another_host(site, get):
    other = Site()
    try:
        other.publish("demo", {"demo-1.0.tar.gz": sdist()})
        seen = []

        def note(handler):
            seen.append(handler.headers["Authorization"])
            handler.reply(sdist())

        other.routes["/files/demo-1.0.tar.gz"] = note
        entry = {"filename": "x", "url": f"{other.url}/files/demo-1.0.tar.gz", "hashes": {}}
        site.routes["/simple/demo/"] = guarded(site.html_page([entry]), "me:secret")
        get("demo", config=config_for(site, index_urls=(f"http://me:secret@127.0.0.1:{site.port}/simple",)))
        assert seen == [None]
    finally:
        other.close()


def test_an_interrupt_leaves_no_download(site, get, tmp_path):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})

    def interrupt(_done, _total):
        assert leftovers(tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("demo", progress=interrupt)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_hostile_archive_leaves_nothing_in_the_work_folder(site, get, tmp_path):
    site.publish("demo", {"demo-1.0.tar.gz": sdist(files={"../../evil": b""})})
    assert "outside of the archive" in str(failing(get, "demo"))
    assert list((tmp_path / "work").iterdir()) == []
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    assert "entries" in str(failing(get, "demo", limits=FetchLimits(unpack=Limits(entries=1))))


def test_a_cache_that_cannot_be_written(site, get, tmp_path):
    site.publish("demo", {"demo-1.0.tar.gz": sdist()})
    (tmp_path / "file").write_text("")
    error = failing(get, "demo", cache_dir=tmp_path / "file")
    assert "cannot keep `demo-1.0.tar.gz` in the cache folder" in str(error)
    assert error.code == 3


@pytest.mark.parametrize(
    ("filename", "make", "kind"),
    [("demo-1.0.tar.gz", sdist, "sdist"), ("demo-1.0-py3-none-any.whl", wheel, "wheel")],
)
def test_a_local_archive(get, tmp_path, filename, make, kind):
    (tmp_path / filename).write_bytes(make())
    release = get(str(tmp_path / filename))
    assert (release.name, release.version, release.kind) == ("demo", "1.0", kind)
    assert (release.sha256, release.verified, release.location) == (sha256(make()), "unverified", filename)
    assert (release.root / "demo/__init__.py").is_file()
    assert not (tmp_path / "cache").exists()
    assert get(str(tmp_path / filename)) == release


def test_a_local_archive_whose_name_lies(get, tmp_path):
    for filename, content in (("demo-2.0.tar.gz", sdist()), ("other-1.0-py3-none-any.whl", wheel())):
        (tmp_path / filename).write_bytes(content)
        error = failing(get, str(tmp_path / filename))
        assert f"`{filename}` holds demo 1.0, which its name denies" in str(error)
        assert list((tmp_path / "work").iterdir()) == []
    # Versions and names are compared as such, not as text.
    (tmp_path / "Demo-1.0.0.tar.gz").write_bytes(sdist())
    assert get(str(tmp_path / "Demo-1.0.0.tar.gz")).version == "1.0.0"


def test_a_folder_is_read_where_it_is(get, tmp_path):
    folder = tmp_path / "My Lib"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "My_Lib"\nversion = "3.1"\n')
    (folder / "src/a.py").write_text("x = 1\n")
    release = get(str(folder))
    assert (release.name, release.version, release.kind) == ("my-lib", "3.1", "folder")
    assert (release.root, release.location, release.filename) == (folder.resolve(), "My Lib", "My Lib")
    assert release.verified == "unverified"
    lines = [f"{sha256((folder / name).read_bytes())}  {name}\n" for name in ("pyproject.toml", "src/a.py")]
    assert release.sha256 == sha256("".join(lines).encode())
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["My Lib", "a.py", "pyproject.toml", "src"]


def test_a_folders_digest_is_of_its_sources(tmp_path):
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    before = folder_digest(folder)
    for name in (".git/HEAD", "__pycache__/a.pyc", ".venv/lib/b.py"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("")
    (folder / "link").symlink_to(tmp_path)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    assert folder_digest(folder) == before
    (folder / "a.py").rename(folder / "b.py")
    assert folder_digest(folder) != before
    with pytest.raises(SynthError, match="the folder holds more than 0 files"):
        folder_digest(folder, limits=Limits(entries=0))
    with pytest.raises(SynthError, match="more than"):
        folder_digest(folder, limits=Limits(total_bytes=5))


# Fetches, and fails if anything is run or imported.
CHILD = (
    "import sys\n"
    "from pathlib import Path\n"
    "from synth.fetch import fetch\n"
    "from synth.indexes import index_config\n"
    "from synth.targets import parse_target\n"
    "BANNED = ('subprocess.Popen', 'os.system', 'os.exec', 'os.posix_spawn', 'os.fork')\n"
    "def hook(event, args):\n"
    "    if event in BANNED:\n"
    "        raise SystemExit(f'{event} {args}')\n"
    "work = Path(sys.argv[2])\n"
    "sys.addaudithook(hook)\n"
    "release = fetch(parse_target(sys.argv[1]), config=index_config(), cache_dir=work / 'cache',\n"
    "                work_dir=work / 'work')\n"
    "root = str(work / 'work')\n"
    "ran = [m for m in sys.modules.values() if str(getattr(m, '__file__', '')).startswith(root)]\n"
    "assert not ran, ran\n"
    "print(release.model_dump_json())\n"
)


@pytest.mark.index
def test_a_real_release_from_the_configured_index(tmp_path):
    command = [sys.executable, "-c", CHILD, "numexpr==2.14.2", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    release = json.loads(done.stdout)
    assert (release["name"], release["version"]) == ("numexpr", "2.14.2")
    assert (release["kind"], release["verified"], release["location"]) == ("sdist", "index", "index")
    root = Path(release["root"])
    assert (root / "numexpr/utils.py").is_file()
    assert not list(root.rglob("*.so"))
    assert not list(root.rglob("__pycache__"))
