"""The law of a learned prior: a Gaussian of a mode's rows, with a Normal-Wishart law of its mean and precision."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import digamma, multigammaln

from tensorcep.core.compile import block_kernel
from tensorcep.core.persist.records import Sized
from tensorcep.kernels.rank_update import add_outer_products, padded
from tensorcep.priors.base import Coupled, ModeParameters

# Draws of the mean and the precision of normal vectors, of which a chain makes one for every mode in every sweep.
#
# Matrices of some ten columns are too small for calls of a library each: what goes on between these takes longer.

CHUNK = 32  # vectors that are centred at a time


def sums_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (D,) of n vectors (n, D), unset if n = 0, and outer products about it summed, (D, D) of a larger array."""
    D = rows.shape[1]
    S = padded(D)
    mean, gram, apart, nothing = np.empty(D), np.zeros((S + 1, S)), np.zeros((CHUNK, S)), np.zeros(CHUNK)
    if len(rows):
        _sum_scatter(np.ascontiguousarray(rows), mean, apart, nothing, gram)
    return mean, gram


@block_kernel
def _sum_scatter(rows, mean, apart, nothing, gram):
    """As `sums_of`, in zeros `gram` (S + 1, S); `apart` is room, and `nothing` zeros."""
    n, D = rows.shape
    mean[:] = 0.0
    for i in range(n):
        for r in range(D):
            mean[r] += rows[i, r]
    for r in range(D):
        mean[r] /= n
    for begin in range(0, n, len(apart)):
        size = min(len(apart), n - begin)
        for q in range(size):
            for r in range(D):
                apart[q, r] = rows[begin + q, r] - mean[r]
        add_outer_products(size, D, apart, apart, nothing, gram)
    for r in range(D):
        for c in range(r):
            gram[c, r] = gram[r, c]


@block_kernel
def draw_normal_wishart(scatter, lower, z, mean, precision):
    """Draw the precision Lam and the mean given their law: Lam ~ Wishart(df, scatter^-1), mean ~ N(mean, Lam^-1)."""
    # Of `lower` (D, D) the lower triangle holds Bartlett's normal draws and, on its diagonal, roots of chi-squares of
    # df, df - 1, ...; `z` (D,) holds normal draws, over the root of the number of vectors that the mean is known from.
    # What is drawn goes to `precision` (D, D), and is added to `mean` (D,). `scatter` becomes its Cholesky factor L,
    # and `lower` L^-T times itself. Gives whether the scatter has such a factor.
    D = len(scatter)
    for i in range(D):
        for j in range(i + 1):
            total = scatter[i, j]
            for k in range(j):
                total -= scatter[i, k] * scatter[j, k]
            if i > j:
                scatter[i, j] = total / scatter[j, j]
            elif total > 0.0:
                scatter[i, i] = math.sqrt(total)
            else:
                return False
    for i in range(D - 1, -1, -1):  # Lam^-1/2 z = L B^-T z
        total = z[i]
        for j in range(i + 1, D):
            total -= lower[j, i] * z[j]
        z[i] = total / lower[i, i]
    for i in range(D):
        total = mean[i]
        for j in range(i + 1):
            total += scatter[i, j] * z[j]
        mean[i] = total
    for i in range(D - 1, -1, -1):
        for c in range(i + 1, D):
            lower[i, c] = 0.0
        for j in range(i + 1, D):
            for c in range(D):
                lower[i, c] -= scatter[j, i] * lower[j, c]
        for c in range(D):
            lower[i, c] /= scatter[i, i]
    for i in range(D):
        for j in range(i + 1):
            total = 0.0
            for c in range(D):
                total += lower[i, c] * lower[j, c]
            precision[i, j] = total
            precision[j, i] = total
    return True


@block_kernel
def draw_prior(n, average, gram, prior, lower, z, scatter, mean, precision):
    """Draw the mean and the precision of the law of n vectors of D numbers, as `draw_normal_wishart` does."""
    # `average` and `gram` are what `sums_of` makes of the vectors. `prior` is (centre (D,), width (D,), rows,
    # strength): what the mean and the scatter are before any vector, and what each of them counts. `lower` and `z` are
    # normal draws and roots of chi-squares of strength D + n, ...; `scatter` (D, D) is room. Gives whether the scatter
    # is positive definite.
    centre, width, count, strength = prior
    D = len(mean)
    for a in range(D):
        if n == 0:
            average[a] = centre[a]
        mean[a] = (count * centre[a] + n * average[a]) / (count + n)
        z[a] /= math.sqrt(count + n)
    share = count * n / (count + n)
    for a in range(D):
        for b in range(D):
            known = gram[a, b] if n else 0.0
            scatter[a, b] = known + share * ((average[a] - centre[a]) * (average[b] - centre[b]))
        scatter[a, a] += strength * width[a] ** 2
    return draw_normal_wishart(scatter, lower, z, mean, precision)


# A learned prior of the rows: a Normal-Wishart prior of the mean and the precision of the rows of each mode.
#
# The prior of the rows of mode k is N(mu_k, Lam_k^-1), and (mu_k, Lam_k) has a Normal-Wishart prior. It is conjugate:
# what the methods need follows from first and second moments of the rows.
# Source: Salakhutdinov and Mnih, "Bayesian Probabilistic Matrix Factorization using MCMC", eqs 14-15. Where we differ:
# expected instead of sampled rows serve the deterministic methods, the prior is in units of the data, and rows without
# entries are left out (they would only repeat the prior).

# The prior of a mode's mean counts as this many rows, that of its covariance as as many as there are columns: weak,
# but proper for any number of rows. Larger values widen the covariance of a mode whose mean is many deviations from 0.
MEAN_ROWS = 0.1


class Expected(NamedTuple):
    """What was expected of rows whose prior is learned, before any entry (see `learned.LearnedPrior`)."""

    mean: Annotated[np.ndarray, Sized("K R")]
    scale: Annotated[np.ndarray, Sized("K R")]
    strength: float


class NormalWishart(NamedTuple):
    """mu | Lam ~ N(mean, (rows * Lam)^-1) and Lam ~ Wishart(df, scatter^-1)."""

    mean: np.ndarray
    rows: float
    df: float
    scatter: np.ndarray


class NormalWishartLaw(NamedTuple):
    """A mode whose mean and precision are learned, one of each for all its rows (see `base.ModeLaw`)."""

    free: np.ndarray
    centre: np.ndarray
    width: np.ndarray
    weight: float

    def posterior(self, mean: np.ndarray, cov: Any = None, coupled: Coupled | None = None) -> NormalWishart:
        """Posterior of (mu, Lam) from n rows: means (n, R) and the sum of their covariances; draws have none."""
        n, D, free = len(mean), len(self.centre), np.flatnonzero(self.free)
        average, gram = sums_of(mean[:, free])
        average, scatter, rows = average if n else self.centre, gram[:D, :D], self.weight * MEAN_ROWS
        scatter = scatter + rows * n / (rows + n) * np.outer(average - self.centre, average - self.centre)
        if cov is not None:
            scatter += cov[np.ix_(free, free)]
        scatter[np.diag_indices(D)] += self.weight * self.width**2
        return NormalWishart((rows * self.centre + n * average) / (rows + n), rows + n, self.weight * D + n, scatter)

    def expectation(self, q: NormalWishart) -> ModeParameters:
        """E[Lam] and E[Lam]^-1 E[Lam mu]."""
        return ModeParameters(q.mean, q.df * inverse(q.scatter))

    def draw(self, now: ModeParameters | None, rows: np.ndarray, rng: np.random.Generator) -> ModeParameters:
        """Draw (mu, Lam) from their posterior given draws of the rows."""
        n, D = len(rows), len(self.centre)
        average, gram = sums_of(rows if rows.shape[1] == D else rows[:, self.free])
        prior = self.centre, self.width, self.weight * MEAN_ROWS, self.weight
        lower, z = _bartlett(self.weight * D + n, D, rng), rng.standard_normal(D)
        scatter, mean, precision = np.empty((D, D)), np.empty(D), np.empty((D, D))
        if not draw_prior(n, average, gram, prior, lower, z, scatter, mean, precision):
            raise np.linalg.LinAlgError("the scatter of the rows is not positive definite")
        return ModeParameters(mean, precision)

    def bound(self, q: NormalWishart) -> float:
        """What learning adds to a lower bound that takes the expectation for the rows' prior."""
        # The rows' expected log prior is that of the expectation plus (E[log|Lam|] - log|E[Lam]| - E[(mu - E mu)' Lam
        # (mu - E mu)]) / 2 per row; the divergence of the posterior from its own prior comes off. This holds for any
        # posterior, whether or not the rows have changed since.
        p, D, expected = self.posterior(np.zeros((0, len(self.free)))), len(q.mean), q.df * inverse(q.scatter)
        dispersed = mean_log_det(q) - np.linalg.slogdet(expected)[1]
        ratio, apart = p.rows / q.rows, q.mean - p.mean  # the divergence of the Wisharts, and that of means given Lam
        gaussians = 0.5 * (D * (ratio - np.log(ratio) - 1.0) + p.rows * apart @ expected @ apart)
        divergence = kl_of_wisharts(q, p) + float(gaussians)
        return 0.5 * round(q.rows - p.rows) * (dispersed - D / q.rows) - divergence


def mean_log_det(q: NormalWishart) -> float:
    """E[log |Lam|]."""
    D = len(q.mean)
    half = 0.5 * (q.df - np.arange(D))
    return float(digamma(half).sum() + D * np.log(2.0) - np.linalg.slogdet(q.scatter)[1])


def kl_of_wisharts(q: NormalWishart, p: NormalWishart) -> float:
    """KL of the laws of Lam alone."""
    D, expected = len(q.mean), q.df * inverse(q.scatter)
    log_det_q, log_det_p = (np.linalg.slogdet(x.scatter)[1] for x in (q, p))
    total = 0.5 * (q.df - p.df) * mean_log_det(q) + 0.5 * np.einsum("ij,ji->", expected, p.scatter)
    total += 0.5 * (q.df * log_det_q - p.df * log_det_p) - 0.5 * D * (q.df + np.log(2.0) * (q.df - p.df))
    return float(total + multigammaln(0.5 * p.df, D) - multigammaln(0.5 * q.df, D))


def _bartlett(df: float, D: int, rng: np.random.Generator) -> np.ndarray:
    """Draw L, L L' ~ Wishart(df, I), upper part without meaning; scipy takes several times as long as Enron's rows."""
    lower = rng.standard_normal((D, D))
    # one by one: numpy looks at all of an array of shapes before it draws, for longer than it draws these
    lower.ravel()[:: D + 1] = [math.sqrt(rng.chisquare(df - i)) for i in range(D)]
    return lower


def draw_root(df: float, scatter: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw Lam = root root' ~ Wishart(df, scatter^-1), and give the root."""
    return np.linalg.solve(np.linalg.cholesky(scatter).T, np.tril(_bartlett(df, len(scatter), rng)))


def inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, symmetric to the last bit."""
    found = np.linalg.inv(matrix)
    return 0.5 * (found + found.T)
