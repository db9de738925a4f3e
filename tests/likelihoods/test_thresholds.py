"""Thresholds between ordered levels: derivatives, the top of their law, draws given latent values, threads."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from scipy.optimize import minimize

from tensorcep.core.executor import ThreadExecutor
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods.parameters import thresholds
from tensorcep.likelihoods.parameters.base import EntryStats
from tensorcep.likelihoods.parameters.thresholds import (
    Levels,
    draw_thresholds,
    law_of_thresholds,
    prior_of_thresholds,
    said,
)

ALONE = ThreadExecutor(1)
LINKS = pytest.mark.parametrize("logistic", [False, True])


def entries_of(rng, levels, true, n=300, sd=None):
    """Levels of simulated latent values, in lanes."""
    blocks = -(-n // LANES)
    f = np.zeros((blocks, LANES))
    f.ravel()[:n] = rng.normal(0.5, 1.2, n)
    noise = rng.logistic(size=f.shape) if levels.logistic else rng.standard_normal(f.shape)
    y = np.searchsorted(np.append(0.0, true), f + noise).astype(float)
    used = np.zeros_like(f)
    used.ravel()[:n] = 1.0
    return EntryStats(y * used, used, f, n, f.copy, ALONE, sd=None if sd is None else np.full_like(f, sd))


@LINKS
@each("sd", [None, 0.7])
def test_said_has_the_derivatives_of_its_value(rng, logistic, sd):
    levels = Levels(5, np.array([0.8, 1.5, 2.5]), logistic)
    entries, t, h = entries_of(rng, levels, levels.start, sd=sd), np.array([0.6, 1.7, 2.2]), 1e-5
    here = said(levels, t, entries)
    for j in range(3):
        step = h * np.eye(3)[j]
        up, down = (said(levels, t + s, entries) for s in (step, -step))
        assert here.slope[j] == pytest.approx((up.value - down.value) / (2 * h), rel=1e-6, abs=1e-5)
        np.testing.assert_allclose(here.curvature[j], -(up.slope - down.slope) / (2 * h), rtol=1e-5, atol=1e-4)


def test_prior_of_gaps_is_gamma(rng):
    levels = Levels(4, np.array([1.0, 2.0]), False)
    t = np.array([0.7, 2.1])
    gaps = np.diff(t, prepend=0.0)
    wanted = (2.0 * np.log(levels.rate) + np.log(gaps) - levels.rate * gaps).sum()
    assert prior_of_thresholds(levels, t).value == pytest.approx(wanted, rel=1e-12)
    places = np.array([-0.6744897501960817, 0.0, 0.6744897501960817])  # of four equally likely levels
    assert levels.rate == pytest.approx(2.0 * 2 / (places[-1] - places[0]))


@LINKS
def test_law_of_thresholds_is_where_the_density_is_highest(rng, logistic):
    levels = Levels(4, np.array([1.0, 2.0]), logistic)
    entries = entries_of(rng, levels, np.array([0.5, 2.5]))
    law = law_of_thresholds(levels, levels.start, entries)
    best = minimize(lambda t: -said(levels, np.sort(t), entries).value, levels.start, method="Nelder-Mead")
    np.testing.assert_allclose(law.theta, best.x, atol=2e-3)
    far = law_of_thresholds(levels, np.array([5.0, 30.0]), entries)
    np.testing.assert_allclose(far.theta, law.theta, rtol=1e-5)
    gaps = np.diff(law.theta, prepend=0.0)
    to_logs = (np.eye(2) - np.eye(2, k=-1)) / gaps[:, None]
    exact = to_logs @ np.linalg.inv(said(levels, law.theta, entries).curvature) @ to_logs.T
    np.testing.assert_allclose(law.cov, exact, rtol=1e-6)


def test_levels_without_entries_keep_their_place(rng):
    levels = Levels(6, np.array([0.5, 1.0, 1.5, 2.0]), False)
    entries = entries_of(rng, levels, levels.start)
    empty = entries._replace(y=np.where(entries.y == 2.0, 3.0, entries.y))
    gaps = np.diff(law_of_thresholds(levels, levels.start, empty).theta, prepend=0.0)
    assert (gaps > 1e-4).all()
    none = entries._replace(used=np.zeros_like(entries.used))
    np.testing.assert_allclose(
        np.diff(law_of_thresholds(levels, levels.start, none).theta, prepend=0.0),
        1.0 / levels.rate,
        rtol=1e-4,
    )


@pytest.mark.parametrize("walk_every", [1, 4, 10**9])
def test_draws_of_a_threshold_have_its_law(rng, monkeypatch, walk_every):
    """Of few entries the law is skewed; both kinds of proposals, and their mixture, leave it as it is."""
    monkeypatch.setattr(thresholds, "WALK_EVERY", walk_every)
    monkeypatch.setattr(thresholds, "WALK", 0.5)
    levels = Levels(3, np.array([1.0]), False)
    entries = entries_of(rng, levels, levels.start, n=12)
    grid = np.linspace(1e-3, 8.0, 3000)
    log_density = np.array([said(levels, np.array([t]), entries).value for t in grid])
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ grid
    variance = weight @ (grid - mean) ** 2
    now, draws = np.array([1.0]), []
    for _ in range(1500):
        now = draw_thresholds(levels, now, entries, rng)
        draws.append(now[0])
    batches = np.reshape(draws, (30, -1)).mean(axis=1)
    assert abs(np.mean(draws) - mean) < 5.0 * batches.std(ddof=1) / np.sqrt(30)
    assert np.var(draws) == pytest.approx(variance, rel=0.35)


def test_newtons_proposals_are_nearly_always_taken_where_entries_are_many(rng):
    levels = Levels(5, np.array([0.8, 1.5, 2.5]), False)
    entries, now, moved = entries_of(rng, levels, levels.start, n=3000), levels.start, 0
    for _ in range(60):
        new = draw_thresholds(levels, now, entries, rng)
        moved += not np.array_equal(new, now)
        now = new
    assert moved > 35  # walks in all thresholds, a quarter of the proposals, are rarely taken


def test_sums_do_not_depend_on_threads(rng):
    levels = Levels(5, np.array([0.8, 1.5, 2.5]), False)
    entries = entries_of(rng, levels, levels.start, n=20_000)
    two = ThreadExecutor(2)
    one, other = (said(levels, levels.start, entries._replace(executor=executor)) for executor in (ALONE, two))
    two.close()
    assert one.value == other.value
    np.testing.assert_array_equal(one.slope, other.slope)
    np.testing.assert_array_equal(one.curvature, other.curvature)
