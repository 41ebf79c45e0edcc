"""Statistics of few runs, against scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from syspilot.measure import Ratio, middle, paired_ratio, spread, t95


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("pairs", [2, 3, 5, 8, 31])
@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_that_of_t_on_the_logarithms(pairs, maximise, seed):
    rng = np.random.default_rng(seed)
    before, after = rng.lognormal(1.0, 0.3, pairs), rng.lognormal(0.5, 0.4, pairs)
    ratio = paired_ratio(list(before), list(after), maximise=maximise)
    logs = np.log(after / before if maximise else before / after)
    low, high = stats.t.interval(0.95, pairs - 1, loc=logs.mean(), scale=stats.sem(logs))
    assert ratio.pairs == pairs
    assert ratio.value == pytest.approx(stats.gmean(np.exp(logs)))
    near = 5e-4 * (high - low)  # the table has three decimals
    assert (math.log(ratio.low), math.log(ratio.high)) == pytest.approx((low, high), abs=near)
    assert ratio.better == (low > 0)
    assert ratio.worse == (high < 0)


def test_the_table_of_t():
    for degrees in range(1, 31):
        assert t95(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), abs=6e-4)
    assert t95(200) == pytest.approx(stats.t.ppf(0.975, 200), rel=0.01)


def test_beyond_the_table_it_is_not_too_narrow():
    assert t95(31) == pytest.approx(stats.t.ppf(0.975, 31), rel=0.045)


def test_minimise_and_maximise_are_mirrors():
    down, up = paired_ratio([4.0, 4.4], [2.0, 2.1]), paired_ratio([2.0, 2.1], [4.0, 4.4], maximise=True)
    assert down == up
    assert down.value > 1
    assert paired_ratio([2.0, 2.1], [4.0, 4.4]).value == pytest.approx(1 / down.value)


def test_equal_ratios_have_no_width():
    ratio = paired_ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
    assert ratio.better
    same = paired_ratio([1.0, 1.0], [1.0, 1.0])
    assert (same.value, same.better, same.worse) == (1.0, False, False)


def test_one_pair_tells_no_interval():
    assert paired_ratio([4.0], [2.0]) == Ratio(2.0, 0.0, math.inf, 1)
    assert not paired_ratio([1e9], [1e-9]).better


def test_no_pair_tells_nothing():
    for before, after in (([], []), ([1.0], []), ([0.0], [1.0]), ([1.0], [0.0]), ([-1.0], [1.0])):
        ratio = paired_ratio(before, after)
        assert math.isnan(ratio.value)
        assert (ratio.low, ratio.high, ratio.pairs, ratio.better, ratio.worse) == (0.0, math.inf, 0, False, False)


def test_zeros_and_what_has_no_partner_are_left_out_as_pairs():
    ratio = paired_ratio([2.0, 0.0, 6.0, 8.0], [1.0, 5.0, 3.0])
    assert (ratio.pairs, ratio.value) == (2, pytest.approx(2.0))


def test_a_contender_that_failed_once_is_not_better():
    assert not paired_ratio([2.0, 2.0, 2.0], [1.0, 1e12, 1.0]).better
    assert not paired_ratio([1.0, 1.0, 1.0], [2.0, 1e-12, 2.0], maximise=True).better


def test_middle_and_spread():
    assert middle([3.0, 1.0, 2.0]) == 2.0
    assert middle([1.0, 2.0]) == 1.5
    assert math.isnan(middle([]))
    assert spread([]) == spread([1.0]) == spread([-1.0, 1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0]) == pytest.approx(stats.variation([1.0, 2.0, 3.0], ddof=1))
