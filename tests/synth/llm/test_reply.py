"""Reading replies: the one JSON object of a text, or a complaint; and completions taken apart."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.llm.answers import ControlAnswer
from synth.llm.attempts import MAX_REPLY_CHARS, Attempt, AttemptLog
from synth.llm.completion import completion_of, repeats, usage_of
from synth.llm.outcome import Usage
from synth.llm.reply import MAX_COMPLAINT_CHARS, MAX_COMPLAINTS, BadReplyError, extract, validated
from synth.records import SynthError
from tests.synth.llm.scripted import GOOD, completion

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=4)


@given(OBJECTS)
def test_an_object_is_read_as_json_reads_it(value):
    assert extract(json.dumps(value)).value == value
    assert extract(json.dumps(value, ensure_ascii=False, indent=2)).value == value


@given(OBJECTS, st.text(st.characters(exclude_characters='{}"`<'), max_size=40))
def test_prose_and_fences_around_it_are_cut_off(value, prose):
    text = json.dumps(value)
    assert extract(f"{prose} {text} {prose}").value == value
    assert extract(f"{prose}\n```json\n{text}\n```\n{prose}").value == value


@given(st.text(max_size=200) | st.text('{}[]",:\\ abc01', max_size=200))
def test_any_text_is_an_object_or_a_complaint(text):
    complaints = ("none",)
    try:
        assert isinstance(extract(text).value, dict)
    except BadReplyError as error:
        complaints = error.complaints
    assert 1 <= len(complaints) <= MAX_COMPLAINTS
    assert all(len(c) <= MAX_COMPLAINT_CHARS and "\n" not in c for c in complaints)


@given(OBJECTS)
def test_any_object_is_an_answer_or_a_complaint(value):
    with pytest.raises(BadReplyError):
        validated(ControlAnswer, value, ["e1"])


@pytest.mark.parametrize("n", [1_000, 100_000])
def test_deep_and_long_texts_take_no_recursion(n):
    for text in (
        '{"' + '\\"' * n,
        '{"' + '\\"' * n + "\\",
        "{" * n,
        '{"a":' * n + "1" + "}" * n,
        "[" * n,
        '"' * n,
        "\\" * n,
        '{"' * n,
        "```\n{" * n,
    ):
        with pytest.raises(BadReplyError):
            extract(text)


def test_complaints_are_few_and_name_the_field():
    with pytest.raises(BadReplyError) as caught:
        validated(ControlAnswer, {}, [])
    assert caught.value.complaints[0] == "`kind`: field required"
    assert len(caught.value.complaints) == MAX_COMPLAINTS
    with pytest.raises(BadReplyError, match="`read`: input should be 'build'"):
        validated(ControlAnswer, GOOD | {"read": "never"}, ["e1"])


# ------------------------------------------------------------------- completions


@given(st.dictionaries(st.sampled_from(["choices", "usage", "model"]), VALUES))
def test_nothing_in_a_completion_is_trusted(body):
    body = {"choices": [body.get("choices")], **{k: v for k, v in body.items() if k != "choices"}}
    got = completion_of(json.dumps(body).encode())
    assert got.problem()[0] is not None


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(input=5, output=2)),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
            Usage(input=5, output=2, cached=3),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(input=5, output=2, cached=5),
        ),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(input=5, output=2)),
        ({"prompt_tokens": 5}, None),
        ({"prompt_tokens": -5, "completion_tokens": 2}, None),
        ({"prompt_tokens": True, "completion_tokens": 2}, None),
        ({"prompt_tokens": 5.5, "completion_tokens": 2}, None),
        ({"prompt_tokens": 10**30, "completion_tokens": 2}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage(value, usage):
    assert usage_of(value) == usage


@pytest.mark.parametrize("text", ["a" * 50, "no " * 20, "x" + "the same line again\n" * 9, "ab" * 5000])
def test_repetition_is_seen(text):
    assert repeats(text)


@pytest.mark.parametrize("text", ["", " " * 500, "abcdefgh" * 7, "a normal sentence, cut off in the mid"])
def test_and_nothing_else(text):
    assert not repeats(text)


def test_a_refusal_wins_over_text():
    got = completion_of(json.dumps(completion("text", refusal="no")).encode())
    assert got.problem()[1] == "the model declined: no"


# ------------------------------------------------------------------- attempts


def attempt(**more):
    values = {"library": "l", "task": "control", "model": "m", "identity": "i", "template": "t", "evidence": ()}
    values |= {"request": "r", "ask": 0, "send": 0, "source": "server", "result": "ok"}
    return Attempt(**(values | more))


def test_attempts_are_bounded_and_redacted(tmp_path):
    log = AttemptLog(tmp_path / "deep" / "a.jsonl", lambda text: text.replace("secret", "[key]"))
    log.add(attempt(reply="secret" + "x" * (MAX_REPLY_CHARS + 10), error="secret\ud800\n"))
    log.add(attempt())
    first, second = map(json.loads, (tmp_path / "deep" / "a.jsonl").read_text().splitlines())
    assert first["reply"].startswith("[key]x")
    assert first["reply"].endswith("[16 characters more]")
    assert first["error"] == "[key]\ud800\n"
    assert second["schema_version"] == 1
    assert log.count == 2
    assert (tmp_path / "deep" / "a.jsonl").stat().st_mode & 0o077 == 0


def test_without_a_file_attempts_are_counted():
    log = AttemptLog(None)
    log.add(attempt())
    assert log.count == 1


def test_a_log_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SynthError, match="cannot write the attempts"):
        AttemptLog(tmp_path / "file" / "a.jsonl").add(attempt())
