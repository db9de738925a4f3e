"""Rows that drift: a plain dense Gaussian process says the same; axes, seasons, circles, rows at other times."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from helpers.coupled import process_covariance
from scipy.stats import multivariate_normal, multivariate_t

from tensorcep.core.packing import pack, unpack
from tensorcep.entries.labels import Labels
from tensorcep.priors import ou_process
from tensorcep.priors.base import Coupled, ModePrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import Mode
from tensorcep.priors.ou_process import Chained, axis, ends, table
from tensorcep.priors.series import Series, clock

TIMES = np.array([0.0, 1.0, 2.0, 4.0, 5.0, 9.5, 12.0, 13.0])
EVERY = each("how", [{}, {"period": 4.0}, {"cyclic": True, "period": 16.0}, {"kind": "rw"}])


def clock_of(times=TIMES, **how):
    return clock(Series(**how), Mode("t", Labels(times), len(times)))


def test_determinants_of_a_line_and_of_groups_are_those_of_dense_processes():
    for groups in (np.zeros(8, dtype=np.int64), np.array([0, 0, 0, 2, 2, 3, 3, 3])):
        of = clock_of()._replace(groups=groups)
        prepared = axis(of, np.ones(8, dtype=bool))
        apart = np.subtract.outer(TIMES, TIMES)
        for length, found in zip(prepared.lengths, prepared.log_det, strict=True):
            cov = np.exp(-np.abs(apart) / length) if length else np.eye(8)
            cov = np.where(np.equal.outer(groups, groups), cov, 0.0)
            np.testing.assert_allclose(found, -np.linalg.slogdet(cov)[1], atol=1e-9)


def some_links(of, rng, D=2):
    """A prior with a length and a scale for each column, and the covariances and means that it stands for."""
    which, scale = rng.integers(len(of.lengths), size=D), 0.5 + rng.random(D)
    at = np.arange(len(of.lengths))[:, None] == which
    mean = rng.standard_normal(D)
    level = np.concatenate([mean[None], rng.standard_normal((of.values.shape[1], D))])
    times = of.clock.times[of.place]
    means = np.repeat(mean[None], len(times), axis=0) + (level[1:][of.clock.phase_of(times)] if len(level) > 1 else 0.0)
    covs = [process_covariance(of.clock, times, of.lengths[i]) / s for i, s in zip(which, scale, strict=True)]
    laws = ou_process.Laws(mean[None], scale[None], of.lengths[which][None], level[None, 1:])
    return of.joint(at * scale, (at * scale)[:, None] * level, np.zeros(D)), covs, means, laws


def dense(covs, means, Lam, eta):
    """Means (n, D), covariances (n, D, n, D) and log normaliser of the rows given what their entries say."""
    n, D = means.shape
    K = np.zeros((n, D, n, D))
    for d, cov in enumerate(covs):
        K[:, d, :, d] = np.linalg.inv(cov)
    prior = K.reshape(n * D, n * D).copy()
    for t in range(n):
        K[t, :, t] += Lam[t]
    K = K.reshape(n * D, n * D)
    S, field = np.linalg.inv(K), (prior @ means.ravel()) + eta.ravel()
    mean = S @ field
    z = 0.5 * (field @ mean - means.ravel() @ prior @ means.ravel())
    z += 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(K)[1])
    return mean.reshape(n, D), S.reshape(n, D, n, D), z


@EVERY
def test_table_is_the_evidence_of_dense_processes(rng, how):
    c = clock_of(**how)
    of = axis(c, np.arange(8) != 2)
    u, rate, phase = rng.standard_normal((7, 2)), np.array([0.3, 0.7]), c.phase_of(c.times[of.place])
    known = table(of, of.sums(u), rate)
    for i, length in enumerate(of.lengths):
        for s, strength in enumerate(of.strengths):
            cov = process_covariance(c, c.times[of.place], length) + 1.0 / of.mean_rows
            cov += (phase[:, None] == phase) / strength if c.seasonal else 0.0
            exact = [multivariate_t.logpdf(u[:, d], np.zeros(7), 2.0 * rate[d] * cov, df=1.0) for d in (0, 1)]
            np.testing.assert_allclose(known.log_z[i, s], exact - np.log(known.log_z[..., 0].size), atol=1e-8)


@EVERY
@each("n", [7, 8])
def test_rows_have_the_moments_of_dense_processes(rng, how, n):
    of = axis(clock_of(**how), np.arange(8) < n)
    prior, covs, means, _ = some_links(of, rng)
    roots, eta = rng.standard_normal((n, 2, 3)), rng.standard_normal((n, 2))
    Lam = roots @ roots.swapaxes(1, 2)
    mean, cov, log_z = dense(covs, means, Lam, eta)
    found, of_prior = prior.marginals(pack(Lam), eta), of.chained(prior)
    np.testing.assert_allclose(of_prior.mean, means, atol=1e-8)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(unpack(found.cov, 2), [cov[t, :, t] for t in range(n)], atol=1e-8)
    left, right = ends(n, of.closed)
    cross = [np.diag(cov[a, :, b]) for a, b in zip(left, right, strict=True)]
    np.testing.assert_allclose(found.cross, cross, atol=1e-8)
    assert evidence(of_prior, found, Lam, eta) == pytest.approx(log_z, abs=1e-8)
    draws = np.array([prior.draw(pack(Lam), eta, (1, s, 0)) for s in range(4000)]).reshape(4000, -1)
    scale = np.sqrt(np.diag(cov.reshape(2 * n, 2 * n)))
    assert np.abs((draws.mean(axis=0) - mean.ravel()) / scale).max() < 6.0 / np.sqrt(4000)
    np.testing.assert_allclose(np.corrcoef(draws.T) * np.outer(scale, scale), cov.reshape(2 * n, -1), atol=0.1)


def evidence(prior: Chained, found, Lam, eta):
    """The lower bound of exp(eta u - u Lam u / 2), integrated over the rows, at the rows' moments."""
    variance = np.stack([np.diag(own) for own in unpack(found.cov, 2)])
    said = np.einsum("nd,nd->", eta, found.mean) - 0.5 * np.einsum("nde,nde->", Lam, unpack(found.cov, 2))
    said -= 0.5 * np.einsum("nde,nd,ne->", Lam, found.mean, found.mean)
    entropy = 0.5 * (found.mean.size * (1.0 + np.log(2.0 * np.pi)) - found.log_det)
    return said + prior.expected(found.mean, variance, found.cross) + entropy


def test_gaussian_noise_gives_the_evidence_of_the_process(rng):
    of = axis(clock_of(kind="ou"), np.ones(8, dtype=bool))
    prior, (cov,), means, _ = some_links(of, rng, 1)
    y, noise = rng.standard_normal(8), 0.3
    found = prior.marginals(np.full((8, 1), 1.0 / noise), y[:, None] / noise)
    shift = -0.5 * (y @ y / noise + 8 * np.log(2.0 * np.pi * noise))
    variance = found.cov
    said = (y[:, None] * found.mean - 0.5 * (found.mean**2 + variance)).sum() / noise + shift
    entropy = 0.5 * (8 * (1.0 + np.log(2.0 * np.pi)) - found.log_det)
    bound = said + of.chained(prior).expected(found.mean, variance, found.cross) + entropy
    exact = multivariate_normal.logpdf(y, means[:, 0], cov + noise * np.eye(8))
    assert bound == pytest.approx(exact, abs=1e-8)


def test_bound_of_known_rows_is_their_evidence(rng):
    c = clock_of(period=4.0)
    plain = PriorByMode(
        np.ones((1, 3)), np.zeros((1, 2)), np.full((1, 2), 0.3), np.full((1, 2), 0.7), np.ones((1, 2), dtype=bool)
    )
    prior, u = replace(plain, clocks=[c]).for_rows([np.ones(8, dtype=bool)]), rng.standard_normal((8, 2))
    of = prior.axis(0)
    q = prior.learn([u], [np.zeros((2, 2))], [Coupled(np.zeros((8, 2)), np.zeros((7, 2)))])
    known = table(of, of.sums(u - 0.3), of.shape * np.full(2, 0.49))
    total = q[0].chained.expected(u) + prior.bound(q)
    assert total == pytest.approx(float(known.log_sum.sum()), abs=1e-9)


@pytest.mark.parametrize("how", [{}, {"period": 4.0}, {"cyclic": True, "period": 16.0}])
def test_rows_at_other_times_have_their_conditional_law(rng, how):
    c, new = clock_of(kind="ou", **how), np.array([-1.0, 2.5, 3.25, 14.5])
    of = axis(c, np.ones(8, dtype=bool))
    _, covs, _, laws = some_links(of, rng)
    covs = [
        process_covariance(c, np.append(c.times, new), length) / s
        for length, s in zip(laws.length[0], laws.precision[0], strict=True)
    ]
    phase = c.phase_of(np.append(c.times, new))
    season = np.concatenate([laws.season[0], np.zeros((1, 2))])[phase] if c.seasonal else np.zeros((12, 2))
    level, rows = laws.mean[0] + season, rng.standard_normal((1, 8, 2))
    many = ou_process.Laws(*(np.repeat(part, 6000, axis=0) for part in laws))
    noise = rng.standard_normal((6000, 4, 2))
    found = ou_process.draw_at(c, c.times, np.repeat(rows, 6000, axis=0), many, new, noise, joint=True)
    for d, cov in enumerate(covs):
        share = np.linalg.solve(cov[:8, :8], cov[:8, 8:]).T
        mean, rest = level[8:, d] + share @ (rows[0, :, d] - level[:8, d]), cov[8:, 8:] - share @ cov[:8, 8:]
        known = phase[8:] >= 0  # other phases have a season of their own
        np.testing.assert_allclose(found[:, :, d].mean(axis=0), mean, atol=0.1)
        np.testing.assert_allclose(np.cov(found[:, known, d].T), rest[np.ix_(known, known)], atol=0.1)


def test_moments_at_other_times_are_exact_on_a_line(rng):
    c, new = clock_of(kind="ou"), np.array([-1.0, 2.5, 15.0])
    of = axis(c, np.ones(8, dtype=bool))
    prior, _, means, laws = some_links(of, rng)
    roots, eta = rng.standard_normal((8, 2, 3)), rng.standard_normal((8, 2))
    Lam = roots @ roots.swapaxes(1, 2)
    found = prior.marginals(pack(Lam), eta)
    mean, cov = ou_process.moments_at(c, c.times, found.mean, found.cov, laws, new)
    every = np.append(c.times, new)
    covs = [
        process_covariance(c, every, length) / s for length, s in zip(laws.length[0], laws.precision[0], strict=True)
    ]
    Lam, eta = (np.concatenate([part, np.zeros((3, *part.shape[1:]))]) for part in (Lam, eta))
    exact, spread, _ = dense(covs, np.repeat(means[:1], 11, axis=0), Lam, eta)
    np.testing.assert_allclose(mean, exact[8:], atol=1e-8)
    np.testing.assert_allclose(unpack(cov, 2), [spread[8 + i, :, 8 + i] for i in range(3)], atol=1e-8)


def test_draws_of_parameters_have_their_table(rng):
    """The share of each length among draws is that of the table, and the level has its exact mean."""
    c = clock_of(period=4.0)
    full = np.ones((1, 1), dtype=bool)
    plain = PriorByMode(np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), 0.3), np.full((1, 1), 0.7), full)
    prior, u = replace(plain, clocks=[c]).for_rows([np.ones(8, dtype=bool)]), rng.standard_normal((8, 1)).cumsum(axis=0)
    of, now = prior.axis(0), ModePrior(np.zeros((1, 1)), np.ones((1, 1, 1)))
    known = table(of, of.sums(u - 0.3), of.shape * np.array([0.49]))
    draws = [prior.draw(now, [u], rng) for _ in range(500)]
    lengths = np.array([modes.drifts[0].length[0] for modes in draws])
    share = known.shares.sum(axis=1)[:, 0]
    found = np.array([(lengths == length).mean() for length in of.lengths])
    assert (np.abs(found - share) < 5.0 * np.sqrt(share * (1.0 - share) / 500) + 1e-3).all()
    precision = np.array([modes.precision[0, 0, 0] for modes in draws])
    exact = float((known.shares * known.a / known.b).sum())
    assert np.abs(precision.mean() - exact) < 6.0 * precision.std() / np.sqrt(500)


READ = [
    (pd.date_range("2024-01-01", periods=4, freq="D"), [0, 1, 2, 3], "2D"),
    (pd.PeriodIndex(["2024-01", "2024-02", "2024-05"], freq="M"), [0, 1, 4], 3),
    (pd.to_timedelta([0, 30, 90], unit="min"), [0, 1, 3], "1h"),
    (np.array([10.0, 10.5, 12.0]), [20, 21, 24], 1.0),
    ([dt.date() for dt in pd.date_range("2024-01-01", periods=3)], [0, 1, 2], pd.Timedelta("2D")),
    (["2024-01-01", "2024-01-02", "2024-01-05"], [0, 1, 4], "2D"),
    (["2024-01-01 06:00", "2024-01-01T12:00", "2024-01-02"], [0, 1, 3], "6h"),
    (["7", "8.5", "10"], [0, 1, 2], 3.0),
    (["9999-12-30", "9999-12-31", "2024-01-01"], [2913172, 2913173, 0], "2D"),
    ([dt.date(9999, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 1, 2)], [2913173, 0, 1], "2D"),
]


@each(("labels", "times", "period"), READ)
def test_labels_are_read_as_times(labels, times, period):
    found = clock(Series(period=period), Mode("day", Labels(labels), len(times)))
    np.testing.assert_allclose(found.times - found.times[0], np.array(times) - times[0])
    again = found.times_of(Labels(labels).index)
    np.testing.assert_allclose(again, found.times)
    assert found.seasonal
    assert np.isnan(found.times_of(pd.Index(["x"]))).all()


def test_times_of_two_zones_are_on_one_axis():
    labels = Labels([pd.Timestamp("2024-01-01", tz="UTC"), pd.Timestamp("2024-01-01", tz="Asia/Tokyo")])
    assert np.diff(clock(Series(), Mode("day", labels, 2)).times).tolist() == [-1.0]


def test_order_may_be_given_and_rows_are_counted():
    labels = Labels(["low", "high", "mid"])
    found = clock(Series(order=["low", "mid", "high", "top"]), Mode("level", labels, 3))
    assert found.times.tolist() == [0.0, 2.0, 1.0]
    assert found.times_of(pd.Index(["top", "none"]))[0] == 3.0
    assert clock(Series(), Mode(0, None, 4)).times.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert repr(Series(kind="ou", cyclic=True)) == "Series(kind='ou', cyclic=True)"


DAYS = Labels(pd.date_range("2024-01-01", periods=4, freq="D"))
REFUSED = [
    (Series(), Labels(["a", "b"]), "needs labels that are numbers, Timestamps, .* or its order=; got 'a'"),
    (Series(kind="ar"), DAYS, "kind of the Series of mode 'day' must be one of"),
    (Series(cyclic=1), DAYS, "must be True or False; got 1"),
    (Series(period=7), DAYS, "must be a Timedelta, or text such as '7D'; got 7"),
    (Series(period="week"), DAYS, "must be a Timedelta"),
    (Series(period="7D"), Labels([1, 2, 3]), "must be a number; got '7D'"),
    (Series(period=-1), Labels([1, 2, 3]), "must be above 0; got -1"),
    (Series(period=9), Labels([1, 2, 3]), "has no two rows of the same phase"),
    (Series(cyclic=True, period=2), Labels([1, 2, 3]), "must be more than the range of its labels, 2 of .*; got 2"),
    (Series(cyclic=True, period=1e300), Labels([1, 2, 3]), r"must be at most 1e\+12 steps; got 1e\+300"),
    (Series(order=["a"]), Labels(["a", "b"]), "must list all labels of the mode; 'b' is missing"),
    (Series(order=["a", "a"]), Labels(["a", "b"]), "each once; got labels more than once"),
    (Series(order=[1]), None, "no labels in that mode"),
    (Series(), Labels([1]), "at least 2 rows"),
    (Series(order=[DAYS.index[0]]), DAYS, "must hold text or numbers"),
    (Series(), Labels(2**60 + np.arange(7)), "got 7 labels at 1 times, as float64 holds them; subtract a start"),
    (Series(), Labels(DAYS.index[0] + pd.to_timedelta(np.arange(7), unit="ns")), "got 7 labels at . times, as float64"),
    (Series(), Labels(["2024-01-01", "2024-01-02T00:00Z"]), "got both, '2024-01-02T00:00Z' and '2024-01-01'"),
    (Series(), Labels(["2024-01-01 06:00+01:00", "2024-01-01 07:00"]), "with a time zone or times without one"),
]


@each(("series", "labels", "sentence"), REFUSED)
def test_what_is_no_series_is_refused(series, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        clock(series, Mode("day", labels, 2 if labels is None else len(labels)))


def test_too_many_phases_and_steps_are_refused(monkeypatch):
    monkeypatch.setattr("tensorcep.priors.series.MOST_PHASES", 3)
    with pytest.raises(ValueError, match="has 4 phases in its period, at most 3 can be learned"):
        clock_of(np.arange(8.0), period=4.0)
    monkeypatch.setattr("tensorcep.priors.series.MOST_PAIRS", 3)
    with pytest.raises(ValueError, match="too many steps of different lengths"):
        clock_of(np.array([0.0, 1.0, 2.0, 5.0]), period=2.0)
