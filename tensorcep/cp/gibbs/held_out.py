"""The Gaussian noise from entries that are not fitted, for models with about as many parameters as entries.

There the conditional of the noise precision given the rows is no guide: the rows can follow every entry, the residuals
shrink, the precision grows, and a chain ends where it interpolates. In the burn-in all chains therefore leave some
entries out, and the noise is what their residuals say. With f a draw of such an entry's latent value and m its mean
over the chain, E[(y - f)^2] = noise + 2 var and E[(y - m)^2] = noise + var, hence
noise = 2 E[(y - m)^2] - E[(y - f)^2]. After the burn-in these entries take part, and the noise keeps its law.

Chains end in different modes, and their draws together spread more than those of one chain. Predictions, which are
means over all of them, therefore have a smaller noise: the squared error of the mean over all chains less that spread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.cp.gibbs.streams import Stream, generator
from tensorcep.cp.model import latent_of_draws
from tensorcep.cp.problem import Problem
from tensorcep.likelihoods.parameter import Gamma

# A tenth of the entries, and at least 50 of them: the noise is then known to a fifth of its value.
HELD_FRACTION = 0.1
FEWEST_HELD = 50
# Running means, of the latent values and of the noise, are over about this many sweeps.
WINDOW = 20
# The two expectations are estimates; their difference counts as at least this fraction of the second.
LEAST_SHARE = 0.25


class HeldOut(NamedTuple):
    """Entries that are left out.

    Attributes
    ----------
    place : (n,) int64
        Their places in the lanes of `Entries`, counted through all blocks.
    rows : (n, K) int64
        Their packed rows.
    mean : (C, n) float64
        Running means of their latent values in each chain.
    noise : float
        Present estimate of the noise variance, given one chain.
    noise_of_mixture : float
        The same, given the draws of all chains.
    """

    place: np.ndarray
    rows: np.ndarray
    mean: np.ndarray
    noise: float
    noise_of_mixture: float


def hold_out(problem: Problem, n_chains: int, noise: float) -> HeldOut | None:
    """Entries to leave out, and the noise to start with; None when there are too few entries."""
    n = len(problem.entries.permutation)
    size = int(HELD_FRACTION * n)
    if size < FEWEST_HELD:
        return None
    place = generator(problem.seed, Stream.HELD_OUT).permutation(n)[:size]
    rows = problem.entries.rows.transpose(0, 2, 1).reshape(-1, len(problem.shape))[place].astype(np.int64)
    return HeldOut(place, rows, np.zeros((n_chains, size)), noise, noise)


def update_noise(held: HeldOut, sweep: int, factors: np.ndarray, y: np.ndarray) -> HeldOut:
    """The estimate after the sweep of this number, counted from 0, at the rows (C, n_rows, R) of the chains."""
    f = np.empty_like(held.mean)
    latent_of_draws(factors, held.rows, f)
    share = 1.0 / min(sweep + 1, WINDOW)
    mean = held.mean + share * (f - held.mean)
    y = y.ravel()[held.place]
    of_mean, of_mixture = np.mean((y - mean) ** 2), np.mean((y - mean.mean(axis=0)) ** 2)
    noise = max(2.0 * of_mean - np.mean((y - f) ** 2), LEAST_SHARE * of_mean)
    rest = max(of_mixture - np.mean((f - mean.mean(axis=0)) ** 2), LEAST_SHARE * of_mixture)
    return held._replace(
        mean=mean,
        noise=float(held.noise + share * (noise - held.noise)),
        noise_of_mixture=float(held.noise_of_mixture + share * (rest - held.noise_of_mixture)),
    )


def law_of_noise(held: HeldOut, prior: tuple[float, float]) -> Gamma:
    """The noise precision given what the entries left out say."""
    half = 0.5 * len(held.place)
    return Gamma(np.array([prior[0] + half]), np.array([prior[1] + half * held.noise]))
