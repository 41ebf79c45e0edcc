"""Endpoint, model and key: from flags, else from `syspilot.toml`, else from the environment.

A key is sent only to an endpoint that its owner chose: one from the environment does not go to an address that a file
names, since that file may have come with somebody else's project.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from synth.records import Record, SynthError

CONFIG_FILE = "syspilot.toml"
LOCAL_IDENTITY = "gguf:"
DEFAULT_BASE_URL = "https://api.openai.com/v1"
MAX_CONFIG_BYTES = 1 << 20
_ENVIRONMENT = {"base_url": "OPENAI_BASE_URL", "api_key": "OPENAI_API_KEY", "model": "OPENAI_MODEL"}
_PRIVATE_ONLY = stat.S_IRWXG | stat.S_IRWXO

Task = Literal["control", "pool", "claims", "interactions", "summary", "contract", "critic", "probe"]


class LlmConfig(Record):
    """How to reach a model, and within which bounds.

    Attributes:
        model: name as the endpoint knows it; `models`: another one for single tasks.
        identity: what stands for the model in the recordings' keys; "" takes address and name.
        temperature, seed: `None` leaves them out, for models that refuse them.
        tokens_field: name of the parameter that limits the reply.
        schema_mode: what the endpoint enforces: a JSON schema, JSON of any form, or nothing.
        grammar: whether the endpoint takes Lark grammars, and how they are handed over.
        concurrency: requests at once. tries: sends of one request, the first included.
        reasks: further questions after a reply that is no good.
        connect_s, read_s: longest silence; total_s: one question with all its tries, in seconds.
        wait_s: first pause between tries; longest_wait_s: the longest that a server may ask for.
        max_reply_bytes: of one reply. max_prompt_bytes: of one request.
        max_tokens, max_cost: of a whole run; `None` is no limit.
        prices: TOML file with prices, `None` if there is none.
        cache: folder of the recordings, `None` if there is none.
    """

    base_url: str = DEFAULT_BASE_URL
    api_key: SecretStr = SecretStr("")
    model: str = ""
    models: Mapping[Task, str] = Field(default_factory=dict)
    identity: str = ""
    temperature: float | None = Field(default=0.0, ge=0)
    seed: int | None = 0
    tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    schema_mode: Literal["schema", "json", "none"] = "schema"
    grammar: Literal["llguidance", "structured_outputs", "none"] = "none"
    concurrency: int = Field(default=4, ge=1, le=64)
    tries: int = Field(default=4, ge=1, le=10)
    reasks: int = Field(default=1, ge=0, le=5)
    connect_s: float = Field(default=10.0, gt=0)
    read_s: float = Field(default=120.0, gt=0)
    total_s: float = Field(default=600.0, gt=0)
    wait_s: float = Field(default=1.0, gt=0)
    longest_wait_s: float = Field(default=120.0, gt=0)
    max_reply_bytes: int = Field(default=4 << 20, gt=0)
    max_prompt_bytes: int = Field(default=1 << 20, gt=0)
    max_tokens: int | None = Field(default=None, gt=0)
    max_cost: float | None = Field(default=None, ge=0)
    prices: Path | None = None
    cache: Path | None = None

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("not an http(s) address")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("an address without user, password, query and fragment is needed")
        _ = parts.port  # raises if it is no number
        return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, value: SecretStr) -> SecretStr:
        if not all("!" <= c <= "~" for c in value.get_secret_value()):
            raise ValueError("a key has visible ASCII characters only")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.connect_s > self.total_s:
            raise ValueError("connect_s is longer than total_s")
        return self

    def model_for(self, task: Task) -> str:
        """Name of the model that a task is for."""
        return self.models.get(task) or self.model

    def identity_for(self, task: Task) -> str:
        """What stands for that model in the recordings' keys."""
        return f"{self.identity or self.base_url} {self.model_for(task)}"

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint is on this machine."""
        return _is_loopback(self.base_url)

    @property
    def warning(self) -> str:
        """What the user should know about the endpoint, or ""."""
        if self.base_url.startswith("http://") and not self.is_loopback and self.api_key.get_secret_value():
            return f"the key goes to `{self.base_url}` unencrypted"
        return ""

    def redact(self, text: str) -> str:
        """Text without the key, should a server have sent it back."""
        key = self.api_key.get_secret_value()
        return text.replace(key, "[key]") if key else text


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    values: Mapping[str, Any]


def load(
    flags: Mapping[str, Any],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> LlmConfig:
    """Join flags, the file's `[llm]` table and the environment, the first that says something wins.

    Args:
        flags: attributes of `LlmConfig`; `None` is not set. `api_key_env` names a variable that holds the key.
        file: a `syspilot.toml`; `None` looks for one in the working folder.
        environ: the environment.

    Raises:
        SynthError: a value is not of its type, a file cannot be read, or a key would go to a stranger.
    """
    given = _Source("flag", {k: v for k, v in flags.items() if v is not None})
    path = file if file is not None else Path(CONFIG_FILE)
    read = _Source("file", _table(path, required=file is not None))
    outside = _Source("environment", {k: environ[n] for k, n in _ENVIRONMENT.items() if environ.get(n)})
    sources = (given, read, outside)
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for source in reversed(sources):
        for name, value in source.values.items():
            values[name], origin[name] = value, source.name
    _resolve_key(values, origin, sources, environ)
    _relative_to_file(values, origin, path)
    _guard_key(values, origin, environ)
    values.pop("api_key_env", None)
    try:
        return LlmConfig.model_validate(values)
    except ValidationError as error:
        # A message of pydantic quotes the value, and the value may be the key.
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        name = ".".join(map(str, first["loc"])) or "settings"
        where = origin.get(str(first["loc"][0]) if first["loc"] else "", "settings")
        raise SynthError(
            f"`{name}` of the model's settings ({where}): {plain_message(first['msg'])}",
            help_text="see `syspilot synth --help`",
        ) from None


def plain_message(text: str) -> str:
    """A message of pydantic in our style."""
    text = text.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _table(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        if not required and not path.is_file():
            return {}
        with path.open("rb") as opened:
            raw = opened.read(MAX_CONFIG_BYTES + 1)
            mode = os.fstat(opened.fileno()).st_mode
        if len(raw) > MAX_CONFIG_BYTES:
            raise SynthError(f"`{path}` is larger than {MAX_CONFIG_BYTES} bytes")
        table = tomllib.loads(raw.decode("utf-8")).get("llm", {})
    except OSError as error:
        raise SynthError(f"cannot read `{path}`: {(error.strerror or str(error)).lower()}") from error
    except ValueError:
        # The parser's message may quote a line with the key in it.
        raise SynthError(f"`{path}` is not TOML in UTF-8") from None
    if not isinstance(table, dict):
        raise SynthError(f"`llm` in `{path}` is not a table")
    if "api_key" in table and mode & _PRIVATE_ONLY:
        raise SynthError(
            f"`{path}` holds a key and can be read by others",
            help_text=f'chmod 600 {path}, or name a variable: api_key_env = "..."',
        )
    return table


def _resolve_key(
    values: dict[str, Any], origin: dict[str, str], sources: tuple[_Source, ...], environ: Mapping[str, str]
) -> None:
    """A source that names a variable says as much about the key as one that holds it."""
    for source in sources:
        if "api_key" in source.values:
            return
        name = source.values.get("api_key_env")
        if name is None:
            continue
        if not environ.get(str(name)):
            raise SynthError(f"the variable `{name}`, which should hold the key, is not set")
        values["api_key"] = environ[str(name)]
        # The value is the user's, even where a file chose which: _guard_key must see it as the environment's.
        origin["api_key"] = "flag" if source.name == "flag" else "environment"
        return


def _relative_to_file(values: dict[str, Any], origin: dict[str, str], path: Path) -> None:
    for name in ("prices", "cache"):
        if origin.get(name) == "file" and isinstance(values[name], str):
            values[name] = path.parent / values[name]


def _guard_key(values: dict[str, Any], origin: dict[str, str], environ: Mapping[str, str]) -> None:
    address = values.get("base_url")
    if origin.get("base_url") != "file" or origin.get("api_key") != "environment" or not isinstance(address, str):
        return
    if address.rstrip("/") in {environ.get("OPENAI_BASE_URL", "").rstrip("/"), DEFAULT_BASE_URL}:
        return
    if _is_loopback(address):
        return
    raise SynthError(
        f"the key from the environment is not sent to `{_without_secrets(address)}`, which only `{CONFIG_FILE}` names",
        help_text="set OPENAI_BASE_URL to that address too, or give it as a flag",
    )


def _without_secrets(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return "an address"
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _is_loopback(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
