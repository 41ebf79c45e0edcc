"""Where pip would look for a project, and what it would find there.

The configuration is read as pip reads it (files, then environment, then arguments). Credentials in URLs are
used, and are kept out of every message, representation and record.
"""

from __future__ import annotations

import configparser
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import url2pathname

import requests
import urllib3
from packaging.tags import Tag
from packaging.version import Version
from pypi_simple import (
    ACCEPT_ANY,
    PYPI_SIMPLE_ENDPOINT,
    DistributionPackage,
    ProjectPage,
    UnsupportedRepoVersionError,
)
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from synth.records import SynthError
from synth.targets import read_filename

# The public index, as pip takes it where nothing is configured.
DEFAULT_INDEX_URL = PYPI_SIMPLE_ENDPOINT.rstrip("/")

_PAGE_BYTES = 256 << 20  # the largest project pages of the public index take tens of megabytes
_PAGE_SECONDS = 300.0
_CHUNK_BYTES = 64 << 10
# One option, several spellings.
_ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
_SECTIONS = ("global", "install", "download")
_TRUE = {"y", "yes", "t", "true", "on", "1"}
_FALSE = {"n", "no", "f", "false", "off", "0"}
_RETRIED = (429, 500, 502, 503, 504, 520, 527)
_NETWORK_HELP = (
    "check the network, or name an index with --index-url or PIP_INDEX_URL, or a folder of archives with --find-links"
)


@dataclass(frozen=True)
class IndexConfig:
    """Where to look and how to connect.

    Attributes:
        index_urls: simple indexes, the main one first; all are asked.
        find_links: folders, HTML pages and archives, as paths or URLs.
        cert: file of certificate authorities; `None` for the default.
        client_cert: file with the client's key and certificate.
        proxy: URL of the proxy; `None` leaves it to the environment.
        timeout_seconds: of one wait for the network.
        retries: repeats of a request that failed.
        trusted_hosts: `host` or `host:port` whose certificates are not checked.
    """

    index_urls: tuple[str, ...] = field(default=(DEFAULT_INDEX_URL,), repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = field(default=None, repr=False)
    timeout_seconds: float = 15.0
    retries: int = 5
    trusted_hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexFile:
    """One archive that can be had.

    Attributes:
        url: http(s) or file URL; `""` for an archive that is known from the cache only.
        digests: by algorithm, as the index states them.
        yanked: per PEP 592.
        tags: of a wheel.
        size_bytes: as the index states it.
        source: an index or a find-links place.
    """

    name: str
    version: Version
    kind: Literal["sdist", "wheel"]
    filename: str
    url: str = field(default="", repr=False)
    digests: Mapping[str, str] = field(default_factory=dict)
    yanked: bool = False
    tags: frozenset[Tag] = frozenset()
    size_bytes: int | None = None
    source: Literal["index", "links"] = "index"


@dataclass(frozen=True)
class Listing:
    """What all places together have of one project.

    Attributes:
        known: whether any place knows the project, if only without files.
        failures: places that could not be asked.
    """

    files: tuple[IndexFile, ...]
    known: bool
    failures: tuple[SynthError, ...]


def index_config(
    *,
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    find_links: Sequence[str] = (),
    no_index: bool = False,
    environ: Mapping[str, str] | None = None,
) -> IndexConfig:
    """Find the user's configured indexes as pip does.

    Args:
        index_url: replaces the configured main index.
        extra_index_urls: added to the configured ones.
        find_links: added to the configured ones.
        no_index: ask no index, whatever is configured.
        environ: environment to read; `os.environ` by default.

    Raises:
        SynthError: a configuration file or value cannot be understood.
    """
    options = pip_options(os.environ if environ is None else environ)
    main = (index_url or options.get("index-url") or DEFAULT_INDEX_URL).strip()
    urls = [main, *options.get("extra-index-url", "").split(), *extra_index_urls]
    if no_index or _flag("no-index", options.get("no-index", "no")):
        urls = []
    links = [*options.get("find-links", "").split(), *find_links]
    return IndexConfig(
        index_urls=tuple(dict.fromkeys(_as_url(url) for url in urls)),
        find_links=tuple(dict.fromkeys(_link_url(link) for link in links)),
        cert=_existing("cert", options.get("cert")),
        client_cert=_existing("client-cert", options.get("client-cert")),
        proxy=options.get("proxy"),
        timeout_seconds=_number("timeout", options.get("timeout", "15"), least=0.001),
        retries=int(_number("retries", options.get("retries", "5"), least=0)),
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
    )


def pip_options(environ: Mapping[str, str], *, etc: Path = Path("/etc")) -> dict[str, str]:
    """Merge pip's configuration files and environment variables.

    Args:
        environ: environment to read.
        etc: the system's folder of configuration files.

    Returns:
        Option values by long name, without dashes in front; options set to nothing are absent, as in pip.
    """
    # pip merges all files first, key by key within sections, and ranks the sections afterwards: [install] of
    # a global file beats [global] of the user's.
    sections: dict[str, dict[str, str]] = {name: {} for name in (*_SECTIONS, ":env:")}
    for file in pip_config_files(environ, etc=etc):
        for section, values in _read_config(file).items():
            if section in sections:
                sections[section].update(values)
    for key, value in environ.items():
        if key.startswith("PIP_"):
            sections[":env:"][_option_name(key[4:])] = value
    merged: dict[str, str] = {}
    for values in sections.values():
        merged.update({_ALIASES.get(key, key): value for key, value in values.items() if value})
    return merged


def pip_config_files(environ: Mapping[str, str], *, etc: Path = Path("/etc")) -> list[Path]:
    """List the files that pip would read, weakest first, whether they exist or not."""
    explicit = environ.get("PIP_CONFIG_FILE")
    if explicit == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path("~").expanduser())
    system = [Path(folder) for folder in environ.get("XDG_CONFIG_DIRS", "").split(os.pathsep) if folder]
    files = [folder / "pip" / "pip.conf" for folder in system or [etc / "xdg"]]
    files.append(etc / "pip.conf")
    if not (explicit and Path(explicit).exists()):
        user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        files += [home / ".pip" / "pip.conf", user / "pip" / "pip.conf"]
    files.append(Path(environ.get("VIRTUAL_ENV") or sys.prefix) / "pip.conf")
    return [*files, Path(explicit)] if explicit else files


class IndexSession(requests.Session):
    """A session with the configuration's certificates, proxy, time limits and credentials."""

    def __init__(self, config: IndexConfig) -> None:
        """Prepare connections; nothing is sent yet."""
        super().__init__()
        self._config = config
        self._auth: dict[tuple[str, str], tuple[str, str]] = {}
        # A server's Retry-After could ask for hours.
        retry = Retry(
            total=config.retries,
            backoff_factor=0.25,
            status_forcelist=_RETRIED,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        self.mount("https://", HTTPAdapter(max_retries=retry))
        self.mount("http://", HTTPAdapter(max_retries=retry))
        for host in config.trusted_hosts:
            for end in ("/",) if ":" in host else ("/", ":"):
                self.mount(f"https://{host}{end}", _UncheckedAdapter(max_retries=retry))
        self.cert = config.client_cert
        for url in (*config.index_urls, *config.find_links):
            self._without_credentials(url)

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """Send one request; credentials that any earlier URL gave for its host are used."""
        clean = self._without_credentials(url.decode() if isinstance(url, bytes) else url)
        kwargs.setdefault("timeout", self._config.timeout_seconds)
        # Given with the request, as the environment's variables beat a session's own attributes.
        if self._config.cert is not None:
            kwargs.setdefault("verify", self._config.cert)
        if self._config.proxy is not None:
            kwargs.setdefault("proxies", dict.fromkeys(("http", "https"), self._config.proxy))
        parts = urlsplit(clean)
        kwargs.setdefault("auth", self._auth.get((parts.scheme, parts.netloc)))
        return super().request(method, clean, *args, **kwargs)

    def _without_credentials(self, url: str) -> str:
        # The response's URL, and with it each relative link and error text, comes from the URL asked for.
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        if at and parts.scheme in {"http", "https"}:
            name, _, password = user.partition(":")
            self._auth[parts.scheme, host] = (unquote(name), unquote(password))
            return urlunsplit(parts._replace(netloc=host))
        return url


class _UncheckedAdapter(HTTPAdapter):
    """Connects to a trusted host, whose certificate the user does not want checked."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        return super().send(request, *args, **{**kwargs, "verify": False})


def list_files(name: str, config: IndexConfig, session: IndexSession, *, offline: bool = False) -> Listing:
    """Ask every configured place for the archives of one project.

    Args:
        name: normalised project name.
        config: places to ask.
        session: connection to ask through.
        offline: leave out what is not on this machine.
    """
    files: list[IndexFile] = []
    failures: list[SynthError] = []
    known = False
    places: list[tuple[str, Literal["index", "links"]]] = []
    places += [(f"{url.rstrip('/')}/{name}/", "index") for url in config.index_urls]
    places += [(url, "links") for url in config.find_links]
    for url, source in places:
        local = urlsplit(url).scheme == "file"
        if offline and not local:
            continue
        try:
            found = _local_place(url, name, source) if local else _http_place(url, name, source, session)
        except SynthError as error:
            failures.append(error)
            continue
        if found is not None:
            known = known or source == "index" or bool(found)
            files += found
    return Listing(tuple(files), known, tuple(failures))


def read_stream(response: requests.Response, *, max_bytes: int, max_seconds: float, decode: bool) -> Iterator[bytes]:
    """Yield a response's body, and stop one that is too large or too slow.

    Args:
        response: of a request with `stream=True`.
        max_bytes: largest body.
        max_seconds: longest time from now to the end, however steadily the server drips.
        decode: undo a `Content-Encoding`.

    Raises:
        SynthError: a limit is reached or the connection breaks.
    """
    deadline = time.monotonic() + max_seconds
    done = 0
    try:
        # read1 returns what is there, so that the deadline is looked at even while a server drips.
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=decode):
            done += len(chunk)
            if done > max_bytes:
                raise SynthError(
                    f"{_where(response.url)} sent more than {max_bytes:,} bytes",
                    help_text="raise the limit if the file is really that large",
                    code=3,
                )
            if time.monotonic() > deadline:
                raise SynthError(
                    f"{_where(response.url)} did not finish within {max_seconds:g} s",
                    help_text=_NETWORK_HELP,
                    code=3,
                )
            yield chunk
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise network_error(response.url, error) from None


def network_error(url: str, error: Exception) -> SynthError:
    """Say in one line why a request failed, without the URL's secrets.

    The library's own texts hold whole URLs, with whatever tokens a server put there, and are not passed on.
    """
    where = _where(url)
    reason = getattr(error.args[0], "reason", error) if error.args else error
    help_text = _NETWORK_HELP
    if isinstance(error, requests.exceptions.SSLError) or isinstance(reason, urllib3.exceptions.SSLError):
        message = f"the certificate of {where} was not accepted"
        help_text = "name the file of your certificate authorities with PIP_CERT"
    elif isinstance(error, requests.exceptions.ProxyError):
        message = f"the proxy on the way to {where} does not work"
        help_text = "check PIP_PROXY and HTTPS_PROXY"
    elif isinstance(reason, urllib3.exceptions.NameResolutionError):  # before its base classes
        message = f"{where} has no address: its name cannot be looked up"
    elif isinstance(reason, urllib3.exceptions.NewConnectionError):
        message = f"cannot connect to {where}"
    elif isinstance(error, requests.Timeout) or isinstance(reason, urllib3.exceptions.TimeoutError):
        message = f"{where} did not answer in time"
    elif isinstance(reason, urllib3.exceptions.IncompleteRead | urllib3.exceptions.ProtocolError):
        message = f"the connection to {where} broke before the end"
    else:
        message = f"cannot read from {where}"
    return SynthError(message, help_text=help_text, code=3)


def status_error(url: str, status: int) -> SynthError:
    """Say that a server refused or failed."""
    help_text = _NETWORK_HELP
    if status in {401, 403, 407}:
        help_text = "check the user name and password in the index's URL or in your netrc file"
    return SynthError(f"{_where(url)} answered with HTTP status {status}", help_text=help_text, code=3)


def local_path(url: str) -> Path:
    """Turn a file URL into a path."""
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"}:
        raise SynthError("a file URL names another machine", help_text="write file:///folder")
    return Path(url2pathname(parts.path))


def _where(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"`{host}`" if host else "the server"


def _http_place(
    url: str, name: str, source: Literal["index", "links"], session: IndexSession
) -> list[IndexFile] | None:
    """Read a page over http; `None` if it is an index's and the index does not know the project."""
    direct = _single(url, name, source)
    if direct is not None and source == "links":
        return direct
    try:
        with session.get(url, stream=True, headers={"Accept": ACCEPT_ANY}) as response:
            if response.status_code in {404, 410} and source == "index":
                return None
            if response.status_code >= 400:
                raise status_error(url, response.status_code)
            body = b"".join(read_stream(response, max_bytes=_PAGE_BYTES, max_seconds=_PAGE_SECONDS, decode=True))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise network_error(url, error) from None
    kind, _, rest = response.headers.get("Content-Type", "text/html").partition(";")
    charset = rest.partition("charset=")[2].strip("\"' ") or None
    return _page_files(body, response.url, name, source, (kind.strip().lower(), charset))


def _page_files(
    body: bytes, url: str, name: str, source: Literal["index", "links"], content: tuple[str, str | None]
) -> list[IndexFile]:
    kind, charset = content
    try:
        if kind == "application/vnd.pypi.simple.v1+json":
            page = ProjectPage.from_json_data(json.loads(body), url)
        elif kind in {"application/vnd.pypi.simple.v1+html", "text/html", "application/xhtml+xml"}:
            page = ProjectPage.from_html(name, body, url, charset)
        else:
            raise SynthError(
                f"{_where(url)} answered with `{kind}`, which is no simple index",
                help_text="give the URL of a simple index (PEP 503), which often ends in /simple",
                code=3,
            )
    except (ValueError, RecursionError, LookupError, UnsupportedRepoVersionError) as error:
        raise SynthError(
            f"the page of `{name}` on {_where(url)} cannot be read", help_text=_NETWORK_HELP, code=3
        ) from error
    schemes = {"http", "https", "file"} if urlsplit(url).scheme == "file" else {"http", "https"}
    found = (_from_package(package, name, source) for package in page.packages)
    # A page from the network must not make us read this machine's own files.
    return [file for file in found if file is not None and urlsplit(file.url).scheme in schemes]


def _from_package(package: DistributionPackage, name: str, source: Literal["index", "links"]) -> IndexFile | None:
    # By the URL, as pip does: a link's text can be anything.
    filename = unquote(urlsplit(package.url).path.rpartition("/")[2])
    parsed = read_filename(filename)
    if parsed is None or parsed.name != name:
        return None
    return IndexFile(
        name=name,
        version=parsed.version,
        kind=parsed.kind,
        filename=filename,
        url=package.url,
        digests={key.lower(): value.lower() for key, value in package.digests.items()},
        yanked=package.is_yanked,
        tags=parsed.tags,
        size_bytes=package.size,
        source=source,
    )


def _single(url: str, name: str, source: Literal["index", "links"]) -> list[IndexFile] | None:
    """Read a find-links entry that is an archive itself; `None` if it is none."""
    path, _, fragment = url.partition("#")
    filename = unquote(urlsplit(path).path.rpartition("/")[2])
    parsed = read_filename(filename)
    if parsed is None:
        return None
    if parsed.name != name:
        return []
    algorithm, _, digest = fragment.partition("=")
    digests = {algorithm: digest.lower()} if digest else {}
    return [IndexFile(name, parsed.version, parsed.kind, filename, path, digests, tags=parsed.tags, source=source)]


def _local_place(url: str, name: str, source: Literal["index", "links"]) -> list[IndexFile] | None:
    path = local_path(url.partition("#")[0])
    try:
        if source == "index":
            if not path.parent.is_dir():
                raise SynthError(
                    f"the index folder `{path.parent}` does not exist",
                    help_text="correct it where it is configured: `pip config list` shows all",
                )
            page = path / "index.html"
            return _local_page(page, name, source) if page.is_file() else None
        if path.is_dir():
            return list(_local_folder(path, name))
        if path.suffix in {".html", ".htm"} and path.is_file():
            return _local_page(path, name, source)
        direct = _single(url, name, source)
        if direct is None or not path.is_file():
            raise SynthError(
                f"find-links `{path}` is no folder, HTML page or archive",
                help_text="correct it where it is configured: `pip config list` shows all",
            )
    except OSError as error:
        raise SynthError(f"cannot read `{path}`", help_text="check its permissions") from error
    return direct


def _local_folder(folder: Path, name: str) -> Iterator[IndexFile]:
    for file in sorted(folder.iterdir()):
        if file.suffix in {".html", ".htm"} and file.is_file():
            yield from _local_page(file, name, "links")
        elif (parsed := read_filename(file.name)) and parsed.name == name and file.is_file():
            url = file.resolve().as_uri()
            yield from _single(url, name, "links") or []


def _local_page(file: Path, name: str, source: Literal["index", "links"]) -> list[IndexFile]:
    with file.open("rb") as stream:
        body = stream.read(_PAGE_BYTES)
    return _page_files(body, file.absolute().as_uri(), name, source, ("text/html", None))


def _read_config(file: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        if file.exists():
            parser.read_string(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        # configparser's own texts quote the line, which can hold a password.
        raise SynthError(
            f"pip's configuration file `{file}` cannot be read",
            help_text="correct it, or set PIP_CONFIG_FILE=/dev/null to read none",
        ) from (None if isinstance(error, configparser.Error) else error)
    return {name: _named(parser.items(name)) for name in parser.sections()}


def _named(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {_option_name(key): value for key, value in items}


def _option_name(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _link_url(place: str) -> str:
    # A path that does not exist is no error here, as pip goes on without it too; `list_files` reports it.
    path = Path(place).expanduser() if place.startswith("~") else Path(place)
    return _as_url(place) if urlsplit(place).scheme else path.absolute().as_uri()


def _as_url(place: str) -> str:
    """Turn a configured place into an http(s) or file URL."""
    scheme = urlsplit(place).scheme
    if scheme in {"http", "https", "file"}:
        return place
    if not scheme and Path(place).exists():
        return Path(place).absolute().as_uri()
    if scheme:
        raise SynthError(f"a place is configured with `{scheme}:`, which is not read", help_text=_SCHEME_HELP)
    raise SynthError(f"`{place}` is neither a URL nor an existing path", help_text=_SCHEME_HELP)


_SCHEME_HELP = "give an http, https or file URL or an existing path; `pip config list` shows what is configured"


def _flag(option: str, value: str) -> bool:
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise SynthError(f"pip's option {option} is set to `{value}`", help_text="set it to yes or no")


def _number(option: str, value: str, *, least: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    # Also false for NaN.
    if not least <= number < 1e9:
        raise SynthError(f"pip's option {option} is set to `{value}`", help_text="set it to a positive number")
    return number


def _existing(option: str, value: str | None) -> str | None:
    if value is not None and not Path(value).expanduser().exists():
        raise SynthError(f"pip's option {option} names `{value}`, which does not exist", help_text="correct it")
    return str(Path(value).expanduser()) if value is not None else None
