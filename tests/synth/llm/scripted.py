"""A real server on loopback that follows a script, a clock that never waits, and questions to ask."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from synth.llm.answers import ControlAnswer
from synth.llm.client import Ask
from synth.llm.forms import JsonForm
from synth.llm.prices import Price, Prices
from synth.llm.templates import Message, Prompt

KEY = "sk-very-secret-0123456789abcdef"
GOOD = {
    "kind": "threads",
    "value_type": "int",
    "default_kind": "constant",
    "default_text": "4",
    "read": "import",
    "scope": "process",
    "wins_over": [],
    "specials": [],
    "kind_evidence": ["e1"],
    "default_evidence": ["e1"],
    "read_evidence": [],
}


def completion(text, finish="stop", usage=(100, 20), **message):
    """The body of a completion."""
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        ],
    }
    if usage is not None:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return body


class Scripted:
    """Answers the n-th request with the n-th step of a script, the last step again and again."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.headers = []
        self.arrived = threading.Semaphore(0)  # released with each request
        self.released = threading.Event()  # lets steps that hang go
        self.now = self.most = 0  # requests in work, and the most there ever were
        self.lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            @property
            def site(self):
                return site

            def do_POST(self):
                body = self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with site.lock:
                    n = len(site.requests)
                    site.requests.append(body)
                    site.headers.append({k.lower(): v for k, v in self.headers.items()})
                    site.now += 1
                    site.most = max(site.most, site.now)
                site.arrived.release()
                try:
                    step = site.script[min(n, len(site.script) - 1)]
                    step(self) if callable(step) else self.reply(step)
                except OSError:
                    self.close_connection = True
                finally:
                    with site.lock:
                        site.now -= 1

            def reply(self, body, status=200, **headers):
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                headers = {"Content-Type": "application/json", "Content-Length": str(len(raw))} | headers
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


class FakeClock:
    """Goes on only when it is waited on, and by `tick` with each look."""

    def __init__(self, tick=0.0):
        self.time = 1000.0
        self.tick = tick
        self.waits = []
        self.on_wait = lambda: None

    def now(self):
        self.time += self.tick
        return self.time

    def today(self):
        return 1_800_000_000.0

    def wait(self, seconds, stop):
        self.waits.append(seconds)
        self.time += seconds
        self.on_wait()

    def chance(self):
        return 0.5


PRICES = Prices(models={"m": Price(input=1, output=4), "free": Price(input=0, output=0)})


def prompt(text="What is it?", evidence=("e1", "e2"), digest="t1", task="control"):
    return Prompt(task, (Message("system", "You answer."), Message("user", text)), digest, tuple(evidence))


def question(text="What is it?", *, library="demo", check=None, evidence=("e1", "e2"), **more):
    shown = prompt(text, evidence, **{k: more.pop(k) for k in ("digest", "task") if k in more})
    return Ask(library, shown, JsonForm(ControlAnswer, evidence, check), **more)


def attempts(path):
    """The lines of an attempts file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
