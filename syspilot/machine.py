"""The machine's facts as the tuner's record."""

from __future__ import annotations

from dataclasses import asdict

from lpcl import machine
from syspilot.records import Machine


def facts() -> Machine:
    """The facts about this machine; see `lpcl.machine.facts`."""
    return Machine(**asdict(machine.facts()))
