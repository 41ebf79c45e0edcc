"""Rules about demands, assumptions and mitigations."""

from __future__ import annotations

from lpcl.rules.base import Finding, Found
from lpcl.rules.kinds import AMOUNTS, NUMERIC, amount_kind, words
from lpcl.rules.view import View

_POOL = ("amount", "created", "scope", "idle", "runs", "fork")


def silent_pool(v: View) -> Found:
    """A pool without the facts that the tuner needs; `unknown` is a fact, silence is not."""
    for d in v.contract.demands:
        if d.resource.name in {"cpu.threads", "cpu.processes"}:
            missing = next((k for k in _POOL if not getattr(d, k)), None)
            if missing is not None:
                help_text = f"write `{missing} unknown` if you do not know"
                yield Finding(f"`demand {d.name}` does not say `{missing}`", d.span, help_text)


def amount(v: View) -> Found:
    """An amount that its resource is not measured in."""
    for d in v.contract.demands:
        if d.amount is None:
            continue
        kind = v.kinds[d.amount]
        fitting = AMOUNTS.get(d.resource.name, NUMERIC)
        if kind and kind not in fitting:
            yield Finding(f"the amount of `{d.name}` is {words(kind)}, not one of {d.resource.name}", d.amount.span)


def bare_amount(v: View) -> Found:
    """An amount of memory that is a number of other things."""
    for d in v.contract.demands:
        if d.amount is not None and amount_kind(d.resource.name) == "B" and v.kinds[d.amount] == "count":
            help_text = "multiply by the size of one, for example `n * 1MiB`"
            yield Finding(f"the amount of `{d.name}` is a count, not one of bytes", d.amount.span, help_text)


def wait(v: View) -> Found:
    """How long idle workers stay awake is no time, or they do not stay awake at all."""
    for d in v.contract.demands:
        for idle in d.idle:
            if idle.duration is None:
                continue
            kind, domain = v.kinds[idle.duration], v.domains.of(idle.duration)
            if idle.mode == "block":
                yield Finding("workers that block do not stay awake", idle.span, "write `spin_then_block(...)`")
            elif kind and kind not in {"s", "cycles"} and not domain.low == domain.high == 0:
                help_text = "write a time, for example `n * 1us` or `n * 1cycles`"
                yield Finding(f"workers stay awake for {words(kind)}, not a time", idle.duration.span, help_text)
            elif domain.numeric and domain.high < 0:
                yield Finding("workers cannot stay awake for less than no time", idle.duration.span)


def empty_assumption(v: View) -> Found:
    """An assumption that states nothing."""
    for a in v.contract.assumptions:
        if not (a.sizes or a.ignores or a.requires or a.forbids):
            help_text = "add `sizes`, `ignores`, `requires` or `forbids`"
            yield Finding(f"`assume {a.name}` states nothing", a.span, help_text)


def no_consequence(v: View) -> Found:
    """An assumption that forbids without a consequence."""
    for a in v.contract.assumptions:
        if a.forbids and not a.consequence:
            yield Finding(f"`assume {a.name}` forbids without a `consequence`", a.span)


def looked_at_and_ignored(v: View) -> Found:
    """A fact that an assumption sizes from and ignores."""
    for a in v.contract.assumptions:
        ignored = {r.name for r in a.ignores}
        for sizes in a.sizes:
            for ref in sizes.facts:
                if ref.name in ignored:
                    yield Finding(f"`{a.name}` sizes from `{ref.name}` and ignores it", ref.span, "keep one of them")


def incomplete_mitigation(v: View) -> Found:
    """A mitigation without a target, a value or a variable."""
    for x in v.contract.mitigations:
        missing = [w for w, k in (("sets env", x.env or x.limits), ("to", x.value), ("in", x.target)) if not k]
        if missing:
            yield Finding(f"`mitigate {x.name}` lacks `{missing[0]}`", x.span)


def limit(v: View) -> Found:
    """A limit that is no amount of the pool, or a negative one."""
    for x in v.contract.mitigations:
        if x.value is None or not x.limits:
            continue
        kind, domain = v.kinds[x.value], v.domains.of(x.value)
        for ref in x.limits:
            demand = v.demands.get(ref.parts[0])
            fitting = NUMERIC if demand is None else AMOUNTS.get(demand.resource.name, NUMERIC)
            if kind and kind not in fitting:
                yield Finding(f"`{ref.name}` cannot be limited to {words(kind)}", x.value.span)
        if domain.numeric and domain.high < 0:
            yield Finding(f"`mitigate {x.name}` limits to less than nothing", x.value.span)


def nothing_to_keep(v: View) -> Found:
    """`unless_set` without a variable that could be set."""
    for x in v.contract.mitigations:
        if x.unless_set and x.limits and not x.env:
            help_text = "drop `unless_set`, or name the variables with `sets env`"
            yield Finding(f"`mitigate {x.name}` sets no variable that could be set already", x.span, help_text)
