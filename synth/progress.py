"""What long work on targets tells whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """Something to show while a target is worked on."""

    target: str
    text: str
    done: int = 0
    total: int | None = None


Notify = Callable[[Step], None]
