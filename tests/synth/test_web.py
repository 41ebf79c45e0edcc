"""The polite reader of web pages, against servers on the loopback address."""

import gzip
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from synth.records import SynthError
from synth.robots import Robots, parse_robots
from synth.web import LimitError, PageCache, RefusedError, Web, WebLimits, host_of, is_private, plain_url


class Site(BaseHTTPRequestHandler):
    """Answers from `server.pages`: path -> (status, headers, body); remembers what was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        status, headers, body = self.server.pages.get(self.path, (404, {}, b""))
        tag = headers.get("ETag")
        if tag is not None and self.headers.get("If-None-Match") == tag:
            status, body = 304, b""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def site(pages):
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.pages, server.asked, server.daemon_threads = pages, [], True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server
        finally:
            server.shutdown()
            thread.join()


HTML = {"Content-Type": "text/html; charset=utf-8"}
OWN = frozenset({"127.0.0.1"})


class Time:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now, self.slept = 1000.0, []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def test_a_page_is_read_and_the_reader_is_named():
    with site({"/a.html": (200, HTML, b"<p>x</p>")}) as (base, server), Web(named=OWN) as web:
        page = web.get(f"{base}/a.html#part")
    assert (page.url, page.kind, page.body, page.cached) == (f"{base}/a.html", "text/html", b"<p>x</p>", False)
    assert [path for path, _ in server.asked] == ["/robots.txt", "/a.html"]
    assert all(headers["User-Agent"].startswith("syspilot-lpc/") for _, headers in server.asked)
    assert not any("Authorization" in headers for _, headers in server.asked)


def test_robots_are_obeyed():
    rules = b"User-agent: *\nDisallow: /private/\nAllow: /private/open\n"
    pages = {"/robots.txt": (200, {}, rules), "/private/open": (200, HTML, b"ok"), "/private/x": (200, HTML, b"no")}
    with site(pages) as (base, server), Web(named=OWN) as web:
        assert web.get(f"{base}/private/open").body == b"ok"
        with pytest.raises(RefusedError, match=r"robots.txt does not allow"):
            web.get(f"{base}/private/x")
    assert "/private/x" not in [path for path, _ in server.asked]


@pytest.mark.parametrize(("status", "read"), [(404, True), (403, True), (500, False), (503, False), (429, False)])
def test_a_site_without_rules(status, read):
    with site({"/robots.txt": (status, {}, b""), "/a": (200, HTML, b"x")}) as (base, server), Web(named=OWN) as web:
        if read:
            assert web.get(f"{base}/a").body == b"x"
            return
        with pytest.raises(RefusedError, match=f"HTTP status {status}"):
            web.get(f"{base}/a")
    assert [path for path, _ in server.asked] == ["/robots.txt"]


def test_requests_keep_their_distance():
    pages = {"/robots.txt": (200, {}, b"User-agent: *\nCrawl-delay: 4\n")} | {
        f"/{n}": (200, HTML, b"x") for n in range(3)
    }
    time = Time()
    with site(pages) as (base, _), Web(named=OWN, clock=time.clock, sleep=time.sleep) as web:
        for n in range(3):
            web.get(f"{base}/{n}")
    assert time.slept == [4.0, 4.0, 4.0]


def test_a_site_that_asks_for_much_time_is_not_read():
    rules = (200, {}, b"User-agent: *\nCrawl-delay: 300\n")
    with (
        site({"/robots.txt": rules}) as (base, _),
        Web(named=OWN) as web,
        pytest.raises(RefusedError, match="asks for 300 s"),
    ):
        web.get(f"{base}/a")


def test_slow_down_stops_the_site():
    pages = {"/a": (429, {"Retry-After": "3600"}, b""), "/b": (200, HTML, b"x")}
    with site(pages) as (base, server), Web(named=OWN) as web:
        with pytest.raises(SynthError, match="429"):
            web.get(f"{base}/a")
        with pytest.raises(RefusedError, match="slow down"):
            web.get(f"{base}/b")
    assert "/b" not in [path for path, _ in server.asked]


def test_only_what_changed_is_sent_again(tmp_path):
    tagged = HTML | {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    pages = {"/a": (200, tagged, b"first")}
    with site(pages) as (base, server):
        for body, cached in ((b"first", False), (b"first", True)):
            with Web(named=OWN, cache=PageCache(tmp_path)) as web:
                page = web.get(f"{base}/a")
                assert (page.body, page.cached) == (body, cached)
        asked = [headers for path, headers in server.asked if path == "/a"]
        assert asked[1]["If-None-Match"] == '"1"'
        assert asked[1]["If-Modified-Since"].startswith("Mon, 01 Jan")
        pages["/a"] = (200, HTML | {"ETag": '"2"'}, b"second")
        with Web(named=OWN, cache=PageCache(tmp_path)) as web:
            assert web.get(f"{base}/a").body == b"second"
        with Web(named=OWN, cache=PageCache(tmp_path), offline=True) as web:
            before = len(server.asked)
            assert web.get(f"{base}/a").body == b"second"
            with pytest.raises(RefusedError, match="not in the cache"):
                web.get(f"{base}/b")
            assert len(server.asked) == before


@pytest.mark.parametrize("damage", ["body", "note", "shape", "other"])
def test_a_damaged_cache_is_read_again(tmp_path, damage):
    with site({"/a": (200, HTML | {"ETag": '"1"'}, b"right")}) as (base, _):
        with Web(named=OWN, cache=PageCache(tmp_path)) as web:
            web.get(f"{base}/a")
        for path in tmp_path.rglob("bodies/*" if damage == "body" else "notes/*"):
            if damage == "other":
                path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": "../../../etc/passwd"}))
            else:
                path.write_bytes({"body": b"wrong", "note": b"{", "shape": b'{"schema": 1}'}[damage])
        with Web(named=OWN, cache=PageCache(tmp_path)) as web:
            page = web.get(f"{base}/a")
            assert (page.body, page.cached) == (b"right", False)


def test_the_cache_is_bounded(tmp_path):
    pages = {f"/{n}": (200, HTML, bytes([n]) * 1000) for n in range(9)}
    with site(pages) as (base, _), Web(named=OWN, cache=PageCache(tmp_path, 4_500)) as web:
        for n in range(9):
            web.get(f"{base}/{n}")
    assert sum(path.stat().st_size for path in tmp_path.rglob("bodies/*")) <= 4_500


def test_redirects_are_followed_within_bounds():
    pages = {
        "/a": (302, {"Location": "/b"}, b""),
        "/b": (200, HTML, b"b"),
        "/loop": (301, {"Location": "/loop"}, b""),
        "/file": (302, {"Location": "file:///etc/passwd"}, b""),
        "/inside": (302, {"Location": "http://10.0.0.1/"}, b""),
        "/meta": (302, {"Location": "http://169.254.169.254/latest"}, b""),
        "/six": (302, {"Location": "http://[::1]:1/"}, b""),
    }
    with site(pages) as (base, _), Web(named=OWN) as web:
        assert web.get(f"{base}/a").url == f"{base}/b"
        refused = {"loop": "redirected more", "file": "none of a web page"}
        refused |= dict.fromkeys(("inside", "meta", "six"), "private")
        for path, why in refused.items():
            with pytest.raises(RefusedError, match=why):
                web.get(f"{base}/{path}")


def test_a_private_address_is_not_read_unasked():
    with site({"/a": (200, HTML, b"x")}) as (base, server), Web() as web:
        for url in (f"{base}/a", base.replace("127.0.0.1", "localhost"), "http://192.168.1.1/", "http://[fd00::1]/"):
            with pytest.raises(RefusedError, match="private"):
                web.get(url)
        assert server.asked == []


def test_a_public_name_that_leads_inside_is_caught_before_anything_is_sent(monkeypatch):
    real = socket.getaddrinfo

    def lookup(host, port, *args, **kwargs):
        return real("127.0.0.1" if host == "docs.example.org" else host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with site({"/a": (200, HTML, b"x")}) as (base, server), Web() as web:
        with pytest.raises(RefusedError, match="private address"):
            web.get(base.replace("127.0.0.1", "docs.example.org") + "/a")
        assert server.asked == []


def test_a_proxy_is_used(monkeypatch):
    with site({"http://docs.example.org/a": (200, HTML, b"through")}) as (base, server):
        monkeypatch.setenv("http_proxy", base)
        monkeypatch.setenv("no_proxy", "")
        with Web() as web:
            assert web.get("http://docs.example.org/a").body == b"through"
        assert [path for path, _ in server.asked] == ["http://docs.example.org/robots.txt", "http://docs.example.org/a"]


def test_size_and_count_are_bounded():
    bomb = gzip.compress(b"0" * 5_000_000)
    pages = {"/big": (200, HTML | {"Content-Encoding": "gzip"}, bomb)} | {f"/{n}": (200, HTML, b"x") for n in range(9)}
    limits = WebLimits(page_bytes=1_000_000, pages=4)
    with site(pages) as (base, _), Web(named=OWN, limits=limits) as web:
        with pytest.raises(SynthError, match="more than 1,000,000 bytes"):
            web.get(f"{base}/big")
        for n in range(3):
            web.get(f"{base}/{n}")
        with pytest.raises(LimitError, match="more than 4 pages"):
            web.get(f"{base}/5")


def test_time_is_bounded():
    time = Time()
    with site({"/a": (200, HTML, b"x")}) as (base, _), Web(named=OWN, clock=time.clock, sleep=time.sleep) as web:
        web.get(f"{base}/a")
        time.now += 10_000
        with pytest.raises(LimitError, match="longer than 600 s"):
            web.get(f"{base}/a")


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://user:secret@Docs.Example.ORG:443/a b#x", "https://docs.example.org/a%20b"),
        ("http://example.org", "http://example.org/"),
        ("http://[2001:DB8::1]:8080/x?q=1", "http://[2001:db8::1]:8080/x?q=1"),
    ],
)
def test_plain_url(url, plain):
    assert plain_url(url) == plain


@pytest.mark.parametrize(
    "url", ["", "file:///etc/passwd", "ftp://x/", "http://", "http://[", "http://x:99999999/", "//x"]
)
def test_what_is_no_address(url):
    with pytest.raises(RefusedError):
        plain_url(url)
    with pytest.raises(RefusedError):
        host_of(url)


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True), ("10.1.2.3", True), ("169.254.169.254", True), ("::1", True), ("::ffff:10.0.0.1", True),
        ("fe80::1%eth0", True), ("224.0.0.1", True), ("0.0.0.0", True), ("100.64.0.1", True), ("8.8.8.8", False),
        ("2606:4700::1", False), ("example.org", False),
    ],
)  # fmt: skip
def test_is_private(address, private):
    assert is_private(address) is private


ROBOTS = """\
# words
User-agent: other
Disallow: /

User-agent: a
User-agent: *
Disallow: /x*y$
Disallow: /search
Allow: /search/open
Disallow: /*.pdf$
Disallow: /%7Eme
Crawl-delay: 2.5
Sitemap: https://example.org/sitemap.xml
"""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True), ("/x1y", False), ("/x1yz", True), ("/search/1", False), ("/search/open/1", True),
        ("/a/b.pdf", False), ("/a/b.pdf?x", True), ("/~me/1", False), ("", True),
    ],
)  # fmt: skip
def test_robots(path, allowed):
    rules = parse_robots(ROBOTS, "agent/1")
    assert rules.allows(path) is allowed
    assert rules.delay_seconds == 2.5
    assert rules.sitemaps == ("https://example.org/sitemap.xml",)


def test_robots_for_us_and_for_nobody():
    assert not parse_robots("User-agent: Syspilot\nDisallow: /\n\nUser-agent: *\nDisallow:\n", "syspilot/1").allows("/")
    assert parse_robots("User-agent: *\nDisallow:\n", "syspilot/1").allows("/")
    assert Robots().allows("/x")
    assert parse_robots("garbage\0\n" * 10, "a").allows("/")
    many = parse_robots("User-agent: *\n" + "Disallow: /" + "*a" * 500 + "\n" * 2, "a")
    assert many.allows("/" + "a" * 400)
