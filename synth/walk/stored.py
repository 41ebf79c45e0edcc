"""Facts and observations as JSON, for the cache: what cannot be written so is not kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from synth.cache import digest
from synth.records import Kind, Observation, Role, Skipped, When
from synth.walk.python_facts import Class, Constant, Facts, Function, Parameter
from synth.walk.python_values import UNKNOWN, Choice

_CLASSES: tuple[type, ...] = (Facts, Function, Class, Constant, Parameter, Choice)
_NUMBERS = {kind: number for number, kind in enumerate(_CLASSES)}
_FIELDS = {kind: tuple(f.name for f in fields(kind)) for kind in _CLASSES}
# where something stands: it changes with every line above, and nobody cites a line without reading the file
_POSITIONS = frozenset({"lines", "line", "spans"})
_OBSERVATIONS = TypeAdapter(list[Observation])
_ENUMS: list[type[Enum]] = [Role, When, Kind]
_DEPTH = 60


class NotStorableError(Exception):
    """A value has no form in JSON."""


def encode(value: object, *, positions: bool = True, depth: int = 0) -> Any:
    """A value of the index as JSON: what JSON does not have is a list whose first item names the type."""
    if isinstance(value, Enum):
        return ["e", _ENUMS.index(type(value)), value.value] if type(value) in _ENUMS else _refuse(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value if isinstance(value, float) or abs(value) < 1 << 53 else ["i", str(value)[:400]]
    if depth > _DEPTH:
        raise NotStorableError("nested too deeply")
    deeper = depth + 1
    if isinstance(value, tuple):
        return ["t", *(encode(item, positions=positions, depth=deeper) for item in value)]
    if isinstance(value, list):
        return ["l", *(encode(item, positions=positions, depth=deeper) for item in value)]
    if isinstance(value, dict):
        pairs = [
            [encode(k, positions=positions, depth=deeper), encode(v, positions=positions, depth=deeper)]
            for k, v in value.items()
        ]
        return ["d", *pairs]
    if isinstance(value, (set, frozenset)):
        if not all(isinstance(item, str) for item in value):
            raise NotStorableError("a set of other things than text")
        return ["f" if isinstance(value, frozenset) else "s", *sorted(value)]
    if value is UNKNOWN:
        return ["u"]
    return _encoded_object(value, positions=positions, depth=deeper)


def _refuse(value: object) -> Any:
    raise NotStorableError(f"a {type(value).__name__}")


def _encoded_object(value: object, *, positions: bool, depth: int) -> Any:
    kind = type(value)
    if kind is bytes:
        return ["b", value.decode("latin-1")]  # type: ignore[attr-defined]
    if kind not in _NUMBERS:
        return _refuse(value)
    parts = [
        None if not positions and name in _POSITIONS else encode(getattr(value, name), positions=positions, depth=depth)
        for name in _FIELDS[kind]
    ]
    return ["o", _NUMBERS[kind], *parts]


def decode(value: Any) -> Any:
    """What `encode` wrote.

    Raises:
        ValueError: it was not written by `encode`.
    """
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "o":
        return _decoded_object(rest)
    if kind == "t":
        return tuple([decode(item) for item in rest])
    if kind == "l":
        return [decode(item) for item in rest]
    if kind == "d":
        return {decode(k): decode(v) for k, v in rest}
    if kind in ("s", "f"):
        return set(rest) if kind == "s" else frozenset(rest)
    if kind == "u":
        return UNKNOWN
    if kind == "e":
        return _ENUMS[rest[0]](rest[1])
    if kind == "i":
        return int(rest[0])
    if kind == "b":
        return str(rest[0]).encode("latin-1")
    raise ValueError(kind)


def _decoded_object(rest: list[Any]) -> Any:
    kind = _CLASSES[rest[0]]
    names = _FIELDS[kind]
    if len(names) != len(rest) - 1:
        raise ValueError(kind.__name__)
    values = [decode(item) for item in rest[1:]]
    return kind(**dict(zip(names, values, strict=True)))


def facts_to_json(facts: Facts) -> dict[str, Any]:
    """Facts of a file, and the digest of what other files can see of them apart from its tables.

    Raises:
        NotStorableError: a constant has a value without a form in JSON.
    """
    plain = [getattr(facts, name) for name in _FIELDS[Facts] if not isinstance(getattr(facts, name), dict)]
    face = json.dumps(encode(plain, positions=False), separators=(",", ":"))
    return {"facts": encode(facts), "face": digest(face)}


def facts_from_json(stored: Any) -> tuple[Facts, str] | None:
    """(facts, face), None if it is something else."""
    try:
        found, face = decode(stored["facts"]), stored["face"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None
    if not isinstance(found, Facts) or not isinstance(face, str):
        return None
    return found, face


def result_to_json(seen: Iterable[Observation], skip: Skipped | None) -> dict[str, Any]:
    """What a walker said about one file."""
    return {
        "seen": [o.model_dump(mode="json", exclude_defaults=True) for o in seen],
        "skip": skip.model_dump() if skip is not None else None,
    }


def result_from_json(stored: Any) -> tuple[list[Observation], Skipped | None] | None:
    """What `result_to_json` wrote, None if it is something else."""
    try:
        seen = _OBSERVATIONS.validate_python(stored["seen"])
        skip = Skipped.model_validate(stored["skip"]) if stored["skip"] is not None else None
    except (ValidationError, KeyError, TypeError):
        return None
    return seen, skip
