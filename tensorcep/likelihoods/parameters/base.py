"""What is learned of a likelihood: the protocol, what entries say of it, who shares it; and the precision of noise.

Engines loop over the parameters of a problem and name none. Of each they have a state, which has `theta`, its numbers
(m,): a draw of them in samplers, and their law in all other engines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from tensorcep.core.arrays import LINES, fill_by_parts, room_of
from tensorcep.core.executor import Executor
from tensorcep.core.persist.records import Sized
from tensorcep.core.random import RandomStream, generator, new_stream, stream_key
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.special import LOG_SQRT_2PI

TINY = np.finfo(float).tiny
NONE = np.zeros(0)
# Entries from which a parameter that all entries share is learned: it is then known to about 1 part in 100.
ENOUGH = 10_000
# The same of those that the entries of one row share: to about 1 part in 30.
ENOUGH_OF_ROW = 1000
S = TypeVar("S")
# Two arrays; and places (n,) of entries, None for all of them.
Pair: TypeAlias = tuple[np.ndarray, np.ndarray]
Places: TypeAlias = "np.ndarray | None"
# Of a Gamma prior.
ShapeRate: TypeAlias = tuple[float, float]


class Gamma(NamedTuple):
    """Gamma laws of m parameters: shapes a and rates b, (m,) float64 each."""

    a: np.ndarray
    b: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """E[theta], (m,)."""
        return self.a / self.b

    @property
    def theta(self) -> np.ndarray:
        """The numbers that stand for it: the means."""
        return self.mean

    @property
    def typical(self) -> np.ndarray:
        """exp(E[log theta]), (m,)."""
        return np.asarray(np.exp(digamma(self.a) - np.log(self.b)))

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A draw of each, (m,), never 0."""
        if len(self.a) == 1:  # the same number: numpy looks at an array of shapes for longer than it draws one
            return np.array([max(rng.standard_gamma(float(self.a[0])), TINY) / float(self.b[0])])
        return np.asarray(np.maximum(rng.standard_gamma(self.a), TINY) / self.b)


NO_LAW = Gamma(NONE, NONE)


class ParameterDraw(NamedTuple):
    """A draw of a parameter: its numbers (m,), and, where they have a law in common, its mean and shape (2,)."""

    theta: np.ndarray
    common: np.ndarray = NONE


class Groups(NamedTuple):
    """Which entries share a parameter."""

    mode: int | None
    of_entry: np.ndarray  # (n_blocks, LANES) int64: number of the parameter of every entry, 0 in padding lanes
    size: int  # how many parameters there are

    def totals(self, values: Callable[[slice], np.ndarray]) -> np.ndarray:
        """Sums over the entries of each parameter of values (n_blocks, LANES); `values` gives those of some."""
        # additions are one after the other, whatever the number of entries that are looked at together
        own = np.arange(self.size)
        total: np.ndarray = np.zeros(self.size)
        for first in range(0, len(self.of_entry), LINES):
            at = slice(first, min(len(self.of_entry), first + LINES))
            index = np.concatenate([own, self.of_entry[at].ravel()])
            total = np.bincount(index, np.concatenate([total, values(at).ravel()]), minlength=self.size)
        return total

    def at(self, theta: np.ndarray, place: Places = None) -> np.ndarray:
        """The parameter (m,) of every entry, (n_blocks, LANES), or of those at some places, (n,)."""
        if place is None:
            out = room_of(self.of_entry).empty(self.of_entry.shape)
            return fill_by_parts(out, lambda at: theta[0] if self.mode is None else theta[self.of_entry[at]])
        return np.full(len(place), theta[0]) if self.mode is None else theta[self.of_entry.ravel()[place]]

    def sample(self, n: int) -> np.ndarray:
        """Flat places, below n, of entries that say enough of each parameter, evenly spaced among those of it."""
        if n <= (ENOUGH if self.mode is None else ENOUGH_OF_ROW):
            return np.arange(n)
        if self.mode is None:
            return np.linspace(0, n - 1, ENOUGH).astype(np.int64)
        row = self.of_entry.ravel()[:n]
        order, count = np.argsort(row, kind="stable"), np.bincount(row, minlength=self.size)
        place = np.arange(n) - (np.cumsum(count) - count)[row[order]]
        part = np.minimum(1.0, ENOUGH_OF_ROW / np.maximum(count, 1))[row[order]]
        return np.sort(order[np.floor((place + 1) * part) > np.floor(place * part)])


# Of parameters that no problem has yet.
UNBOUND = Groups(None, np.zeros((0, LANES), dtype=np.int64), 1)


class DrawStage(IntEnum):
    """When a sampler draws a parameter, in this order."""

    PRESENCE = 0  # given latent values, before all that the entries then say
    LATENT = 1  # given latent values, with the auxiliary variables of the entries integrated out
    RESIDUAL = 2  # after the rows, given what these leave of the targets


class EntryStats(NamedTuple):
    """What `n` entries say of a parameter by their latent values, arrays (n_blocks, LANES) in the lanes."""

    y: np.ndarray  # what was observed
    used: np.ndarray  # how much each counts: 0 in padding lanes, and where it says nothing of the parameter
    f: np.ndarray  # latent values, or their means
    n: int
    theta: Callable[[], np.ndarray]  # what the kernels of the likelihood take as theta
    executor: Executor
    square: np.ndarray = NONE  # E[f^2]; no blocks where nobody asks
    # mean and variance of f of the entries at some places, or of all (None), where these alone are known
    marginals: Callable[[Places], Pair] | None = None
    power: np.ndarray = NONE  # to which power the likelihood of each is taken; no blocks where that is `used`
    sd: np.ndarray | None = None  # standard deviations of f, where `f` has means and these are asked for


class ExpectedSquares(NamedTuple):
    """What each entry counts, and its expected squared residual, (n_blocks, LANES) each."""

    power: np.ndarray
    squares: np.ndarray


class PrecisionStats(NamedTuple):
    """How much all entries count for a precision, and the sum of weighted squares that are expected."""

    n: float
    total: float


class ValidationNoise(NamedTuple):
    """Entries left out, by their places (n,), and the noise variance that these alone tell."""

    place: np.ndarray
    variance: float

    @property
    def stats(self) -> PrecisionStats:
        """What they say of the precision."""
        return PrecisionStats(len(self.place), len(self.place) * self.variance)


class ResidualStats(NamedTuple):
    """What entries say of their noise by what the rows leave of their targets."""

    # Of entries in the lanes there are no blocks of f, weight and target where the sums say all.
    n: float  # how much all entries in use count
    sums: np.ndarray  # of weight (target / weight - f)^2 over those of each row of the mode drawn last, (n_k,)
    sizes: np.ndarray  # how many entries each of these rows has
    y: np.ndarray  # observations, (n_blocks, LANES) as what follows
    present: np.ndarray  # 0 in padding lanes and 1 elsewhere
    f: np.ndarray  # latent values
    weight: np.ndarray
    target: np.ndarray
    left_out: np.ndarray  # places (n,) of entries that are not in use
    drawn: bool  # whether targets are drawn, and not the observations
    even: bool  # whether noise is taken to be the same everywhere at present
    validation: ValidationNoise | None  # entries left out, where these tell how large the noise is
    executor: Executor
    score: float | None = None  # the mean log likelihood of the entries, where a parameter finds it

    @property
    def total(self) -> float:
        """The sum of weighted squares over all entries in use."""
        return max(0.0, float(self.sums.sum()))

    @property
    def used(self) -> np.ndarray:
        """1 for the entries in use, (n_blocks, LANES)."""
        if not len(self.left_out):
            return self.present
        used = self.present.copy()
        used.ravel()[self.left_out] = 0.0
        return used


class DrawKey(NamedTuple):
    """What the random numbers of a chain in a sweep are keyed by."""

    seed: int
    sweep: int
    chain: int

    def rng(self, stream: RandomStream) -> np.random.Generator:
        """Random numbers of numpy."""
        return generator(self.seed, stream, self.sweep, self.chain)

    def of_entries(self, stream: RandomStream) -> tuple[int, int, int]:
        """The key of the streams of blocks of entries."""
        return stream_key(self.seed, self.chain, self.sweep, stream)


def room_for_stream() -> tuple[np.ndarray]:
    """Room for the stream of one thread."""
    return (new_stream(),)


class RowPrecision(NamedTuple):
    """A mode whose rows have a precision (m,) each."""

    mode: int
    precision: np.ndarray


class Parameter(Protocol[S]):
    """What is learned of a likelihood; of a problem once it has its prior and groups."""

    # The state S has `theta` (m,) and is a draw (`first_draw`, `draw`) or a law (`first_law`, `expect`, `bound`).
    name: ClassVar[str] = ""  # what results call it
    stage: ClassVar[DrawStage] = DrawStage.LATENT
    is_precision: ClassVar[bool] = False  # whether weights of entries are multiplied by it
    uneven: ClassVar[bool] = False  # whether it is a precision with factors, whose law has their means
    # whether it is the theta of the kernels, as results keep it: a precision of noise, or one that has Gamma laws
    is_theta: ClassVar[bool] = False
    of_rows: ClassVar[bool] = False  # whether rows of a mode may have one each, as settings say; it has groups then
    start: float | None = None  # of a theta; None of noise, which begins at that of the data
    groups: Groups = UNBOUND  # which entries share one: of a mode, those of a row

    @property
    def learned(self) -> bool:
        """Whether there is anything to learn."""
        return True

    @property
    def by_latent(self) -> bool:
        """Whether there is something to learn that latent values tell."""
        return self.learned and self.stage < DrawStage.RESIDUAL

    @property
    def weighs(self) -> bool:
        """Whether each entry has a weight of its own, which is drawn."""
        return False

    def first_draw(self, spread: float, stats: EntryStats) -> Any:
        """The draw to begin with, of data of this variance, given where the rows start."""

    def first_law(self, n: int = 0) -> S:
        """The law to begin with, of n entries."""

    def with_observations(self, y: np.ndarray, used: np.ndarray) -> Parameter[S]:
        """The parameter as its bound needs it, for observations in the lanes, of which some are in use."""
        return self

    def after(self, law: Gamma, weight: float) -> Parameter[S]:
        """The parameter with what is known of it, a share `weight` of that, as the prior and the start."""
        return self

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: Places = None) -> Pair:
        """What kernels take in place of this y and theta, of all entries, in the lanes, or of those at places (n,)."""
        return y, theta

    def shared(self, state: Any, theta: float, cuts: np.ndarray) -> tuple[float, np.ndarray]:
        """The theta that all entries share, and the cuts between levels; they would otherwise be these."""
        return float(state.theta[0]), cuts

    def expect(self, state: S, stats: Any, step: float | None = None) -> S:
        """The law given `EntryStats`, `ResidualStats` or `PrecisionStats`; or a share `step` of the way there."""
        return state

    def shift(self, before: S, after: S) -> np.ndarray | float:
        """By what latent values will move after a change of the law."""
        return 0.0

    def weigh_expected(self, state: S, y: np.ndarray, moments: Pair, parts: tuple[np.ndarray, ...]) -> Any:
        """Weigh what entries say, in place, by the probability that they tell of f; return it if that differs."""
        # `moments` are E[f] and E[f^2], `parts` weight, target, spread and constant of `Augmentation.expected`.
        return None

    def draw(self, state: Any, stats: Any, key: DrawKey) -> tuple[Any, Any]:
        """A draw given `EntryStats` or `ResidualStats`; and these, as what is drawn next needs them."""
        return state, stats

    def bound(self, state: S) -> float:
        """What the law adds to a lower bound."""
        return 0.0

    def log_normaliser(self, n: float) -> float:
        """What else n entries add to a bound that the law maximises."""
        return 0.0

    def mixed(self, state: Any, y: np.ndarray, log_density: np.ndarray) -> np.ndarray:
        """The log density of observations by that of the kernels: of all kinds of entries, where there are some."""
        return log_density

    def results(self, law: Any) -> dict[str, tuple[Any, ...]]:
        """What posteriors keep of a law: by the name of their field, the parts of what it holds."""
        return {"dispersion": (self.groups.mode, *law)} if self.is_theta else {}

    # Of noise alone: what it says of the weights of entries.

    def precision(self, state: Any, power: float = 1.0) -> float | RowPrecision:
        """By what the weights are multiplied, each entry counting `power` times."""
        return power

    def weigh(self, state: Any, stats: ResidualStats, key: DrawKey) -> Any:
        """Weights and targets of entries whose noise differs, in place, and the draw with what was drawn for them."""
        return state

    def of_sites(self, state: Any, theta: np.ndarray) -> np.ndarray:
        """The theta by which auxiliary variables are drawn."""
        return theta

    def factors(self, state: Any, place: np.ndarray) -> tuple[np.ndarray, float]:
        """What multiplies the precision of entries at these places (n,), and the shape of its law, or infinity."""
        return np.ones(len(place)), np.inf

    def follow(self, state: Any, rest: Pair, variance: float, rng: np.random.Generator) -> tuple[Any, float]:
        """Draw and noise variance as squared residuals (n,), of means of such variances, tell them; nan if not."""
        return state, np.nan


# Gamma distributions of precisions and dispersions, and their share of a lower bound.


class Gammas(NamedTuple):
    """Means and log means of independent Gamma distributions, and their divergence from the prior."""

    mean: Annotated[np.ndarray, Sized("groups")]
    log_mean: Annotated[np.ndarray, Sized("groups")]
    divergence: float


def gammas_at(values: np.ndarray) -> Gammas:
    """Values that are not inferred."""
    return Gammas(values, np.log(values), 0.0)


def divergences(a: np.ndarray, b: np.ndarray, prior_a: float, prior_b: float) -> np.ndarray:
    """Divergence of each Gamma(a, rate b) from Gamma(prior_a, rate prior_b)."""
    shapes = (a - prior_a) * digamma(a) - gammaln(a) + gammaln(prior_a)
    return np.asarray(shapes + prior_a * (np.log(b) - np.log(prior_b)) + a / b * (prior_b - b))


def gammas(a: np.ndarray, b: np.ndarray, prior_a: float, prior_b: float) -> Gammas:
    """Gamma(a, rate b) with a Gamma(prior_a, rate prior_b) prior."""
    return Gammas(a / b, digamma(a) - np.log(b), float(np.sum(divergences(a, b, prior_a, prior_b))))


def shape_and_rate(found: Gammas) -> tuple[np.ndarray, np.ndarray]:
    """Shapes and rates of the distributions of these means and log means, by Newton's method on log a - digamma(a)."""
    gap = np.maximum(np.log(found.mean) - found.log_mean, 1e-12)
    a = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)  # Minka (2002), within 1.5 %
    for _ in range(5):
        a = 1.0 / (1.0 / a + (np.log(a) - digamma(a) - gap) / (a * a * (1.0 / a - polygamma(1, a))))
    return a, a / found.mean


# The precision of Gaussian noise, the same for all entries; and a parameter that is known.


@dataclass(frozen=True)
class KnownTheta(Parameter[Gamma]):
    """The theta of a likelihood of which nothing is learned, `value` for all entries without one of their own."""

    value: float
    stage = DrawStage.RESIDUAL
    learned = False

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw:
        return ParameterDraw(np.full(1, self.value))

    def first_law(self, n: int = 0) -> Gamma:
        return Gamma(np.full(1, self.value), np.ones(1))

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: Places = None) -> Pair:
        """That of the entries, if they have one, or the value."""
        return y, alike(y, float(state.theta[0])) if theta is None else theta

    def draw(self, state: ParameterDraw, stats: ResidualStats, key: DrawKey) -> tuple[ParameterDraw, ResidualStats]:
        return state, scored(float(state.theta[0]), stats)


@dataclass(frozen=True)
class NoisePrecision(Parameter[Gamma]):
    """The precision tau of Gaussian noise, with a Gamma prior."""

    prior: ShapeRate = (1e-3, 1e-3)  # shape and rate, which say nearly nothing
    name = "noise_precision"
    stage = DrawStage.RESIDUAL
    is_precision = True
    is_theta = True

    def first_draw(self, spread: float, stats: EntryStats) -> ParameterDraw:
        return ParameterDraw(np.full(1, 1.0 / spread))

    def first_law(self, n: int = 0) -> Gamma:
        return Gamma(np.full(1, self.prior[0]), np.full(1, self.prior[1]))

    def theta(self, state: Any, y: np.ndarray, theta: Any, place: Places = None) -> Pair:
        return y, alike(y, float(state.theta[0]))

    def precision(self, state: ParameterDraw | Gamma, power: float = 1.0) -> float:
        if isinstance(state, Gamma):
            return power * float(state.a[0]) / float(state.b[0])
        return power * float(state.theta[0])

    def expect(self, state: Gamma, stats: ResidualStats | PrecisionStats, step: float | None = None) -> Gamma:
        # an entry adds 1/2 to the shape and weight (target - f)^2 / 2 to the rate
        law = Gamma(np.array([self.prior[0] + 0.5 * stats.n]), np.array([self.prior[1] + 0.5 * stats.total]))
        return law if step is None else Gamma(*(old + step * (new - old) for old, new in zip(state, law, strict=True)))

    def draw(self, state: ParameterDraw, stats: ResidualStats, key: DrawKey) -> tuple[ParameterDraw, ResidualStats]:
        """A draw from its law given the residuals, or given what entries left out say."""
        known = stats if stats.validation is None else stats.validation.stats
        tau = self.expect(NO_LAW, known).draw(key.rng(RandomStream.PRECISION))
        return ParameterDraw(tau), scored(float(tau[0]), stats)

    def bound(self, state: Gamma) -> float:
        """The log normaliser of its law minus that of its prior: what entries and precision together add."""
        (a0, b0), a, b = self.prior, float(state.a[0]), float(state.b[0])
        return a0 * math.log(b0) - a * math.log(b) + math.lgamma(a) - math.lgamma(a0)

    def log_normaliser(self, n: float) -> float:
        """That of n Gaussians of precision 1."""
        return -0.5 * n * math.log(2.0 * math.pi)

    def results(self, law: Gamma) -> dict[str, tuple[Any, ...]]:
        return {"noise": (float(law.a[0]), float(law.b[0]))}


def alike(y: np.ndarray, theta: float) -> np.ndarray:
    """A parameter that all entries share, in an array like y."""
    of_all = room_of(y).empty(y.shape)
    of_all[:] = theta
    return of_all


def scored(tau: float, stats: ResidualStats) -> ResidualStats:
    """With the mean log density of the residuals, of this precision; nan of none."""
    return stats if stats.drawn else stats._replace(score=mean_log_density(tau, stats.total, stats.n))


def mean_log_density(tau: float, squares: float, n: float) -> float:
    """The mean log density of n residuals of precision tau, whose squares add up to so much; nan of none."""
    return float(0.5 * np.log(tau) - LOG_SQRT_2PI - 0.5 * tau * squares / n) if n else np.nan
