"""Equally likely components of what is known of the rows and of the likelihood's parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.packing import pack, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.kernels.rows import row_moments
from tensorcep.likelihoods.counts import Beta
from tensorcep.likelihoods.parameters.scale_mixture import EVEN
from tensorcep.priors.deviations import Deviations

# Elements of the dense matrices of rows that exist at a time.
CHUNK = 1 << 22


class EntryTheta(NamedTuple):
    """The likelihood's parameter in each of C components."""

    values: np.ndarray  # (C, m), m = 1 or one per row of a mode, of which a row not known gets the mean
    mode: int | None = None  # the mode whose rows have a parameter of their own
    first: int = 0  # the first packed row of that mode
    # shapes and rates of its Gamma laws, (C, m) each; None where the values are all that is known
    gamma: tuple[np.ndarray, np.ndarray] | None = None
    at_mean: np.ndarray | None = None  # (C, m), of draws of a dispersion the means they were drawn about: `predictive`
    # of thresholds between ordered levels: mean (C, m) and covariance (C, m, m) of the logs of the gaps between them
    log_gaps: tuple[np.ndarray, np.ndarray] | None = None
    # (C, 2), of noise or a dispersion that differs: what factors of mean one multiply, and the shape of their Gamma
    # law, of rows that the model does not know where `mode` has a parameter for each row, else of every entry
    uneven: np.ndarray | None = None
    # of counts with structural zeros, whose values are a dispersion and the share of these: the two numbers of the Beta
    # law of that share, (C, 1) each; None where the values are all that is known
    shares: tuple[np.ndarray, np.ndarray] | None = None
    # (C,), where new observations are not normal about the latent values: what multiplies the precision of their noise,
    # beside which values are what it is on average
    factors: np.ndarray | None = None
    sure: bool = False  # whether known rows count at their values whatever their laws, of a dispersion (`predictive`)

    def predictive(self) -> EntryTheta:
        """The parameter that goes with draws of latent values f."""
        # Entries tell the mean count r e^f, so that r and f move against each other. Where the law of r stands apart
        # from that of f, draws of both would add a spread of the mean count that is not there; its mean, with which
        # predictions are made, does not.
        return self if self.at_mean is None else self._replace(values=self.at_mean, at_mean=None)

    def drawn(self, draws: np.ndarray, which: np.ndarray, is_precision: bool) -> EntryTheta:
        """The record of draws (n, m) from these components (n,)."""
        given = all(law is None for law in (self.gamma, self.log_gaps, self.shares)) or is_precision
        at_mean = None if given else self.values[which]
        uneven = None if self.uneven is None else self.uneven[which % len(self.uneven)]
        return self._replace(values=draws, gamma=None, log_gaps=None, at_mean=at_mean, uneven=uneven, shares=None)

    def of_points(self, which: np.ndarray) -> EntryTheta:
        """The record of these components (n,), which are points."""
        uneven, factors = (None if part is None else part[which] for part in (self.uneven, self.factors))
        return self._replace(values=self.values[which % len(self.values)], uneven=uneven, factors=factors)

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The parameter of the entries at packed rows (n, K): (C, n)."""
        if self.mode is None:
            return np.broadcast_to(self.values, (len(self.values), len(rows)))
        beyond = self.values.mean(axis=1, keepdims=True) if self.uneven is None else self.uneven[:, :1]
        return np.concatenate([self.values, beyond], axis=1)[:, self._index(rows)]

    def _index(self, rows: np.ndarray) -> np.ndarray:
        """Which parameter the entries at packed rows (n, K) have, (n,): the one after the last in unknown rows."""
        m, index = self.values.shape[1], rows[:, self.mode] - self.first
        return np.where((index >= 0) & (index < m), index, m)

    def shape_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Shape (C, n) of the Gamma law of mean one of what multiplies the parameter at rows (n, K); None where 1."""
        if self.uneven is None:
            return None
        if self.mode is None:
            return np.broadcast_to(self.uneven[:, 1:], (len(self.uneven), len(rows)))
        index, sure = self._index(rows), self.sure or self.gamma is None
        if sure and (index < self.values.shape[1]).all():
            return None
        known = np.full(self.values.shape, EVEN) if sure else self.gamma[0]  # type: ignore[index]
        return np.concatenate([known, self.uneven[:, 1:]], axis=1)[:, index]

    def averaged(self) -> EntryTheta:
        """The mean over the components, as one of them."""
        uneven = None if self.uneven is None else self.uneven.mean(axis=0, keepdims=True)
        return EntryTheta(self.values.mean(axis=0, keepdims=True), self.mode, self.first, uneven=uneven)

    def draws(self, which: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A draw (n, m) from each of these components (n,)."""
        if self.log_gaps is not None:
            mean, cov = self.log_gaps
            each = [rng.multivariate_normal(mean[c], cov[c], method="cholesky") for c in which]
            return np.cumsum(np.exp(np.reshape(each, (len(which), mean.shape[1]))), axis=1)
        first = self.values[which % len(self.values)]
        if self.gamma is not None:
            a, b = self.gamma
            first = rng.gamma(a[which], 1.0 / b[which])
        if self.shares is None:
            return first
        a, b = self.shares
        return np.concatenate([first[:, :1], rng.beta(a[which], b[which])], axis=1)

    def with_share(self, law: Beta) -> EntryTheta:
        """The parameter of one component with the share of structural zeros as its last number."""
        values = np.append(self.values, law.mean)[None]
        return self._replace(values=values, shares=(np.array([[law.a]]), np.array([[law.b]])))


class Thresholds(NamedTuple):
    """Posterior of thresholds between ordered levels, but for the first, which is 0: Gaussian logs of their gaps."""

    mean: Annotated[np.ndarray, Sized("t")]
    cov: Annotated[np.ndarray, Sized("t t")]

    @property
    def theta(self) -> EntryTheta:
        """The same as the likelihood's parameter of one component."""
        return EntryTheta(np.cumsum(np.exp(self.mean))[None], log_gaps=(self.mean[None], self.cov[None]))


def join_thetas(thetas: Sequence[EntryTheta]) -> EntryTheta | None:
    """The parameter in the components of several; None where there are none."""
    if not thetas:
        return None

    def joined(pairs: list[tuple[np.ndarray, np.ndarray] | None]) -> tuple[np.ndarray, np.ndarray] | None:
        some = [pair for pair in pairs if pair is not None]
        return (np.concatenate([a for a, _ in some]), np.concatenate([b for _, b in some])) if some else None

    factors = [theta.uneven for theta in thetas if theta.uneven is not None]
    return thetas[0]._replace(
        values=np.concatenate([theta.values for theta in thetas]),
        gamma=joined([theta.gamma for theta in thetas]),
        log_gaps=joined([theta.log_gaps for theta in thetas]),
        uneven=np.concatenate(factors) if factors else None,
        shares=joined([theta.shares for theta in thetas]),
    )


class Components(NamedTuple):
    """Equally likely components of what is known of every packed row."""

    mean: np.ndarray  # (C, n_rows, R) float64, or float32 where they are draws
    cov: np.ndarray | None = None  # (C, n_rows, P), packed covariance of each row; None where the components are points
    theta: EntryTheta | None = None  # the likelihood's parameter; None where it has none, or one that is given
    n_chains: int = 0  # whose draws the components are, one after the other; 0 where they are none
    deviations: Deviations | None = None  # what pairs of rows add to latent values
    later: np.ndarray = np.zeros(0)  # (q,), where pairs do, times of rows that follow all others (`fitted.predict`)
    # (C,), variances of latent values that rows do not show; those of observations, told by `theta`, hold them already
    doubt: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.mean)

    @property
    def points(self) -> bool:
        """Whether every component says one latent value of a cell."""
        return self.cov is None and self.deviations is None

    @property
    def uncertain(self) -> bool:
        """Whether there is more than one value of every row."""
        return self.cov is not None or self.n_chains > 0

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n_rows, R) and packed covariance (n_rows, P): of all points, or of the first Gaussian."""
        # columns have neither order nor sign, so rows of different Gaussians do not average
        if self.cov is not None:
            return self.mean[0], self.cov[0]
        mean = self.mean.mean(axis=0, dtype=np.float64)
        centred = np.ascontiguousarray((self.mean - mean).transpose(1, 2, 0))
        return mean, pack(centred @ centred.transpose(0, 2, 1) / max(1, self.size - 1))


def gaussians(members: Sequence[Any], unseen: Components | None) -> tuple[np.ndarray, np.ndarray]:
    """Means (C, n, R) and covariances (C, n, P) of all rows, and of one more per mode where `unseen` is given."""
    n, R = members[0].eta.shape
    more = 0 if unseen is None else unseen.mean.shape[1]
    mean, cov = np.empty((len(members), n + more, R)), np.empty((len(members), n + more, members[0].Lam.shape[1]))
    for c, member in enumerate(members):
        good = np.empty(n)
        if n:
            row_moments(0, n, member.Lam, member.eta, mean[c, :n], cov[c, :n], good)
        if not good.all():  # a damaged posterior; the methods guard against it
            bad = int(np.argmin(good))
            raise FloatingPointError(
                f"the posterior precision of packed row {bad} is not positive definite; fit again."
            )
        if unseen is not None:  # a posterior that learned a prior knows more of such a row
            prior = member.mode_prior
            known = unseen.moments() if prior is None else (prior.mean, pack(np.linalg.inv(prior.precision)))
            mean[c, n:], cov[c, n:] = known
    return mean, cov


def draw_rows(mean: np.ndarray, cov: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws (n_draws, n_rows, R) of rows with mean (n_rows, R) and packed covariance (n_rows, P)."""
    n, R = mean.shape
    out = rng.standard_normal((n_draws, n, R))
    size = max(1, CHUNK // R**2)
    for part in (slice(a, a + size) for a in range(0, n, size)):
        root = np.linalg.cholesky(unpack(cov[part], R))
        out[:, part] = mean[part] + np.einsum("nij,dnj->dni", root, out[:, part])
    return out


def room_for_draws(sizes: tuple[int, int, int, int], n_unknown: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Arrays for draws (n_chains, n_draws, n_rows, R) of known rows, and as many of unknown ones: parts of one."""
    chains, draws, n, R = sizes
    whole = np.empty((chains, draws, n + n_unknown, R), dtype)
    return whole[:, :, :n], whole[:, :, n:]


def stack_draws(
    draws: Sequence[np.ndarray], unknown: Sequence[np.ndarray], form: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Draws of known rows (n_rows, R) and of unknown ones (K, R), if any, in arrays whose first sizes are `form`."""
    known, more = room_for_draws((*form, *draws[0].shape), len(unknown[0]) if len(unknown) else 0, draws[0].dtype)
    for whole, parts in ((known, draws), (more, unknown)):
        for s, part in enumerate(parts):
            whole[divmod(s, form[1])] = part
    return known, more if len(unknown) else None
