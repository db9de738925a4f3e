"""How far predictions are shrunk to the constant, and what is then said of latent values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers.cases import each
from helpers.held import held_of
from helpers.problems import build
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPRegressor
from tensorcep.cp.calibration.holdout import hold_out
from tensorcep.cp.calibration.null_model import can_shrink, constant_law, shrink, with_constant
from tensorcep.cp.fitted.predict import latent, latent_quantiles, observed_moments
from tensorcep.cp.posterior import Draws
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.tobit import censored_at


def weighed_of(y, mean):
    """What is known of values left out that all together predict by this mean."""
    held = held_of(y, mean[None], np.zeros((1, len(y))))
    held = held._replace(weights=np.ones(1), score=np.zeros(len(y)), mean_of_all=mean)
    return shrink(held, build(np.zeros((1, 2), dtype=int), np.zeros(1), (1, 1), 1))


def test_predictions_of_noise_are_shrunk_to_the_constant(rng):
    y = rng.standard_normal(400)
    assert weighed_of(y, -0.1 * y + rng.standard_normal(400)).share == 0.0
    assert weighed_of(y, np.zeros(400)).share == 0.0
    shares = [weighed_of(rng.standard_normal(400), rng.standard_normal(400)).share for _ in range(200)]
    assert np.mean(shares) < 0.02
    assert max(shares) < 0.2


@each("scale", [1e-3, 1.0, 1e3])
def test_predictions_too_wide_are_shrunk_by_their_slope_and_good_ones_stay(rng, scale):
    f = scale * rng.standard_normal(4000)
    y = f + 0.2 * scale * rng.standard_normal(4000)
    assert weighed_of(y, f).share == pytest.approx(1.0, abs=0.02)
    assert weighed_of(y, 0.5 * f).share == 1.0
    wide = weighed_of(y, 2.0 * f)
    assert wide.share == pytest.approx(0.5, abs=0.01)
    nothing = -0.5 * y**2 / np.mean(y**2) - 0.5 * np.log(2.0 * np.pi * np.mean(y**2))
    np.testing.assert_allclose(wide.score, np.log(wide.share + (1.0 - wide.share) * np.exp(nothing)), rtol=1e-10)


def test_signs_of_the_few_largest_values_are_no_skill(rng):
    shares = []
    for _ in range(100):
        y, mean = rng.standard_normal((2, 200))
        y[:3], mean[:3] = [9.0, -8.0, 7.0], [5.0, -5.0, 4.0]
        shares.append(weighed_of(y, mean).share)
    assert np.mean(shares) < 0.1  # by residuals about the line alone 0.32
    found = 3.0 * rng.standard_t(3, 200)  # where all entries say so, large ones count as well
    assert weighed_of(found + rng.standard_normal(200), found).share > 0.9


def test_a_share_of_the_draws_says_the_constant(rng):
    held = weighed_of(rng.standard_normal(50), np.zeros(50))._replace(share=0.75)
    free = np.array([[True, True], [True, False]])
    draws = Draws((3, 2), 2, rng.standard_normal((2, 10, 5, 2)), np.full((2, 10, 1), 9.0), None, np.ones(5, bool))
    mixed = with_constant(draws._replace(rows=draws.rows.copy()), held, free)
    off = (mixed.rows != draws.rows).any(axis=(2, 3)).ravel()
    assert off.sum() == 5
    assert np.all(np.diff(np.flatnonzero(off)) == 4)
    said = mixed.rows.reshape(-1, 5, 2)[off]
    np.testing.assert_array_equal(said, np.broadcast_to([[0, 0]] * 3 + [[0, 1]] * 2, said.shape))
    np.testing.assert_allclose(mixed.theta.ravel()[off], 1.0 / np.mean(held.y**2))
    assert np.all(mixed.theta.ravel()[~off] == 9.0)


def test_what_no_draw_could_tell_is_doubt_of_latent_values_and_not_of_observations(rng):
    """Draws of which a quarter says the constant: their noise holds the doubt, whose law latent values have as well."""
    y = rng.standard_normal(400)
    held = held_of(y, np.zeros((1, 400)), np.zeros((1, 400)))
    held = held._replace(weights=np.ones(1), score=y, mean_of_all=np.full(400, 0.3), spread_of_all=np.full(400, 0.4))
    found = shrink(held, build(np.zeros((1, 2), dtype=int), np.zeros(1), (1, 1), 1))
    assert found.doubt == pytest.approx(0.49)
    wide = shrink(
        held._replace(spread_of_all=np.full(400, 9.0)), build(np.zeros((1, 2), dtype=int), np.zeros(1), (1, 1), 1)
    )
    assert wide.doubt == pytest.approx(0.75 * np.mean(y**2))
    draws = Draws((3, 2), 2, rng.standard_normal((2, 400, 5, 2)), np.full((2, 400, 1), 9.0), None, np.ones(5, bool))
    said = with_constant(draws, found._replace(share=0.75), None)
    plain, rows = said._replace(doubt=None).components(), np.array([[0, 3], [2, 4]])
    mean, variance = latent(said.components(), rows)
    without = latent(plain, rows)
    np.testing.assert_array_equal(mean, without[0])
    np.testing.assert_allclose(variance - without[1], 0.25 * 0.49)
    for ours, same in zip(*(observed_moments(GAUSSIAN, b, rows) for b in (said.components(), plain)), strict=True):
        np.testing.assert_array_equal(ours, same)
    f = said.components().mean
    values = (f[:, 0] * f[:, 3]).sum(axis=1) + np.sqrt(said.doubt.ravel()) * rng.standard_normal((500, 800))
    quantiles = latent_quantiles(said.components(), rows[:1], (0.05, 0.5, 0.95))[0]
    np.testing.assert_allclose(quantiles, np.quantile(values, (0.05, 0.5, 0.95)), atol=0.02)


@pytest.mark.slow
def test_intervals_of_latent_values_hold_where_sixty_entries_tell_little():
    """Data drawn from the prior; a chain that is shrunk to the constant says how little it knows."""
    held = []
    for seed in range(12):
        rng, shape = np.random.default_rng(2000 + seed), (6, 5, 4)
        f = np.einsum("ir,jr,kr->ijk", *(rng.standard_normal((n, 2)) for n in shape)).ravel()
        y = f + rng.standard_normal(120) / np.sqrt(rng.gamma(3.0))
        X, order = np.stack(np.unravel_index(np.arange(120), shape), axis=1), rng.permutation(120)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = CPRegressor(method="gibbs", random_state=seed).fit(X[order[:60]], y[order[:60]])
        draws = model.sample_posterior(400, X[order[60:]], random_state=0)
        low, high = np.quantile(draws, (0.05, 0.95), axis=0)
        held.append(np.mean((f[order[60:]] >= low) & (f[order[60:]] <= high)))
    assert 0.75 < np.mean(held) < 0.97


@each("link", ["logit", "probit"])
def test_predictions_of_labels_worse_than_their_share_of_ones_are_mixed_with_it(rng, link):
    n = 1000
    y = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    p = build(rng.integers(0, 9, (n, 2)), y, (9, 9), 2, link)
    p = p._replace(free=np.array([[True, True], [True, False]]))
    y = p.entries.y.ravel()[:n]  # in the order of the lanes, whose first 300 are left out
    held = held_of(y[:300], np.zeros((1, 300)), np.zeros((1, 300)))._replace(weights=np.ones(1))
    good, bad = (np.log(np.where((y[:300] > 0) == sure, 0.9, 0.1)) for sure in (y[:300] > 0, np.zeros(300)))
    assert shrink(held._replace(score=good), p).share == 1.0
    mixed = shrink(held._replace(score=bad), p)
    ones = (np.count_nonzero(y[300:] > 0) + 0.5) / 701.0
    assert mixed.share < 0.5
    assert mixed.constant == pytest.approx(np.log(ones / (1.0 - ones)) if link == "logit" else norm.ppf(ones))
    rows = rng.standard_normal((1, 8, 18, 2))
    said = with_constant(Draws((9, 9), 2, rows, None, None, np.ones(18, bool)), mixed._replace(share=0.0), p.free)
    np.testing.assert_array_equal(said.rows[0, 0], [[0.0, mixed.constant]] * 9 + [[0.0, 1.0]] * 9)
    assert shrink(held._replace(score=bad), p._replace(free=None)).share == 1.0


@each(
    ("name", "expected"), [("gaussian", True), ("tobit", True), ("logit", True), ("poisson", True), ("binomial", False)]
)
def test_values_labels_and_counts_are_shrunk(name, expected):
    assert can_shrink(get_likelihood(name)) is expected


def test_values_at_a_limit_are_mixed_with_the_constant_law(rng):
    """Of the censored kind: its latent value and precision are those of the law that the values were drawn from."""
    y = np.maximum(0.3 + 0.5 * rng.standard_normal(2000), 0.0)
    p = build(rng.integers(0, 9, (2000, 2)), y, (9, 9), 2, "tobit")
    p = p._replace(free=np.array([[True, True], [True, False]]))
    held = hold_out(p, 1, 1.0)
    assert held is not None
    held = held._replace(weights=np.ones(1), mean_of_all=held.y, spread_of_all=np.zeros_like(held.y))
    law = constant_law(p.likelihood, y, 0.0)
    said = law.logpdf(p.likelihood, held.y)
    bad = shrink(held._replace(score=said - 1.0), p)
    assert bad.share < 0.05
    assert (bad.constant, bad.constant_theta) == pytest.approx((0.3, 4.0), rel=0.15)
    assert shrink(held._replace(score=said + 1.0), p).share == 1.0
    nothing = p._replace(entries=p.entries._replace(y=np.zeros_like(p.entries.y)))
    assert shrink(held._replace(score=said - 1.0), nothing).share == 1.0


@each("side", [1.0, -1.0])
def test_log_scores_of_values_at_a_limit_are_not_believed_where_their_means_are_no_better(rng, side):
    f = 0.5 * rng.standard_normal(4000)
    y = side * np.maximum(side * (f + 0.3 * rng.standard_normal(4000)), 0.0)
    record = censored_at(7.0, side)
    p = build(rng.integers(0, 9, (4000, 2)), y, (9, 9), 2)._replace(likelihood=record)
    p = p._replace(free=np.array([[True, True], [True, False]]))
    held = hold_out(p, 1, 0.09)
    assert held is not None
    own = f[p.entries.permutation][held.place]
    nothing = constant_law(record, y, 0.0).logpdf(record, held.y)
    held = held._replace(weights=np.ones(1), score=nothing + 0.1, spread_of_all=np.full(len(own), 1e-4))
    assert shrink(held._replace(mean_of_all=own), p).share == 1.0
    assert shrink(held._replace(mean_of_all=rng.permutation(own)), p).share < 0.3


def test_the_constant_counts_beside_good_predictions_of_counts_as_the_next_one_may_be_a_wild_one(rng):
    y = rng.poisson(3.0, 2000).astype(float)
    p = build(rng.integers(0, 9, (2000, 2)), y, (9, 9), 2, "poisson")
    p = p._replace(free=np.array([[True, True], [True, False]]))
    held = hold_out(p, 1, 1.0)
    assert held is not None
    nothing = constant_law(p.likelihood, y, np.log(y.mean())).logpdf(p.likelihood, held.y)
    found = shrink(held._replace(weights=np.ones(1), score=nothing + 1.0, beside=np.zeros(0)), p)
    assert found.share == 1.0 - 1.0 / (len(held.y) + 1.0)
    assert 0.0 < (nothing + 1.0 - found.score).mean() < 1.0 / len(held.y)


@each(("n", "expected"), [(40, 0), (150, 1), (250, 1)])
def test_the_share_of_the_constant_is_a_draw_from_half_a_draw_on(rng, n, expected):
    held = weighed_of(rng.standard_normal(50), np.zeros(50))._replace(share=1.0 - 1.0 / 201.0)
    draws = Draws((3, 2), 2, rng.standard_normal((1, n, 5, 2)), None, None, np.ones(5, bool))
    mixed = with_constant(draws._replace(rows=draws.rows.copy()), held, None)
    assert (mixed.rows != draws.rows).any(axis=(2, 3)).sum() == expected
