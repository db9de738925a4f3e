"""The learned prior: a Gaussian of each mode's rows, with a Normal-Wishart law of its mean and precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import digamma, multigammaln

from tensorcep.core.compile import block_kernel
from tensorcep.core.persist.records import Sized
from tensorcep.kernels.rank_update import add_outer_products, padded
from tensorcep.priors.base import Coupled, columns_of
from tensorcep.priors.laws import ModePrior

# Draws of the mean and the precision of normal vectors, of which a chain makes one for every mode in every sweep.
#
# Matrices of some ten columns are too small for calls of a library each: what goes on between these takes longer.

# Vectors that are centred at a time.
CHUNK = 32


def scatter_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (D,) of n > 0 vectors (n, D), and the sum of the outer products of what they differ from it by."""
    mean, gram = sums_of(rows)
    return mean, gram[: len(mean), : len(mean)]


def sums_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of n vectors, the sum in a larger array; without any, what is to be the mean and zeros."""
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
    """Draw the precision Lam and the mean given their law: Lam ~ Wishart(df, scatter^-1), mean ~ N(mean, Lam^-1).

    Of `lower` (D, D) the lower triangle holds Bartlett's normal draws and, on its diagonal, roots of chi-squares of df,
    df - 1, ...; `z` (D,) holds normal draws, over the root of the number of vectors that the mean is known from. What
    is drawn goes to `precision` (D, D), and is added to `mean` (D,). `scatter` becomes its Cholesky factor L, and
    `lower` L^-T times itself. Gives whether the scatter has such a factor.
    """
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
    """Draw the mean and the precision of the law of n vectors of D numbers, as `draw_normal_wishart` does.

    `average` and `gram` are what `sums_of` makes of the vectors. `prior` is (centre (D,), width (D,), rows,
    strength): what the mean and the scatter are before any vector, and what each of them counts. `lower` and `z` are
    normal draws and roots of chi-squares of strength D + n, ...; `scatter` (D, D) is room. Gives whether the scatter is
    positive definite.
    """
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
#
# Source: Salakhutdinov and Mnih, "Bayesian Probabilistic Matrix Factorization using MCMC", eqs 14-15. Where we differ:
# expected instead of sampled rows serve the deterministic methods, the prior is in units of the data, and rows without
# entries are left out (they would only repeat the prior).

# The prior of a mode's mean counts as this many rows, that of its covariance as as many as there are columns: weak,
# but proper for any number of rows. Larger values widen the covariance of a mode whose mean is many deviations from 0.
MEAN_ROWS = 0.1


class NormalWishart(NamedTuple):
    """mu | Lam ~ N(mean, (rows * Lam)^-1) and Lam ~ Wishart(df, scatter^-1)."""

    mean: np.ndarray
    rows: float
    df: float
    scatter: np.ndarray


class PosteriorOfModes(NamedTuple):
    """Posterior of (mu_k, Lam_k) per mode, None where no column is free, and how many rows it was learned from."""

    modes: tuple[NormalWishart | None, ...]
    counts: tuple[int, ...]


class LearnedPrior(NamedTuple):
    """Rows whose mean and precision are learned, one of each per mode (see `base.RowPrior`).

    Attributes
    ----------
    Lam, eta : (n_rows, P), (n_rows, R) float64
        What they begin with.
    mean : (K, R) float64
        Centre of the prior of mu_k.
    scale : (K, R) float64
        Standard deviation of a factor element to expect.
    free : (K, R) bool
        Columns that are inferred; the others keep the prior that they have.
    strength : float
        How many times as much as by default it counts. Without bound, the rows' prior stays at its expectation.
    """

    Lam: np.ndarray
    eta: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    free: np.ndarray
    strength: float = 1.0
    learned: bool = True

    def learn(
        self, means: list[np.ndarray], covs: list[np.ndarray], coupled: Sequence[Coupled | None] = ()
    ) -> PosteriorOfModes:
        """Posterior of (mu_k, Lam_k) given the moments of the rows that have entries."""
        q = (self.posterior(k, means[k], covs[k]) if free.any() else None for k, free in enumerate(self.free))
        return PosteriorOfModes(tuple(q), tuple(len(mean) for mean in means))

    def expectation(self, now: ModePrior, posterior: PosteriorOfModes) -> ModePrior:
        """E[Lam_k] and E[Lam_k]^-1 E[Lam_k mu_k] of the free columns; the others keep their present prior `now`."""
        mean, precision = now.mean.copy(), now.precision.copy()
        for k, q in enumerate(posterior.modes):
            if q is not None:
                free = self.free[k]
                mean[k, free] = q.mean
                precision[k][np.ix_(free, free)] = q.df * inverse(q.scatter)
        return ModePrior(mean, precision)

    def draw(self, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
        """Draw (mu_k, Lam_k) of the free columns given draws of the rows."""
        mean, precision = now.mean.copy(), now.precision.copy()
        for k, own in enumerate(self.free):
            (free,) = own.nonzero()
            if not len(free):
                continue
            drawn = self._drawn(k, free, rows[k], rng)
            if len(free) == len(own):
                mean[k], precision[k] = drawn
            else:
                mean[k, free], precision[k][np.ix_(free, free)] = drawn
        return ModePrior(mean, precision)

    def _drawn(
        self, k: int, free: np.ndarray, rows: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """A draw of (mu_k, Lam_k) in the free columns from its `posterior` given draws of the rows.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the scatter is not positive definite.
        """
        n, D = len(rows), len(free)
        whole = rows.shape[1] == D
        average, gram = sums_of(rows if whole else rows[:, free])
        centre, width = (self.mean[k], self.scale[k]) if whole else (self.mean[k, free], self.scale[k, free])
        prior = np.ascontiguousarray(centre), np.ascontiguousarray(width), self.strength * MEAN_ROWS, self.strength
        lower, z = _bartlett(self.strength * D + n, D, rng), rng.standard_normal(D)
        scatter, mean, precision = np.empty((D, D)), np.empty(D), np.empty((D, D))
        if not draw_prior(n, average, gram, prior, lower, z, scatter, mean, precision):
            raise np.linalg.LinAlgError("the scatter of the rows is not positive definite")
        return mean, precision

    def bound(self, posterior: PosteriorOfModes) -> float:
        """What learning adds to a lower bound that takes the expectation for the rows' prior.

        The rows' expected log prior is that of the expectation plus (E[log|Lam_k|] - log|E[Lam_k]| - E[(mu_k - E mu_k)'
        Lam_k (mu_k - E mu_k)]) / 2 per row; the divergence of the posterior from its own prior comes off. This holds
        for any posterior, whether or not the rows have changed since.
        """
        total, R = 0.0, self.free.shape[1]
        for k, (q, n) in enumerate(zip(posterior.modes, posterior.counts, strict=True)):
            if q is not None:
                before, D = self.posterior(k, np.zeros((0, R))), len(q.mean)
                dispersed = expected_log_det(q) - np.linalg.slogdet(q.df * inverse(q.scatter))[1]
                total += 0.5 * n * (dispersed - D / q.rows) - _divergence(q, before)
        return total

    def for_rows(self, seen: Sequence[np.ndarray]) -> LearnedPrior:
        """The prior itself: it learns from any rows alike."""
        return self

    def shift(self, k: int, modes: ModePrior, natural: bool = False) -> None:
        """All rows of a mode have one prior."""

    def unsure(self, k: int, modes: ModePrior, rows: np.ndarray) -> None:
        """Rows have no features."""

    def axis(self, k: int) -> None:
        """Rows do not depend on each other."""

    def links(self, k: int, modes: ModePrior) -> None:
        """Rows do not depend on each other."""

    def in_columns(self, Lam: np.ndarray, eta: np.ndarray, index: np.ndarray) -> LearnedPrior:
        """The prior of the columns index (K, Q) of each mode; padding (-1) is not free."""
        return LearnedPrior(Lam, eta, *columns_of(self.mean, self.scale, index), self.strength)

    def posterior(self, k: int, mean: np.ndarray, cov: np.ndarray | None = None) -> NormalWishart:
        """Posterior of (mu_k, Lam_k), free columns only, from n rows: means (n, R) and the sum of their covariances.

        Draws of rows have none.
        """
        free = np.flatnonzero(self.free[k])
        centre, width = self.mean[k, free], self.scale[k, free]
        n, D = len(mean), len(free)
        average, scatter = scatter_of(mean[:, free]) if n else (centre, np.zeros((D, D)))
        rows, strength = self.strength * MEAN_ROWS, self.strength
        scatter = scatter + rows * n / (rows + n) * np.outer(average - centre, average - centre)
        if cov is not None:
            scatter += cov[np.ix_(free, free)]
        scatter[np.diag_indices(D)] += strength * width**2
        return NormalWishart((rows * centre + n * average) / (rows + n), rows + n, strength * D + n, scatter)


def expected_log_det(q: NormalWishart) -> float:
    """E[log |Lam|]."""
    D = len(q.mean)
    half = 0.5 * (q.df - np.arange(D))
    return float(digamma(half).sum() + D * np.log(2.0) - np.linalg.slogdet(q.scatter)[1])


def _divergence(q: NormalWishart, p: NormalWishart) -> float:
    """KL of two Normal-Wisharts: that of the Wisharts, and the expected one of the Gaussians given Lam."""
    D, apart = len(q.mean), q.mean - p.mean
    ratio = p.rows / q.rows
    gaussians = 0.5 * (D * (ratio - np.log(ratio) - 1.0) + p.rows * apart @ (q.df * inverse(q.scatter)) @ apart)
    return divergence_of_wisharts(q, p) + float(gaussians)


def divergence_of_wisharts(q: NormalWishart, p: NormalWishart) -> float:
    """KL of the laws of Lam alone."""
    D, expected = len(q.mean), q.df * inverse(q.scatter)
    log_det_q, log_det_p = (np.linalg.slogdet(x.scatter)[1] for x in (q, p))
    total = 0.5 * (q.df - p.df) * expected_log_det(q) + 0.5 * np.einsum("ij,ji->", expected, p.scatter)
    total += 0.5 * (q.df * log_det_q - p.df * log_det_p) - 0.5 * D * (q.df + np.log(2.0) * (q.df - p.df))
    return float(total + multigammaln(0.5 * p.df, D) - multigammaln(0.5 * q.df, D))


def _bartlett(df: float, D: int, rng: np.random.Generator) -> np.ndarray:
    """Draw L with L L' ~ Wishart(df, I); what is above the diagonal has no meaning.

    By Bartlett's decomposition: scipy's Wishart takes several times as long as the rows of Enron.
    """
    lower = rng.standard_normal((D, D))
    lower.ravel()[:: D + 1] = np.sqrt(rng.chisquare(df - np.arange(D)))
    return lower


def draw_root(df: float, scatter: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw Lam = root root' ~ Wishart(df, scatter^-1), and give the root."""
    return np.linalg.solve(np.linalg.cholesky(scatter).T, np.tril(_bartlett(df, len(scatter), rng)))


def inverse(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, symmetric to the last bit."""
    found = np.linalg.inv(matrix)
    return 0.5 * (found + found.T)


class Expected(NamedTuple):
    """What was expected of rows whose prior is learned, before any entry (see `LearnedPrior`)."""

    mean: Annotated[np.ndarray, Sized("K R")]
    scale: Annotated[np.ndarray, Sized("K R")]
    strength: float


def expected_of(prior: Any) -> Expected:
    """What a learned prior expects of rows before any entry."""
    plain: LearnedPrior = getattr(prior, "plain", prior)
    mean, scale = (np.array(part, order="C") for part in (plain.mean, plain.scale))  # as a file brings them back
    return Expected(mean, scale, float(plain.strength))
