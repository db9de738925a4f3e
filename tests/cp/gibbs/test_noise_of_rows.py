"""Gibbs sampling with a noise for every row of a mode: ranks of what was simulated, and a bug that they must show."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.ranks import FEW, LIMIT, Drawn, fixed_prior, fixed_rows, latent, of_cells, rank_z
from helpers.samplers import COORDS, THETA_PRIOR

from tensorcep.cp.model.problem import Uneven
from tensorcep.likelihoods.parameters import scale_mixture
from tensorcep.likelihoods.parameters.scale_mixture import ALPHAS

# Which row of the mode whose noise differs an entry is of.
ROW = COORDS[:, 0]


def simulate(rng):
    """Factors of mean one about a precision, of an unknown shape."""
    alpha, rows = rng.choice(ALPHAS), fixed_rows(rng)
    theta = rng.gamma(THETA_PRIOR[0]) / THETA_PRIOR[1] * rng.gamma(alpha, size=3) / alpha
    y = latent(rows) + rng.standard_normal(len(COORDS)) / np.sqrt(theta[ROW])
    return Drawn(rows, theta, y, fixed_prior(), Uneven(0))


def statistics(rows, theta, y):
    """The precisions of rows, how far they are apart, and the density of the data."""
    residual = y - latent(rows)
    height = np.log(theta[ROW]).sum() - (theta[ROW] * residual**2).sum()
    return [*of_cells(rows, theta, y), *theta, np.log(theta).var(), height]


@pytest.mark.slow
def test_ranks_of_precisions_of_rows_are_uniform():
    z = rank_z(simulate, statistics)
    assert np.abs(z).max() < LIMIT, z


@pytest.mark.slow
def test_ranks_of_precisions_to_which_entries_are_added_are_not(monkeypatch):
    right = scale_mixture.draw_factors_of_groups

    def wrong(draw, groups, *rest):  # two entries too many in every row
        return right(draw, groups._replace(n=groups.n + 2.0), *rest)

    monkeypatch.setattr(scale_mixture, "draw_factors_of_groups", wrong)
    z = rank_z(simulate, statistics, n=FEW)
    assert np.abs(z).max() > LIMIT, z
