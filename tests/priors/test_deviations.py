"""Deviations of single rows along an axis: dense Gaussian processes, one for each row, say the same."""

from __future__ import annotations

import numpy as np
import pytest

from tensorcep.entries.labels import Labels
from tensorcep.priors import ou_process
from tensorcep.priors.deviations import Deviations, drawn, joined_deviations, moments
from tensorcep.priors.features import Mode
from tensorcep.priors.ou_process import axis, table
from tensorcep.priors.series import Series, clock

TIMES = np.array([0.0, 1.0, 2.5, 4.0, 9.0])
ROW, TIME = np.array([0, 0, 0, 0, 2, 2, 3]), np.array([0.0, 1.0, 2.5, 9.0, 1.0, 4.0, 2.5])
NEW_ROW, NEW_TIME = (
    np.array([0, 0, 0, 2, 2, 3, 1, 2, 0, 5]),
    np.array([1.0, 4.0, 11.0, 2.5, 0.0, 9.0, 1.0, 3.0, 5.0, 4.0]),
)
LAW = (1.7, 3.0)


def clock_of_pairs(kind="ou", row=ROW, time=TIME):
    plain = clock(Series(kind=kind), Mode("t", Labels(TIMES), len(TIMES)))
    return plain._replace(times=time, groups=row)


def kernel(row, time, precision=LAW[0], length=LAW[1]):
    same = row[:, None] == row
    return same * np.exp(-np.abs(time[:, None] - time) / length) / precision


def of_pairs(mean, variance=None, n=1):
    laws = np.full(n, LAW[0]), np.full(n, LAW[1])
    return Deviations((0, 1), (0, 6), 6, ROW, TIME, TIMES, mean, variance, *laws)


def told(rng):
    """What entries say of the pairs, and the exact moments of known and new pairs given that."""
    Lam, eta = 0.3 + rng.random(7), rng.standard_normal(7)
    K = kernel(np.append(ROW, NEW_ROW), np.append(TIME, NEW_TIME))
    gain = np.linalg.solve(K[:7, :7] + np.diag(1.0 / Lam), K[:7]).T
    return Lam, eta, gain @ (eta / Lam), K - gain @ K[:7]


def links_of_law(of):
    at = np.where(np.isclose(of.lengths, LAW[1]), LAW[0], 0.0)[:, None]
    return of.joint(at, 0.0 * at[:, None], np.zeros(1))


def test_pairs_have_the_moments_of_dense_processes(rng, monkeypatch):
    monkeypatch.setattr("tensorcep.priors.ou_process.lengths_of", lambda *_: np.array([LAW[1], 7.0]))
    Lam, eta, mean, cov = told(rng)
    of = axis(clock_of_pairs(), np.ones(7, dtype=bool))
    found = links_of_law(of).marginals(Lam[:, None].copy(), eta[:, None])
    np.testing.assert_allclose(found.mean[:, 0], mean[:7], atol=1e-8)
    np.testing.assert_allclose(found.cov[:, 0], np.diag(cov)[:7], atol=1e-8)
    at = of_pairs(found.mean.T, found.cov.T)
    m, v = moments(at, NEW_ROW, NEW_TIME)
    np.testing.assert_allclose(m[0], mean[7:], atol=1e-8)
    np.testing.assert_allclose(v[0], np.diag(cov)[7:], atol=1e-8)
    assert moments(at, np.array([0, 99]), np.array([np.nan, 1.0]))[1] == pytest.approx(1.0 / LAW[0])
    assert np.isfinite(drawn(at, np.zeros(2, dtype=int), np.array([99, 99]), np.array([np.nan, 1.0]), rng)).all()
    draws = drawn(at, np.zeros(8000, dtype=int), NEW_ROW, NEW_TIME, rng)
    unlike = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    np.testing.assert_allclose(draws.mean(axis=0), mean[7:], atol=6.0 / np.sqrt(8000))
    np.testing.assert_allclose(np.cov(draws.T)[np.ix_(unlike, unlike)], cov[7:, 7:][np.ix_(unlike, unlike)], atol=0.06)


def test_pairs_beside_draws_have_their_conditional_law(rng):
    known = rng.standard_normal((3, 7))
    K = kernel(np.append(ROW, NEW_ROW), np.append(TIME, NEW_TIME))
    gain = np.linalg.solve(K[:7, :7], K[:7, 7:]).T
    rest = K[7:, 7:] - gain @ K[:7, 7:]
    mean, variance = moments(of_pairs(known, n=3), NEW_ROW, NEW_TIME)
    np.testing.assert_allclose(mean, known @ gain.T, atol=1e-8)
    np.testing.assert_allclose(variance, np.tile(np.diag(rest), (3, 1)), atol=1e-8)
    draws = drawn(of_pairs(known, n=3), np.full(8000, 2), NEW_ROW, NEW_TIME, rng)
    np.testing.assert_allclose(draws.mean(axis=0), gain @ known[2], atol=6.0 / np.sqrt(8000))
    np.testing.assert_allclose(np.cov(draws.T), rest, atol=0.06)
    again = drawn(of_pairs(known, n=3), np.full(4, 1), np.append(NEW_ROW, 0), np.append(NEW_TIME, 4.0), rng)
    np.testing.assert_array_equal(again[:, -1], again[:, 1])


def test_gaps_among_groups_are_filled_group_by_group(rng):
    c = clock_of_pairs(row=np.array([0, 0, 0, 1, 1, 2, 2]), time=np.array([0.0, 1.0, 2.5, 1.0, 4.0, 0.0, 9.0]))
    seen = np.array([1, 0, 1, 1, 0, 0, 0], dtype=bool)
    K = kernel(c.groups, c.times)
    gain = np.linalg.solve(K[np.ix_(seen, seen)], K[np.ix_(seen, ~seen)]).T
    rest = K[np.ix_(~seen, ~seen)] - gain @ K[np.ix_(seen, ~seen)]
    laws = ou_process.Laws(np.zeros((1, 1)), *(np.full((1, 1), part) for part in LAW), np.zeros((1, 0, 1)))
    rows = rng.standard_normal((1, 3, 1))
    mean, cov = ou_process.moments_at(c, c.at(seen), rows[0], np.zeros((3, 1)) + 1e-12, laws, c.at(~seen))
    np.testing.assert_allclose(mean[:, 0], gain @ rows[0, :, 0], atol=1e-8)
    np.testing.assert_allclose(cov[:, 0], np.diag(rest), atol=1e-8)
    many = ou_process.Laws(*(np.repeat(part, 8000, axis=0) for part in laws))
    noise = rng.standard_normal((8000, 4, 1))
    found = ou_process.draw_at(c, c.at(seen), np.repeat(rows, 8000, axis=0), many, c.at(~seen), noise, joint=True)[
        ..., 0
    ]
    np.testing.assert_allclose(found.mean(axis=0), gain @ rows[0, :, 0], atol=6.0 / np.sqrt(8000))
    np.testing.assert_allclose(np.cov(found.T), rest, atol=0.06)


def test_table_of_pairs_is_the_evidence_of_dense_processes_about_zero(rng):
    of = axis(clock_of_pairs("auto"), np.ones(7, dtype=bool))
    u, rate = rng.standard_normal((7, 1)), np.array([0.4])
    known = table(of, of.sums(u), rate)
    for i, length in enumerate(of.lengths):
        K = np.eye(7) if length == 0.0 else kernel(ROW, TIME, 1.0, length)
        square = u[:, 0] @ np.linalg.solve(K, u[:, 0])
        assert known.b[i, 0, 0] == pytest.approx(rate[0] + 0.5 * square, rel=1e-7)
        exact = -0.5 * np.linalg.slogdet(K)[1] - known.a * np.log(known.b[i, 0, 0])
        first = -known.a * np.log(known.b[0, 0, 0])
        assert known.log_z[i, 0, 0] - known.log_z[0, 0, 0] == pytest.approx(exact - first, abs=1e-7)


def test_axis_of_rows_without_neighbours_is_none():
    c = clock_of_pairs(row=np.array([0, 1, 2]), time=np.array([0.0, 1.0, 2.0]))
    assert axis(c, np.ones(3, dtype=bool)) is None


def test_deviations_of_several_beliefs_join():
    one = of_pairs(np.zeros((1, 7)), np.ones((1, 7)))
    assert joined_deviations([None, None]) is None
    both = joined_deviations([one, one._replace(mean=one.mean + 1.0)])
    assert both.mean[:, 0].tolist() == [0.0, 1.0]
    assert both.variance.shape == (2, 7)
    assert both.length.shape == (2,)
