"""Gibbs sampling with a series: Geweke's joint test, ranks of what was simulated, and twins with a planted bug."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.coupled import coupled_z, direct_rows
from helpers.ranks import FEW, LIMIT, Drawn, drawn_noise, of_cells, rank_z
from helpers.samplers import CP, MEAN, STRUCTURED, learned_prior, new_data

from tensorcep.entries.labels import Labels
from tensorcep.priors import ou_process
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import Mode
from tensorcep.priors.series import Series, clock

# Unequal steps; with a season the first row has a phase of its own.
TIMES = Labels(np.array([0.0, 1.0, 3.0]))
CLOCKS = {
    name: clock(Series(**how), Mode("t", TIMES, 3))
    for name, how in {"line": {}, "season": {"period": 2.0}, "circle": {"cyclic": True, "period": 4.0}}.items()
}
# The first two rows follow each other, the third is alone.
CLOCKS["groups"] = CLOCKS["line"]._replace(groups=np.array([0, 0, 1]))


def covariance(c, length):
    times = c.times
    apart = np.abs(times[:, None] - times)
    if len(c.groups):
        apart = np.where(c.groups[:, None] == c.groups, apart, np.inf)
    if length == 0.0:
        return np.eye(3)
    if c.circle:
        return np.cosh((0.5 * c.circle - apart) / length) / np.cosh(0.5 * c.circle / length)
    return np.exp(-apart / length)


def column_of(c, of):
    """Draws a column of the first mode without its level, and its length and season before."""

    def column(scale, rng):
        u = np.linalg.cholesky(covariance(c, rng.choice(of.lengths))) @ rng.standard_normal(3) / np.sqrt(scale)
        if c.seasonal:
            season = rng.standard_normal(len(c.phases)) / np.sqrt(rng.choice(of.strengths) * scale)
            u += season[c.phase_of(c.times)]
        return u

    return column


def joint_z(free, c, n, used=None):
    of = ou_process.axis(c, np.ones(3, dtype=bool), 10.0)
    return coupled_z(free, c if used is None else used, of, column_of(c, of), n)


@pytest.fixture(autouse=True)
def moderate_seasons(monkeypatch):
    """Seasons with which latent values have moderate tails: chains then leave the tails soon; and few lengths."""
    monkeypatch.setattr(ou_process, "LENGTHS", 5)
    monkeypatch.setattr(ou_process, "STRENGTHS", np.array([1.0, 10.0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("free", "name"), [(CP, "line"), (STRUCTURED, "season"), (CP, "season"), (CP, "circle"), (STRUCTURED, "groups")]
)
def test_sweeps_with_a_series_pass_the_joint_test(free, name):
    assert np.abs(joint_z(free, CLOCKS[name], 600)).max() < 4.5


def test_sweeps_that_forget_the_neighbours_fail_the_joint_test(monkeypatch):
    right = PriorByMode.links

    def wrong(self, k, modes):
        found = right(self, k, modes)
        return None if found is None else found._replace(between=0.0 * found.between)

    monkeypatch.setattr(PriorByMode, "links", wrong)
    assert np.abs(joint_z(CP, CLOCKS["line"], 150)).max() > 6.0


def test_sweeps_that_take_groups_for_one_series_fail_the_joint_test():
    assert np.abs(joint_z(STRUCTURED, CLOCKS["groups"], 150, CLOCKS["line"])).max() > 6.0


def ranks_z(name, **how):
    c, of = CLOCKS[name], ou_process.axis(CLOCKS[name], np.ones(3, dtype=bool), 10.0)
    prior = replace(learned_prior(CP), clocks=[c, None, None])

    def simulate(rng):
        rows, theta = direct_rows(CP, of, column_of(c, of), rng), drawn_noise(rng)
        return Drawn(rows, theta, new_data("gaussian", rows, theta[0], rng), prior)

    def statistics(rows, theta, y):  # neighbours last, whatever the components' signs
        u = rows[:3] - MEAN
        return [*of_cells(rows, theta, y), theta[0], ((u[1] - u[0]) ** 2).sum(), (u[1] * u[2]).sum()]

    return rank_z(simulate, statistics, **how)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["line", "season"])
def test_ranks_of_rows_of_a_series_are_uniform(name):
    assert np.abs(ranks_z(name)).max() < LIMIT


@pytest.mark.slow
def test_ranks_of_rows_that_forget_their_neighbours_are_not(monkeypatch):
    right = PriorByMode.links

    def wrong(self, k, modes):
        found = right(self, k, modes)
        return None if found is None else found._replace(between=0.0 * found.between)

    monkeypatch.setattr(PriorByMode, "links", wrong)
    assert np.abs(ranks_z("line", n=FEW)).max() > LIMIT
