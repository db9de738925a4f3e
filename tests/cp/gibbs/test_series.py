"""Gibbs sampling with a series: Geweke's joint test of whole sweeps, and twins with a planted bug."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.coupled import coupled_z
from helpers.samplers import CP, STRUCTURED

from tensorcep.entries.labels import Labels
from tensorcep.priors import axis
from tensorcep.priors.drifting import SeriesPrior
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


def joint_z(free, c, n, used=None):
    of = axis.axis(c, np.ones(3, dtype=bool), 10.0)

    def column(scale, rng):
        u = np.linalg.cholesky(covariance(c, rng.choice(of.grid.lengths))) @ rng.standard_normal(3) / np.sqrt(scale)
        if c.seasonal:
            season = rng.standard_normal(len(c.phases)) / np.sqrt(rng.choice(of.strengths) * scale)
            u += season[c.phase_of(c.times)]
        return u

    return coupled_z(free, c if used is None else used, of, column, n)


@pytest.fixture(autouse=True)
def moderate_seasons(monkeypatch):
    """Seasons with which latent values have moderate tails: chains then leave the tails soon; and few lengths."""
    monkeypatch.setattr(axis, "LENGTHS", 5)
    monkeypatch.setattr(axis, "STRENGTHS", np.array([1.0, 10.0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("free", "name"), [(CP, "line"), (STRUCTURED, "season"), (CP, "season"), (CP, "circle"), (STRUCTURED, "groups")]
)
def test_sweeps_with_a_series_pass_the_joint_test(free, name):
    assert np.abs(joint_z(free, CLOCKS[name], 600)).max() < 4.5


def test_sweeps_that_forget_the_neighbours_fail_the_joint_test(monkeypatch):
    right = SeriesPrior.links

    def wrong(self, k, modes):
        found = right(self, k, modes)
        return None if found is None else found._replace(between=0.0 * found.between)

    monkeypatch.setattr(SeriesPrior, "links", wrong)
    assert np.abs(joint_z(CP, CLOCKS["line"], 150)).max() > 6.0


def test_sweeps_that_take_groups_for_one_series_fail_the_joint_test():
    assert np.abs(joint_z(STRUCTURED, CLOCKS["groups"], 150, CLOCKS["line"])).max() > 6.0
