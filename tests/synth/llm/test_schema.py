"""Schemas in the strict form, and what is refused before it is sent."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from synth.llm.answers import ControlAnswer, answer_models
from synth.llm.config import LlmConfig
from synth.llm.forms import GrammarForm, JsonForm
from synth.llm.schema import BadSchemaError, check_grammar, check_schema, problems_of, strict_schema
from tests.synth.llm.scripted import GOOD

ROOT = Path(__file__).parents[3]
EVIDENCE = ("e1", "e2")


def nodes(schema):
    yield schema
    for value in schema.values():
        children = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        for child in children:
            if isinstance(child, dict):
                yield from nodes(child)
        if isinstance(value, dict):
            yield from nodes(value)


@pytest.mark.parametrize("task", answer_models())
def test_every_answer_has_a_strict_schema(task):
    schema = strict_schema(answer_models()[task], EVIDENCE)
    jsonschema.Draft202012Validator.check_schema(schema)
    check_schema(schema)
    for node in nodes(schema):
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
        assert not {"default", "title", "pattern", "format", "maxLength", "const"} & {
            k for k in node if k != "properties"
        }


def test_only_evidence_that_was_shown_can_be_said():
    schema = strict_schema(ControlAnswer, EVIDENCE)
    jsonschema.validate(GOOD, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(GOOD | {"kind_evidence": ["e3"]}, schema)
    many = strict_schema(ControlAnswer, [f"e{n}" for n in range(1000)])
    assert many["properties"]["kind_evidence"]["items"] == {"type": "string"}


def test_a_schema_does_not_depend_on_the_order_of_evidence():
    assert strict_schema(ControlAnswer, ("e1", "e2")) == strict_schema(ControlAnswer, ("e2", "e1", "e1"))


class Colour(StrEnum):
    RED = "red"


class Inner(BaseModel):
    x: int | None = None


class Outer(BaseModel):
    colour: Colour
    fixed: Literal["a"] = "a"
    inner: Inner
    more: list[Inner] = Field(default_factory=list, min_length=1)


def test_defaults_references_and_constants():
    schema = strict_schema(Outer)
    assert schema["required"] == ["colour", "fixed", "inner", "more"]
    assert schema["properties"]["fixed"] == {"enum": ["a"], "type": "string"}
    assert schema["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    assert schema["$defs"]["Inner"]["required"] == ["x"]
    check_schema(schema)


class Loose(BaseModel):
    anything: dict[str, int]


def test_what_cannot_be_strict():
    # an object with free keys would come back empty: it is better not to ask
    assert strict_schema(Loose)["properties"]["anything"]["properties"] == {}


GOOD_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"additionalProperties": True}, "allows other keys"),
        ({"required": []}, "does not ask for every key"),
        ({"type": "array"}, "the top is no object"),
        ({"properties": {"a": {"type": "strng"}}}, "has the type `strng`"),
        ({"properties": {"a": {"type": "string", "pattern": "x"}}}, "has the keyword `pattern`"),
        ({"properties": {"a": {"$ref": "#/$defs/X"}}}, "refers to `#/$defs/X`"),
        ({"properties": {"a": {"type": "array"}}}, "does not say what it holds"),
        ({"properties": {"a": {"type": "string", "enum": []}}}, "has 0 choices"),
        ({"properties": {"a": True}}, "is no schema"),
        ({"properties": {"a": {}}}, "has the type `None`"),
    ],
)
def test_schemas_that_must_not_be_sent(change, words):
    assert list(problems_of(GOOD_SCHEMA)) == []
    with pytest.raises(BadSchemaError) as caught:
        check_schema(GOOD_SCHEMA | change)
    assert words in " ".join(problems_of(GOOD_SCHEMA | change))
    assert str(caught.value).startswith("the schema is not strict")


def test_a_schema_nested_too_deep():
    node = {"type": "string"}
    for _ in range(20):
        node = {"type": "array", "items": node}
    with pytest.raises(BadSchemaError, match="nested too deep"):
        check_schema(GOOD_SCHEMA | {"properties": {"a": node}})


# ------------------------------------------------------------------- grammars


def test_the_language_s_own_grammar_can_be_sent():
    check_grammar((ROOT / "lpcl/grammar.lark").read_text())


@pytest.mark.parametrize("lark", ["start: nothing", 'start: "a', "start: /(?=a)/", "", "word: /a/"])
def test_grammars_that_must_not_be_sent(lark):
    with pytest.raises(BadSchemaError, match="the grammar does not compile"):
        check_grammar(lark)


def test_a_bad_grammar_never_leaves(site, make):
    from synth.llm.client import Ask
    from synth.llm.outcome import FailureKind
    from tests.synth.llm.scripted import prompt

    outcome = make(grammar="llguidance").ask(Ask("demo", prompt(), GrammarForm("start: nothing", str)))
    assert outcome.kind is FailureKind.BAD_REQUEST
    assert "does not compile" in outcome.message
    assert site.requests == []


def test_without_llguidance_no_grammar_is_sent(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    check_schema(GOOD_SCHEMA)  # our own check is enough for a schema
    with pytest.raises(BadSchemaError, match="needs llguidance") as caught:
        check_grammar('start: "a"')
    assert "syspilot-lpc[local]" in caught.value.help


@pytest.mark.parametrize(
    ("takes", "fields"),
    [
        ("none", {}),
        ("llguidance", {"grammar": '%llguidance {}\nstart: "a"'}),
        ("structured_outputs", {"structured_outputs": {"grammar": 'start: "a"'}}),
    ],
)
def test_how_a_grammar_is_handed_over(takes, fields):
    assert GrammarForm('start: "a"', str).request(LlmConfig(grammar=takes)) == fields


def test_how_a_schema_is_handed_over():
    form = JsonForm(ControlAnswer, EVIDENCE)
    sent = form.request(LlmConfig(schema_mode="schema"))["response_format"]["json_schema"]
    assert (sent["name"], sent["strict"]) == ("ControlAnswer", True)
    assert form.request(LlmConfig(schema_mode="json")) == {"response_format": {"type": "json_object"}}
    assert form.request(LlmConfig(schema_mode="none")) == {}
    assert form.read(json.dumps(GOOD))[0].kind == "threads"
    assert form.digest != JsonForm(ControlAnswer, ("e1",)).digest
