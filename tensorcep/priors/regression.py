"""Priors whose means depend linearly on the rows' features."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from tensorcep.core.packing import pack, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.priors.base import Coupled, ModeParameters, Slopes, moments_of
from tensorcep.priors.features import Design
from tensorcep.priors.normal_wishart import MEAN_ROWS, NormalWishart, draw_root, inverse, kl_of_wisharts, mean_log_det

# The linear map from features to prior means: its posterior given rows, and draws of it.
#
# The rows U (n, D) of a mode have the prior N(mu + B'x_i, Lam^-1) with mu ~ N(centre, (m Lam)^-1), B matrix normal with
# precisions strength (features) and Lam (columns), Lam Wishart, and strength ~ Gamma. Given the strength all of this is
# conjugate, and with H = sum x x' - s s' / (m + n), s = sum x, once decomposed, cheap at any strength:
#
#     B | Lam ~ N((H + strength)^-1 Y, (H + strength)^-1 x Lam^-1),   Y = sum x (u - centre)', less s times the mean,
#     Lam     ~ Wishart(df + n, (square - Y' (H + strength)^-1 Y)^-1).
#
# With many features systems are solved by conjugate gradients instead, and draws come from noise that is injected.
# Source: Simm et al. 2017, "Macau: Scalable Bayesian factorization with high-dimensional side information using MCMC",
# sec. 3. Where we differ: with few features (mu, Lam, B) are one draw, and the strength one with all three integrated
# out, by a slice sampler of its log; so draws do not depend on B before, which would move slowly where B is small.

MOST_DIRECT = 2000  # up to so many features the matrix is decomposed, at the cost of their number to the third, once
STRENGTH = (1e-3, 1e-3)  # prior shape and rate of the strength, in units of the features' mean square length
STEPS, RANGE = 20, 30.0  # of the slice sampler, and how far from its unit the log of the strength may go
RESIDUAL, MOST_STEPS = 1e-6, 1000  # of conjugate gradients: the relative residual at which they end, and the most steps


class PreparedFeatures(NamedTuple):
    """What is needed of the features of rows with entries, made once."""

    design: Design  # of these rows
    total: np.ndarray  # (F,): their sum
    rows: float  # rows, and as how many the prior mean counts
    values: Any  # (F,): eigenvalues of H; None where features are many
    vectors: Any  # (F, F): eigenvectors
    prior: tuple[float, float]  # shape and rate of the strength


def ready(design: Design, prior_rows: float, strength: tuple[float, float] = STRENGTH) -> PreparedFeatures:
    """Prepare the features of the rows with entries; the prior mean counts as `prior_rows` of them."""
    n = design.matrix.shape[0]
    total, count = design.transposed(np.ones((n, 1)))[:, 0], n + prior_rows
    few = design.n_features <= MOST_DIRECT
    values, vectors = decomposed(design.gram(), total, count) if few else (None, None)
    return PreparedFeatures(design, total, count, values, vectors, (strength[0], strength[1] / design.size))


def decomposed(gram: np.ndarray, total: np.ndarray, count: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of H."""
    values, vectors = np.linalg.eigh(gram - np.outer(total, total) / count)
    return np.maximum(values, 0.0), vectors


class FeatureSums(NamedTuple):
    """Sums over the rows of a mode about the centre of their mean's prior, in the free columns."""

    total: np.ndarray  # (D,)
    square: np.ndarray  # (D, D): with mu integrated out, and the prior's scatter
    cross: np.ndarray  # (F, D): Y; in the eigenvectors where there are some
    df: float  # degrees of freedom of Lam


def sums(have: PreparedFeatures, apart: np.ndarray, scatter: np.ndarray, df: float) -> FeatureSums:
    """The sums of rows (n, D) less the centre; `scatter` and `df` are the prior's, with the rows' covariances."""
    square, cross = scatter + apart.T @ apart, have.design.transposed(apart)
    return with_level_out(have, apart.sum(axis=0), square, cross, df + len(apart))


def with_level_out(have: PreparedFeatures, total: np.ndarray, square: Any, cross: Any, df: float) -> FeatureSums:
    """The sums with mu integrated out, of those of rows (D,), of their products (D, D) and with features (F, D)."""
    square = square - np.outer(total, total) / have.rows
    cross = cross - np.outer(have.total, total) / have.rows
    return FeatureSums(total, square, cross if have.vectors is None else have.vectors.T @ cross, df)


def scatter_at(have: PreparedFeatures, known: FeatureSums, strength: float) -> np.ndarray:
    """The scatter of Lam given the strength."""
    found = known.square - known.cross.T @ (known.cross / (have.values + strength)[:, None])
    return np.asarray(0.5 * (found + found.T))


def leverage(have: PreparedFeatures, rows: Design, strength: float) -> np.ndarray:
    """Variance of mu + B'x of rows given the others, in units of the rows' own covariance, (n,)."""
    apart = rows.times(have.vectors) - (have.total @ have.vectors) / have.rows
    return np.asarray(1.0 / have.rows + (apart**2 / (have.values + strength)).sum(axis=1))


def log_density(have: PreparedFeatures, known: FeatureSums, log_strength: float) -> float:
    """Log posterior density of the log of the strength, all else integrated out, but for a constant."""
    strength, (a, b) = np.exp(log_strength), have.prior
    sign, log_det = np.linalg.slogdet(scatter_at(have, known, strength))
    if sign <= 0.0:
        return -np.inf
    shares = 0.5 * known.cross.shape[1] * -np.log1p(have.values / strength).sum()
    return float(shares - 0.5 * known.df * log_det + a * log_strength - b * strength)


def _slice(have: PreparedFeatures, known: FeatureSums, at: float, rng: np.random.Generator) -> float:
    """The next value of a slice sampler of the log of the strength (Neal 2003, figs 3 and 5)."""
    unit = float(np.log(have.design.size))
    level, low = log_density(have, known, at) - rng.exponential(), at - rng.random()
    high, left = low + 1.0, int(STEPS * rng.random())
    for _ in range(left):
        if low < unit - RANGE or log_density(have, known, low) <= level:
            break
        low -= 1.0
    for _ in range(STEPS - 1 - left):
        if high > unit + RANGE or log_density(have, known, high) <= level:
            break
        high += 1.0
    low, high = max(low, unit - RANGE), min(high, unit + RANGE)
    while high - low > 1e-9:
        new = low + rng.random() * (high - low)
        if log_density(have, known, new) > level:
            return new
        low, high = (new, high) if new < at else (low, new)
    return at


def solve(have: PreparedFeatures, right: np.ndarray, strength: float, start: np.ndarray) -> np.ndarray:
    """(H + strength)^-1 right by conjugate gradients, each of the columns by itself."""

    def times(x: np.ndarray) -> np.ndarray:
        product = have.design.transposed(have.design.times(x)) - np.outer(have.total, have.total @ x) / have.rows
        return product + strength * x

    x = start.copy()
    rest = right - times(x)
    step, square = rest.copy(), np.einsum("fd,fd->d", rest, rest)
    least = RESIDUAL**2 * np.einsum("fd,fd->d", right, right)
    for _ in range(MOST_STEPS):
        if (square <= least).all():
            break
        product = times(step)
        curve = np.einsum("fd,fd->d", step, product)
        length = np.divide(square, curve, out=np.zeros_like(square), where=curve > 0.0)
        x += length * step
        rest -= length * product
        new = np.einsum("fd,fd->d", rest, rest)
        step = rest + np.divide(new, square, out=np.zeros_like(new), where=square > 0.0) * step
        square = new
    return x


# A learned prior whose row means depend on features of the rows: N(mu + B'x_i, Lam^-1).
#
# Samplers draw (mu, Lam, B) and its strength given the rows (above). Mean-field methods have the posterior of
# (mu, Lam, B) as a factor, and of the strength the value at which the lower bound is highest.

GRID = 31  # values of the log of the strength among which the best one is sought first


class PosteriorOfSlopes(NamedTuple):
    """Posterior of (mu, Lam, B) of a mode given the strength, in its free columns."""

    mean: np.ndarray  # (D,): of mu
    slopes: Slopes  # mean of B, and the strength
    wishart: NormalWishart  # the law of Lam; its other fields are not used


class FeaturesLaw(NamedTuple):
    """A mode whose mean, precision and dependence on features are learned (see `base.ModeLaw`)."""

    free: np.ndarray
    centre: np.ndarray
    width: np.ndarray
    weight: float
    have: PreparedFeatures

    @property
    def before(self) -> tuple[np.ndarray, float]:
        """Scatter and degrees of freedom of Lam before any row."""
        return self.weight * np.diag(self.width**2), self.weight * len(self.width)

    def posterior(self, mean: np.ndarray, cov: np.ndarray, coupled: Coupled | None = None) -> PosteriorOfSlopes:
        """The best posterior given the moments of the rows with entries, and the strength that goes with it."""
        scatter, df = self.before
        own = cov[np.ix_(self.free, self.free)]
        return self.from_sums(sums(self.have, mean[:, self.free] - self.centre, scatter + own, df))

    def from_sums(self, known: FeatureSums) -> PosteriorOfSlopes:
        """The same given sums over the rows, at the strength at which the lower bound is highest."""
        have, grid = self.have, np.log(self.have.design.size) + np.linspace(-RANGE / 2.0, RANGE / 2.0, GRID)
        best = int(np.argmax([log_density(have, known, at) for at in grid]))
        around = grid[max(0, best - 1)], grid[min(GRID - 1, best + 1)]
        found = minimize_scalar(lambda at: -log_density(have, known, at), bounds=around, method="bounded")
        strength = float(np.exp(found.x))
        coef = have.vectors @ (known.cross / (have.values + strength)[:, None])
        at = self.centre + (known.total - have.total @ coef) / have.rows
        wishart = NormalWishart(at, have.rows, known.df, scatter_at(have, known, strength))
        return PosteriorOfSlopes(at, Slopes(coef, strength), wishart)

    def expectation(self, q: PosteriorOfSlopes) -> ModeParameters:
        """E[Lam], and the means of mu and B."""
        return ModeParameters(q.mean, q.wishart.df * inverse(q.wishart.scatter), q.slopes)

    def draw(self, now: Any, rows: np.ndarray, rng: np.random.Generator) -> ModeParameters:
        """Draw (mu, Lam, B) and the strength given draws of the rows."""
        have, apart = self.have, (rows if self.free.all() else rows[:, self.free]) - self.centre
        old: Slopes | None = now.slopes
        if old is None:
            old = Slopes(np.zeros((have.design.n_features, len(self.centre))), have.design.size)
        known = sums(have, apart, *self.before)
        if have.values is not None:
            strength = float(np.exp(_slice(have, known, float(np.log(old.strength)), rng)))
            root = draw_root(known.df, scatter_at(have, known, strength), rng)
            weight = (have.values + strength)[:, None]
            noise = np.linalg.solve(root.T, rng.standard_normal(known.cross.shape).T).T
            coef = have.vectors @ (known.cross / weight + noise / np.sqrt(weight))
        else:  # the strength given B and Lam, Lam given B, and B by injected noise
            (a, b), (F, D), n = have.prior, old.coef.shape, len(apart)
            square = float(np.einsum("fd,de,fe->", old.coef, now.precision, old.coef))
            strength = float(rng.gamma(a + 0.5 * F * D) / (b + 0.5 * square))
            rest = apart - have.design.times(old.coef)
            total = rest.sum(axis=0)
            of_rows = apart.T @ apart - np.outer(known.total, known.total) / have.rows
            scatter = known.square - of_rows + rest.T @ rest - np.outer(total, total) / have.rows
            root = draw_root(known.df + F, scatter + strength * old.coef.T @ old.coef, rng)
            noise = rng.standard_normal((n + F, D))
            # the square root of I - 11' / count takes a share of the mean off
            share = (1.0 - np.sqrt(1.0 - n / have.rows)) / max(1, n)
            of_data = have.design.transposed(noise[:n] - share * noise[:n].sum(axis=0))
            injected = np.linalg.solve(root.T, (of_data + np.sqrt(strength) * noise[n:]).T).T
            coef = solve(have, known.cross + injected, strength, old.coef)
        mean = (known.total - have.total @ coef) / have.rows
        mean = mean + np.linalg.solve(root.T, rng.standard_normal(len(mean))) / np.sqrt(have.rows)
        return ModeParameters(self.centre + mean, root @ root.T, Slopes(coef, strength))

    def bound(self, q: PosteriorOfSlopes) -> float:
        """What the mode adds to the bound."""
        # With the precision V of (mu, B) about Lam, and V0 before: half of n (E log|Lam| - log|E Lam|) - D tr(V^-1 (V -
        # V0)), less the divergence of q from what was before, and the log prior of the strength.
        have, (scatter, df) = self.have, self.before
        (a, b), strength, D, F = have.prior, q.slopes.strength, len(q.mean), len(have.values)
        n = have.design.matrix.shape[0]
        before = NormalWishart(self.centre, have.rows - n, df, scatter)
        expected = q.wishart.df * inverse(q.wishart.scatter)
        shares = strength / (have.values + strength)
        projected = (have.vectors.T @ have.total) ** 2 / (have.values + strength)
        of_mean = before.rows * (1.0 / have.rows + float(projected.sum()) / have.rows**2)
        inside = of_mean + float(shares.sum())  # tr(V0 V^-1)
        apart = q.mean - before.mean
        square = before.rows * apart @ expected @ apart
        square += strength * float(np.einsum("fd,de,fe->", q.slopes.coef, expected, q.slopes.coef))
        log_det = np.log(have.rows / before.rows) - float(np.log(shares).sum())
        gaussians = 0.5 * (D * (inside - (F + 1) + log_det) + square)
        dispersed = mean_log_det(q.wishart) - np.linalg.slogdet(expected)[1]
        rows = 0.5 * (n * dispersed - D * (F + 1 - inside))
        return float(rows - gaussians - kl_of_wisharts(q.wishart, before) + a * np.log(strength) - b * strength)


# The same in a stream, from sums.

NaturalRows = tuple[np.ndarray, np.ndarray]  # packed precisions (m, P) and natural means (m, R) of rows


class MapOfFeatures(NamedTuple):
    """What is known of the map from features to prior means: sums over rows, which a stream adds and takes off."""

    free: Annotated[np.ndarray, Sized("R", "b")]
    centre: Annotated[np.ndarray, Sized("D")]  # what was expected of a row before any entry
    width: Annotated[np.ndarray, Sized("D")]  # the deviation from it
    weight: float  # how many times as much as by default that counts
    rows: int  # rows with entries
    total: Annotated[np.ndarray, Sized("F")]  # the sum of their features
    gram: Annotated[np.ndarray, Sized("F F")]  # of products of these
    apart: Annotated[np.ndarray, Sized("D")]  # of the rows less the centre
    cross: Annotated[np.ndarray, Sized("F D")]  # of these times features
    square: Annotated[np.ndarray, Sized("D D")]  # of their second moments
    mean: Annotated[np.ndarray, Sized("D")]  # of the prior of a row without features that has entries
    precision: Annotated[np.ndarray, Sized("D D")]
    coef: Annotated[np.ndarray, Sized("F D")]
    strength: float  # precision of coef beside that of the rows
    root: Annotated[np.ndarray, Sized("F F")]  # of what coef varies by, in units of the rows' own covariance

    @property
    def weight_of_mean(self) -> float:
        """Rows, and as how many the prior mean counts."""
        return self.rows + self.weight * MEAN_ROWS

    def with_rows(self, some: Design, new: NaturalRows, old: NaturalRows | None) -> MapOfFeatures:
        """The map, its law as before, with sums that hold rows of features `some`, `new` for `old` (None: nothing)."""
        known = self._summed(some, new, 1.0)
        if old is not None:
            return known._summed(some, old, -1.0)
        n = some.matrix.shape[0]
        total = some.transposed(np.ones((n, 1)))[:, 0]
        return known._replace(rows=known.rows + n, total=known.total + total, gram=known.gram + some.gram())

    def _summed(self, some: Design, rows: NaturalRows, sign: float) -> MapOfFeatures:
        """The map with the sums over rows, times `sign`."""
        mean, cov, _ = moments_of(*rows)
        apart, own = mean[:, self.free] - self.centre, np.ix_(self.free, self.free)
        square = apart.T @ apart + unpack(cov.sum(axis=0), mean.shape[1])[own]
        moved = {"apart": self.apart + sign * apart.sum(axis=0), "cross": self.cross + sign * some.transposed(apart)}
        return self._replace(**moved, square=self.square + sign * square)

    def learn(self, design: Design) -> MapOfFeatures:
        """The map with its law given the rows that it holds."""
        count, (a, b) = self.weight_of_mean, STRENGTH
        values, vectors = decomposed(self.gram, self.total, count)
        have = PreparedFeatures(design, self.total, count, values, vectors, (a, b / design.size))
        law = FeaturesLaw(self.free, self.centre, self.width, self.weight, have)
        scatter, df = law.before
        q = law.from_sums(with_level_out(have, self.apart, scatter + self.square, self.cross, df + self.rows))
        found, root = law.expectation(q), vectors / np.sqrt(values + q.slopes.strength)
        return self._replace(mean=found.mean, precision=found.precision, **q.slopes._asdict(), root=root)

    def with_root(self) -> MapOfFeatures:
        """The map with what coef varies by, given its strength and the rows that it holds."""
        values, vectors = decomposed(self.gram, self.total, self.weight_of_mean)
        return self._replace(root=vectors / np.sqrt(values + self.strength))

    def prior_of(self, some: Design, seen: np.ndarray) -> NaturalRows:
        """The prior in the free columns of rows of features `some`; those not `seen` (m,) are as unsure as the map."""
        mean = self.mean + some.times(self.coef)
        apart = some.times(self.root) - (self.total @ self.root) / self.weight_of_mean
        unsure = np.where(seen, 0.0, 1.0 / self.weight_of_mean + (apart**2).sum(axis=1))
        share = 1.0 / (1.0 + unsure)
        return share[:, None] * pack(self.precision)[None], share[:, None] * (mean @ self.precision)


def map_of_fit(free: np.ndarray, expected: Any, found: ModeParameters, n_features: int) -> MapOfFeatures:
    """The map that a fit has found of a mode, without any row; `expected` has centre and width (R,), and weight."""
    (centre, width, weight), slopes = expected, found.slopes
    if slopes is None:
        raise ValueError("the fit found no map of the features of a mode")
    F, D = n_features, int(free.sum())
    sums_of_none = np.zeros(F), np.zeros((F, F)), np.zeros(D), np.zeros((F, D)), np.zeros((D, D))
    prior = found.mean[free], found.precision[np.ix_(free, free)]
    law = *prior, slopes.coef[:, free], slopes.strength, np.eye(F) / np.sqrt(slopes.strength)
    return MapOfFeatures(free, centre[free], width[free], weight, 0, *sums_of_none, *law)
