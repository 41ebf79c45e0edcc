"""What people read on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lpcl import model as m
from lpcl.corpus import Entry, load, shipped
from lpcl.format import contract_text
from syspilot.decision import Conflict, Decision, HazardSeen
from syspilot.session import Event


def load_contracts(folders: Sequence[Path]) -> tuple[Entry, ...]:
    """The contracts of these folders and the shipped ones; a broken contract is left out with a warning."""
    entries, diagnostics = load([*folders, shipped()])
    for x in diagnostics:
        if x.severity == "error":
            print(f"syspilot: warning: {x.file}:{x.span.line}: {x.message}; contract left out", file=sys.stderr)
    return entries


class _Console(Console):
    """Leaves it to the command line what a reader that went away means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Progress:
    """Shows a session's runs on standard error: a spinner on a terminal, plain lines elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        """With `quiet` nothing is shown unless standard error is a terminal."""
        self.console = Console(stderr=True, highlight=False)
        self.quiet = quiet and not self.console.is_terminal
        self.status = self.console.status("starting") if self.console.is_terminal else None

    def __enter__(self) -> Self:
        """Start the spinner."""
        if self.status is not None:
            self.status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the spinner."""
        if self.status is not None:
            self.status.stop()

    def notify(self, event: Event) -> None:
        """Show one event."""
        if self.quiet:
            return
        if event.kind == "run" and self.status is not None:
            self.status.update(f"run {event.run} of at most {event.of}  {escape(event.text)}")
        elif event.kind == "result":
            self.console.print(f"[dim]run {event.run:>2}[/]  {escape(event.text)}")
        elif event.kind == "note":
            self.console.print(f"[yellow]note[/]    {escape(event.text)}")


def decision(x: Decision, *, report: Path, saved: Path) -> None:
    """The summary of a session."""
    console = _Console(highlight=False)
    console.print()
    _pools(console, x)
    for conflict in x.conflicts:
        if conflict.verdict != "undecided" or conflict.strength >= 0.15:
            _conflict(console, conflict)
    for hazard in x.hazards:
        console.print(f"[bold red]hazard[/]  {escape(hazard.claim)}", soft_wrap=True)
        for remedy in hazard.remedies:
            console.print(f"        [dim]instead:[/] {escape(remedy)}", soft_wrap=True)
    if not x.conflicts and not x.hazards:
        console.print("no conflict between pools is predicted or seen")
    console.print()
    if x.mode == "tune":
        _answer(console, x)
    else:
        _advice(console, x)
    spent = f"{x.runs} runs of the application, {x.seconds_spent:.1f} s"
    disturbed = sum(t.disturbed for t in x.trials)
    if disturbed:
        spent += f"; {disturbed} of them were disturbed by other programs"
    console.print(f"[dim]{spent}[/]")
    console.print(f"[dim]report {escape(str(report))}   decision {escape(str(saved))}[/]", soft_wrap=True)


def _pools(console: Console, x: Decision) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("pool", "threads", "idle workers", "copies"):
        table.add_column(column)
    copies = {lib.contract: len(lib.copies) for lib in x.libraries if lib.contract}
    for p in x.pools:
        amount = p["amount"]
        if not isinstance(amount, float) or not _of_cpus(p) or (amount <= 1 and not p["spins"]):
            continue
        idle = str(p["idle"]).replace("_", " ")
        awake = p["awake_s"]
        if isinstance(awake, float) and p["spins"]:
            idle += f", awake {awake * 1000:.3g} ms"
        contract = str(p["name"]).split(".")[0]
        table.add_row(escape(str(p["name"])), f"{amount:.0f}", idle, str(copies.get(contract) or ""))
    if table.row_count:
        console.print(table)
    unknown = [str(p["name"]) for p in x.pools if not isinstance(p["amount"], float) and _of_cpus(p)]
    if unknown:
        console.print(f"[dim]sized by the application's calls: {escape(', '.join(unknown))}[/]", soft_wrap=True)
    if x.uncovered:
        console.print(f"[dim]loaded, native, without a contract: {escape(', '.join(x.uncovered))}[/]", soft_wrap=True)
    console.print()


def _of_cpus(pool: Mapping[str, object]) -> bool:
    return str(pool.get("resource", "")).startswith("cpu.")


_COLOURS = {"confirmed": "bold red", "refuted": "green", "undecided": "yellow"}


def _conflict(console: Console, c: Conflict) -> None:
    word = "suspected" if c.verdict == "undecided" else c.verdict
    console.print(f"[{_COLOURS[c.verdict]}]{word}[/]  {escape(c.claim)}", soft_wrap=True)
    for clause in c.clauses:
        places = ", ".join(clause.evidence[:3]) or "no evidence"
        console.print(
            f"        [dim]{escape(f'{clause.contract}: {clause.clause} ({clause.trust})  {places}')}[/]",
            soft_wrap=True,
        )
    if c.figures:
        remedy = " ".join(f"{k}={v}" for k, v in c.remedy.items())
        f = c.figures
        console.print(
            f"        with {escape(remedy)}: objective {f['objective_ratio']}x, CPU seconds {f['cpu_seconds_ratio']}x, "
            f"run delay {f['run_delay_ratio']}x, involuntary switches {f['involuntary_switches_ratio']}x better",
            soft_wrap=True,
        )


def _answer(console: Console, x: Decision) -> None:
    if x.interrupted and x.configuration:
        words = " ".join(f"{k}={v}" for k, v in x.configuration.items())
        console.print(f"[bold]{escape(words)}[/]  {escape(x.reason)}", soft_wrap=True)
        return
    if not x.configuration or x.ratio is None:
        console.print(f"[bold]leave it as it is[/]  {escape(x.reason)}", soft_wrap=True)
        return
    words = " ".join(f"{k}={v}" for k, v in x.configuration.items())
    if x.ci95 is not None:
        interval = f"95 % interval {x.ci95[0]:.2f} to {x.ci95[1]:.2f}, {x.pairs} pairs"
        console.print(f"[bold green]{x.ratio:.2f}x[/] with [bold]{escape(words)}[/]  ({interval})")
    for s in x.settings:
        mark = {"yes": "in effect", "no": "NOT in effect"}.get(s.in_effect, "effect not observable")
        console.print(f"        {escape(f'{s.name}={s.value}')}: {mark} [dim]({escape(s.how_seen)})[/]", soft_wrap=True)


def _advice(console: Console, x: Decision) -> None:
    suspects = [c for c in x.conflicts if c.verdict != "refuted" and (c.verdict == "confirmed" or c.strength >= 0.15)]
    tries = [c.remedy or (c.remedies[0] if c.remedies else {}) for c in suspects]
    for remedy in [r for i, r in enumerate(tries) if r and r not in tries[:i]][:3]:
        console.print(f"to try: {escape(' '.join(f'{k}={v}' for k, v in remedy.items()))}")
    if suspects:
        console.print("to decide by measurement: [bold]syspilot tune[/]")


def explain(x: Decision, entries: Sequence[Entry]) -> None:
    """Each conflict and hazard with the text of its clauses and the evidence behind them."""
    console = _Console(highlight=False)
    by_name = {e.contract.name: e for e in entries}
    console.print(f"[bold]{escape(x.reason)}[/]\n")
    items: tuple[Conflict | HazardSeen, ...] = (*x.conflicts, *x.hazards)
    for item in items:
        verdict = f" [{item.verdict}]" if isinstance(item, Conflict) else " [hazard]"
        console.print(escape(f"{item.claim}{verdict}"))
        for seen in item.clauses:
            entry = by_name.get(seen.contract)
            clause = (
                next((c for c in entry.contract.clauses if m.clause_label(c) == seen.clause), None) if entry else None
            )
            if entry is None or clause is None:
                console.print(f"  [dim]{escape(seen.contract)}: {escape(seen.clause)} is not in today's contracts[/]")
                continue
            alone = m.Contract(entry.contract.name, clauses=(clause,))
            console.print(escape(contract_text(alone).rstrip()), style="cyan")
            for cited in entry.evidence(clause):
                detail = str(cited.raw["seen"].get("detail") or "")
                console.print(
                    f"  [dim]{escape(cited.source)} {escape(cited.place)}[/] {escape(detail)}", soft_wrap=True
                )
                for line in cited.text.splitlines()[:12]:
                    console.print(f"    [dim]|[/] {escape(line)}", soft_wrap=True)
        console.print()
