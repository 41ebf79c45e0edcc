"""Quantities: a number and its unit, in the base unit of its dimension (seconds, bytes, ratio, cycles)."""

from __future__ import annotations

_SCALES: dict[str, tuple[str, float]] = {
    "ns": ("s", 1e-9),
    "us": ("s", 1e-6),
    "ms": ("s", 1e-3),
    "s": ("s", 1),
    "min": ("s", 60),
    "h": ("s", 3600),
    "B": ("B", 1),
    "KB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "TB": ("B", 1e12),
    "KiB": ("B", 2**10),
    "MiB": ("B", 2**20),
    "GiB": ("B", 2**30),
    "TiB": ("B", 2**40),
    "cycles": ("cycles", 1),
    "%": ("ratio", 0.01),
}


def split_quantity(text: str) -> tuple[int | float, str]:
    """`"0.2s"` -> `(0.2, "s")`; a bare number has the unit `""`. Raises ValueError for anything else."""
    body = text.rstrip("".join({c for unit in _SCALES for c in unit}))
    unit = text[len(body) :]
    if unit and unit not in _SCALES:
        msg = f"unknown unit `{unit}`"
        raise ValueError(msg)
    return (float(body) if "." in body else int(body)), unit


def dimension(unit: str) -> str:
    """The dimension's base unit: `"ms"` -> `"s"`, `""` -> `""`."""
    return _SCALES[unit][0] if unit else ""


def in_base(value: float, unit: str) -> float:
    """The value in its base unit; whole numbers stay whole."""
    if not unit:
        return value
    scaled = value * _SCALES[unit][1]
    return int(scaled) if float(scaled).is_integer() and isinstance(value, int) else scaled
