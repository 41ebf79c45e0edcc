"""Recordings: found by content, never by accident, never with a key, and never in the way."""

import json

import pytest

from synth.llm.cassette import Cassette, CassetteMissError, Identity, Mode, canonical, key_of
from synth.llm.outcome import Answer, FailureKind
from synth.records import SynthError
from tests.synth.llm.scripted import GOOD, KEY, completion, question

OK = completion(json.dumps(GOOD))
IDENTITY = Identity(model="m", task="control", template="t", grammar="g", evidence=("e1",))


def one(folder):
    (path,) = folder.glob("*/*.json")
    return path


def test_asked_once_and_replayed(site, make):
    site.script = [OK]
    first = make(Mode.RECORD).ask(question())
    again = make(Mode.RECORD)
    second = again.ask(question())
    replay = make(Mode.REPLAY).ask(question())
    assert len(site.requests) == 1
    assert first.value == second.value == replay.value
    assert (first.requests, second.requests, replay.requests) == (1, 0, 0)
    assert replay.replayed == 1
    assert again.cassette.counts.hits == 1
    total = again.ledger.report().total
    assert (total.requests, total.replayed, total.cost, total.usage.total) == (0, 1, 0, 0)


def test_a_course_of_several_asks_is_replayed_whole(site, make):
    site.script = [completion("no"), OK]
    first = make(Mode.RECORD).ask(question())
    replay = make(Mode.REPLAY).ask(question())
    assert len(site.requests) == 2
    assert (replay.value, replay.replayed) == (first.value, 2)


def test_a_reply_that_is_no_good_is_replayed_as_such(site, make):
    site.script = [completion("no")]
    assert make(Mode.RECORD).ask(question()).kind is FailureKind.INVALID
    assert make(Mode.REPLAY).ask(question()).kind is FailureKind.INVALID
    assert len(site.requests) == 2


def test_the_same_request_asked_again_is_another_recording(site, make):
    # a reply without an end is the server's fault: the same messages are sent again, and must not find that reply
    site.script = [completion(json.dumps(GOOD), finish=None), OK]
    first = make(Mode.RECORD).ask(question())
    replay = make(Mode.REPLAY).ask(question())
    assert site.requests[0] == site.requests[1]
    assert (first.requests, replay.requests, replay.replayed) == (2, 0, 2)
    assert replay.value == first.value


def test_faults_of_the_server_are_not_recorded(site, make):
    site.script = [lambda h: h.reply({"error": "x"}, 400), OK]
    client = make(Mode.RECORD)
    assert client.ask(question()).kind is FailureKind.BAD_REQUEST
    assert client.cassette.counts.stored == 0
    assert isinstance(client.ask(question()), Answer)


def test_refresh_asks_again_and_keeps_the_new_reply(site, make):
    site.script = [OK, completion(json.dumps(GOOD | {"default_text": "8"}))]
    make(Mode.RECORD).ask(question())
    make(Mode.REFRESH).ask(question())
    assert len(site.requests) == 2
    assert make(Mode.REPLAY).ask(question()).value.default_text == "8"


def test_off_asks_each_time_and_keeps_nothing(site, make, tmp_path):
    site.script = [OK]
    client = make(Mode.OFF)
    client.ask(question())
    client.ask(question())
    assert len(site.requests) == 2
    assert not (tmp_path / "recordings").exists()
    assert client.cassette.describe() == "recordings: off"


def test_a_miss_names_task_and_evidence(site, make, tmp_path):
    outcome = make(Mode.REPLAY).ask(question())
    assert outcome.kind is FailureKind.MISSING
    assert "task `control`" in outcome.message
    assert "evidence e1, e2" in outcome.message
    assert site.requests == []
    assert (
        make(Mode.REPLAY).cassette.describe()
        == f"recordings: {tmp_path / 'recordings'} (replay): 0 used, 0 missing, 0 kept"
    )


CHANGES = {
    "the model": ({"model": "other"}, {}),
    "the identity": ({"identity": "gguf:1"}, {}),
    "the address": ({"base_url": "http://other.invalid/v1"}, {}),
    "the temperature": ({"temperature": 0.5}, {}),
    "no temperature": ({"temperature": None}, {}),
    "the seed": ({"seed": 1}, {}),
    "the form": ({"schema_mode": "none"}, {}),
    "the limit of tokens": ({}, {"max_output_tokens": 99}),
    "the prompt": ({}, {"text": "What is that?"}),
    "the template": ({}, {"digest": "t2"}),
    "the evidence": ({}, {"evidence": ("e1", "e3")}),
    "the order of the evidence": ({}, {"evidence": ("e2", "e1")}),
    "the task": ({}, {"task": "pool"}),
}


@pytest.mark.parametrize(("settings", "asked"), CHANGES.values(), ids=CHANGES)
def test_whatever_changes_is_another_recording(site, make, settings, asked):
    site.script = [OK]
    make(Mode.RECORD).ask(question())
    client = make(Mode.REPLAY, **settings)
    asked = dict(asked)
    assert client.ask(question(asked.pop("text", "What is it?"), **asked)).kind is FailureKind.MISSING


def test_what_does_not_change_the_reply_does_not_change_the_key(site, make):
    site.script = [OK]
    make(Mode.RECORD).ask(question())
    other = make(Mode.REPLAY, api_key="another-key", tries=2, concurrency=1, max_tokens=10**6)
    assert isinstance(other.ask(question(library="another")), Answer)


def test_every_ask_has_a_key_of_its_own():
    keys = {key_of({"a": 1}, IDENTITY.model_copy(update={"ask": n})) for n in range(5)}
    assert len(keys) == 5


def test_one_text_for_one_value():
    assert canonical({"b": 1, "a": [1.5, None, "ü"]}) == '{"a":[1.5,null,"\\u00fc"],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(float("nan"))


def broken(path, how):
    record = json.loads(path.read_text())
    match how:
        case "cut off":
            path.write_text(path.read_text()[:50])
        case "empty":
            path.write_text("")
        case "another request":
            record["request"]["model"] = "x"
        case "another key":
            record["key"] = "0" * 64
        case "another identity":
            record["identity"]["model"] = "x"
        case "newer":
            record["schema_version"] = 99
        case "a list":
            path.write_text("[]")
        case "nested":
            path.write_text("[" * 100_000)
        case "a folder":
            path.unlink()
            path.mkdir()
            return
    if how in {"another request", "another key", "another identity", "newer"}:
        path.write_text(json.dumps(record))


HOW = [
    "cut off",
    "empty",
    "another request",
    "another key",
    "another identity",
    "newer",
    "a list",
    "nested",
    "a folder",
]


@pytest.mark.parametrize("how", HOW)
def test_a_broken_recording_is_never_used(site, make, tmp_path, how):
    site.script = [OK]
    make(Mode.RECORD).ask(question())
    broken(one(tmp_path / "recordings"), how)
    outcome = make(Mode.REPLAY).ask(question())
    assert outcome.kind is FailureKind.MISSING
    assert "none is there" not in outcome.message
    client = make(Mode.RECORD)
    assert isinstance(client.ask(question()), Answer)
    assert len(site.requests) == 2
    assert len(client.cassette.counts.broken) == 1
    assert "1 unreadable" in client.cassette.describe()


def test_a_recording_holds_neither_headers_nor_key(site, make, tmp_path):
    site.script = [OK]
    make(Mode.RECORD).ask(question())
    record = json.loads(one(tmp_path / "recordings").read_text())
    assert record.keys() == {"schema_version", "key", "identity", "library", "request", "reply"}
    assert KEY not in json.dumps(record)
    assert [p.name for p in (tmp_path / "recordings").rglob(".*")] == []


def test_half_a_surrogate_pair_can_be_kept(tmp_path):
    cassette = Cassette(tmp_path, Mode.RECORD)
    cassette.keep({"a": 1}, IDENTITY, "demo", {"choices": ["\ud800"]})
    assert cassette.find({"a": 1}, IDENTITY) == {"choices": ["\ud800"]}


def test_a_write_that_fails_leaves_the_old_recording(tmp_path, monkeypatch):
    cassette = Cassette(tmp_path, Mode.REFRESH)
    cassette.keep({"a": 1}, IDENTITY, "demo", "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("synth.llm.cassette.os.fsync", full)
    with pytest.raises(SynthError, match="no space left on device"):
        cassette.keep({"a": 1}, IDENTITY, "demo", "new")
    assert Cassette(tmp_path, Mode.REPLAY).find({"a": 1}, IDENTITY) == "old"
    assert [p.name for p in tmp_path.rglob("*.new")] == []


def test_a_folder_is_needed():
    with pytest.raises(SynthError, match="no folder for recordings"):
        Cassette(None, Mode.REPLAY)
    assert Cassette(None, Mode.OFF).find({}, IDENTITY) is None


def test_a_miss_with_much_evidence_is_short(tmp_path):
    identity = IDENTITY.model_copy(update={"evidence": tuple(f"e{n}" for n in range(500))})
    with pytest.raises(CassetteMissError, match="and 488 more") as caught:
        Cassette(tmp_path, Mode.REPLAY).find({}, identity)
    assert len(str(caught.value)) < 500
