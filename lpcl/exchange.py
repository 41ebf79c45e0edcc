"""Contracts as JSON, and the JSON Schema of that form.

Codec and schema are both derived from the classes of the model, their annotations and the words of the grammar, so
a new field reaches both. A value that has its default is left out, spans and comments are not part of the form.
Reading is for untrusted data: size and depth are bounded, and what is read must print and parse to itself.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from importlib import resources
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from lpcl import model as m
from lpcl.diagnostics import LpcError
from lpcl.format import file_text
from lpcl.parse import MAX_BYTES, MAX_DEPTH, parse

SCHEMA_VERSION = 1
# An expression takes two levels of JSON for one of the parse tree; the rest is the way down to it.
MAX_JSON_DEPTH = 2 * MAX_DEPTH + 16
MAX_JSON_VALUES = 1_000_000
# JSON spells the canonical text out: this much of it is more than any readable file gives.
MAX_JSON_BYTES = 32 * MAX_BYTES

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_PATTERNS = {"name": _NAME, "dotted": rf"{_NAME}(\.{_NAME})*"}
_EXPRESSIONS: tuple[type, ...] = get_args(m.Expr)
_CLAUSES: tuple[type, ...] = get_args(m.Clause)
_TAGS: dict[type, tuple[str, str]] = {
    **{cls: ("node", cls.__name__.lower()) for cls in _EXPRESSIONS},
    **{cls: ("clause", word) for cls, word in m.KEYWORDS.items()},
}
_BINARY = ("+", "-", "*", "/", "and", "or", "==", "!=", "<", "<=", ">", ">=")
_UNARY = ("neg", "not")
_FORMS = ("choice", "list", "map", "sequence", "placement")


class ExchangeError(LpcError, ValueError):
    """The data is no contract."""


class NewerSchemaError(ExchangeError):
    """The data was written by a newer release."""


# --------------------------------------------------------------------- shapes


@dataclass(frozen=True, slots=True)
class _Shape:
    """What JSON a field takes.

    Attributes:
        kind: text | name | dotted | word | integer | number | boolean | ref | many | node | record.
        inner: of `many`; least: its least length; words: of `word`; classes: of `node` (by tag) and `record` (one).
    """

    kind: str
    inner: _Shape | None = None
    least: int = 0
    words: tuple[str, ...] = ()
    classes: tuple[type, ...] = ()


# What the annotation `str` leaves open: a terminal of the grammar, or a pattern.
_TEXTS: dict[tuple[type, str], str] = {
    (m.Idle, "mode"): "IDLE",
    (m.Demand, "created"): "BINDING",
    (m.Demand, "scope"): "SCOPE",
    (m.Demand, "work"): "WORK",
    (m.Demand, "runs"): "RUNS",
    (m.Demand, "fork"): "FORK",
    (m.Demand, "runtime"): "name",
    (m.Forbids, "event"): "EVENT",
    (m.Assumption, "consequence"): "CONSEQUENCE",
    (m.Type, "name"): "SIMPLE_TYPE",
    (m.Range, "scale"): "SCALE",
    (m.Way, "binding"): "BINDING",
    (m.Way, "parameters"): "name",
    (m.Way, "lasts"): "LASTS",
    (m.Control, "malformed"): "MALFORMED",
    (m.Control, "inherited"): "HEIR",
    (m.Mitigation, "lasts"): "LASTS",
    (m.Carried, "name"): "name",
    (m.Control, "combine"): "COMBINE",
    (m.Control, "effect"): "SCOPE",
    (m.Control, "per"): "ENTITY",
    (m.Control, "switch"): "SWITCH",
    (m.Signal, "kind"): "SIGNAL_KIND",
    (m.Signal, "unit"): "name",
    (m.Signal, "valid_after"): "BINDING",
    (m.Mitigation, "target"): "TARGET",
    (m.Apply, "function"): "name",
    (m.Contract, "name"): "name",
    (m.Contract, "uses"): "name",
    **{(cls, field): "name" for cls in _CLAUSES for field in ("name", "evidence")},
}
_WORDS: dict[tuple[type, str], tuple[str, ...]] = {
    (m.Way, "kind"): ("env", "call", "param", "config"),
    (m.Read, "kind"): ("call", "attribute", "native", "file", "log"),
    (m.Special, "action"): ("means", "ignored", "fails"),
    (m.Operation, "operator"): (*_BINARY, *_UNARY),
}
_LEAST = {
    (m.Native, "patterns"): 1,
    (m.Sizes, "facts"): 1,
    (m.Read, "target"): 1,
    (m.Operation, "operands"): 1,
    (m.File, "contracts"): 1,
}


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, tuple[str, ...]]:
    """Terminal -> the words it stands for, as the grammar lists them."""
    grammar = resources.files("lpcl").joinpath("grammar.lark").read_text("utf-8")
    lines = re.findall(r'^([A-Z_]+): ("[^"\n]+"(?: \| "[^"\n]+")*)$', grammar, re.MULTILINE)
    return {name: tuple(re.findall(r'"([^"]+)"', words)) for name, words in lines}


@lru_cache(maxsize=1)
def _units() -> tuple[str, ...]:
    grammar = resources.files("lpcl").joinpath("grammar.lark").read_text("utf-8")
    found = re.search(r"^QUANTITY: .*\(([A-Za-z|%]+)\)/$", grammar, re.MULTILINE)
    return ("", *found[1].split("|")) if found else ("",)


@lru_cache(maxsize=64)
def _shapes(cls: type) -> dict[str, tuple[_Shape, bool]]:
    """Field -> its shape, and whether it must be there."""
    hints = get_type_hints(cls)
    return {
        f.name: (_shape(cls, f.name, hints[f.name]), f.default is MISSING)
        for f in fields(cls)
        if f.name not in {"span", "comments"}
    }


def _shape(cls: type, field: str, hint: Any) -> _Shape:
    if get_origin(hint) is tuple:
        inner = _shape(cls, field, get_args(hint)[0])
        return _Shape("many", inner, _LEAST.get((cls, field), 0))
    options = tuple(a for a in (get_args(hint) or (hint,)) if a is not NoneType)
    if set(options) in (set(_EXPRESSIONS), set(_CLAUSES)):
        return _Shape("node", classes=options)
    if set(options) == {int, float}:
        return _Shape("number")
    (only,) = options
    simple = {bool: "boolean", int: "integer", m.Ref: "ref"}.get(only)
    if simple is not None:
        return _Shape(simple)
    return _text_shape(cls, field) if only is str else _Shape("record", classes=(only,))


def _text_shape(cls: type, field: str) -> _Shape:
    key = (cls, field)
    if key == (m.Number, "unit"):
        return _Shape("word", words=_units())
    if key in _WORDS:
        return _Shape("word", words=_WORDS[key])
    kind = _TEXTS.get(key, "text")
    if kind in {"text", *_PATTERNS}:
        return _Shape(kind)
    words = _vocabulary()[kind]
    return _Shape("word", words=(*words, *_FORMS) if cls is m.Type else words)


# -------------------------------------------------------------------- writing


def to_json(file: m.File) -> dict[str, Any]:
    """A file as plain JSON values, with the version of this form; spans and comments are left out."""
    contracts = [_record(c, m.Contract) for c in file.contracts]
    return {"schema_version": SCHEMA_VERSION, "language": file.version, "contracts": contracts}


def _record(value: Any, cls: type) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if cls in _TAGS:
        tag, word = _TAGS[cls]
        result[tag] = word
    if cls is m.Ref:
        return result | {"name": value.name}
    defaults = {f.name: f.default for f in fields(cls)}
    for name, (shape, required) in _shapes(cls).items():
        here = getattr(value, name)
        if required or here != defaults[name]:
            result[name] = _value(here, shape)
    return result


def _value(value: Any, shape: _Shape) -> Any:
    if shape.kind == "many" and shape.inner is not None:
        return [_value(v, shape.inner) for v in value]
    if shape.kind == "ref":
        return value.name
    return _record(value, type(value)) if shape.kind in {"node", "record"} else value


# -------------------------------------------------------------------- reading


def read_json(text: str) -> m.File:
    """A file from JSON text.

    Raises:
        ExchangeError: the text is no JSON, or no contract.
    """
    if len(text) > MAX_JSON_BYTES:
        raise ExchangeError(f"the text is larger than {MAX_JSON_BYTES >> 20} MiB")
    try:
        data = json.loads(text)
    except RecursionError:
        raise ExchangeError("the data nests too deep") from None
    except ValueError as error:
        raise ExchangeError(f"not JSON: {error}") from None
    return from_json(data)


def from_json(data: object) -> m.File:
    """A file from plain JSON values, which may come from anywhere.

    Args:
        data: what `json.loads` gives.

    Returns:
        The file; its clauses have no spans.

    Raises:
        NewerSchemaError: a newer release wrote the data.
        ExchangeError: anything else is wrong; the message names the place.
    """
    _bounded(data)
    top = _object(data, "the data")
    version = top.get("schema_version")
    if type(version) is not int or version < 1:
        raise ExchangeError("`schema_version` is no version")
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(f"schema version {version} is newer than {SCHEMA_VERSION}, which this release reads")
    _only(top, {"schema_version", "language", "contracts"}, "the data")
    if type(top.get("language")) is not int or top["language"] != m.LANGUAGE_VERSION:
        raise ExchangeError(f"`language` is not {m.LANGUAGE_VERSION}, the version that this release reads")
    shape, _ = _shapes(m.File)["contracts"]
    if "contracts" not in top:
        raise ExchangeError("`contracts` is missing")
    file = m.File(m.LANGUAGE_VERSION, _read(top["contracts"], shape, "contracts"))
    _prove(file)
    return file


def _bounded(data: object) -> None:
    """Everything behind this recurses over the data: its depth and size are bounded here, once, iteratively."""
    stack: list[tuple[object, int]] = [(data, 0)]
    count = 0
    while stack:
        here, depth = stack.pop()
        count += 1
        if depth > MAX_JSON_DEPTH:
            raise ExchangeError(f"the data nests deeper than {MAX_JSON_DEPTH} levels")
        inside = here.values() if isinstance(here, dict) else here if isinstance(here, list) else ()
        if count + len(stack) + len(inside) > MAX_JSON_VALUES:
            raise ExchangeError(f"the data holds more than {MAX_JSON_VALUES} values")
        stack.extend((v, depth + 1) for v in inside)


def _prove(file: m.File) -> None:
    """What was read must be something that the language can say."""
    try:
        text = file_text(file)
    except ValueError as error:  # a number with more digits than Python prints
        raise ExchangeError(f"the data has no text: {error}") from None
    parsed = parse(text)
    if not parsed.ok:
        raise ExchangeError(f"the data is no contract: {parsed.diagnostics[0].message}")
    if parsed.file != file:
        raise ExchangeError("the data does not read back as it is: a name or number in it is not one of the language")


def _shown(value: object) -> str:
    # Never repr() of the whole: it may be long, and a number may have too many digits to print.
    if isinstance(value, str):
        return f"`{value[:40]}`"
    names = {dict: "an object", list: "a list", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null" if value is None else "something else")


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise ExchangeError(f"{_at(place)} is {_shown(value)}, not an object")
    return value


def _at(place: str) -> str:
    return place if " " in place else f"`{place}`"


def _only(value: dict[str, Any], known: set[str], place: str) -> None:
    for key in sorted(value.keys() - known):
        raise ExchangeError(f"{_at(place)} has a key {_shown(key)}, which is none of its keys")


def _read(value: object, shape: _Shape, place: str) -> Any:
    match shape.kind:
        case "many":
            return _read_many(value, shape, place)
        case "record":
            return _read_record(_object(value, place), shape.classes[0], place)
        case "node":
            tag = _TAGS[shape.classes[0]][0]
            found = _object(value, place)
            cls = next((c for c in shape.classes if _TAGS[c][1] == found.get(tag)), None)
            if cls is None:
                known = ", ".join(_TAGS[c][1] for c in shape.classes)
                raise ExchangeError(f"`{place}.{tag}` is {_shown(found.get(tag))}, not one of {known}")
            return _read_record(found, cls, place)
        case _:
            return _read_simple(value, shape, place)


def _read_many(value: object, shape: _Shape, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or shape.inner is None:
        raise ExchangeError(f"`{place}` is {_shown(value)}, not a list")
    if len(value) < shape.least:
        raise ExchangeError(f"`{place}` is empty")
    return tuple(_read(v, shape.inner, f"{place}[{i}]") for i, v in enumerate(value))


def _read_simple(value: object, shape: _Shape, place: str) -> Any:
    kind = shape.kind
    if kind in {"boolean", "integer", "number"}:
        wanted = {"boolean": (bool,), "integer": (int,), "number": (int, float)}[kind]
        if type(value) not in wanted:  # exact: a truth value is no number here
            raise ExchangeError(
                f"`{place}` is {_shown(value)}, not {'a truth value' if kind == 'boolean' else 'a number'}"
            )
        if kind != "boolean" and isinstance(value, int | float) and not 0 <= value < math.inf:
            raise ExchangeError(f"`{place}` is negative or not finite; `neg` is an operation")
        return value
    if not isinstance(value, str):
        raise ExchangeError(f"`{place}` is {_shown(value)}, not text")
    if kind == "word" and value not in shape.words:
        raise ExchangeError(f"`{place}` is {_shown(value)}, not one of {', '.join(w or '``' for w in shape.words)}")
    pattern = _PATTERNS.get("dotted" if kind == "ref" else kind)
    if pattern is not None and not re.fullmatch(pattern, value):
        raise ExchangeError(f"`{place}` is {_shown(value)}, which is no name")
    return m.Ref(tuple(value.split("."))) if kind == "ref" else value


def _read_record(value: dict[str, Any], cls: type, place: str) -> Any:
    tag = {_TAGS[cls][0]} if cls in _TAGS else set()
    if cls is m.Ref:
        _only(value, tag | {"name"}, place)
        return _read_simple(value.get("name"), _Shape("ref"), f"{place}.name")
    shapes = _shapes(cls)
    _only(value, tag | set(shapes), place)
    result: dict[str, Any] = {}
    for name, (shape, required) in shapes.items():
        if name in value:
            result[name] = _read(value[name], shape, f"{place}.{name}")
        elif required:
            raise ExchangeError(f"`{place}.{name}` is missing")
    made = cls(**result)
    wrong = _misfit(made)
    if wrong:
        raise ExchangeError(f"`{place}` {wrong}")
    return made


def _misfit(made: object) -> str:
    """Which fields of a record do not go together: what the formatter could not print."""
    match made:
        case m.Operation() if len(made.operands) != (1 if made.operator in _UNARY else 2):
            return f"has {len(made.operands)} operands, which `{made.operator}` does not take"
        case m.Way() if len(made.parameters) != 1 and made.kind == "param":
            return "has not exactly one parameter"
        case m.Special() if (made.meaning is None) == (made.action == "means"):
            return "has a meaning exactly if its action is `means`"
        case m.Mitigation() if made.pool is not None and made.target is None:
            return "has a pool without a target"
        case m.Read() if made.kind != "native" and len(made.target) != 1:
            return "has more than one target"
        case m.Type():
            parts = [
                k for k in ("choices", "element", "least", "greatest", "resource") if getattr(made, k) not in ((), None)
            ]
            wanted = _PARTS.get(made.name, [])
            return "" if parts == wanted else f"of `{made.name}` needs exactly {', '.join(wanted) or 'its name'}"
        case _:
            return ""


_PARTS = {
    "choice": ["choices"],
    "list": ["element"],
    "map": ["element"],
    "sequence": ["element", "least", "greatest"],
    "placement": ["resource"],
}

# --------------------------------------------------------------------- schema


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what `to_json` gives."""
    todo: list[type] = [m.Contract]
    definitions: dict[str, Any] = {
        "Expr": {"oneOf": [_ref_to(c) for c in _EXPRESSIONS]},
        "Clause": {"oneOf": [_ref_to(c) for c in _CLAUSES]},
    }
    while todo:
        cls = todo.pop()
        if cls.__name__ in definitions:
            continue
        definitions[cls.__name__] = _definition(cls)
        for shape, _ in () if cls is m.Ref else _shapes(cls).values():
            inner = shape.inner if shape.inner is not None else shape
            todo += inner.classes
    contracts, _ = _shapes(m.File)["contracts"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Library Performance Contracts",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "language": {"const": m.LANGUAGE_VERSION},
            "contracts": _schema(contracts),
        },
        "required": ["schema_version", "language", "contracts"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _ref_to(cls: type) -> dict[str, str]:
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _definition(cls: type) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if cls in _TAGS:
        tag, word = _TAGS[cls]
        properties[tag] = {"const": word}
    required = list(properties)
    if cls is m.Ref:
        properties["name"] = _schema(_Shape("dotted"))
        required.append("name")
    else:
        shapes = _shapes(cls)
        properties |= {name: _schema(shape) for name, (shape, _) in shapes.items()}
        required += [name for name, (_, needed) in shapes.items() if needed]
    about = (cls.__doc__ or "").split("\n")[0]
    result = {"description": about, "type": "object", "properties": properties, "required": required}
    return result | {"additionalProperties": False} | _conditions(cls)


def _conditions(cls: type) -> dict[str, Any]:
    """What `_misfit` says, for readers of the schema."""
    if cls is m.Type:
        parts = sorted({p for wanted in _PARTS.values() for p in wanted})
        rules = [
            _when("name", [name], {"required": wanted, "properties": {p: False for p in parts if p not in wanted}})
            for name, wanted in _PARTS.items()
        ]
        simple = _when("name", list(_vocabulary()["SIMPLE_TYPE"]), {"properties": dict.fromkeys(parts, False)})
        return {"allOf": [*rules, simple]}
    if cls is m.Special:
        acts = {"required": ["action"], "properties": {"action": {"enum": ["ignored", "fails"]}}}
        return {"if": acts, "then": {"properties": {"meaning": False}}, "else": {"required": ["meaning"]}}
    if cls is m.Mitigation:
        return {"dependentRequired": {"pool": ["target"]}}
    length = {
        m.Operation: [("operator", list(_UNARY), "operands", 1), ("operator", list(_BINARY), "operands", 2)],
        m.Way: [("kind", ["param"], "parameters", 1), ("kind", ["env", "config"], "parameters", 0)],
        m.Read: [("kind", ["call", "attribute", "file", "log"], "target", 1)],
    }.get(cls)
    if length is None:
        return {}
    rules = []
    for key, words, field, n in length:
        exact: dict[str, Any] = {"properties": {field: {"minItems": n, "maxItems": n}}}
        rules.append(_when(key, words, exact | ({"required": [field]} if n else {})))
    return {"allOf": rules}


def _when(key: str, words: list[str], then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {key: {"enum": words}}}, "then": then}


def _schema(shape: _Shape) -> dict[str, Any]:
    match shape.kind:
        case "many" if shape.inner is not None:
            least = {"minItems": shape.least} if shape.least else {}
            return {"type": "array", "items": _schema(shape.inner)} | least
        case "node":
            return {"$ref": f"#/$defs/{'Expr' if shape.classes == _EXPRESSIONS else 'Clause'}"}
        case "record":
            return _ref_to(shape.classes[0])
        case "word":
            return {"enum": list(shape.words)}
        case "integer" | "number":
            return {"type": shape.kind, "minimum": 0}
        case "boolean":
            return {"type": "boolean"}
        case "name" | "dotted" | "ref":
            return {"type": "string", "pattern": f"^{_PATTERNS['name' if shape.kind == 'name' else 'dotted']}$"}
        case _:
            return {"type": "string"}
