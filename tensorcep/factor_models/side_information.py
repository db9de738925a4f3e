"""Moments of rows, and what is known of rows: priors from features and series inside the sweeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.packing import diagonal, pack, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.kernels.rows import row_moments
from tensorcep.priors.base import Coupled, ModePrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import Design
from tensorcep.priors.ou_process import LOG_2PI
from tensorcep.priors.regression import PreparedFeatures
from tensorcep.priors.series import Clock
from tensorcep.priors.solvers.chain import Marginals


class Moments(NamedTuple):
    """Mean of an entity's rows, and their covariance."""

    mean: Annotated[np.ndarray, Sized("n C")]
    # variances (n or 1, C) if `diagonal`, otherwise packed matrices (n or 1, P); one row serves all
    cov: Annotated[np.ndarray, Sized("_ covariances")]
    diagonal: bool

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        C = self.mean.shape[-1]
        return {"C": C, "covariances": C if self.diagonal else C * (C + 1) // 2}

    def select(self, coords: np.ndarray) -> Moments:
        """The moments of some coordinates, in their order."""
        if np.array_equal(coords, np.arange(self.mean.shape[1])):
            return self
        cov = self.cov[:, coords if self.diagonal else packed_index(coords)]
        return Moments(self.mean[:, coords], cov, self.diagonal)


def packed_index(coords: np.ndarray) -> np.ndarray:
    """Where the packed matrix of some coordinates lies in that of all."""
    i, j = np.tril_indices(len(coords))
    high, low = np.maximum(coords[i], coords[j]), np.minimum(coords[i], coords[j])
    return np.asarray(high * (high + 1) // 2 + low)


def variances(moments: Moments) -> np.ndarray:
    """Variances of the coordinates, (n or 1, C)."""
    if moments.diagonal:
        return moments.cov
    k = np.arange(moments.mean.shape[1])
    return moments.cov[:, k * (k + 3) // 2]


def second_moments(moments: Moments) -> np.ndarray:
    """E[u u'] of every row: its diagonal (n, C), or packed (n, P)."""
    return (moments.mean**2 if moments.diagonal else products_of(moments.mean)) + moments.cov


def products_of(mean: np.ndarray) -> np.ndarray:
    """Packed u u' of every row, (n, P); slices of the rows of triangles, which is faster than their indices."""
    n, C = mean.shape
    out, p = np.empty((n, C * (C + 1) // 2)), 0
    for a in range(C):
        np.multiply(mean[:, : a + 1], mean[:, a, None], out=out[:, p : p + a + 1])
        p += a + 1
    return out


def trace_weights(n_coords: int) -> np.ndarray:
    """What turns the dot product of two packed matrices into the trace of their product: 2 off the diagonal."""
    i, j = np.tril_indices(n_coords)
    return np.where(i == j, 1.0, 2.0)


def latent_moments(cells: Any, u: Moments, v: Moments, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of u_i . v_j at every cell, for independent rows."""
    # The variance sums traces of products of positive semidefinite matrices, m' S m twice and tr(S S): nothing cancels.
    f, scale = cells.products(u.mean, v.mean, executor), 1.0 if u.diagonal else trace_weights(u.mean.shape[1])
    squares = u.mean**2 if u.diagonal else products_of(u.mean)
    left = np.hstack([squares, np.broadcast_to(u.cov, squares.shape)])
    more = second_moments(v) * scale
    return f, cells.products(left, np.hstack([np.broadcast_to(v.cov * scale, more.shape), more]), executor)


def as_packed(moments: Moments) -> Moments:
    """The same moments with packed covariances."""
    if not moments.diagonal:
        return moments
    return Moments(moments.mean, pack(moments.cov[:, :, None] * np.eye(moments.mean.shape[1])), False)


def with_one(free: np.ndarray, C: int, mean: np.ndarray, cov: np.ndarray) -> Moments:
    """Moments of C coordinates, of those of the free ones, whose covariances are packed; another one is 1."""
    means, covs = np.ones((len(mean), C)), np.zeros((len(cov), C * (C + 1) // 2))
    means[:, free], covs[:, packed_index(free)] = mean, cov
    return Moments(means, covs, False)


def row_gaussians(Lam: np.ndarray, eta: np.ndarray, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """Means (n, R) and packed covariances (n or 1, P) of rows of these natural parameters; one Lam serves all."""
    packed, good, R = np.empty_like(Lam), np.empty(len(Lam)), eta.shape[1]
    if len(Lam) == 1:
        row_moments(0, 1, Lam, np.zeros((1, R)), np.empty((1, R)), packed, good)
        return eta @ unpack(packed[0], R), packed
    rows = np.empty_like(eta)
    executor.run(row_moments, 0, len(Lam), Lam, eta, rows, packed, good)
    return rows, packed


# What is known of the rows of a factor model beside their cells: features, or that they follow each other in time.
#
# The components of rows with features are N(mu + B'x_i, Lam^-1), of which all three are learned: what features leave
# open is less than the components' variance. Those of a series are Ornstein-Uhlenbeck processes of level 0 and variance
# 1, since loadings and offsets of the columns have both, each of a length of its own: a dynamic factor model. The
# posterior of the parameters is a factor of q, updated before the rows, as in `tensorcep.priors`; the rows of a series
# are one Gaussian, by Kalman smoothing.

PINNED = 1e6  # how many times as much as by default the scale and level of a series count


class KnownRows(NamedTuple):
    """The features of an entity's rows, or where they lie on an axis; and which rows have cells, (n,) bool."""

    known: Design | Clock
    seen: np.ndarray


KnownOf = tuple[KnownRows | None, ...]  # of every entity; empty where nothing is known of any


class FoundLaw(NamedTuple):
    """What a fit learned of the prior of rows, in K components: a map from features, or the lengths of a series."""

    names: tuple[str, ...]  # of the features
    coef: Annotated[np.ndarray, Sized("F K")]  # the map from features to components, and its standard deviations
    sd: Annotated[np.ndarray, Sized("F K")]
    lengths: Annotated[np.ndarray, Sized("_ K")]  # of the processes, in steps of the axis: one line, or none


class RowLaw(NamedTuple):
    """The prior of an entity's components and what is known of its parameters."""

    prior: PriorByMode
    modes: ModePrior  # its expectation; the entity is the only mode
    seen: np.ndarray  # (n,) bool: rows that it is learned from
    posterior: Any = None  # of the parameters; None before the first sweep
    found: Marginals | None = None  # the moments that the rows of a series had last

    @property
    def axis(self) -> Any:
        """The rows on their axis; None where they are independent of each other."""
        return self.prior.axis(0)

    @property
    def chained(self) -> Any:
        """The expected prior of the rows of a series; None of others, and before the first sweep."""
        return self.prior.chained(0, self.posterior) if self.axis is not None and self.posterior is not None else None

    def updated(
        self, moments: Moments, Lam: np.ndarray, eta: np.ndarray, executor: Executor
    ) -> tuple[np.ndarray, np.ndarray, RowLaw]:
        """Means (n, R) and packed covariances of the rows, and the law, given the rows' moments, components first."""
        # their cells say Lam (n or 1, P), eta (n, R)
        n, rank = eta.shape[0], self.modes.mean.shape[1]
        rows, coupled, axis = moments.select(np.arange(rank)), None, self.axis
        cov = np.broadcast_to(rows.cov, (n, rows.cov.shape[1]))
        if axis is not None:
            cross = np.zeros((len(axis.pairs[0]), rank)) if self.found is None else self.found.cross
            coupled = Coupled(cov[axis.place][:, diagonal(rank)], cross)
        total = unpack(cov[self.seen].sum(axis=0), rank)
        posterior: Any = self.prior.learn([rows.mean[self.seen]], [total], [coupled])
        law = self._replace(posterior=posterior, modes=self.prior.expectation(self.modes, posterior))
        chained = law.chained
        if chained is not None:
            place, Lam = chained.links.of.place, np.broadcast_to(Lam, (n, Lam.shape[1]))
            found = chained.links.marginals(Lam[place], eta[place])
            mean, cov = np.empty_like(eta), np.empty(Lam.shape)
            mean[place], cov[place] = found.mean, found.cov
            return mean, cov, law._replace(found=found)
        Lam = np.ascontiguousarray(Lam + pack(law.modes.precision[0]))
        eta = np.ascontiguousarray(eta + law.prior_means(n) @ law.modes.precision[0])
        return *row_gaussians(Lam, eta, executor), law

    def prior_means(self, n: int) -> np.ndarray:
        """Expected prior means of independent rows, (n, R)."""
        shift, mean = self.prior.shift(0, self.modes), self.modes.mean[0]
        return np.broadcast_to(mean, (n, len(mean))) + (0.0 if shift is None else shift)

    def divergence(self, moments: Moments) -> float:
        """Divergence of q(rows) q(parameters) from their prior; of rows as `updated` gave them last."""
        rank, chained = self.modes.mean.shape[1], self.chained
        rows, own = moments.select(np.arange(rank)), float(self.prior.bound(self.posterior))
        n = len(rows.mean)
        if chained is not None and self.found is not None:
            mean, variance = (rows.mean[chained.links.of.place], self.found.cov[:, diagonal(rank)])
            entropy = 0.5 * (mean.size * (1.0 + LOG_2PI) - self.found.log_det)
            return -float(chained.expected(mean, variance, self.found.cross)) - entropy - own
        precision, cov = self.modes.precision[0], unpack(rows.cov, rank)
        apart = rows.mean - self.prior_means(n)
        log_det = float(np.broadcast_to(np.linalg.slogdet(cov)[1], n).sum())
        square = float(np.einsum("ni,ij,nj->", apart, precision, apart))
        square += n / len(cov) * float(np.einsum("nij,ji->", cov, precision))
        own -= 0.5 * (square - n * rank - log_det - n * float(np.linalg.slogdet(precision)[1]))
        return -own

    def with_unsure_rows(self, moments: Moments) -> Moments:
        """The moments as a result: rows without cells are as unsure as what was learned of their features, too."""
        more = None if self.axis is not None or self.seen.all() else self.prior.unsure(0, self.modes, ~self.seen)
        if more is None:
            return moments
        spread = pack(np.linalg.inv(self.modes.precision[0]))
        cov = np.repeat(moments.cov, len(moments.mean), axis=0) if len(moments.cov) == 1 else moments.cov.copy()
        cov[np.flatnonzero(~self.seen), : spread.shape[-1]] += more[:, None] * spread
        return moments._replace(cov=cov)

    def learned(self) -> FoundLaw:
        """What a fit keeps of the law."""
        nothing, modes = np.zeros((0, self.modes.mean.shape[1])), self.modes
        if self.prior.clocks:
            drift: Any = modes.drifts[0] if modes.drifts else None
            lengths = np.zeros_like(modes.mean) if drift is None else drift.length[None]
            return FoundLaw((), nothing, nothing, lengths)
        have, slopes, design = self.prior.have[0], modes.slopes[0], self.prior.designs[0]
        if not isinstance(have, PreparedFeatures) or slopes is None or design is None:
            raise ValueError("the map of features was not learned")
        spread = ((have.vectors / np.sqrt(have.values + slopes.strength)) ** 2).sum(axis=1)
        sd = np.sqrt(np.outer(spread, np.diagonal(np.linalg.inv(modes.precision[0]))))
        return FoundLaw(design.names, slopes.coef, sd, nothing)


def first_law(rows: KnownRows, rank: int) -> RowLaw:
    """The law before the first sweep: that of any rows."""
    whole, lines = np.ones((1, rank)), (pack(np.eye(rank))[None], np.zeros((1, rank)))
    plain = PriorByMode(*lines, 0.0 * whole, whole, whole > 0.0)
    modes = ModePrior(np.zeros((1, rank)), np.eye(rank)[None])
    if isinstance(rows.known, Clock):  # rows without cells are on the axis, too
        seen = np.ones(len(rows.seen), dtype=bool)
        return RowLaw(replace(plain, clocks=(rows.known,), strength=PINNED).for_rows([seen]), modes, seen)
    return RowLaw(replace(plain, designs=(rows.known,)).for_rows([rows.seen]), modes, rows.seen)
