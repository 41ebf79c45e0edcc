"""Tokens and money of a run, by library and task, with limits that hold before a request is sent."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from synth.llm.outcome import Usage
from synth.llm.prices import Price, Prices
from synth.records import Record


class Account(Record):
    """What one library or one task used.

    Attributes:
        questions: answered or failed. requests: sent, failed ones included. replayed: replies from the recordings.
        retries: requests beyond the first of their question. failures: questions without an answer.
        cost: in the currency of the prices, of the models whose price is known.
        unpriced: tokens of models whose price is not known.
    """

    questions: int = 0
    requests: int = 0
    replayed: int = 0
    retries: int = 0
    failures: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: int = 0


class Report(Record):
    """A ledger at one moment."""

    schema_version: int = 1
    currency: str
    total: Account
    libraries: dict[str, Account]
    tasks: dict[str, Account]
    unknown_prices: tuple[str, ...]
    max_tokens: int | None
    max_cost: float | None

    def lines(self) -> list[str]:
        """For people, one library a line."""
        rows = [_line(name, account, self.currency) for name, account in sorted(self.libraries.items())]
        rows.append(_line("total", self.total, self.currency))
        if self.unknown_prices:
            rows.append(f"price not known: {', '.join(self.unknown_prices)}")
        return rows


def _line(name: str, a: Account, currency: str) -> str:
    money = f"{a.cost:.4f} {currency}"
    if a.unpriced:
        money += f" and {a.unpriced} tokens without a price"
    unsure = f" (and up to {a.usage.unsure} of broken requests)" if a.usage.unsure else ""
    return (
        f"{name}: {a.questions} questions, {a.requests} requests ({a.retries} retries), {a.replayed} replayed, "
        f"{a.failures} failed; {a.usage.input} + {a.usage.output} tokens{unsure}; {money}"
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that must not be sent."""

    message: str
    help: str


@dataclass(slots=True)
class Reservation:
    """Room for one request, held until its end is known."""

    library: str
    task: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float
    open: bool = True


@dataclass(slots=True)
class _Sums:
    questions: int = 0
    requests: int = 0
    replayed: int = 0
    retries: int = 0
    failures: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    unpriced: int = 0

    def frozen(self) -> Account:
        return Account(
            questions=self.questions,
            requests=self.requests,
            replayed=self.replayed,
            retries=self.retries,
            failures=self.failures,
            usage=self.usage,
            cost=round(self.cost, 9),
            unpriced=self.unpriced,
        )


class Ledger:
    """Counts what was used, and says no before a limit could be passed. Safe to use from threads."""

    def __init__(self, prices: Prices, *, max_tokens: int | None = None, max_cost: float | None = None) -> None:
        """Start at zero."""
        self._prices = prices
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._lock = threading.Lock()
        self._total = _Sums()
        self._libraries: dict[str, _Sums] = defaultdict(_Sums)
        self._tasks: dict[str, _Sums] = defaultdict(_Sums)
        self._held: list[Reservation] = []
        self._unknown: set[str] = set()

    def reserve(
        self, library: str, task: str, model: str, *, input_tokens: int, output_tokens: int
    ) -> Reservation | Refused:
        """Hold room for the worst that a request can use.

        Args:
            library: whose account. task: whose account. model: whose price.
            task: see `library`.
            model: see `library`.
            input_tokens: upper bound of the prompt.
            output_tokens: upper bound of the reply.
        """
        price = self._prices.of(model)
        with self._lock:
            if price is None:
                self._unknown.add(model)
                if self._max_cost is not None:
                    return Refused(
                        f"the price of `{model}` is not known, so no limit of cost can be held",
                        "add it to the prices, or limit tokens instead",
                    )
            cost = price.at_most(input_tokens, output_tokens) if price is not None else 0.0
            refused = self._over(input_tokens + output_tokens, cost)
            if refused is not None:
                return refused
            held = Reservation(library, task, model, input_tokens, output_tokens, cost)
            self._held.append(held)
            return held

    def _over(self, tokens: int, cost: float) -> Refused | None:
        used = self._total.usage.total + sum(r.input_tokens + r.output_tokens for r in self._held)
        if self._max_tokens is not None and used + tokens > self._max_tokens:
            return Refused(
                f"the next request may need {tokens} tokens; {used} of {self._max_tokens} are used or held",
                "raise --max-tokens",
            )
        spent = self._total.cost + sum(r.cost for r in self._held)
        if self._max_cost is not None and spent + cost > self._max_cost:
            currency = self._prices.currency
            return Refused(
                f"the next request may cost {cost:.4f} {currency}; {spent:.4f} of {self._max_cost} are spent or held",
                "raise --max-cost",
            )
        return None

    def settle(self, held: Reservation, usage: Usage | None, *, retry: bool) -> float:
        """Put what a request really used in the place of what was held.

        Args:
            held: from `reserve`.
            usage: as counted; `None` if the server may have charged for it without saying how much.
            retry: whether it was not the first request of its question.

        Returns:
            Its cost, zero where the price is not known.
        """
        counted = usage if usage is not None else Usage(unsure=held.input_tokens + held.output_tokens)
        price = self._prices.of(held.model)
        cost = _cost(price, counted, held)
        with self._lock:
            if not held.open:
                return 0.0
            held.open = False
            self._held = [other for other in self._held if other is not held]
            for sums in self._accounts(held.library, held.task):
                sums.requests += 1
                sums.retries += retry
                sums.usage += counted
                sums.cost += cost
                sums.unpriced += 0 if price is not None else counted.total
        return cost

    def release(self, held: Reservation) -> None:
        """Give room back that was not needed: nothing was sent."""
        with self._lock:
            held.open = False
            self._held = [other for other in self._held if other is not held]

    def replayed(self, library: str, task: str) -> None:
        """A reply came from the recordings and cost nothing."""
        with self._lock:
            for sums in self._accounts(library, task):
                sums.replayed += 1

    def asked(self, library: str, task: str, *, failed: bool) -> None:
        """A question came to its end."""
        with self._lock:
            for sums in self._accounts(library, task):
                sums.questions += 1
                sums.failures += failed

    def _accounts(self, library: str, task: str) -> tuple[_Sums, _Sums, _Sums]:
        return self._total, self._libraries[library], self._tasks[task]

    def report(self) -> Report:
        """As it stands."""
        with self._lock:
            return Report(
                currency=self._prices.currency,
                total=self._total.frozen(),
                libraries={k: v.frozen() for k, v in sorted(self._libraries.items())},
                tasks={k: v.frozen() for k, v in sorted(self._tasks.items())},
                unknown_prices=tuple(sorted(self._unknown)),
                max_tokens=self._max_tokens,
                max_cost=self._max_cost,
            )


def _cost(price: Price | None, counted: Usage, held: Reservation) -> float:
    if price is None:
        return 0.0
    # What is not known for sure cannot have cost more than was held for it.
    return held.cost if counted.unsure else price.of(counted)
