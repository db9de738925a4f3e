"""Scores against formulas written out independently, and against exact properties."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from tensorcep import metrics


@pytest.fixture
def regression(rng):
    mean = rng.normal(size=60)
    sd = rng.uniform(0.4, 2.0, size=60)
    return mean + sd * rng.normal(size=60), mean, sd


@pytest.fixture
def binary(rng):
    p = np.round(rng.uniform(size=80), 2)  # rounding makes ties
    return (rng.uniform(size=80) < p).astype(float), p


@pytest.fixture
def whole_weights(rng):
    return rng.integers(0, 4, size=80)


def test_rmse_and_mae_match_loops(regression):
    y, mean, _ = regression
    assert metrics.rmse(y, mean) == pytest.approx((sum((a - b) ** 2 for a, b in zip(y, mean, strict=True)) / 60) ** 0.5)
    assert metrics.mae(y, mean) == pytest.approx(sum(abs(a - b) for a, b in zip(y, mean, strict=True)) / 60)


def test_auc_is_the_share_of_ordered_pairs(binary):
    y, p = binary
    pairs = [(a > b) + 0.5 * (a == b) for a in p[y == 1] for b in p[y == 0]]
    assert metrics.auc(y, p) == pytest.approx(np.mean(pairs))


def test_auc_ignores_a_monotone_change_of_the_score(binary):
    y, p = binary
    assert metrics.auc(y, np.log(p + 0.5)) == metrics.auc(y, p)


def test_average_precision_sums_precision_over_recall_steps(binary):
    y, p = binary
    total, last = 0.0, 0.0
    for threshold in sorted(set(p), reverse=True):
        chosen = p >= threshold
        recall = y[chosen].sum() / y.sum()
        total += (recall - last) * y[chosen].mean()
        last = recall
    assert metrics.average_precision(y, p) == pytest.approx(total)


def test_log_loss_brier_and_accuracy_match_formulas(binary):
    y, p = binary
    p = np.clip(p, 0.01, 0.99)
    assert metrics.log_loss(y, p) == pytest.approx(-np.mean(np.where(y == 1, np.log(p), np.log1p(-p))))
    assert metrics.brier(y, p) == pytest.approx(np.mean((p - y) ** 2))
    assert metrics.accuracy(y, p) == pytest.approx(np.mean((p > 0.5) == (y == 1)))
    assert metrics.accuracy(y, p, threshold=0.9) == pytest.approx(np.mean((p > 0.9) == (y == 1)))


def test_log_loss_of_a_certain_mistake_is_large_and_finite():
    assert 30.0 < metrics.log_loss([1.0, 0.0], [0.0, 0.0]) * 2 < 40.0


def test_gaussian_log_score_matches_scipy(regression):
    y, mean, sd = regression
    assert metrics.gaussian_log_score(y, mean, sd) == pytest.approx(stats.norm.logpdf(y, mean, sd).mean())


def test_crps_gaussian_is_the_integral_of_the_squared_cdf_difference():
    for y, mean, sd in [(0.3, 1.0, 0.5), (-4.0, 0.0, 2.0), (2.0, 2.0, 1.0)]:

        def left(x, mean=mean, sd=sd):
            return stats.norm.cdf(x, mean, sd) ** 2

        def right(x, mean=mean, sd=sd):
            return stats.norm.sf(x, mean, sd) ** 2

        expected = integrate.quad(left, mean - 12 * sd, y)[0] + integrate.quad(right, y, mean + 12 * sd)[0]
        assert metrics.crps_gaussian([y], [mean], [sd]) == pytest.approx(expected, rel=1e-6)


def test_coverage_counts_both_ends():
    assert metrics.coverage([0.0, 1.0, 2.0, 3.0], [0.0] * 4, [2.0] * 4) == 0.75
    assert metrics.coverage([0.0, 3.0], [0.0] * 2, [2.0] * 2, weights=[3.0, 1.0]) == 0.75


def test_interval_score_is_lowest_at_the_true_quantiles(rng):
    y = rng.normal(size=20_000)
    ends = [stats.norm.ppf(q) for q in (0.05, 0.1, 0.02)]
    true, narrow, wide = (metrics.interval_score(y, np.full_like(y, e), np.full_like(y, -e), 0.9) for e in ends)
    assert true < narrow
    assert true < wide


def test_interval_score_charges_the_distance_outside():
    assert metrics.interval_score([5.0], [0.0], [2.0], 0.5) == pytest.approx(2.0 + 4.0 * 3.0)
    assert metrics.interval_score([-1.0], [0.0], [2.0], 0.9) == pytest.approx(2.0 + 20.0 * 1.0)


def test_calibration_error_matches_a_loop_over_bins(binary):
    y, p = binary
    for bins, edges in (("uniform", np.linspace(0, 1, 6)), ("quantile", np.quantile(p, np.linspace(0, 1, 6)))):
        total = 0.0
        for b in range(5):
            last = b == 4
            inside = (p >= edges[b]) & ((p <= edges[b + 1]) if last else (p < edges[b + 1]))
            if inside.any():
                total += inside.sum() / len(p) * abs(p[inside].mean() - y[inside].mean())
        assert metrics.expected_calibration_error(y, p, n_bins=5, bins=bins) == pytest.approx(total), bins


def test_calibration_error_is_zero_when_frequencies_agree():
    assert metrics.expected_calibration_error([1, 0, 0, 0, 1, 1, 1, 0], [0.25] * 4 + [0.75] * 4) == pytest.approx(0.0)
    assert metrics.expected_calibration_error([1, 1], [0.0, 0.0]) == 1.0


def test_reliability_curve_puts_certain_predictions_in_the_outer_bins():
    curve = metrics.reliability_curve([0, 1, 1], [0.0, 1.0, 0.95])
    np.testing.assert_allclose(curve.predicted, [0.0, 0.975])
    np.testing.assert_allclose(curve.observed, [0.0, 1.0])
    np.testing.assert_allclose(curve.weight, [1.0, 2.0])


def test_reliability_curve_takes_constant_predictions_by_quantile():
    curve = metrics.reliability_curve([0, 1], [0.5, 0.5], bins="quantile")
    np.testing.assert_allclose([c[0] for c in curve], [0.5, 0.5, 2.0])


def test_metrics_whole_weights_equal_repeated_entries(binary, whole_weights):
    y, p = binary
    p = np.clip(p, 0.01, 0.99)
    scores = ["auc", "average_precision", "accuracy", "log_loss", "brier", "expected_calibration_error", "rmse", "mae"]
    for score in scores:
        function = getattr(metrics, score)
        repeated = function(np.repeat(y, whole_weights), np.repeat(p, whole_weights))
        assert function(y, p, weights=whole_weights) == pytest.approx(repeated), score
        assert function(y, p) != pytest.approx(repeated), score


def test_density_scores_whole_weights_equal_repeated_entries(regression, whole_weights):
    w = whole_weights[:60]
    for function in (metrics.gaussian_log_score, metrics.crps_gaussian):
        repeated = function(*(np.repeat(a, w) for a in regression))
        assert function(*regression, weights=w) == pytest.approx(repeated), function.__name__


def test_evaluate_regression_holds_the_single_scores(regression):
    y, mean, sd = regression
    table = metrics.evaluate_regression(y, mean, sd)
    assert list(table) == ["rmse", "mae", "log_likelihood", "crps", "coverage_50", "coverage_80", "coverage_95"]
    assert table["rmse"] == metrics.rmse(y, mean)
    assert table["log_likelihood"] == metrics.gaussian_log_score(y, mean, sd)
    inside = np.abs(y - mean) <= stats.norm.ppf(0.9) * sd
    assert table["coverage_80"] == pytest.approx(inside.mean())
    assert all(type(value) is float for value in table.values())


def test_evaluate_regression_coverage_tells_wrong_from_right_sd(rng):
    y = rng.normal(size=20_000)
    right = metrics.evaluate_regression(y, np.zeros_like(y), np.ones_like(y))
    wrong = metrics.evaluate_regression(y, np.zeros_like(y), np.full_like(y, 0.5))
    for level in (50, 80, 95):
        sigma = np.sqrt(level / 100 * (1 - level / 100) / len(y))
        assert abs(right[f"coverage_{level}"] - level / 100) < 6 * sigma
        assert abs(wrong[f"coverage_{level}"] - level / 100) > 6 * sigma
    assert wrong["log_likelihood"] < right["log_likelihood"]
    assert wrong["crps"] > right["crps"]


def test_evaluate_binary_holds_the_single_scores(binary):
    y, p = binary
    table = metrics.evaluate_binary(y, p)
    assert table["auc"] == metrics.auc(y, p)
    assert table["expected_calibration_error"] == metrics.expected_calibration_error(y, p)
    assert set(table) == {"auc", "average_precision", "log_loss", "brier", "accuracy", "expected_calibration_error"}


def test_evaluate_binary_of_one_class_leaves_the_ranking_out():
    table = metrics.evaluate_binary([1, 1], [0.9, 0.8])
    assert np.isnan(table["auc"])
    assert np.isnan(table["average_precision"])
    assert table["accuracy"] == 1.0


def test_evaluate_counts_scores_poisson_predictions(rng):
    rate = rng.gamma(2.0, 2.0, size=4000)
    y = rng.poisson(rate)
    law = stats.poisson(rate)
    table = metrics.evaluate_counts(y, rate, law.logpmf(y), {0.9: law.interval(0.9)})
    assert table["log_likelihood"] == pytest.approx(law.logpmf(y).mean())
    assert table["rmse"] == pytest.approx(np.sqrt(np.mean((y - rate) ** 2)))
    assert 0.9 <= table["coverage_90"] < 0.98  # discrete intervals hold at least their level


BAD = [
    (lambda: metrics.rmse([], []), "y holds no entries"),
    (lambda: metrics.rmse([1.0, 2.0], [1.0]), "prediction must be as long as y, 2; got 1"),
    (lambda: metrics.rmse([1.0, np.nan], [1.0, 1.0]), "y must be finite; got nan at entry 1"),
    (lambda: metrics.rmse([1.0], [1.0], weights=[-1.0]), "weights must be >= 0 and not all 0"),
    (lambda: metrics.rmse([1.0], [1.0], weights=[0.0]), "weights must be >= 0 and not all 0"),
    (lambda: metrics.auc([1, 1], [0.2, 0.3]), "y must hold both labels 0 and 1 for this score; got only 1"),
    (lambda: metrics.auc([1, -1], [0.2, 0.3]), "y must hold labels 0 and 1; got -1 at entry 1"),
    (lambda: metrics.brier([1, 0], [0.2, 1.3]), r"p must hold probabilities in \[0, 1\]; got 1.3 at entry 1"),
    (lambda: metrics.gaussian_log_score([1.0], [1.0], [0.0]), "sd must be > 0; got 0 at entry 0"),
    (lambda: metrics.coverage([1.0], [2.0], [1.0]), "lower must not exceed upper; got 2 and 1 at entry 0"),
    (lambda: metrics.interval_score([1.0], [0.0], [1.0], 90), "level must be a number in"),
    (lambda: metrics.reliability_curve([1], [0.5], n_bins=0), "n_bins must be an integer >= 1; got 0"),
    (lambda: metrics.reliability_curve([1], [0.5], bins="x"), "bins must be one of 'uniform', 'quantile'"),
]


def test_metrics_bad_input_is_named():
    for call, message in BAD:
        with pytest.raises(ValueError, match=message):
            call()
