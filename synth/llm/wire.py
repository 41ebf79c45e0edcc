"""The transport below the official client: recordings, deadlines, limits of size, and faults with a name.

It sees every byte that goes out and comes in. Whatever is not a whole reply with status 200 becomes a `WireFaultError`
here, so that nothing above has to know the exceptions of two libraries.
"""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2

from synth.llm.cassette import Cassette, Identity, canonical, key_of
from synth.llm.clock import Clock
from synth.llm.config import LlmConfig
from synth.llm.outcome import FailureKind
from synth.records import SynthError

_QUOTA_WORDS = ("insufficient_quota", "billing_hard_limit", "quota exceeded", "credit balance")
_CHUNK_BYTES = 1 << 16
_KEEP_ERROR_BYTES = 2000


class WireFaultError(Exception):
    """No usable reply.

    Attributes:
        charged: whether the server may have charged for it.
        retry_after: seconds that the server asks to wait, `None` if it does not say.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        status: int = 0,
        body: str = "",
        retry_after: float | None = None,
        charged: bool = False,
    ) -> None:
        """Keep what the client decides by."""
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.body = body
        self.retry_after = retry_after
        self.charged = charged


@dataclass(slots=True)
class Exchange:
    """What the client tells the transport about one request, and the transport about its end.

    Attributes:
        admit: called before anything is sent; raises to forbid it.
        replayed: whether the reply came from the recordings. key: name of the recording.
        warning: what went wrong beside the reply, or "".
    """

    identity: Identity
    library: str
    deadline: float
    admit: Callable[[Any], None]
    replayed: bool = False
    key: str = ""
    warning: str = ""


CURRENT: ContextVar[Exchange] = ContextVar("exchange")


class Transport(httpx2.BaseTransport):
    """Recordings first, then the network."""

    def __init__(self, config: LlmConfig, cassette: Cassette, clock: Clock) -> None:
        """Reach the network as the environment's proxies say; nothing is opened yet."""
        self._config = config
        self._cassette = cassette
        self._clock = clock
        limits = httpx2.Limits(max_connections=config.concurrency, max_keepalive_connections=config.concurrency)
        self._network = httpx2.HTTPTransport(
            limits=limits, proxy=None if config.is_loopback else _proxy(config.base_url)
        )

    def close(self) -> None:
        """Close all connections."""
        self._network.close()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request of the client."""
        exchange = CURRENT.get()
        body = json.loads(request.read())
        exchange.key = key_of(body, exchange.identity)
        found = self._cassette.find(body, exchange.identity)
        if found is not None:
            exchange.replayed = True
            return _response(request, canonical(found).encode())
        exchange.admit(body)
        raw = self._send(request, exchange)
        raw = self._config.redact(raw.decode("utf-8", "replace")).encode()
        reply = _completion(raw)
        try:
            self._cassette.keep(body, exchange.identity, exchange.library, reply)
        except SynthError as error:  # it is paid for: use it all the same
            exchange.warning = str(error)
        return _response(request, raw)

    def _send(self, request: httpx2.Request, exchange: Exchange) -> bytes:
        left = exchange.deadline - self._clock.now()
        if left <= 0:
            raise WireFaultError(FailureKind.TIMEOUT, "no time is left")
        config = self._config
        request.extensions["timeout"] = {
            "connect": min(config.connect_s, left),
            "read": min(config.read_s, left),
            "write": min(config.read_s, left),
            "pool": left,
        }
        try:
            response = self._network.handle_request(request)
            try:
                raw = self._read(response, exchange)
            finally:
                response.close()
        except (httpx2.ConnectTimeout, httpx2.PoolTimeout):
            raise WireFaultError(FailureKind.TIMEOUT, f"no connection to `{config.base_url}` in time") from None
        except httpx2.TimeoutException:
            raise WireFaultError(FailureKind.TIMEOUT, "the server fell silent", charged=True) from None
        except httpx2.ConnectError as error:
            message = f"no connection to `{config.base_url}`: {config.redact(str(error)).lower()}"
            raise WireFaultError(FailureKind.CONNECTION, message) from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            message = f"the connection broke off: {config.redact(str(error)).lower()}"
            raise WireFaultError(FailureKind.CONNECTION, message, charged=True) from None
        if response.status_code != httpx2.codes.OK:
            raise self._fault(response, raw)
        return raw

    def _read(self, response: httpx2.Response, exchange: Exchange) -> bytes:
        parts: list[bytes] = []
        size = 0
        for chunk in response.iter_bytes():
            size += len(chunk)
            if size > self._config.max_reply_bytes:
                message = f"the reply is larger than {self._config.max_reply_bytes} bytes"
                raise WireFaultError(FailureKind.TOO_LARGE, message, status=response.status_code, charged=True)
            if self._clock.now() > exchange.deadline:
                message = "the reply did not end in time"
                raise WireFaultError(FailureKind.TIMEOUT, message, status=response.status_code, charged=True)
            parts.append(chunk)
        return b"".join(parts)

    def _fault(self, response: httpx2.Response, raw: bytes) -> WireFaultError:
        status = response.status_code
        body = self._config.redact(raw[:_KEEP_ERROR_BYTES].decode("utf-8", "replace"))
        said = _said(body)
        kind = _kind_of(status, body)
        message = f"the server answered {status}" + (f": {said}" if said else "")
        wait = _retry_after(response.headers, self._clock.today())
        return WireFaultError(kind, message, status=status, body=body, retry_after=wait)


def _kind_of(status: int, body: str) -> FailureKind:
    if status == httpx2.codes.TOO_MANY_REQUESTS:
        used_up = any(word in body.lower() for word in _QUOTA_WORDS)
        return FailureKind.QUOTA if used_up else FailureKind.RATE_LIMIT
    if status == httpx2.codes.PAYMENT_REQUIRED:
        return FailureKind.QUOTA
    if status in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
        return FailureKind.AUTH
    if status == httpx2.codes.NOT_FOUND:
        return FailureKind.NOT_FOUND
    if status in {httpx2.codes.REQUEST_TIMEOUT, httpx2.codes.CONFLICT, httpx2.codes.TOO_EARLY}:
        return FailureKind.SERVER
    return FailureKind.SERVER if status >= httpx2.codes.INTERNAL_SERVER_ERROR else FailureKind.BAD_REQUEST


def _completion(raw: bytes) -> Any:
    """The reply, if it has the shape of a completion: nothing else is worth a recording.

    Raises:
        WireFaultError: it has not.
    """
    kind = FailureKind.NOT_A_COMPLETION
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError):
        raise WireFaultError(kind, "the reply is no JSON", status=200, body=_start(raw), charged=True) from None
    if not isinstance(reply, dict) or not isinstance(reply.get("choices"), list) or not reply["choices"]:
        message = "the reply holds no completion"
        raise WireFaultError(kind, message, status=200, body=_start(raw), charged=True)
    return reply


def _start(raw: bytes) -> str:
    return raw[:_KEEP_ERROR_BYTES].decode("utf-8", "replace")


def _said(body: str) -> str:
    """The message of an error's body, on one line."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(message.split())[:300].rstrip(".") if isinstance(message, str) else ""


def _retry_after(headers: httpx2.Headers, today: float) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - today
            except (ValueError, OverflowError):
                continue
        if not math.isnan(seconds):
            return max(0.0, seconds)
    return None


def _response(request: httpx2.Request, body: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=body, request=request)


def _proxy(base_url: str) -> str | None:
    """The proxy that the environment names for an address."""
    parts = urlsplit(base_url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def client_over(transport: Transport) -> httpx2.Client:
    """A client of HTTP over that transport, which follows no redirects: they could carry the key away."""
    # No limits of time here: the transport sets them per request, and the official client would overwrite them.
    return httpx2.Client(
        transport=transport, follow_redirects=False, trust_env=False, headers={"accept-encoding": "identity"}
    )
