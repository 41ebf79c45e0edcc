"""Schemas and grammars that a server can enforce, checked before they are sent.

A server that does not understand one may answer all the same, unconstrained. So what is sent is built from few
keywords, and looked at first; what comes back is validated by pydantic in any case.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from synth.records import SynthError

EVIDENCE_ID = "evidence_id"  # mark of fields that hold one; see `answers.EvidenceId`
MAX_ENUM = 500  # what endpoints accept in one schema
_KEPT = frozenset(
    {"type", "enum", "properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs", "description"}
)
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
MAX_DEPTH = 10


class BadSchemaError(SynthError):
    """A schema or grammar that must not be sent."""


def strict_schema(model: type[BaseModel], evidence: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of a model in the strict form: every key required, nothing else allowed, few keywords.

    Args:
        model: all its fields are asked for, those with a default too.
        evidence: the ids that fields marked as such may hold.

    Raises:
        BadSchemaError: the model cannot be said in this form.
    """
    schema = _strict(model.model_json_schema(mode="validation"), sorted(set(evidence)))
    problems = list(problems_of(schema))
    if problems:
        raise BadSchemaError(f"the schema of `{model.__name__}` is not strict: {problems[0]}")
    return schema


def _strict(node: Mapping[str, Any], evidence: Sequence[str]) -> dict[str, Any]:
    if node.get("format") == EVIDENCE_ID:
        # Without ids nothing may be cited; a text is then the best that can be said, and validation refuses it.
        return {"type": "string", "enum": list(evidence)} if 0 < len(evidence) <= MAX_ENUM else {"type": "string"}
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in {"properties", "$defs"}:
            out[key] = {name: _strict(child, evidence) for name, child in value.items()}
        elif key == "items" and isinstance(value, dict):
            out[key] = _strict(value, evidence)
        elif key in {"anyOf", "oneOf"}:
            out["anyOf"] = [_strict(child, evidence) for child in value]
        elif key == "const":
            out["enum"] = [value]
        elif key in _KEPT:
            out[key] = value
    if "$ref" in out:  # nothing may stand beside a reference
        return {"$ref": out["$ref"]}
    if out.get("type") == "object":
        out.setdefault("properties", {})
        out["required"] = list(out["properties"])
        out["additionalProperties"] = False
    return out


def problems_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """What keeps a schema from being strict; nothing if it is."""
    definitions = schema.get("$defs", {})
    if schema.get("type") != "object":
        yield "the top is no object"
    yield from _problems(schema, "#", definitions, 0)
    for name, node in definitions.items():
        yield from _problems(node, f"#/$defs/{name}", definitions, 0)


def _problems(node: Any, at: str, definitions: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(node, dict):
        yield f"{at} is no schema"
        return
    if depth > MAX_DEPTH:
        yield f"{at} is nested too deep"
        return
    for key in node:
        if key not in _KEPT:
            yield f"{at} has the keyword `{key}`"
    yield from _own_problems(node, at, definitions)
    for name, child in node.get("properties", {}).items():
        yield from _problems(child, f"{at}/{name}", definitions, depth + 1)
    if "items" in node:
        yield from _problems(node["items"], f"{at}/items", definitions, depth + 1)
    for n, child in enumerate(node.get("anyOf", ())):
        yield from _problems(child, f"{at}/anyOf/{n}", definitions, depth + 1)


def _own_problems(node: Mapping[str, Any], at: str, definitions: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in node:
        name = str(node["$ref"]).removeprefix("#/$defs/")
        if name not in definitions:
            yield f"{at} refers to `{node['$ref']}`, which is not there"
        return
    if "anyOf" in node:
        return
    kind = node.get("type")
    if kind not in _TYPES:
        yield f"{at} has the type `{kind}`"
    if kind == "object":
        if node.get("additionalProperties") is not False:
            yield f"{at} allows other keys"
        if list(node.get("required", ())) != list(node.get("properties", {})):
            yield f"{at} does not ask for every key"
    if kind == "array" and "items" not in node:
        yield f"{at} does not say what it holds"
    if "enum" in node and not 0 < len(node["enum"]) <= MAX_ENUM:
        yield f"{at} has {len(node['enum'])} choices"


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that a server might not understand; llguidance has a say where it is installed.

    Raises:
        BadSchemaError: why.
    """
    problems = list(problems_of(schema))
    if problems:
        raise BadSchemaError(f"the schema is not strict: {problems[0]}")
    try:
        import llguidance  # noqa: PLC0415  # an extra
    except ImportError:
        return
    _refuse_wrong(llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)), "schema")


def check_grammar(lark: str) -> None:
    """Refuse a Lark grammar that llguidance cannot compile: some servers answer 200 and ignore it.

    Raises:
        BadSchemaError: why, or that llguidance is not installed.
    """
    try:
        import llguidance  # noqa: PLC0415  # an extra
    except ImportError:
        raise BadSchemaError(
            "a grammar can only be sent once it was checked, which needs llguidance",
            help_text="pip install 'syspilot-lpc[local]', or use the JSON form",
        ) from None
    _refuse_wrong(llguidance.LLMatcher.grammar_from_lark(lark), "grammar")


def _refuse_wrong(grammar: str, what: str) -> None:
    import llguidance  # noqa: PLC0415  # an extra

    wrong, messages = llguidance.LLMatcher.validate_grammar_with_warnings(grammar, llguidance.LLTokenizer("byte"))
    if wrong:
        first = messages[0].strip().splitlines()[0] if messages else "no reason given"
        raise BadSchemaError(f"the {what} does not compile: {first}")


def digest(text: str) -> str:
    """Short name of a text's content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
