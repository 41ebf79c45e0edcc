"""The main path: profile, derive, intervene, select, confirm.

`doctor` and `tune` differ only in how many runs of the application they spend.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from syspilot import decision as d
from syspilot import hypotheses as h
from syspilot import search
from syspilot.conclude import conclude
from syspilot.measure import Ratio, middle, paired_ratio
from syspilot.records import Run
from syspilot.session import LARGE, MIN_PAIRS, MIN_PAIRS_SMALL, WORTH, WORTH_UNPREDICTED, Event, Session
from syspilot.verify import SettingSeen, settings_seen


def doctor(session: Session) -> d.Decision:
    """One profiled run, then one intervention for the strongest hypotheses."""
    situation = session.profile()
    found = h.derive(situation)
    space = search.Space(situation, session.application.tunables)
    likely = [x for x in found if x.strength > h.WEAK]
    for hypothesis in likely[: session.options.interventions]:
        for remedy in search.remedies_of(space, hypothesis)[:1] if session.left else ():
            run = session.measure(remedy, "intervene")
            if run.ok and session.left > 1 and session.conflict(hypothesis).verdict == "undecided":
                session.measure({}, "intervene")
                session.measure(remedy, "intervene")
    return conclude(session, situation, found, "doctor", {}, None, "doctor changes nothing: `tune` decides")


def tune(session: Session) -> d.Decision:
    """Find, measure and confirm a configuration."""
    situation = session.profile()
    found = h.derive(situation)
    space = search.Space(situation, session.application.tunables)
    outcome = _Selection(session, situation, space, found)
    try:
        configuration, ratio, reason = outcome.select()
    except KeyboardInterrupt:
        best = outcome.best_so_far()
        reason = "interrupted: the best so far, not confirmed"
        result = conclude(session, situation, found, "tune", best, None, reason)
        return result.model_copy(update={"interrupted": True})
    return conclude(session, situation, found, "tune", configuration, ratio, reason)


class _Selection:
    """Screens candidates with one run each, races the best, and confirms the winner on fresh pairs."""

    def __init__(
        self, session: Session, situation: h.Situation, space: search.Space, found: Sequence[h.Hypothesis]
    ) -> None:
        self.session = session
        self.situation = situation
        self.space = space
        self.found = found
        self.tried: set[search.Signature] = {space.signature({})}
        self.screened: list[dict[str, str]] = []
        self.predicted: set[frozenset[tuple[str, str]]] = set()
        self.rng = random.Random(session.options.seed)  # noqa: S311  # search order, not secrets

    def select(self) -> tuple[dict[str, str], Ratio | None, str]:
        """The configuration, its ratio, and the reason."""
        session = self.session
        strong = [x for x in self.found if x.strength >= 0.3]
        weak = [x for x in self.found if x.strength < 0.3]
        room = max(1, session.options.max_runs - 1 - 2 * MIN_PAIRS)
        tunables = self.space.tunables
        share = max(1, room // 2) if tunables else room
        limit = min(5, share) if strong else min(2, share)
        for candidate in search.candidates(self.space, strong or weak, limit):
            self.predicted.add(frozenset(candidate.configuration.items()))
            self._screen(candidate.configuration)
        self._tunables()
        self._neighbours()
        self._drop_settings()
        for _ in range(max(1, (session.left - self._reserve()) // 4)):
            outside = search.escape(self.space, self.tried, self.best_so_far(), self.rng)
            if outside is not None and session.left > self._reserve():
                self._screen(outside.configuration)
        return self._confirm()

    def _screen(self, configuration: Mapping[str, str]) -> None:
        signature = self.space.signature(configuration)
        if signature in self.tried or self.session.left <= 0:
            return
        self.tried.add(signature)
        run = self.session.measure(configuration, "screen")
        if run.ok and not self._not_taken(run, configuration):
            self.screened.append(dict(configuration))

    def _not_taken(self, run: Run, configuration: Mapping[str, str]) -> bool:
        missed = [s for s in self._settings(run, configuration) if s.in_effect == "no"]
        for setting in missed:
            self.session.notify(
                Event("note", f"{setting.name}={setting.value} did not take effect: {setting.how_seen}")
            )
        return bool(missed)

    def _tunables(self) -> None:
        """One tunable at a time, on top of the best so far; then the best tunable alone."""
        keep = 2 * MIN_PAIRS
        for tunable in self.space.tunables:
            base = {k: v for k, v in self.best_so_far().items() if k != tunable.name}
            for value in search.tunable_values(tunable, self.situation.cores)[:3]:
                if self.session.left > keep:
                    self._screen(base | {tunable.name: value})
        best = self.best_so_far()
        own = {k: v for k, v in best.items() if k in self.space.own}
        if own and len(own) < len(best) and self.session.left > keep:
            self._screen(own)

    def _reserve(self) -> int:
        """Runs that the confirmation of the best so far needs: a small gain needs more pairs than a large one."""
        session, best = self.session, self.best_so_far()
        gain = session.gain(middle(session.values({})), middle(session.values(best)))
        return 2 * MIN_PAIRS if gain >= LARGE or not best else 2 * MIN_PAIRS_SMALL + 1

    def _neighbours(self) -> None:
        """Steps from the best value of each tunable to the next ones, as long as they help and the budget allows."""
        best: dict[str, str] | None = None
        while best != self.best_so_far():
            best = self.best_so_far()
            for tunable in self.space.tunables:
                for value in search.neighbours(tunable, best.get(tunable.name)):
                    if self.session.left > self._reserve():
                        self._screen(best | {tunable.name: value})

    def _drop_settings(self) -> None:
        """The best so far without each of its settings: one whose removal costs nothing is not recommended."""
        best = self.best_so_far()
        for name in list(best) if len(best) > 1 else ():
            if self.session.left > 2 * MIN_PAIRS:
                self._screen({k: v for k, v in best.items() if k != name})

    def ranked(self) -> list[dict[str, str]]:
        """Screened configurations, the best first; within 5 % of each other the simplest one that shows."""
        session = self.session
        scored = [(middle(session.values(c)), c) for c in self.screened if session.values(c)]
        scored.sort(key=lambda x: -x[0] if session.options.maximise else x[0])
        if not scored:
            return []
        top = scored[0][0]
        near = [c for v, c in scored if session.gain(v, top) < 1.05]
        far = [c for v, c in scored if session.gain(v, top) >= 1.05]
        near.sort(key=lambda c: (len(c), not self._seen_in_effect(c)))
        return [*near, *far]

    def _seen_in_effect(self, configuration: Mapping[str, str]) -> bool:
        runs = [r for r in self.session.of(configuration) if r.ok]
        return bool(runs) and all(s.in_effect == "yes" for s in self._settings(runs[-1], configuration))

    def _settings(self, run: Run, configuration: Mapping[str, str]) -> tuple[SettingSeen, ...]:
        system, environ = self.situation.system, self.session.environ
        return settings_seen(run, configuration, system, environ, self.space.tunables)

    def best_so_far(self) -> dict[str, str]:
        """The best screened configuration that beats the default, or none."""
        ranked, default = self.ranked(), self.session.values({})
        if ranked and default and self.session.better(middle(self.session.values(ranked[0])), middle(default)):
            return ranked[0]
        return {}

    def _confirm(self) -> tuple[dict[str, str], Ratio | None, str]:
        """Interleaved fresh pairs of the default and the contenders, until they tell or the budget ends."""
        session = self.session
        ranked = self.ranked()
        default = middle(session.values({}))
        contenders = [c for c in ranked if session.gain(default, middle(session.values(c))) > self._worth(c)][:2]
        if len(contenders) == 2 and session.left < 2 * MIN_PAIRS + 2:
            contenders = contenders[:1]  # what is left of the budget is needed to confirm one
        if len(contenders) == 2:
            values = [middle(session.values(c)) for c in contenders]
            if session.gain(values[1], values[0]) > 1.3:
                contenders = contenders[:1]
        if not contenders:
            return {}, None, _nothing(ranked, self.found)
        fresh: dict[int, list[float]] = {i: [] for i in range(len(contenders))}
        base: list[float] = []
        round_ = 0
        while session.left >= 1 + len(contenders) and round_ < 8:
            self._round(contenders, fresh, base, round_)
            round_ += 1
            if len(contenders) == 2 and base:
                loser = _loser(session, contenders)
                contenders.pop(loser)
                fresh = {0: fresh[1 - loser]}
            ratio = paired_ratio(base, fresh[0], maximise=session.options.maximise)
            if len(contenders) == 1 and self._told(ratio, contenders[0]):
                break
        return self._judge(contenders, fresh, base)

    def _worth(self, configuration: Mapping[str, str]) -> float:
        """The gain that makes a configuration worth its settings."""
        own = {k for k in configuration if k in self.space.own}
        predicted = own or frozenset(configuration.items()) in self.predicted
        return WORTH if predicted else WORTH_UNPREDICTED

    def _told(self, ratio: Ratio, configuration: Mapping[str, str]) -> bool:
        """Whether more pairs would not change the answer."""
        if ratio.pairs >= 2 and ratio.value < self._worth(configuration):
            return True
        if ratio.worse:
            return True
        return ratio.better and ratio.pairs == (MIN_PAIRS if ratio.value >= LARGE else MIN_PAIRS_SMALL)

    def _round(
        self,
        contenders: Sequence[dict[str, str]],
        fresh: dict[int, list[float]],
        base: list[float],
        round_: int,
    ) -> None:
        # The order turns each round, so that a drift of the machine does not favour one of them.
        order: list[int] = [-1, *range(len(contenders))]
        if round_ % 2:
            order.reverse()
        got: dict[int, float | None] = {}
        for i in order:
            run = self.session.measure({} if i < 0 else contenders[i], "confirm")
            got[i] = self.session.objective(run)
        base_value = got[-1]
        if base_value is None:
            return
        base.append(base_value)
        for i in range(len(contenders)):
            value = got[i]
            # A contender that fails once is not a configuration to recommend: it loses the pair for good.
            fresh[i].append(value if value is not None else (1e-12 if self.session.options.maximise else 1e12))

    def _judge(
        self, contenders: Sequence[dict[str, str]], fresh: dict[int, list[float]], base: list[float]
    ) -> tuple[dict[str, str], Ratio | None, str]:
        session = self.session
        ratios = [paired_ratio(base, fresh[i], maximise=session.options.maximise) for i in range(len(contenders))]
        if not ratios or not base:
            return {}, None, "the budget of runs ended before a confirmation: raise --max-runs"
        i = max(range(len(ratios)), key=lambda k: ratios[k].low)
        ratio = ratios[i]
        enough = ratio.pairs >= (MIN_PAIRS if ratio.value >= LARGE else MIN_PAIRS_SMALL)
        if ratio.better and enough and ratio.value >= self._worth(contenders[i]):
            words = f"better than the default in {ratio.pairs} fresh interleaved pairs"
            return dict(contenders[i]), ratio, words
        if ratio.better and not enough:
            return {}, ratio, "the budget of runs ended before the gain was confirmed: raise --max-runs"
        return {}, ratio, "no significant gain: the best candidate does not beat the default beyond the noise"


def _loser(session: Session, contenders: Sequence[Mapping[str, str]]) -> int:
    """Which of two contenders to drop: the simpler, first one stays unless the other is clearly better.

    What disturbs a run makes it slower, so that the best run of each says more than its middle.
    """
    best = max if session.options.maximise else min
    first, second = (best(session.values(c)) for c in contenders)
    return 0 if session.gain(first, second) > 1.05 else 1


def _nothing(ranked: Sequence[Mapping[str, str]], found: Sequence[h.Hypothesis]) -> str:
    if not found and not ranked:
        return "no conflict between pools is predicted or seen"
    return "none of the configurations that were tried is better"
