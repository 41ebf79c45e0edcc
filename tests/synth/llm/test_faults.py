"""Servers and models that fail in every way seen: always a valid answer or a named failure, in bounded attempts."""

import gzip
import json
import socket
import struct

import pytest

from synth.llm.outcome import Answer, FailureKind
from tests.synth.llm.scripted import GOOD, KEY, FakeClock, attempts, completion, question

TEXT = json.dumps(GOOD)


def saying(text, **more):
    return completion(text, **more)


def changed(**fields):
    return saying(json.dumps(GOOD | fields))


def status(code, message="no", **headers):
    def step(handler):
        handler.reply({"error": {"message": message}}, code, **headers)

    return step


def raw(data, code=200, **headers):
    return lambda handler: handler.reply(data, code, **headers)


def half_closed(handler):
    """A length that is not kept."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def hung_up(handler):
    """No answer at all."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def reset(handler):
    """The connection is torn down in the middle."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True


def no_http(handler):
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def endless(piece):
    """Chunks without end, until the other side hangs up or the test is over."""

    def step(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while not handler.site.released.is_set():
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()

    return step


def gzipped(handler):
    data = gzip.compress(json.dumps(saying(TEXT)).encode())
    handler.reply(data, Content_Encoding="gzip")


def bomb(handler):
    handler.reply(gzip.compress(b" " * (8 << 20)), Content_Encoding="gzip")


def broken_gzip(handler):
    handler.reply(b"\x1f\x8b\x08 this is no gzip", Content_Encoding="gzip")


# (name, what the server does each time, what must come of it, requests, words of the message)
TRIES, ASKS = 4, 2
MODEL = [
    ("empty text", saying(""), "empty", ASKS, "empty"),
    ("white space only", saying(" \n\t "), "empty", ASKS, "empty"),
    ("no content", saying(None), "empty", ASKS, "empty"),
    ("truncated", saying(TEXT[:60], finish="length"), "truncated", ASKS, "cut off"),
    ("complete and yet cut off", saying(TEXT, finish="length"), "truncated", ASKS, "cut off"),
    ("truncated, and says stop", saying(TEXT[:60]), "invalid", ASKS, "does not end it|not JSON"),
    ("repeats itself", saying('{"kind": "' + "the " * 3000, finish="length"), "truncated", ASKS, "repeating itself"),
    ("repeats itself and stops", saying("no no no " * 2000), "invalid", ASKS, "no JSON object"),
    ("another language", saying("Die Umgebungsvariable legt die Anzahl der Threads fest."), "invalid", ASKS, "no JSON"),
    ("another script", saying("这个变量设置线程数。"), "invalid", ASKS, "no JSON object"),
    ("prose only", saying("It sets the number of threads."), "invalid", ASKS, "no JSON object"),
    ("YAML", saying("kind: threads\nread: import\n"), "invalid", ASKS, "no JSON object"),
    ("two objects", saying(f"{TEXT}\n{TEXT}"), "invalid", ASKS, "several JSON objects"),
    ("two fences", saying(f"```json\n{TEXT}\n```\nor\n```json\n{TEXT}\n```"), "invalid", ASKS, "several blocks"),
    ("a list", saying(f"[{TEXT},{TEXT}]"), "invalid", ASKS, "several JSON objects"),
    ("a number", saying("42"), "invalid", ASKS, "no JSON object"),
    ("null", saying("null"), "invalid", ASKS, "no JSON object"),
    ("single quotes", saying(str(GOOD)), "invalid", ASKS, "not JSON"),
    ("trailing comma", saying(TEXT[:-1] + ",}"), "invalid", ASKS, "not JSON"),
    ("comments", saying("{ // kind\n" + TEXT[1:]), "invalid", ASKS, "not JSON"),
    ("NaN", saying(TEXT.replace('"4"', "NaN")), "invalid", ASKS, "NaN"),
    ("a key twice", saying('{"kind": "threads", ' + TEXT[1:]), "invalid", ASKS, "twice"),
    ("nested too deep", saying('{"kind": ' + "[" * 5000 + "]" * 5000 + "}"), "invalid", ASKS, "nested deeper"),
    ("a number of many digits", saying('{"kind": ' + "9" * 5000 + "}"), "invalid", ASKS, "not JSON"),
    ("braces without end", saying("{" * 20_000), "invalid", ASKS, "nested deeper|does not end"),
    ("an object with nothing in it", saying("{}"), "invalid", ASKS, "field required"),
    ("the schema itself", saying('{"type": "object", "properties": {}}'), "invalid", ASKS, "required"),
    ("a key left out", saying(json.dumps({k: v for k, v in GOOD.items() if k != "read"})), "invalid", ASKS, "read"),
    ("a key too many", changed(confidence=0.9), "invalid", ASKS, "confidence"),
    ("an invented choice", changed(kind="super_threads"), "invalid", ASKS, "kind"),
    ("a choice in another language", changed(kind="hilos"), "invalid", ASKS, "kind"),
    ("a choice in capitals", changed(kind="THREADS"), "invalid", ASKS, "kind"),
    ("a text where a list belongs", changed(wins_over="OMP_NUM_THREADS"), "invalid", ASKS, "wins_over"),
    ("a number where a text belongs", changed(default_text=4), "invalid", ASKS, "default_text"),
    ("null where a text belongs", changed(default_text=None), "invalid", ASKS, "default_text"),
    ("an object where a text belongs", changed(default_text={"value": 4}), "invalid", ASKS, "default_text"),
    ("a list where a choice belongs", changed(kind=["threads"]), "invalid", ASKS, "kind"),
    ("evidence that nobody showed", changed(kind_evidence=["e99"]), "invalid", ASKS, "no evidence"),
    ("evidence by its file", changed(kind_evidence=["a.py:3"]), "invalid", ASKS, "no evidence"),
    ("evidence as a number", changed(kind_evidence=[1]), "invalid", ASKS, "kind_evidence"),
    ("a special value without evidence",
     changed(specials=[{"value": "0", "meaning": "all_cpus", "evidence": []}]), "invalid", ASKS, "specials"),
    ("an endless text in a field", changed(default_text="x" * 5000), "invalid", ASKS, "300 characters"),
    ("thousands of items", changed(wins_over=["A"] * 5000), "invalid", ASKS, "wins_over"),
    ("a hidden character", changed(default_text="4\u202e"), "invalid", ASKS, "cannot be seen"),
    ("a line break in a field", changed(default_text="4\nenv"), "invalid", ASKS, "cannot be seen"),
    ("half a surrogate pair", saying(TEXT.replace('"4"', '"\\ud800"')), "invalid", ASKS, "default_text"),
    ("a refusal", saying(None, refusal="I cannot help with that."), "refused", 1, "declined"),
    ("a refusal beside text", saying(TEXT, refusal="No."), "refused", 1, "declined"),
    ("a filter", saying("", finish="content_filter"), "refused", 1, "filter"),
    ("a refusal in prose", saying("I'm sorry, I can't assist with that."), "invalid", ASKS, "no JSON object"),
    ("a tool call", saying(None, finish="tool_calls", tool_calls=[]), "not_a_completion", ASKS, "tool_calls"),
    ("no finish reason", saying(TEXT, finish=None), "not_a_completion", ASKS, "nothing"),
    ("an invented finish reason", saying(TEXT, finish="done"), "not_a_completion", ASKS, "done"),
    ("content in parts", saying([{"type": "text", "text": TEXT}]), "not_a_completion", ASKS, "no text"),
]  # fmt: skip
SERVER = [
    ("no choices", {"choices": []}, "not_a_completion", ASKS, "no completion"),
    ("choices of another type", {"choices": "none"}, "not_a_completion", ASKS, "no completion"),
    ("no message", {"choices": [{"finish_reason": "stop"}]}, "not_a_completion", ASKS, "no message"),
    ("a choice that is a text", {"choices": ["stop"]}, "not_a_completion", ASKS, "no message"),
    ("an error with status 200", {"error": {"message": "overloaded"}}, "not_a_completion", ASKS, "no completion"),
    ("an empty body", raw(b""), "not_a_completion", ASKS, "no JSON"),
    ("a web page", raw(b"<html>welcome to the proxy</html>"), "not_a_completion", ASKS, "no JSON"),
    ("bytes that are no text", raw(b"\xff\xfe\x00\x01" * 100), "not_a_completion", ASKS, "no JSON"),
    ("half of the JSON", raw(b'{"choices": [{"message"'), "not_a_completion", ASKS, "no JSON"),
    ("a body nested deep", raw(b"[" * 100_000), "not_a_completion", ASKS, "no JSON"),
    ("a stream of events", raw(b'data: {"choices": []}\n\n'), "not_a_completion", ASKS, "no JSON"),
    ("an empty status 204", raw(b"", 204), "bad_request", 1, "204"),
    ("a redirect", raw(b"", 307, Location="http://127.0.0.1:9/steal"), "bad_request", 1, "307"),
    ("bad request", status(400, "unknown parameter"), "bad_request", 1, "unknown parameter"),
    ("a context that is too long", status(400, "maximum context length"), "bad_request", 1, "maximum context"),
    ("unprocessable", status(422, "temperature"), "bad_request", 1, "temperature"),
    ("too large for the server", status(413, "too large"), "bad_request", 1, "413"),
    ("a wrong key", status(401, "invalid key"), "auth", 1, "invalid key"),
    ("a forbidden model", status(403, "not for you"), "auth", 1, "not for you"),
    ("an unknown model", status(404, "no such model"), "not_found", 1, "no such model"),
    ("nothing paid", status(402, "pay first"), "quota", 1, "pay first"),
    ("a quota that is used up", status(429, "insufficient_quota: check your plan"), "quota", 1, "insufficient_quota"),
    ("too many requests", status(429, "slow down"), "rate_limit", TRIES, "slow down"),
    ("too many requests, for an hour", status(429, "slow down", Retry_After="3600"), "rate_limit", 1, "slow down"),
    ("too many requests, for nonsense", status(429, "slow", Retry_After="soon"), "rate_limit", TRIES, "slow"),
    ("too many requests, for NaN", status(429, "slow", Retry_After="nan"), "rate_limit", TRIES, "slow"),
    ("too many requests, for ever", status(429, "slow", Retry_After="inf"), "rate_limit", 1, "slow"),
    ("too many requests, in the past", status(429, "slow", Retry_After="-5"), "rate_limit", TRIES, "slow"),
    ("an error inside", status(500, "oops"), "server", TRIES, "oops"),
    ("a bad gateway", raw(b"<html>502</html>", 502), "server", TRIES, "502"),
    ("unavailable", status(503, "loading model"), "server", TRIES, "loading model"),
    ("a gateway's timeout", status(504, "late"), "server", TRIES, "late"),
    ("an overloaded 529", status(529, "overloaded"), "server", TRIES, "overloaded"),
    ("a request timeout 408", status(408, "late"), "server", TRIES, "late"),
    ("an error without a body", raw(b"", 500), "server", TRIES, "500"),
    ("an error with a huge body", raw(b"x" * (1 << 20), 500), "server", TRIES, "500"),
    ("half closed", half_closed, "connection", TRIES, "broke off"),
    ("hung up", hung_up, "connection", TRIES, "broke off|no connection"),
    ("reset", reset, "connection", TRIES, "broke off|no connection"),
    ("another protocol", no_http, "connection", TRIES, "broke off"),
    ("broken gzip", broken_gzip, "connection", TRIES, "broke off"),
    ("a zip bomb", bomb, "too_large", 1, "larger than"),
    ("a huge reply", raw(b" " * (2 << 20)), "too_large", 1, "larger than"),
    ("a huge valid reply", completion("x" * (2 << 20)), "too_large", 1, "larger than"),
    ("a reply without end", endless(b" " * 4096), "too_large", 1, "larger than"),
]
RIGHT = [
    ("plain", saying(TEXT), ""),
    ("white space around", saying(f"\n  {TEXT}\n\n"), ""),
    ("a byte order mark", saying(f"\ufeff{TEXT}"), ""),
    ("on many lines", saying(json.dumps(GOOD, indent=4)), ""),
    ("a fence", saying(f"```json\n{TEXT}\n```"), "fence"),
    ("a fence without a language", saying(f"```\n{TEXT}\n```"), "fence"),
    ("a fence in prose", saying(f"Here you are:\n```json\n{TEXT}\n```\nTell me if you need more."), "fence"),
    ("prose before", saying(f"Sure! The answer is {TEXT}"), "prose"),
    ("prose behind", saying(f"{TEXT}\nI hope this helps."), "prose"),
    ("thoughts before", saying(f"<think>It reads {{a}} variable.</think>\n{TEXT}"), ""),
    ("a list with one object", saying(f"[{TEXT}]"), "prose"),
    ("no usage", saying(TEXT, usage=None), ""),
    ("nonsense for usage", saying(TEXT) | {"usage": {"prompt_tokens": "many", "completion_tokens": -1}}, ""),
    ("fields that nobody knows", saying(TEXT) | {"timings": {"x": 1}, "system_fingerprint": None}, ""),
    ("several choices", saying(TEXT) | {"choices": saying(TEXT)["choices"] * 3}, ""),
    ("braces inside of a text", saying(json.dumps(GOOD | {"default_text": '}{ \\" }'})), ""),
    ("gzip", gzipped, ""),
]


@pytest.fixture
def client(make):
    return make(max_reply_bytes=1 << 20)


def names(cases):
    return {"argvalues": [c[1:] for c in cases], "ids": [c[0] for c in cases]}


@pytest.mark.parametrize(("step", "kind", "requests", "words"), **names(MODEL + SERVER))
def test_a_fault_ends_in_a_named_failure(site, client, tmp_path, step, kind, requests, words):
    site.script = [step]
    outcome = client.ask(question())
    assert not isinstance(outcome, Answer)
    assert outcome.kind == FailureKind(kind)
    assert any(w.lower() in outcome.message.lower() for w in words.split("|")), outcome.message
    assert len(outcome.message) < 2000
    # bounded: as many requests as said, each of them booked and written down
    assert (len(site.requests), outcome.requests) == (requests, requests)
    lines = attempts(tmp_path / "attempts.jsonl")
    assert [line["result"] for line in lines] == [kind] * requests
    account = client.ledger.report().total
    assert (account.requests, account.questions, account.failures) == (requests, 1, 1)
    assert account.retries == requests - 1


@pytest.mark.parametrize(("step", "trimmed"), **names(RIGHT))
def test_what_is_right_is_taken(site, client, step, trimmed):
    site.script = [step]
    outcome = client.ask(question())
    assert isinstance(outcome, Answer)
    assert outcome.trimmed == trimmed
    assert outcome.value.kind == "threads"
    assert outcome.requests == len(site.requests) == 1


@pytest.mark.parametrize(("step", "kind", "requests", "words"), **names(MODEL + SERVER))
def test_after_a_fault_a_right_reply_counts(site, client, step, kind, requests, words):
    site.script = [step, completion(TEXT)]
    outcome = client.ask(question())
    if requests == 1:
        assert not isinstance(outcome, Answer)
        assert len(site.requests) == 1
    else:
        assert isinstance(outcome, Answer)
        assert outcome.requests == len(site.requests) == 2


def test_a_drip_ends_at_the_deadline(site, make):
    site.script = [endless(b" ")]
    client = make(total_s=30.0, tries=1, clock=FakeClock(tick=1.0))
    outcome = client.ask(question())
    assert outcome.kind is FailureKind.TIMEOUT
    assert outcome.message == "the reply did not end in time"
    assert len(site.requests) == 1
    assert client.ledger.report().total.usage.unsure > 0


def test_a_silent_server_is_left_after_the_last_try(site, make):
    site.script = [lambda handler: site.released.wait(60)]
    client = make(read_s=0.05, tries=2)
    outcome = client.ask(question())
    assert outcome.kind is FailureKind.TIMEOUT
    assert outcome.message == "the server fell silent (sent 2 times)"
    assert len(site.requests) == 2


def test_nobody_listens(make):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        client = make(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        outcome = client.ask(question())
    assert outcome.kind is FailureKind.CONNECTION
    assert client.ledger.report().total.usage.total == 0


def test_no_such_host(make):
    outcome = make(base_url="http://host.invalid/v1", tries=1).ask(question())
    assert outcome.kind is FailureKind.CONNECTION


def test_valid_but_ungrounded(site, client):
    site.script = [changed(default_text="64"), changed(default_text="4")]
    check = lambda value: () if value.default_text in "n = 4" else (f"`{value.default_text}` stands in no evidence",)  # noqa: E731
    outcome = client.ask(question(check=check))
    assert isinstance(outcome, Answer)
    assert outcome.value.default_text == "4"
    assert "`64` stands in no evidence" in site.requests[1]["messages"][-1]["content"]


def test_ungrounded_to_the_end(site, client):
    site.script = [changed(default_text="64")]
    outcome = client.ask(question(check=lambda _: ("made up",)))
    assert (outcome.kind, outcome.message, len(site.requests)) == (FailureKind.REJECTED, "made up", 2)


def test_a_server_that_sends_the_key_back(site, client, tmp_path, caplog):
    caplog.set_level(0)
    site.script = [status(401, f"wrong key {KEY}")]
    outcome = client.ask(question())
    assert outcome.message == "the server answered 401: wrong key [key]"
    assert KEY not in (tmp_path / "attempts.jsonl").read_text() + caplog.text


def test_how_many_faults_there_are():
    assert len(MODEL) + len(SERVER) >= 95
    assert len({c[0] for c in MODEL + SERVER + RIGHT}) == len(MODEL + SERVER + RIGHT)
