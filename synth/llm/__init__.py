"""The language model stage: calls that are typed, bounded, paid for once, and never trusted.

This module is the only one that touches the official client, so that nothing else loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2


class Connection:
    """The official client over a transport of ours, which names all faults; retries are ours too."""

    def __init__(self, base_url: str, api_key: str, http_client: httpx2.Client) -> None:
        """Take over `http_client`; organisation and project are left to the client's own variables."""
        from openai import OpenAI  # noqa: PLC0415  # heavy, and needed only once somebody asks

        self._client = OpenAI(base_url=base_url, api_key=api_key, http_client=http_client, max_retries=0)

    def complete(self, body: dict[str, Any]) -> bytes:
        """Send the body of a chat completion; the body of the reply, which nobody has looked at yet."""
        extra = {k: v for k, v in body.items() if k not in {"model", "messages"}}
        raw = self._client.chat.completions.with_raw_response.create(
            model=body["model"], messages=body["messages"], extra_body=extra
        )
        return raw.http_response.content

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
