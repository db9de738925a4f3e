"""Series in streams: dense Gaussian processes say the same of rows that are known and of later ones; new rows."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.coupled import process_covariance
from helpers.problems import settings_of

from tensorcep.core.packing import pack, unpack
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.methods import METHODS
from tensorcep.cp.posterior import GammaNoise
from tensorcep.cp.stream.adf import absorb, batch_of, learn, prior_by_other_rows
from tensorcep.cp.stream.modes import ModeRows, StreamState, forecast, rows_together, with_messages, with_rows
from tensorcep.entries.labels import Labels
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.coupled import Chain
from tensorcep.priors.features import Mode
from tensorcep.priors.series import Series, clock

CASES = {
    "line": {},
    "walk": {"kind": "rw"},
    "season": {"period": 3.0},
    "circle": {"cyclic": True, "period": 24.0},
}
TIMES = np.array([0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 9.0])  # of the rows of the first batch
LATER = np.array([10.0, 11.0, 7.5, 13.0, 16.0, 15.0])  # one of them lies between others
TAU, KNOWN = 3.0, 1e13


def chain_for(of, rng, free):
    """Some law of a process in the free columns."""
    D = int(free.sum())
    season = rng.standard_normal((len(of.phases) if of.seasonal else 0, D))
    length = np.array([1000.0 if of.kind == "rw" else 4.0, 0.0][:D])
    return Chain(free, np.zeros(D), np.ones(D), 1.0, rng.standard_normal(D), 0.5 + rng.random(D), length, season)


def dense(known, of, Lam, eta):
    """Means (n, D) and covariances (n, D, D) of all rows, of which entries say Lam (n, D, D) and eta (n, D)."""
    n, D = eta.shape
    level = known.mean + (known.season[of.phase_of(of.times)] if of.seasonal else 0.0) + np.zeros((n, 1))
    joint, field = np.zeros((n, D, n, D)), eta.copy()
    for d in range(D):
        K = np.linalg.inv(process_covariance(of, of.times, known.length[d]) / known.precision[d])
        joint[:, d, :, d] = K
        field[:, d] += K @ level[:, d]
    for t in range(n):
        joint[t, :, t, :] += Lam[t]
    cov = np.linalg.inv(joint.reshape(n * D, n * D))
    mean = (cov @ field.ravel()).reshape(n, D)
    return mean, cov.reshape(n, D, n, D)[np.arange(n), :, np.arange(n)]


class Toy:
    """A stream of two columns and a clamped one: the first mode is a series, of the others all is known."""

    def __init__(self, how, rng):
        self.rng, self.free = rng, np.array([True, False, True])
        self.z = rng.standard_normal((4, 3))
        self.clock = clock(Series(**how), Mode("t", Labels(TIMES), len(TIMES)))
        chain = chain_for(self.clock, rng, self.free)
        n = len(TIMES)
        Lam, eta = np.zeros((4, 6)), KNOWN * self.z
        Lam[:, [0, 2, 5]] = KNOWN
        self.sites = np.zeros((n, 2, 2)), np.zeros((n, 2))
        first = rows_together(chain, self.clock, Natural(np.zeros((n, 6)), np.zeros((n, 3))))
        modes = (
            ModeRows(*first, *(part.copy() for part in first), np.zeros(n, dtype=bool), np.zeros(n)),
            ModeRows(Lam, eta, Lam.copy(), eta.copy(), np.ones(4, dtype=bool), np.zeros(4)),
        )
        noise = GammaNoise(1e14, 1e14 / TAU)
        none, of = (None,), (self.clock, None)
        self.state = StreamState(3, (n, 4), modes, noise, noise, 0.0, chains=(chain, *none), clocks=of)

    def learn(self, rows, n=12, again=True):
        """Entries of these rows, learned as one batch; new rows are those beyond the ones so far, at LATER times."""
        old = self.state.sizes
        self.state = with_rows(
            self.state, (max(*rows, -1) + 1, 4), lambda k, a, b: (np.zeros((b - a, 6)), np.zeros((b - a, 3)))
        )
        m = self.state.sizes[0] - old[0]
        labels = LATER[old[0] - len(TIMES) :][:m].tolist()
        self.state = forecast(self.state, old, None, [labels, None], ["t", "z"])
        self.sites = tuple(np.concatenate([part, np.zeros((m, *part.shape[1:]))]) for part in self.sites)
        coords = np.stack([self.rng.choice(rows, n), self.rng.integers(0, 4, n)], axis=1)
        y = self.rng.standard_normal(n)
        for (t, j), value in zip(coords, y, strict=True):
            z = self.z[j][self.free]
            self.sites[0][t] += TAU * np.outer(z, z)
            self.sites[1][t] += TAU * z * (value - self.z[j][~self.free].sum())
        how = {"keep": 1.0, "time": self.state.time + 1.0, "seed": 0}
        batch = batch_of(self.state, coords, y, get_likelihood("gaussian"), **how)
        for _ in range(2):
            run = {"callbacks": (), "max_iter": 20, "tol": 1e-14, "n_threads": 1, "verbose": False}
            posterior = learn(METHODS["cep"], batch.problem, settings_of("cep"), **run).posterior
            more = prior_by_other_rows(self.state, batch, posterior) if again else None
            batch, again = more or batch, False
        self.state = absorb(self.state, batch, posterior._replace(noise=self.state.noise))

    @property
    def moments(self):
        """Means and covariances of the rows of the series."""
        n, mode = self.state.sizes[0], self.state.modes[0]
        cov = np.linalg.inv(unpack(mode.Lam[:n], 3))
        mean = np.einsum("nij,nj->ni", cov, mode.eta[:n])
        return mean[:, self.free], cov[:, self.free][:, :, self.free]


@each("name", CASES)
def test_rows_after_batches_are_those_of_a_dense_process(monkeypatch, name, rng):
    """Of known other modes entries are Gaussian in the rows: however they come, all at once or in any order."""
    monkeypatch.setattr(Chain, "after", lambda known, *_: known)
    toy = Toy(CASES[name], rng)
    for rows in ([0, 1, 2, 3, 4], [6, 5], [7], [8, 9, 2], [11, 10, 12]):
        toy.learn(rows)
        known, of = toy.state.chains[0], toy.state.clocks[0]
        mean, cov = dense(known, of, *toy.sites)
        np.testing.assert_allclose(toy.moments[0], mean, atol=1e-8)
        np.testing.assert_allclose(toy.moments[1], cov, atol=1e-8)
    assert toy.state.sizes[0] == len(of.times) == 13
    assert of.times[-1] == 15.0


def test_rows_without_entries_are_interpolated_and_hold_no_messages(rng):
    toy = Toy({}, rng)
    toy.learn([0, 1, 3, 6])
    toy.learn([8])
    sites = toy.state.modes[0].sites(9)
    unseen = ~toy.state.modes[0].seen[:9]
    assert unseen.tolist() == [False, False, True, False, True, True, False, True, False]
    assert not sites.Lam[unseen].any()
    assert not sites.eta[unseen].any()


def test_law_is_learned_on_as_a_fit_learns_it(rng):
    """From the moments of all rows with entries; it does not move where these said the same before."""
    toy = Toy({}, rng)
    toy.learn([0, 1, 2, 3, 4, 5, 6], n=200)
    known, of, n = toy.state.chains[0], toy.state.clocks[0], len(TIMES)
    sites, seen = toy.state.modes[0].sites(n), np.ones(n, dtype=bool)
    for _ in range(200):
        before, known = known, known.after(of, seen, *sites)
    np.testing.assert_allclose(known.mean, before.mean, atol=1e-6)
    np.testing.assert_allclose(known.precision, before.precision, rtol=1e-6)
    np.testing.assert_array_equal(known.length, before.length)


@each(
    ("how", "times", "sentence"),
    [
        ({}, [np.nan], "needs labels that are times as those before them; got 'a'"),
        ({}, [10.0, 2.0], "needs rows at times of their own; got 'b'"),
        ({}, [10.0, 10.0], "needs rows at times of their own; got 'b'"),
        ({"cyclic": True, "period": 12.0}, [12.5], "must lie within one period, of 12"),
    ],
)
def test_new_rows_that_have_no_place_are_refused(how, times, sentence):
    of = clock(Series(**how), Mode("t", Labels(TIMES), len(TIMES)))
    with pytest.raises(ValueError, match=sentence):
        of.with_times(np.array(times), ["a", "b"], "Series of mode 't'")


def test_new_phases_of_a_season_are_added():
    of = clock(Series(period=5.0), Mode("t", Labels(TIMES), len(TIMES)))
    more = of.with_times(np.array([13.0, 18.0]), [13, 18], "Series of mode 't'")
    assert set(more.phases) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert more.phase_of(np.array([3.0, 18.0])).tolist() == [4, 4]


@each(("size", "share"), [(0.1, 1.0), (100.0, 0.0)])
def test_of_messages_that_no_gaussian_has_a_share_counts(size, share, rng):
    toy = Toy({}, rng)
    toy.learn([0, 1, 2, 3])
    mode, known, of, rows = toy.state.modes[0], toy.state.chains[0], toy.state.clocks[0], np.arange(4)
    sites = mode.sites(7)
    precision = unpack(mode.Lam[:4], 3)[:, toy.free][:, :, toy.free]
    Lam = np.zeros((4, 3, 3))
    Lam[:, 0, 0] = -size * precision[:, 0, 0] / np.linalg.cond(precision)
    more = Natural(pack(Lam), np.ones((4, 3)) * toy.free)
    told, whole = with_messages(known, of, sites, rows, more)
    assert (np.linalg.eigvalsh(unpack(whole.Lam, 3)) > 0.0).all()
    found = (told.Lam[rows] - sites.Lam[rows])[:, 0] / more.Lam[:, 0]
    np.testing.assert_allclose(found, share, atol=1e-6)
