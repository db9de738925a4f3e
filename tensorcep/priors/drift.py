"""What the rows of a series say of its parameters: level, season, scale and length of every column.

With K as in `priors.axis` the prior is mu ~ N(centre, 1 / (m lam)), s_p ~ N(0, 1 / (strength lam)), lam ~ Gamma, and
length and strength one of a grid. Given both all of this is conjugate, so that their posterior is a table: samplers
draw from it, and mean-field methods have it as a factor, exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from tensorcep.kernels.neighbours import moments_of, neighbour_sums
from tensorcep.priors.axis import LOG_2PI, Axis, times_k


class Sums(NamedTuple):
    """Sums over the rows of a mode less the centre of their level, in D columns.

    Attributes
    ----------
    squares : (L, D)
        x'Kx for each length.
    in_phase : (L, P, D)
        K times the rows, summed over each phase.
    """

    squares: np.ndarray
    in_phase: np.ndarray


def sums(of: Axis, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> Sums:
    """The sums of rows (n, D), in order, with their variances (n, D) and covariances of neighbours (E, D)."""
    grid = of.grid
    found = neighbour_sums(moments_of(rows, variance, cross), of.which, of.phase, of.n_phases, grid.near.shape[1])
    square, near, between = found[0]
    squares: np.ndarray = grid.own[:, None] * square[0]
    squares = squares + grid.near @ near - 2.0 * (grid.between @ between)
    return Sums(squares, times_k(of, *found[1]))


class Table(NamedTuple):
    """The posterior of a mode's parameters given length (L) and strength (S), in D columns.

    Attributes
    ----------
    log_z : (L, S, D)
        Log of the prior of both times what the rows say, all else integrated out.
    a : float
    b : (L, S, D)
        Of the Gamma law of lam.
    level : (L, D)
        K times the rows, summed.
    season : (L, P, D)
        The same by phase in the eigenvectors, the level integrated out.
    """

    log_z: np.ndarray
    a: float
    b: np.ndarray
    level: np.ndarray
    season: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The posterior of length and strength, (L, S, D)."""
        return np.asarray(np.exp(self.log_z - self.log_sum))

    @property
    def log_sum(self) -> np.ndarray:
        """Log evidence of each column, (D,)."""
        return np.asarray(logsumexp(self.log_z, axis=(0, 1)))


def table(of: Any, found: Sums, rate: np.ndarray) -> Table:
    """The posterior given sums over rows of a series or a graph; `rate` (D,) is that of the Gamma prior of lam."""
    L, S, n, P = len(of.lengths), len(of.strengths), len(of.place), of.values.shape[1]
    whole, level = of.gram.sum(axis=1) + of.mean_rows, found.in_phase.sum(axis=1)
    square = found.squares - level**2 / whole[:, None]
    rest = found.in_phase - of.gram[:, :, None] * (level / whole[:, None])[:, None]
    season = of.vectors.swapaxes(1, 2) @ rest if P else np.zeros((L, 0, rest.shape[2]))
    kept = of.values[:, None, :] + of.strengths[:, None]  # (L, S, P)
    square = square[:, None] - np.einsum("lsp,lpd->lsd", 1.0 / kept, season**2)
    log_det = of.log_det + np.log(of.mean_rows / whole)
    log_det = log_det[:, None] + P * np.log(of.strengths) - np.log(kept).sum(axis=2)
    a, b = of.shape + 0.5 * n, rate + 0.5 * np.maximum(square, 0.0)
    constant = of.shape * np.log(rate) + gammaln(a) - gammaln(of.shape) - 0.5 * n * LOG_2PI - np.log(L * S)
    return Table(0.5 * log_det[:, :, None] - a * np.log(b) + constant, a, b, level, season)


def levels(of: Any, known: Table, shares: np.ndarray, noise: tuple[np.ndarray, np.ndarray] | None = None) -> np.ndarray:
    """Levels of all phases summed over strengths with weights `shares` (L, S, D), for each length: (L, 1 + P, D).

    The first is mu, the others those of the season. `noise` (L, D), (L, P, D) is added to what each varies by.
    """
    kept = of.values[:, None, :] + of.strengths[:, None]
    season = np.einsum("lsd,lsp->lpd", shares, 1.0 / kept) * known.season
    if noise is not None:
        season = season + np.einsum("lsd,lsp->lpd", shares, kept**-0.5) * noise[1]
    season = of.vectors @ season if season.shape[1] else season
    whole = of.gram.sum(axis=1)[:, None] + of.mean_rows
    total = shares.sum(axis=1)
    level = (total * known.level - (np.einsum("lp,lpd->ld", of.gram, season) if season.shape[1] else 0.0)) / whole
    if noise is not None:
        level = level + total * noise[0] / np.sqrt(whole)
    return np.concatenate([level[:, None], season], axis=1)
