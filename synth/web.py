"""Read pages of the web politely: as robots.txt allows, slowly, and only what has changed since the last time.

An address that is private to a machine or a network is read only where the user named it; names are checked again
once they are looked up, so that a public name cannot lead inside.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from synth.indexes import network_error, read_stream
from synth.records import SynthError
from synth.robots import MAX_BYTES, NOTHING, Robots, parse_robots

READER = "syspilot-lpc/0.1 (reads documentation; obeys robots.txt)"
_SCHEMA = 1
_REDIRECTS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})
_SLOW_DOWN = frozenset({429, 503})
_PORTS = {"http": 80, "https": 443}


class RefusedError(SynthError):
    """An address is not read, by our own rules or the site's; the others may be."""


class LimitError(RefusedError):
    """No page more is read."""


@dataclass(frozen=True, slots=True)
class WebLimits:
    """How much to read, how fast, and for how long.

    Attributes:
        page_bytes: largest page after decoding.
        page_seconds: longest time for one page.
        total_bytes, total_seconds, pages: bounds of all that one `Web` reads.
        delay_seconds: least time between two requests to one host; none to the machine itself.
        longest_delay_seconds: a site that asks for more is not read.
        cache_bytes: what the cache may hold.
    """

    page_bytes: int = 8 << 20
    page_seconds: float = 30.0
    total_bytes: int = 256 << 20
    total_seconds: float = 600.0
    pages: int = 500
    delay_seconds: float = 0.5
    longest_delay_seconds: float = 30.0
    cache_bytes: int = 512 << 20


@dataclass(frozen=True, slots=True)
class Page:
    """What an address led to.

    Attributes:
        url: the address after redirects, without user name, password and fragment.
        kind: media type, lower case, without parameters.
        cached: the server was not asked, or said that nothing has changed.
    """

    url: str
    kind: str
    body: bytes
    cached: bool = False


def plain_url(url: str, base: str = "") -> str:
    """An address in one form: absolute, no fragment, no credentials, the host in lower case.

    Raises:
        RefusedError: it is no address of a page.
    """
    try:
        parts = urlsplit(urljoin(base, url.strip()) if base else url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if not host or parts.scheme not in _PORTS or len(url) > 2_000:
        raise RefusedError("the address is none of a web page", help_text="give an address that starts with https://")
    shown = f"[{host}]" if ":" in host else host
    place = shown if port in (None, _PORTS[parts.scheme]) else f"{shown}:{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return urlunsplit((parts.scheme, place, path, parts.query, ""))


def site_of(url: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def host_of(url: str) -> str:
    """Host of an address in lower case.

    Raises:
        RefusedError: it is no address of a page.
    """
    return urlsplit(plain_url(url)).hostname or ""


def is_url(place: str) -> bool:
    """Whether a place is written as an address of the web."""
    return place.lower().startswith(("http://", "https://"))


def is_private(address: str) -> bool:
    """Whether an IP address is not of the public net."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    found = mapped or found
    return not found.is_global or found.is_multicast


def _private_host(host: str) -> bool:
    return is_private(host) or host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


class _Guard:
    """Lets connections go to public addresses and to the hosts that the user named."""

    def __init__(self, named: frozenset[str]) -> None:
        self.named = named

    def check(self, connected: socket.socket, host: str) -> None:
        peer = connected.getpeername()[0]
        if is_private(str(peer)) and host not in self.named:
            connected.close()
            raise RefusedError(f"`{host}` leads to a private address", help_text="name that host yourself to read it")


def _pool_classes(guard: _Guard) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            connected = super()._new_conn()
            guard.check(connected, self.host)
            return connected

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            connected = super()._new_conn()
            guard.check(connected, self.host)
            return connected

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


class _Adapter(HTTPAdapter):
    """Checks the address that a connection really has, before anything is sent.

    Through a proxy it is the proxy that connects, and only addresses written out can be checked.
    """

    def __init__(self, guard: _Guard) -> None:
        self._guard = guard
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pool_classes(self._guard)


@dataclass
class PageCache:
    """Pages on disk: the bytes under their digest, and a note for each address."""

    folder: Path
    bytes: int = 512 << 20

    def get(self, url: str) -> tuple[Page, dict[str, str]] | None:
        """The page as it was, and the headers that ask whether it has changed."""
        note_path = self._note(url)
        try:
            note = json.loads(note_path.read_bytes())
            body = self._body(str(note["sha256"])).read_bytes()
            page = Page(plain_url(str(note["final"])), str(note["kind"]), body, cached=True)
            valid = note["schema"] == _SCHEMA and note["url"] == url and sha256(body).hexdigest() == note["sha256"]
            kept = note["validators"].items()
            asked = {str(k): str(v) for k, v in kept if k in ("If-None-Match", "If-Modified-Since")}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SynthError):
            return None
        return (page, asked) if valid else None

    def put(self, url: str, page: Page, validators: dict[str, str]) -> None:
        """Keep a page; a full or read-only disk is no reason to stop."""
        digest = sha256(page.body).hexdigest()
        note = {"schema": _SCHEMA, "url": url, "final": page.url, "kind": page.kind, "sha256": digest}
        try:
            _replace(self._body(digest), page.body)
            _replace(self._note(url), json.dumps({**note, "validators": validators}).encode())
        except OSError:
            return

    def prune(self) -> None:
        """Remove the pages longest unused until the rest fits."""
        try:
            found = sorted((s.st_mtime, s.st_size, p) for p in (self.folder / "bodies").glob("*") for s in [p.stat()])
        except OSError:
            return
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= self.bytes:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _note(self, url: str) -> Path:
        return self.folder / "notes" / f"{sha256(url.encode()).hexdigest()}.json"

    def _body(self, digest: str) -> Path:
        if len(digest) != 64 or not digest.isalnum():
            raise ValueError(digest)
        return self.folder / "bodies" / digest


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that it is whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(part).replace(path)
    except OSError:
        Path(part).unlink(missing_ok=True)
        raise


@dataclass
class Web:
    """Reads pages for one purpose, within limits that hold for all of them together.

    Attributes:
        named: hosts that the user named: these may be private.
        cache: where pages are kept, None to keep none.
        offline: use the cache only.
        clock, sleep: of the time in seconds.
    """

    named: frozenset[str] = frozenset()
    cache: PageCache | None = None
    offline: bool = False
    limits: WebLimits = field(default_factory=WebLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    read_pages: int = 0
    read_bytes: int = 0
    _robots: dict[str, Robots] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _stopped: dict[str, str] = field(default_factory=dict)
    _session: requests.Session | None = None
    _deadline: float | None = None

    def __enter__(self) -> Self:
        """Nothing is opened yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close connections, and bring the cache back to its size."""
        if self._session is not None:
            self._session.close()
        if self.cache is not None:
            self.cache.prune()

    def robots(self, site: str) -> Robots:
        """The rules of a site; one that cannot tell them is not read."""
        if site not in self._robots:
            self._robots[site] = NOTHING
            try:
                page = self._load(f"{site}/robots.txt", limit=MAX_BYTES, rules=False)
                self._robots[site] = parse_robots(page.body.decode("utf-8", "replace"), READER)
            except _StatusError as error:
                if 400 <= error.status < 500 and error.status not in _SLOW_DOWN:
                    self._robots[site] = Robots()
                else:
                    self._stopped[site] = f"its robots.txt answered with HTTP status {error.status}"
        return self._robots[site]

    def get(self, url: str) -> Page:
        """Read a page.

        Raises:
            RefusedError: the address, the site's rules or a limit forbid it.
            SynthError: the network or the server failed.
        """
        if self.read_pages >= self.limits.pages or self.read_bytes >= self.limits.total_bytes:
            raise LimitError(f"more than {self.limits.pages} pages or {self.limits.total_bytes:,} bytes")
        self.read_pages += 1
        page = self._load(plain_url(url), limit=self.limits.page_bytes, rules=True)
        self.read_bytes += len(page.body)
        return page

    def _load(self, url: str, *, limit: int, rules: bool) -> Page:
        first, here = url, url
        for _ in range(_REDIRECTS + 1):
            self._check(here)
            if rules and not self.offline:
                self._check_robots(here)
            known = self.cache.get(here) if self.cache is not None else None
            if self.offline:
                if known is None:
                    raise RefusedError(f"`{here}` is not in the cache")
                return known[0]
            response = self._ask(here, known[1] if known is not None else {})
            with response:
                if response.status_code == 304 and known is not None:
                    return known[0]
                if response.status_code in _MOVED and response.headers.get("Location"):
                    here = self._moved(here, response.headers["Location"])
                    continue
                return self._taken(first, here, response, limit)
        raise RefusedError(f"`{first}` is redirected more than {_REDIRECTS} times")

    def _moved(self, here: str, location: str) -> str:
        target = plain_url(location, here)
        if here.startswith("https:") and target.startswith("http:"):
            raise RefusedError(f"`{here}` is redirected to an address without encryption")
        return target

    def _check(self, url: str) -> None:
        host = urlsplit(url).hostname or ""
        if _private_host(host) and host not in self.named:
            raise RefusedError(f"`{host}` is a private address", help_text="name that host yourself to read it")
        if self._deadline is None:
            self._deadline = self.clock() + self.limits.total_seconds
        if self.clock() > self._deadline:
            raise LimitError(f"reading took longer than {self.limits.total_seconds:g} s")

    def _check_robots(self, url: str) -> None:
        site, parts = site_of(url), urlsplit(url)
        rules = self.robots(site)
        if site in self._stopped:
            raise RefusedError(f"`{site}` is not read: {self._stopped[site]}")
        if not rules.allows(parts.path + (f"?{parts.query}" if parts.query else "")):
            raise RefusedError(f"the site's robots.txt does not allow `{url}`")
        if (rules.delay_seconds or 0) > self.limits.longest_delay_seconds:
            raise RefusedError(f"the site asks for {rules.delay_seconds:g} s between requests")

    def _wait(self, site: str) -> None:
        """Keep the distance between two requests to one site."""
        own = _private_host(urlsplit(site).hostname or "")
        asked = self._robots[site].delay_seconds if site in self._robots else None
        delay = max(0.0 if own else self.limits.delay_seconds, asked or 0.0)
        now = self.clock()
        left = self._last.get(site, now - delay) + delay - now
        if left > 0:
            self.sleep(left)
        self._last[site] = self.clock()

    def _ask(self, url: str, asked: dict[str, str]) -> requests.Response:
        if self._session is None:
            self._session = requests.Session()
            self._session.auth = lambda request: request  # no credentials of the user's netrc file
            for scheme in ("http://", "https://"):
                self._session.mount(scheme, _Adapter(_Guard(self.named)))
        site = site_of(url)
        self._wait(site)
        headers = {"User-Agent": READER, "Accept-Language": "en", **asked}
        seconds = self.limits.page_seconds
        try:
            response = self._session.get(
                url, headers=headers, stream=True, allow_redirects=False, timeout=(min(10.0, seconds), seconds)
            )
        except (requests.RequestException, OSError) as error:
            raise network_error(url, error) from None
        if response.status_code in _SLOW_DOWN:
            self._stopped[site] = f"it asked to slow down (HTTP status {response.status_code})"
        return response

    def _taken(self, first: str, here: str, response: requests.Response, limit: int) -> Page:
        if response.status_code != 200:
            raise _StatusError(here, response.status_code)
        body = b"".join(
            read_stream(response, max_bytes=limit, max_seconds=self.limits.page_seconds, decode=True),
        )
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        page = Page(here, kind, body)
        if self.cache is not None:
            names = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
            validators = {names[h]: response.headers[h] for h in names if h in response.headers}
            for url in {first, here}:
                self.cache.put(url, page, validators if url == here else {})
        return page


class _StatusError(SynthError):
    """A server answered with something else than a page."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"`{url}` answered with HTTP status {status}", help_text="check the address", code=3)
        self.status = status
