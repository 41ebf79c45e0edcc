"""Answers: what follows from them, and what none may hold."""

import pytest
from pydantic import ValidationError

from synth.llm.answers import (
    _RESOURCES,
    ControlAnswer,
    ControlKind,
    CriticAnswer,
    SummaryAnswer,
    answer_models,
)
from synth.llm.config import Task
from tests.synth.llm.scripted import GOOD

SHOWN = {"evidence": frozenset({"e1"})}


def control(**fields):
    return ControlAnswer.model_validate(GOOD | fields, context=SHOWN)


@pytest.mark.parametrize("kind", ControlKind)
def test_whether_it_is_a_control_follows_from_its_kind(kind):
    answer = control(kind=kind.value)
    expected = None if kind is ControlKind.UNKNOWN else kind in _RESOURCES
    assert answer.is_control is expected
    assert bool(answer.resource) is bool(expected)


def test_nobody_is_asked_whether_it_is_a_control():
    for model in answer_models().values():
        assert not [name for name in model.model_fields if "is_" in name or name == "control"]


def test_resources_are_those_of_the_language():
    from lpcl.check import RESOURCES

    assert set(_RESOURCES.values()) <= set(RESOURCES)


def test_every_task_but_the_probe_has_an_answer():
    assert {*answer_models(), "probe"} == set(Task.__args__)


def test_without_evidence_shown_none_can_be_cited():
    with pytest.raises(ValidationError, match="there is no evidence `e1`"):
        ControlAnswer.model_validate(GOOD)
    assert ControlAnswer.model_validate(GOOD | {"kind_evidence": [], "default_evidence": []})


@pytest.mark.parametrize(
    "text", ["a\u202eb", "a\u200bb", "a\nb", "a\x00b", "\ud800", "a\u2028b", "\U000e0041", "x" * 301]
)
def test_texts_that_no_contract_may_hold(text):
    with pytest.raises(ValidationError):
        control(default_text=text)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("evaluates array expressions on a pool of its own", True),
        ("évaluate arrays on a naïve pool of its own threads", True),
        ("вычисляет выражения", False),
        ("配列の式を評価する", False),
        ("42", False),
        ("", False),
        ("does a\nand b", False),
    ],
)
def test_a_summary_is_one_line_of_english(text, good):
    value = {"summary": text, "evidence": ["e1"]}
    if good:
        assert SummaryAnswer.model_validate(value, context=SHOWN).summary == text
    else:
        with pytest.raises(ValidationError):
            SummaryAnswer.model_validate(value, context=SHOWN)


def test_a_critic_s_change_needs_evidence():
    change = {"clause": "threads", "property": "default", "action": "replace", "value": "4", "reason": "x"}
    with pytest.raises(ValidationError):
        CriticAnswer.model_validate({"changes": [change | {"evidence": []}]}, context=SHOWN)
    assert CriticAnswer.model_validate({"changes": [change | {"evidence": ["e1"]}]}, context=SHOWN).changes
    assert CriticAnswer.model_validate({"changes": []}).changes == []


@pytest.mark.parametrize("name", answer_models())
def test_answers_take_no_other_keys(name):
    with pytest.raises(ValidationError, match="extra_forbidden"):
        answer_models()[name].model_validate({"surprise": 1})
