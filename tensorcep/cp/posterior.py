"""What is known of the rows of all modes: posteriors, draws, mixtures and point estimates, each as equal components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.packing import first_row, pack, row_dims, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.kernels.rows import row_moments
from tensorcep.likelihoods.counts import Beta
from tensorcep.likelihoods.parameters.scale_mixture import EVEN
from tensorcep.priors.base import ModePrior, RowSites
from tensorcep.priors.deviations import Deviations, joined_deviations

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

    def joined(name: str) -> Any:
        some = [part for part in (getattr(theta, name) for theta in thetas) if part is not None]
        if not some or isinstance(some[0], np.ndarray):
            return np.concatenate(some) if some else None
        return tuple(map(np.concatenate, zip(*some, strict=True)))

    return thetas[0]._replace(**{name: joined(name) for name in ("values", "gamma", "log_gaps", "uneven", "shares")})


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
            row = f"packed row {int(np.argmin(good))}"
            raise FloatingPointError(f"the posterior precision of {row} is not positive definite; fit again.")
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


# What a posterior says of noise that differs between rows of a mode, or between entries, and of dispersions.


class Dispersion(NamedTuple):
    """Gamma posteriors of the dispersion r of negative-binomial counts."""

    mode: int | None  # whose rows have one each, m in all; None where all entries share one, m = 1
    a: Annotated[np.ndarray, Sized("m")]  # shapes
    b: Annotated[np.ndarray, Sized("m")]  # rates
    mean: float | None = None  # with the next of the Gamma law that rows have in common, where it was learned
    shape: float | None = None

    def theta(self, first: int) -> EntryTheta:
        """The parameter of entries; the mode's first row is `first`."""
        both = None if self.mean is None else np.array([[self.mean, self.shape]], dtype=float)
        law = (self.a[None], self.b[None])
        return EntryTheta((self.a / self.b)[None], self.mode, first, law, uneven=both, sure=True)

    def of_new(self, n: int) -> Dispersion:
        """The same with n more rows: of the common law, or of the mean of those there are."""
        if self.mean is None or self.shape is None:
            more = self.a.mean(), self.b.mean()
        else:
            more = self.shape, self.shape / self.mean
        a, b = (np.append(part, np.full(n, new)) for part, new in zip((self.a, self.b), more, strict=True))
        return self._replace(a=a, b=b)


class UnevenNoise(NamedTuple):
    """Factors of mean one, Gamma(shape, shape) beforehand, that multiply the noise precision."""

    mode: int | None  # whose rows have a factor each; None where every entry has one
    shape: float
    a: Annotated[np.ndarray, Sized("s")]  # shapes of the Gamma posteriors of the rows' factors; nothing of entries'
    b: Annotated[np.ndarray, Sized("s")]  # their rates

    def theta(self, a: float, b: float, first: int) -> EntryTheta:
        """The parameter of entries where Gamma(a, b) is the law of the precision; the mode's first row is `first`."""
        tau = a / b
        both = np.array([[tau, self.shape]])
        if self.mode is None:
            return EntryTheta(np.array([[tau]]), gamma=(np.array([[a]]), np.array([[b]])), uneven=both)
        law = (self.a[None], (self.b / tau)[None])
        return EntryTheta((tau * self.a / self.b)[None], self.mode, first, law, uneven=both)


# What methods return of the factor rows, all modes packed in one array, and how each says it as components.
#
# Row i of mode k is packed row ``offsets[k] + i``. A precision matrix is packed by its lower triangle, row by row
# (P = R*(R+1)//2 numbers).


class GammaNoise(NamedTuple):
    """Gamma posterior of a noise precision: shape a and rate b."""

    a: float
    b: float

    @property
    def precision(self) -> float:
        """Posterior mean of the precision."""
        return self.a / self.b

    @property
    def variance(self) -> float:
        """Posterior mean of the noise variance, E[1/tau] (b / a where that mean does not exist)."""
        return self.b / (self.a - 1.0) if self.a > 1.0 else self.b / self.a


class Posterior(NamedTuple):
    """What the deterministic methods return: the natural parameters of every factor row, and the noise.

    Attributes
    ----------
    shape : tuple of int
        Rows of each mode.
    rank : int
    Lam : (n_rows, P) float64
        Packed precision of each row.
    eta : (n_rows, R) float64
        Natural mean (precision times mean) of each row.
    noise : GammaNoise or None
        Posterior of the Gaussian noise precision; None for likelihoods without one.
    seen : (n_rows,) bool
        Whether a training entry touches the row.
    dispersion : Dispersion or None
        Posterior of the dispersion of negative-binomial counts.
    mode_prior : ModePrior or None
        The learned prior of the rows of each mode; None where the prior was given.
    thresholds : Thresholds or None
        Posterior of the thresholds between ordered levels.
    uneven : UnevenNoise or None
        How the noise differs; None where it is the same everywhere.
    zeros : Beta or None
        Posterior of the share of structural zeros among counts.
    deviations : Deviations or None
        What pairs of rows add to latent values.
    sites : tuple of RowSites or None
        What the entries say of the rows of each mode that is a series or a graph; none where none is.
    doubt : float or None
        Variance of latent values that rows do not show, as entries left out tell; the noise holds it already.

    Examples
    --------
    >>> from tensorcep import CPRegressor, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> posterior = CPRegressor(1, method="vmp", interactions="cp", random_state=0).fit(tensor).posterior_
    >>> posterior.shape, posterior.rank, posterior.eta.shape
    ((8, 6, 4), 1, (18, 1))
    """

    shape: tuple[int, ...]
    rank: int
    Lam: Annotated[np.ndarray, Sized("n P")]
    eta: Annotated[np.ndarray, Sized("n R")]
    noise: GammaNoise | None
    seen: Annotated[np.ndarray, Sized("n", "b")]
    dispersion: Dispersion | None = None
    mode_prior: ModePrior | None = None
    thresholds: Thresholds | None = None
    uneven: UnevenNoise | None = None
    zeros: Beta | None = None
    deviations: Deviations | None = None
    sites: tuple[RowSites | None, ...] = ()
    doubt: float | None = None

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        mode = None if self.uneven is None else self.uneven.mode
        sizes = row_dims(self.shape, self.rank, None if self.dispersion is None else self.dispersion.mode)
        return {**sizes, "s": 0 if mode is None else self.shape[mode]}

    @property
    def theta(self) -> EntryTheta | None:
        """The likelihood's parameter; None where nothing was learned of it."""
        if self.noise is not None and self.uneven is not None:
            mode = self.uneven.mode
            return self.uneven.theta(self.noise.a, self.noise.b, first_row(self.shape, mode))
        if self.noise is not None:
            a, b = (np.array([[value]]) for value in self.noise)
            return EntryTheta(np.array([[1.0 / self.noise.variance]]), gamma=(a, b))
        if self.thresholds is not None:
            return self.thresholds.theta
        if self.dispersion is None:
            return None if self.zeros is None else EntryTheta(np.ones((1, 1))).with_share(self.zeros)
        theta = self.dispersion.theta(first_row(self.shape, self.dispersion.mode))
        return theta if self.zeros is None else theta.with_share(self.zeros)

    def components(self, unseen: Components | None = None) -> Components:
        """One Gaussian of every row, and of one more row per mode where `unseen` tells what is known of such."""
        mean, cov = gaussians([self], unseen)
        doubt = None if self.doubt is None else np.array([self.doubt])
        return Components(mean, cov, self.theta, deviations=self.deviations, doubt=doubt)


class Draws(NamedTuple):
    """What a sampler returns: draws of every factor row and of the likelihood's parameter.

    Attributes
    ----------
    shape, rank : tuple of int, int
    rows : (n_chains, n_draws, n_rows, R) float64 or float32
    theta : (n_chains, n_draws, m) float64 or None
        Draws of the noise precision or the dispersion: m = 1, or one per row of `theta_mode`; or of thresholds.
    theta_mode : int or None
        The mode whose rows have a parameter of their own; None when all entries share one.
    seen : (n_rows,) bool
    unknown : (n_chains, n_draws, K, R) float64 or None
        A draw of one more row of each mode, where the rows' prior is learned; None where it was given.
    n_thresholds : int
        0 where there are none.
    drifts : (n_chains, n_draws, n, R) float64 or None
        Draws of the parameters of every mode that is a series: of each level, log precision and length, and the season
        (see `Drift`); None where none is.
    uneven : (n_chains, n_draws, 2) float64 or None
        Of noise or a dispersion that differs: draws of what factors of mean one multiply, and of the shape of their
        law. `theta` has the parameters of the rows of `theta_mode`, or the first of these.
    has_share : bool
        Whether counts have structural zeros: `theta` is then a dispersion and their share.
    deviations : Deviations or None
        What pairs of rows add to latent values, in the draws of one chain after the other.
    doubt : (n_chains, n_draws) float64 or None
        Variances of latent values that rows do not show; the noise variances of `theta` hold them already.
    factors : (n_chains, n_draws) float64 or None
        Where new observations are not normal about the latent values: what multiplies their precision in each draw.

    Examples
    --------
    >>> from tensorcep import CPRegressor, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> draws = CPRegressor(1, method="gibbs", max_iter=60, random_state=0).fit(tensor).posterior_
    >>> draws.rows.ndim, draws.rows.shape[2]
    (4, 18)
    """

    shape: tuple[int, ...]
    rank: int
    rows: Annotated[np.ndarray, Sized("chains draws n R")]
    theta: Annotated[np.ndarray, Sized("chains draws m")] | None
    theta_mode: int | None
    seen: Annotated[np.ndarray, Sized("n", "b")]
    unknown: Annotated[np.ndarray, Sized("chains draws K R")] | None = None
    drifts: Annotated[np.ndarray, Sized("chains draws _ R")] | None = None
    n_thresholds: int = 0
    uneven: Annotated[np.ndarray, Sized("chains draws two")] | None = None
    has_share: bool = False
    deviations: Deviations | None = None
    doubt: Annotated[np.ndarray, Sized("chains draws")] | None = None
    factors: Annotated[np.ndarray, Sized("chains draws")] | None = None

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        sizes = row_dims(self.shape, self.rank, self.theta_mode)
        return {**sizes, "m": self.n_thresholds or (2 if self.has_share else sizes["m"]), "two": 2}

    def components(self, unseen: Components | None = None) -> Components:
        """The draws of all chains, and of one more row per mode: its own, or such as `unseen` says."""
        values, more = self.rows.reshape(-1, *self.rows.shape[2:]), self.unknown
        whole = None if more is None or more.base is not self.rows.base else more.base  # see `room_for_draws`
        n = self.rows.shape[2] + (0 if more is None else more.shape[2])
        if unseen is not None and whole is not None and whole.shape == (*self.rows.shape[:2], n, self.rank):
            values, more = whole.reshape(-1, *whole.shape[2:]), None
        elif unseen is not None and more is None:
            more = draw_rows(*unseen.moments(), len(values), np.random.default_rng(0))
        if unseen is not None and more is not None:
            more = more.reshape(len(values), *more.shape[-2:]).astype(values.dtype, copy=False)
            values = np.concatenate([values, more], axis=1)
        theta = None
        if self.theta is not None:
            each = self.theta.reshape(-1, self.theta.shape[-1])
            uneven = None if self.uneven is None else self.uneven.reshape(-1, 2)
            factors = None if self.factors is None else self.factors.ravel()
            first = first_row(self.shape, self.theta_mode)
            theta = EntryTheta(each, self.theta_mode, first, uneven=uneven, factors=factors)
        doubt = None if self.doubt is None else self.doubt.ravel()
        return Components(values, None, theta, len(self.rows), self.deviations, doubt=doubt)

    def within(self, belief: Components) -> Draws:
        """The same draws as a part of the array of their components, so that they are stored once."""
        return self._replace(rows=belief.mean[:, : self.rows.shape[2]].reshape(self.rows.shape))


class PointEstimate(NamedTuple):
    """What an optimiser returns: one value of every factor row, without uncertainty.

    Attributes
    ----------
    shape, rank : tuple of int, int
    rows : (n_rows, R) float64
    theta : float or None
        Estimate of the noise precision; None for likelihoods without one.
    seen : (n_rows,) bool

    Examples
    --------
    >>> from tensorcep import CPRegressor, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> point = CPRegressor(1, method="wopt", interactions="cp", random_state=0).fit(tensor).posterior_
    >>> point.shape, point.rows.shape
    ((8, 6, 4), (18, 1))
    """

    shape: tuple[int, ...]
    rank: int
    rows: Annotated[np.ndarray, Sized("n R")]
    theta: float | None
    seen: Annotated[np.ndarray, Sized("n", "b")]

    def dims(self) -> dict[str, int]:
        """The sizes of its arrays."""
        return row_dims(self.shape, self.rank)

    def components(self, unseen: Components | None = None) -> Components:
        """One point, and the mean of one more row per mode."""
        rows = self.rows if unseen is None else np.concatenate([self.rows, unseen.mean[0]])
        theta = None if self.theta is None else EntryTheta(np.array([[self.theta]]))
        return Components(rows[None], None, theta)


class Mixture(NamedTuple):
    """Equally likely posteriors, of runs from different starts; the first is the one that fits its data best.

    A product of factors has many equivalent and many nearly as good explanations; each run finds one of them, and what
    they disagree in is uncertain.

    Attributes
    ----------
    members : tuple of Posterior
        At least one, all of one shape and rank.

    Examples
    --------
    >>> from tensorcep import CEP, CPRegressor, simulate_cp
    >>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
    >>> model = CPRegressor(1, method=CEP(n_ensemble=2, n_starts=2), interactions="cp", random_state=0).fit(tensor)
    >>> len(model.posterior_.members)
    2
    """

    members: tuple[Posterior, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of each mode."""
        return self.members[0].shape

    @property
    def rank(self) -> int:
        """Number of columns."""
        return self.members[0].rank

    @property
    def seen(self) -> np.ndarray:
        """Whether a training entry touches the row, (n_rows,) bool."""
        return self.members[0].seen

    def dims(self) -> dict[str, int]:
        """The sizes of every member's arrays."""
        return self.members[0].dims()

    def components(self, unseen: Components | None = None) -> Components:
        """One Gaussian for each member."""
        mean, cov = gaussians(self.members, unseen)
        thetas = [member.theta for member in self.members]
        deviations = joined_deviations([member.deviations for member in self.members])
        theta = join_thetas([theta for theta in thetas if theta is not None])
        doubts = [member.doubt for member in self.members if member.doubt is not None]
        doubt = np.array(doubts) if len(doubts) == len(self.members) else None
        return Components(mean, cov, theta, deviations=deviations, doubt=doubt)


Result = Posterior | Draws | PointEstimate | Mixture


def first_member(result: Result) -> Posterior | Draws | PointEstimate:
    """The best posterior of a mixture; any other result as it is."""
    return result.members[0] if isinstance(result, Mixture) else result
