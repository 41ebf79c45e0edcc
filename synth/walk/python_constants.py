"""Named constants that the observations of a file refer to."""

from __future__ import annotations

import re

from synth.records import Kind, Observation
from synth.walk.python_env import FileWalk
from synth.walk.syntax import Cited

_REFERENCE = re.compile(r"(?<![\w.'\"])_?[A-Z][A-Z0-9_]{2,}\b(?!\s*=)")
_REFERRING = frozenset({Kind.ENV_READ, Kind.ENV_WRITE, Kind.POOL, Kind.PARAM})
_LIMIT = 40


def walk_constants(walk: FileWalk, seen: list[Observation]) -> list[Observation]:
    """The upper-case constants in defaults and size expressions, each at its definition."""
    names: dict[str, Observation] = {}
    for observation in seen:
        if observation.kind in _REFERRING:
            for text in (observation.value or "", observation.detail if observation.kind is Kind.POOL else ""):
                for match in _REFERENCE.finditer(re.sub(r"'[^']*'|\"[^\"]*\"", "", text)):
                    names.setdefault(match[0], observation)
    found: list[Observation] = []
    for name, user in list(names.items())[:_LIMIT]:
        place = walk.index.constant_at(walk.pyfile.module, name)
        if place is None:
            continue
        facts, key = place
        constant = facts.constants[key]
        value = constant.value
        literal = repr(value) if isinstance(value, (str, int, float, bool)) else constant.text
        cited = walk.cited
        if facts.file != cited.file:
            cited = Cited(walk.index.source(facts.file), facts.file, facts.role, "python")
        found.append(
            cited.observe(
                Kind.CONSTANT,
                name,
                constant.lines,
                when=walk.index.when(facts.module, walk.pyfile.top),
                value=literal,
                detail=f"used for {user.name}",
            )
        )
    return found
