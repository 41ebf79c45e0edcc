"""Time and chance, as something that a test can stand in for."""

from __future__ import annotations

import random
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the client asks about time."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def today(self) -> float:
        """Seconds since 1970, for headers that name a date."""

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Return after so many seconds, or once `stop` is set."""

    def chance(self) -> float:
        """A number from 0 up to 1."""


class RealClock:
    """The machine's own."""

    def __init__(self) -> None:
        """Seed from the system: two clients must not knock at the same moments."""
        self._random = random.SystemRandom()

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    def today(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait on the event, so that Ctrl-C ends it."""
        stop.wait(seconds)

    def chance(self) -> float:
        """A number from 0 up to 1."""
        return self._random.random()
