"""Statistics of few, noisy, paired runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

# Two-sided 95 % quantiles of Student's t, by degrees of freedom 1..30 (any statistics table); beyond, the normal's.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times better: geometric mean of paired ratios and its 95 % interval.

    Attributes:
        value: > 1 is better; low, high: the interval (0 and infinity with fewer than two pairs); pairs: how many.
    """

    value: float
    low: float
    high: float
    pairs: int

    @property
    def better(self) -> bool:
        """The whole interval is above 1."""
        return self.low > 1.0

    @property
    def worse(self) -> bool:
        """The whole interval is below 1."""
        return self.high < 1.0


def t95(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.96


def paired_ratio(before: Sequence[float], after: Sequence[float], *, maximise: bool = False) -> Ratio:
    """The improvement from `before` to `after`, pair by pair in the order in which they ran.

    Args:
        before: positive objectives, one per round; the longer of the two is cut.
        after: as `before`.
        maximise: whether larger is better.

    Returns:
        The ratio. It works on logarithms, so that a slow-down by 2 and a speed-up by 2 weigh the same.
    """
    pairs = [(b, a) for b, a in zip(before, after, strict=False) if b > 0 and a > 0]
    if not pairs:
        return Ratio(math.nan, 0.0, math.inf, 0)
    logs = [math.log(a / b if maximise else b / a) for b, a in pairs]
    centre = fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(centre), 0.0, math.inf, 1)
    half = t95(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), len(logs))


def spread(values: Sequence[float]) -> float:
    """Coefficient of variation, 0 for fewer than two values."""
    if len(values) < 2 or fmean(values) == 0:
        return 0.0
    return stdev(values) / fmean(values)


def middle(values: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return median(values) if values else math.nan
