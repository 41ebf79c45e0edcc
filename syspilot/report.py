"""A decision as one HTML page that explains itself: no script, no request to anywhere, everything escaped."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lpcl.machine import Facts
from syspilot.app import Application, Tunable
from syspilot.charts import (
    DotRow,
    dots_svg,
    figure,
    group_label,
    lane_label,
    summary,
    timeline_svg,
    visible,
)
from syspilot.decision import Conflict, Decision, Sample, Trial
from syspilot.measure import middle, spread
from syspilot.records import Run
from syspilot.session import Session
from syspilot.timeline import Timeline, timeline

Tone = Literal["gain", "none", "finding", "open"]

_IN_EFFECT = {
    "yes": "in effect",
    "no": "not in effect",
    "not_observable": "cannot be observed",
    "not_read": "not read",
}
# Words in a metric's pattern that say that it is a time, so that smaller means faster.
_TIME = re.compile(r"(?<![a-z])(s|sec|secs|seconds?|time|elapsed|latency|wall|duration|ms)(?![a-z])", re.IGNORECASE)
_NOISY = 0.10
_FEW_PAIRS = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """The top of the page: `lead`, the settings behind it, and why."""

    tone: Tone
    lead: str
    settings: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A signal with and without a remedy; texts, with their units."""

    name: str
    before: str
    after: str
    change: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A run's timeline, drawn, and the same as a table (a row per lane: process, thread, ran, waited, seen)."""

    title: str
    end: str
    svg: Markup
    summary: str
    rows: tuple[tuple[str, ...], ...]


def render(decision: Decision, default: Run | None, best: Run | None) -> str:
    """The report.

    Args:
        decision: the answer and what it rests on.
        default: a run without settings, with its thread steps; None leaves its timeline out.
        best: a run under the decided configuration; None, or the default again, leaves one timeline.

    Returns:
        One HTML document, which can be encoded as UTF-8 whatever the application printed.
    """
    other = best if best is not None and (default is None or best.configuration != default.configuration) else None
    values: dict[str, Any] = {
        "d": decision,
        "command": shlex.join(decision.command),
        "answer": answer(decision),
        "facts": _facts(decision),
        "in_effect": _IN_EFFECT,
        "confirmed": [(c, _figures(decision, c)) for c in decision.confirmed],
        "other_conflicts": [c for c in decision.conflicts if c.verdict != "confirmed"],
        "pictures": _pictures(decision, default, other),
        "has_delay": decision.machine.schedstat,
        # Markup: the XML writer has escaped each text in a drawing.
        "dots": Markup(dots_svg(_dot_rows(decision), title="Objective of every run, by configuration")),  # noqa: S704
        "libraries": [x for x in decision.libraries if x.contract or x.name in decision.uncovered],
        "plain_libraries": [x for x in decision.libraries if not x.contract and x.name not in decision.uncovered],
        "machine": _machine(decision.machine),
        "tuned": _with_settings(decision),
        "again": _session_command(decision),
        "notes": _notes(decision, default, other),
        "objective": _objective_name(decision),
        "disturbed": sum(t.disturbed for t in decision.trials),
        "written": time.strftime("%Y-%m-%d"),
    }
    text = _environment().get_template("report.html.j2").render(values)
    return text.rstrip() + "\n"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("syspilot", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {"number": _number, "setting": _setting, "settings": _settings, "words": _words}
    return environment


def _finalize(value: Any) -> Any:
    """Every text that the template prints is made visible here, so that none can be forgotten."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _number(value: float | None, digits: int = 3) -> str:
    return "—" if value is None else figure(value, digits)


def _setting(item: tuple[str, str]) -> str:
    return f"{item[0]}={item[1]}"


def _settings(configuration: Mapping[str, str]) -> str:
    return " ".join(map(_setting, configuration.items())) or "default"


def _words(key: str) -> str:
    """A record's key as words."""
    return key.replace("_", " ")


# ---------------------------------------------------------------------- answer


def answer(decision: Decision) -> Answer:
    """The decision in one sentence."""
    chosen = tuple(map(_setting, decision.configuration.items()))
    if decision.configuration and decision.ratio is not None and decision.improved:
        how = "faster" if _is_time(decision) else "better"
        return Answer("gain", f"{figure(decision.ratio, 2)}x {how}: set", chosen, _capital(decision.reason))
    if decision.configuration:
        return Answer("open", "Best so far, not confirmed:", chosen, _capital(decision.reason))
    if decision.mode == "doctor" and decision.conflicts:
        return _diagnosis(decision)
    prefix, _, rest = decision.reason.partition(":")
    why = rest.strip() if prefix.strip().lower() == "leave it as it is" else decision.reason
    if decision.mode == "doctor":
        why = f"no conflict between thread pools is predicted or seen; {why}"
    return Answer("none", "Leave it as it is", (), _capital(why))


def _diagnosis(decision: Decision) -> Answer:
    confirmed = decision.confirmed
    if not confirmed:
        n = len(decision.conflicts)
        refuted = sum(c.verdict == "refuted" for c in decision.conflicts)
        lead = f"{n} possible conflict{'s' * (n > 1)}, none confirmed"
        return Answer("open", lead, (), _capital(f"{refuted} refuted, {n - refuted} undecided; {decision.reason}"))
    top = max(confirmed, key=lambda c: _as_float(c.figures.get("objective_ratio")))
    lead = f"{len(confirmed)} conflict{'s' * (len(confirmed) > 1)} confirmed: try"
    gain = _as_float(top.figures.get("objective_ratio"))
    tried = f"the objective was {figure(gain, 2)}x better in the intervention; " if gain > 0 else ""
    return Answer("finding", lead, tuple(map(_setting, top.remedy.items())), _capital(tried + decision.reason))


def _as_float(value: float | str | None) -> float:
    try:
        return float(value) if value is not None else 0.0
    except ValueError:
        return 0.0


def _capital(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else text + "."


def _is_time(decision: Decision) -> bool:
    return not decision.maximise and (decision.objective == "wall_s" or bool(_TIME.search(decision.objective)))


def _objective_name(decision: Decision) -> str:
    direction = "larger is better" if decision.maximise else "smaller is better"
    if decision.objective == "wall_s":
        return f"wall time in seconds, {direction}"
    return f"the number that `{decision.objective}` finds in the output, {direction}"


def _facts(decision: Decision) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    unit = " s" if decision.objective == "wall_s" else ""
    if decision.ci95 is not None:
        low, high = decision.ci95
        facts.append(("95 % interval", f"{figure(low)}x to {figure(high)}x"))
    if decision.configuration:
        both = f"{_number(decision.default.median)} → {_number(decision.best.median)}{unit}"
        facts.append(("median objective", both))
    elif decision.default.median is not None:
        facts.append(("median objective", f"{_number(decision.default.median)}{unit}"))
    done = [t for t in decision.trials if t.status == "ok"]
    walls = [[t.wall_s for t in done if t.configuration == c] for c in ({}, decision.configuration)]
    wall = _row("", walls[0], walls[1])
    if decision.configuration and decision.objective != "wall_s" and wall.change:
        facts.append(("median wall time of a run", f"{wall.before} → {wall.after} s"))
    if decision.pairs:
        facts.append(("fresh interleaved pairs", str(decision.pairs)))
    facts.append(("runs of the application", str(decision.runs)))
    facts.append(("time spent running it", f"{figure(decision.seconds_spent)} s"))
    return facts


# ------------------------------------------------------------------- conflicts


def _figures(decision: Decision, conflict: Conflict) -> list[FigureRow]:
    """Medians without and with the remedy, from the trials; the recorded ratios where there are no trials."""
    before = [t for t in decision.trials if not t.configuration and t.status == "ok"]
    after = [t for t in decision.trials if t.configuration == conflict.remedy and t.status == "ok"]
    if not before or not after or not conflict.remedy:
        ratios = [(k, v) for k, v in conflict.figures.items() if k.endswith("_ratio")]
        return [FigureRow(_words(k.removesuffix("_ratio")), "—", "—", _times(_as_float(v))) for k, v in ratios]
    rows = [_row("objective", [t.objective for t in before], [t.objective for t in after])]
    rows += [
        _row("wall time, s", [t.wall_s for t in before], [t.wall_s for t in after]),
        _row("CPU time, s", [t.cpu_s for t in before], [t.cpu_s for t in after]),
        _row("waiting for a CPU, s", [t.run_delay_s for t in before], [t.run_delay_s for t in after]),
        _row("involuntary switches", [float(t.involuntary) for t in before], [float(t.involuntary) for t in after]),
    ]
    rows.append(FigureRow("runs", str(len(before)), str(len(after)), ""))
    return rows


def _row(name: str, before: Sequence[float | None], after: Sequence[float | None]) -> FigureRow:
    old, new = (middle([v for v in values if v is not None]) for values in (before, after))
    if math.isnan(old) or math.isnan(new):
        return FigureRow(name, "—", "—", "")
    change = _times(old / new) if new > 0 and old > 0 else ""
    return FigureRow(name, figure(old), figure(new), change)


def _times(ratio: float) -> str:
    if not ratio > 0:
        return ""
    return f"{figure(ratio, 2)}x less" if ratio >= 1 else f"{figure(1 / ratio, 2)}x more"


# -------------------------------------------------------------------- pictures


def _pictures(decision: Decision, default: Run | None, best: Run | None) -> list[Picture]:
    cores = decision.machine.cores
    named = [("Default", "before", default), (_settings(best.configuration) if best else "", "after", best)]
    lines = [(name, key, run, timeline(run)) for name, key, run in named if run is not None]
    drawn = [line for *_, line in lines if line is not None]
    span_s = max((line.end_s for line in drawn), default=1.0)
    top = max([1.25 * cores, *(1.05 * line.peak for line in drawn)])
    return [_picture(name, key, run, line, (cores, span_s, top)) for name, key, run, line in lines]


def _picture(name: str, key: str, run: Run, line: Timeline | None, scale: tuple[int, float, float]) -> Picture:
    cores, span_s, top = scale
    failed = "" if run.ok else f" ({run.status})"
    title = f"{visible(name, 120)}{failed}"
    end = f"{figure(run.wall_s)} s"
    if line is None:
        return Picture(title, end, Markup(), "This run was not sampled, so there is nothing to draw.", ())
    svg = timeline_svg(line, key=key, title=f"Threads over time: {title}", cores=cores, span_s=span_s, top=top)
    short = line.end_s / span_s
    note = f" It takes {100 * short:.0f} % of the width: both runs have the same time scale." if short < 0.2 else ""
    if Session.disturbed(run):
        taken = 100 * (run.disturbance.others_share + run.disturbance.steal_share)
        note += f" Others took {taken:.0f} % of the machine meanwhile, so some of the waiting is theirs."
    # Each text in the drawing was escaped by the XML writer.
    return Picture(title, end, Markup(svg), summary(line, cores) + note, _lane_rows(line))  # noqa: S704


def _lane_rows(line: Timeline) -> tuple[tuple[str, ...], ...]:
    pairs = [(group_label(group), lane) for group in line.groups for lane in group.lanes]
    if line.others is not None:
        pairs.append(("", line.others))
    return tuple(
        (
            process,
            lane_label(lane),
            figure(lane.cpu_s),
            figure(lane.delay_s),
            f"{100 * lane.waiting_share:.0f} %",
            f"{figure(lane.first_s)} to {figure(lane.last_s)}",
        )
        for process, lane in pairs
    )


def _dot_rows(decision: Decision) -> list[DotRow]:
    """The default first, then the configurations from best to worst."""
    by: dict[str, list[Trial]] = {"default": []}
    for trial in decision.trials:
        by.setdefault(_settings(trial.configuration), []).append(trial)
    chosen = _settings(decision.configuration) if decision.configuration else ""
    rows = [_dot_row(label, trials, label == chosen) for label, trials in by.items() if trials]
    sign = -1.0 if decision.maximise else 1.0

    def rank(row: DotRow) -> tuple[bool, float]:
        return row.label != "default", sign * row.middle if row.middle is not None else math.inf

    return sorted(rows, key=rank)


def _dot_row(label: str, trials: Sequence[Trial], chosen: bool) -> DotRow:
    values = [(t.objective, t.phase == "confirm", t.disturbed) for t in trials if t.objective is not None]
    return DotRow(
        label=label,
        values=tuple(values),
        middle=middle([v for v, _, _ in values]) if values else None,
        failed=sum(t.objective is None for t in trials),
        chosen=chosen,
    )


# ----------------------------------------------------------------- the fine print


def _with_settings(decision: Decision) -> str:
    """The command line that starts the application under the decided configuration, without syspilot."""
    tunables = tuple(Tunable(name, "param", (), template) for name, template in decision.params.items())
    try:
        command, env = Application(decision.command, tunables).prepare(decision.configuration, {})
    except ValueError:  # a template whose quotes do not close: the decision was edited by hand
        command, env = list(decision.command), {}
    return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in env.items()), shlex.join(command)])


def _session_command(decision: Decision) -> str:
    options = ["--metric", decision.objective] if decision.objective != "wall_s" else []
    options += ["--maximise"] if decision.maximise else []
    return shlex.join(["syspilot", decision.mode, *options, "--", *decision.command])


def _machine(machine: Facts) -> list[tuple[str, str, str]]:
    def size(n: int | None) -> str:
        return f"{n / 2**30:.1f} GiB" if n is not None else "none"

    def row(label: str, value: object, fact: str = "") -> tuple[str, str, str]:
        return label, str(value), machine.sources.get(fact, "")

    quota = "none" if machine.quota_cores is None else figure(machine.quota_cores)
    return [
        row("CPUs usable at once", machine.cores),
        row("CPUs in the affinity mask", machine.affinity, "affinity"),
        row("CPUs online, of all", f"{machine.online} of {machine.logical}", "online"),
        row("physical cores", machine.physical, "physical"),
        row("CPU quota, cores", quota, "quota_cores"),
        row("memory", size(machine.memory_bytes), "memory_bytes"),
        row("memory limit", size(machine.memory_limit_bytes), "memory_limit_bytes"),
        row("NUMA nodes", machine.numa_nodes, "numa_nodes"),
        row("CPU model", machine.cpu_model or "unknown", "cpu_model"),
        row("kernel", machine.kernel or "unknown", "kernel"),
        row("pressure stall information", "yes" if machine.psi else "no", "psi"),
        row("scheduler statistics", "yes" if machine.schedstat else "no", "schedstat"),
    ]


def _notes(decision: Decision, default: Run | None, best: Run | None) -> list[str]:
    """What a careful reader asks before believing the answer."""
    notes = [_sample_note("Default", decision.default)]
    if decision.configuration:
        notes.append(_sample_note("Chosen configuration", decision.best))
    if decision.ci95 is not None:
        few = " Few pairs: expect the next session to differ." if decision.pairs < _FEW_PAIRS else ""
        notes.append(f"The interval is Student's t on the logarithms of {decision.pairs} paired ratios.{few}")
    warm = [t.objective for t in decision.trials if not t.configuration and t.objective is not None]
    if len(warm) > 2 and spread(warm[1:]) < spread(warm) / 2:
        notes.append("The first run stands apart from the later ones (cold caches); the pairs do not contain it.")
    disturbed = sum(t.disturbed for t in decision.trials)
    notes.append(
        f"{disturbed} of {len(decision.trials)} runs were disturbed by other programs or the hypervisor."
        if disturbed
        else "No run was disturbed by other programs or the hypervisor."
    )
    failed = sum(t.status != "ok" for t in decision.trials)
    if failed:
        notes.append(f"{failed} of {len(decision.trials)} runs gave no result; they are in the table of trials.")
    if decision.interrupted:
        notes.append("The session was interrupted, so the answer is not confirmed.")
    if not decision.machine.schedstat:
        notes.append("This kernel keeps no scheduler statistics: time spent waiting for a CPU could not be seen.")
    for name, run in (("default", default), ("chosen", best)):
        if run is not None:
            notes += _run_notes(name, run)
    return notes


def _sample_note(name: str, sample: Sample) -> str:
    if sample.n == 0:
        return f"{name}: no run gave an objective."
    noisy = ", noisy" if sample.cv > _NOISY else ""
    cv = f", coefficient of variation {100 * sample.cv:.1f} %{noisy}" if sample.n > 1 else ""
    return f"{name}: n = {sample.n}, median {_number(sample.median, 4)}{cv}."


def _run_notes(name: str, run: Run) -> list[str]:
    notes = []
    if run.usage.cpu_s > 0 and run.sampler_cpu_s > 0:
        share = 100 * run.sampler_cpu_s / max(run.wall_s, 1e-9)
        cost = f"sampling it used {figure(share, 2)} % of a core"
        notes.append(f"The {name} run that is drawn took {figure(run.wall_s)} s; {cost}.")
    if run.untraced_threads:
        notes.append(f"{run.untraced_threads} threads of the {name} run are beyond what is traced.")
    if run.left_processes:
        notes.append(f"{run.left_processes} processes of the {name} run outlived it and were ended.")
    return notes + [f"The {name} run: {note}" for note in run.notes]
