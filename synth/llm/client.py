"""One question to a model: bounded in tries, time, size and cost, and never trusted.

    ask -> admit (budget) -> transport (recordings, network) -> completion -> text -> value -> the caller's check

A request that failed on the way is sent again, as it was; a reply that is no good is followed by another question
with the complaint behind it. Both are bounded, and every attempt is written down the moment it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from synth.llm import Connection
from synth.llm.attempts import Attempt, AttemptLog
from synth.llm.cassette import Cassette, CassetteMissError, Identity, canonical
from synth.llm.clock import Clock, RealClock
from synth.llm.completion import Completion, completion_of
from synth.llm.config import LlmConfig
from synth.llm.forms import Form, RejectedReplyError
from synth.llm.ledger import Ledger, Refused, Reservation
from synth.llm.outcome import REASKED, RETRIED, Answer, Failure, FailureKind, Usage
from synth.llm.reply import BadReplyError
from synth.llm.schema import BadSchemaError
from synth.llm.spotlight import visible
from synth.llm.templates import Message, Prompt

if TYPE_CHECKING:
    from synth.llm.wire import WireFaultError

T = TypeVar("T")
MAX_QUOTED_CHARS = 2_000
_OVERHEAD_TOKENS = 64  # what a chat format puts around messages, far more than any does


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """One question.

    Attributes:
        library: whose account it goes on.
        prompt: from `templates.render`.
        form: what the reply must be.
        max_output_tokens: of one reply.
        reasks: further questions after a reply that is no good; `None` takes the number of the settings.
    """

    library: str
    prompt: Prompt
    form: Form[T]
    max_output_tokens: int = 2_000
    reasks: int | None = None


@dataclass(slots=True)
class _Course:
    """What has happened to one question so far."""

    deadline: float
    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    replayed: int = 0
    complaints: list[str] = field(default_factory=list)

    def failure(self, kind: FailureKind, message: str, help_text: str = "") -> Failure:
        return Failure(
            kind, message, help_text, tuple(self.complaints), self.usage, requests=self.requests, replayed=self.replayed
        )


class _ForbiddenError(Exception):
    """The budget does not admit a request."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


class Client:
    """Asks questions. Safe to use from threads; close it, or use it in a `with`."""

    def __init__(
        self,
        config: LlmConfig,
        cassette: Cassette,
        ledger: Ledger,
        log: AttemptLog,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Nothing is opened before the first question."""
        self.config = config
        self.cassette = cassette
        self.ledger = ledger
        self.log = log
        self._clock = clock or RealClock()
        self._stop = threading.Event()
        self._slots = threading.BoundedSemaphore(config.concurrency)
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close all connections; questions that wait for another try end."""
        self._stop.set()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def stop(self) -> None:
        """Send nothing more. What is on its way still arrives and is kept."""
        self._stop.set()

    def ask_all(
        self, asks: Sequence[Ask[T]], each: Callable[[int, Answer[T] | Failure], None] = lambda _n, _o: None
    ) -> list[Answer[T] | Failure]:
        """Ask several questions at once; the order of the results is that of the questions.

        On Ctrl-C nothing more is sent, replies on their way are waited for and kept, and `KeyboardInterrupt` goes on
        to the caller; the recordings hold what was paid for.
        """
        with ThreadPoolExecutor(self.config.concurrency, thread_name_prefix="llm") as pool:
            futures: list[Future[Answer[T] | Failure]] = [pool.submit(self.ask, ask) for ask in asks]
            try:
                results = []
                for n, future in enumerate(futures):
                    results.append(future.result())
                    each(n, results[-1])
            except BaseException:
                self.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return results

    def ask(self, ask: Ask[T]) -> Answer[T] | Failure:
        """Ask one question.

        Returns:
            An answer that passed every check, or a failure; never an exception for what a server or a model does.
        """
        with self._slots:
            outcome = self._ask(ask)
        self.ledger.asked(ask.library, ask.prompt.task, failed=isinstance(outcome, Failure))
        return outcome

    def _ask(self, ask: Ask[T]) -> Answer[T] | Failure:
        course = _Course(self._clock.now() + self.config.total_s)
        messages = ask.prompt.messages
        failure = course.failure(FailureKind.STOPPED, "stopped")
        reasks = self.config.reasks if ask.reasks is None else ask.reasks
        for n in range(reasks + 1):
            try:
                body = self._body(ask, messages)
            except BadSchemaError as error:
                return course.failure(FailureKind.BAD_REQUEST, str(error), error.help)
            outcome = self._send(ask, body, n, course)
            if isinstance(outcome, Answer):
                return outcome
            failure, text = outcome
            if failure.kind not in REASKED:
                return failure
            # From the first messages each time: the prompt does not grow with the number of asks.
            messages = _with_complaint(ask.prompt.messages, text, failure)
        return failure

    # ------------------------------------------------------------- one question, sent until it gets through

    def _send(self, ask: Ask[T], body: dict[str, Any], n: int, course: _Course) -> Answer[T] | tuple[Failure, str]:
        from synth.llm.wire import WireFaultError  # noqa: PLC0415  # loads a library of HTTP

        size = len(canonical(body))
        if size > self.config.max_prompt_bytes:
            message = f"the prompt is larger than {self.config.max_prompt_bytes} bytes"
            return course.failure(FailureKind.BAD_REQUEST, message), ""
        for send in range(self.config.tries):
            if self._stop.is_set():
                return course.failure(FailureKind.STOPPED, "stopped before it was sent"), ""
            try:
                return self._once(ask, body, n, send, course)
            except WireFaultError as fault:
                pause = self._pause(fault, send, course)
                if pause is None:
                    many = f" (sent {send + 1} times)" if send else ""
                    return course.failure(fault.kind, f"{fault}{many}"), ""
                self._clock.wait(pause, self._stop)
        raise AssertionError("the last try ends in a result")

    def _pause(self, fault: WireFaultError, send: int, course: _Course) -> float | None:
        """Seconds until the next try; `None` if there is none."""
        if fault.kind not in RETRIED or send + 1 >= self.config.tries:
            return None
        # Between half and all of the doubled pause, so that clients who failed together do not come back together.
        pause = self.config.wait_s * 2**send * (0.5 + self._clock.chance() / 2)
        if fault.retry_after is not None:
            if fault.retry_after > self.config.longest_wait_s:
                return None
            pause = max(pause, fault.retry_after)
        return None if self._clock.now() + pause >= course.deadline else pause

    def _once(
        self, ask: Ask[T], body: dict[str, Any], n: int, send: int, course: _Course
    ) -> Answer[T] | tuple[Failure, str]:
        """One request, or the recording in its place."""
        from synth.llm.wire import CURRENT, Exchange, WireFaultError  # noqa: PLC0415  # as above

        held: list[Reservation] = []

        def admit(sent: Any) -> None:
            # A token has at least one byte, so the bytes of a request bound its tokens.
            most = len(canonical(sent)) + _OVERHEAD_TOKENS
            room = self.ledger.reserve(
                ask.library, ask.prompt.task, body["model"], input_tokens=most, output_tokens=ask.max_output_tokens
            )
            if isinstance(room, Refused):
                raise _ForbiddenError(room)
            held.append(room)

        exchange = Exchange(self._identity(ask, n), ask.library, course.deadline, admit)
        noted = _Noted(self, ask, body, exchange, n, send, course, held, first=not course.requests)
        token = CURRENT.set(exchange)
        try:
            raw = self._connected().complete(body)
        except _ForbiddenError as error:
            return course.failure(FailureKind.BUDGET, error.refused.message, error.refused.help), ""
        except CassetteMissError as error:
            failure = course.failure(FailureKind.MISSING, str(error), error.help)
            noted.end(failure.kind, None, error=str(error))
            return failure, ""
        except WireFaultError as fault:
            noted.fault(fault)
            raise
        except BaseException:
            # Ctrl-C on the way: nobody knows what the server charges.
            noted.end(FailureKind.STOPPED, None, error="interrupted", charged=True)
            raise
        finally:
            CURRENT.reset(token)
        return self._judge(ask, completion_of(raw), course, noted)

    def _judge(
        self, ask: Ask[T], got: Completion, course: _Course, noted: _Noted[T]
    ) -> Answer[T] | tuple[Failure, str]:
        noted.count(got.usage)
        kind, complaint = got.problem()
        trimmed = ""
        value: T | None = None
        if kind is None:
            try:
                value, trimmed = ask.form.read(got.text)
            except BadReplyError as error:
                kind = FailureKind.REJECTED if isinstance(error, RejectedReplyError) else FailureKind.INVALID
                complaint = str(error)
        noted.end(kind, got, error=complaint)
        if kind is None and value is not None:
            return Answer(value, got.text, course.usage, course.requests, course.replayed, trimmed)
        course.complaints.append(complaint)
        return course.failure(kind or FailureKind.INVALID, complaint), got.text

    # ------------------------------------------------------------- requests

    def _identity(self, ask: Ask[T], n: int) -> Identity:
        prompt = ask.prompt
        return Identity(
            model=self.config.identity_for(prompt.task),
            task=prompt.task,
            ask=n,
            template=prompt.digest,
            grammar=ask.form.digest,
            evidence=prompt.evidence,
        )

    def _body(self, ask: Ask[T], messages: Iterable[Message]) -> dict[str, Any]:
        config = self.config
        body: dict[str, Any] = {
            "model": config.model_for(ask.prompt.task),
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            config.tokens_field: ask.max_output_tokens,
            "stream": False,
        }
        if config.temperature is not None:
            body["temperature"] = config.temperature
        if config.seed is not None:
            body["seed"] = config.seed
        return body | dict(ask.form.request(config))

    def _connected(self) -> Connection:
        from synth.llm.wire import Transport, client_over  # noqa: PLC0415  # loads a library of HTTP

        with self._lock:
            if self._connection is None:
                transport = Transport(self.config, self.cassette, self._clock)
                key = self.config.api_key.get_secret_value() or "none"
                self._connection = Connection(self.config.base_url, key, client_over(transport))
            return self._connection


@dataclass(slots=True)
class _Noted(Generic[T]):
    """Books and writes down one attempt, once."""

    client: Client
    ask: Ask[T]
    body: dict[str, Any]
    exchange: Any
    n: int
    send: int
    course: _Course
    held: list[Reservation]
    first: bool
    usage: Usage | None = None
    cost: float = 0.0

    def count(self, usage: Usage | None, *, charged: bool = True) -> None:
        """Settle what was held; a reply without counts is charged with what it might have cost."""
        if self.exchange.replayed:
            self.course.replayed += 1
            self.usage = usage
            self.client.ledger.replayed(self.ask.library, self.ask.prompt.task)
            return
        if not self.held:
            return
        counted = usage if usage is not None or charged else Usage()
        self.cost = self.client.ledger.settle(self.held[0], counted, retry=not self.first)
        self.course.requests += 1
        self.usage = counted
        held = self.held[0]
        self.course.usage += counted if counted is not None else Usage(unsure=held.input_tokens + held.output_tokens)
        self.held.clear()

    def fault(self, fault: WireFaultError) -> None:
        """A request without a usable reply."""
        self.count(None, charged=fault.charged)
        self._write(fault.kind.value, status=fault.status, reply=fault.body, error=str(fault))

    def end(self, kind: FailureKind | None, got: Completion | None, *, error: str = "", charged: bool = False) -> None:
        """A reply, or none."""
        if got is None:
            self.count(None, charged=charged)
            self._write(kind.value if kind else "ok", error=error)
            return
        note = "; ".join(part for part in (error, self.exchange.warning) if part)
        self._write(
            kind.value if kind else "ok",
            status=200,
            finish=got.finish_reason,
            reply=got.text or got.refusal,
            error=note,
        )

    def _write(self, result: str, *, status: int = 0, finish: str = "", reply: str = "", error: str = "") -> None:
        prompt = self.ask.prompt
        self.client.log.add(
            Attempt(
                library=self.ask.library,
                task=prompt.task,
                model=self.body["model"],
                identity=self.exchange.identity.model,
                template=prompt.digest,
                evidence=prompt.evidence,
                request=self.exchange.key,
                ask=self.n,
                send=self.send,
                source="recording" if self.exchange.replayed else "server",
                result=result,
                status=status,
                finish_reason=finish,
                usage=self.usage,
                cost=self.cost,
                reply=reply,
                error=error,
            )
        )


def _with_complaint(messages: Sequence[Message], text: str, failure: Failure) -> tuple[Message, ...]:
    """The question again, with the reply that was no good and what was wrong with it, both bounded."""
    if failure.kind is FailureKind.NOT_A_COMPLETION:
        return tuple(messages)  # the server's fault: the model has nothing to mend
    quoted = visible(text[:MAX_QUOTED_CHARS])
    complaint = visible(failure.message)
    again = f"That reply cannot be used: {complaint}\nAnswer the question again, in the form asked for, and briefly."
    reply = (Message("assistant", quoted),) if quoted.strip() else ()
    return (*messages, *reply, Message("user", again))
