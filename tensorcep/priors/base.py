"""What a prior of the rows is made of, what of it results keep, and the prior that every row has at present."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from tensorcep.core.arrays import sum_of_lines
from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.core.persist.records import Sized
from tensorcep.kernels.rows import row_moments


class Slopes(NamedTuple):
    """How the prior mean of a mode's rows depends on their F features."""

    coef: Annotated[np.ndarray, Sized("_ R")]  # (F, R): a row with the features x has the mean of its mode plus x coef
    strength: float  # precision of coef beside that of the rows


class Drift(NamedTuple):
    """How the rows of a mode that is a series depend on each other."""

    # (R,): of the process of each column, in steps of the axis; 0 where rows do not depend on each other
    length: Annotated[np.ndarray, Sized("R")]
    # (P, R): what rows of each phase are expected to have above the mean of their mode; none without a season
    season: Annotated[np.ndarray, Sized("_ R")]


class RowSites(NamedTuple):
    """What the entries say of the rows of a mode that depend on each other, in its D free columns."""

    place: Annotated[np.ndarray, Sized("_", "i")]  # (m,) int64: these rows of the mode; entries say nothing of others
    Lam: Annotated[np.ndarray, Sized("_ _")]  # natural parameters, (m, D (D + 1) / 2)
    eta: Annotated[np.ndarray, Sized("_ _")]  # (m, D)


class ModePrior(NamedTuple):
    """One Gaussian prior for the rows of each mode, where it was learned."""

    mean: Annotated[np.ndarray, Sized("K R")]  # of a row without features; of a series that of a row far from others
    precision: Annotated[np.ndarray, Sized("K R R")]
    slopes: tuple[Slopes | None, ...] = ()  # an item for each mode where a mode has some
    drifts: tuple[Drift | None, ...] = ()  # an item for each mode where a mode is a series


class Coupled(NamedTuple):
    """Moments of the rows of a series, in the order of its axis: variances (n, R), and covariances of neighbours."""

    variance: np.ndarray
    cross: np.ndarray


Moments = tuple[np.ndarray, np.ndarray]  # of rows: means (n, R) and packed covariances (n, P)
Arrays = list[np.ndarray]  # of each mode
Neighbours = Sequence[Coupled | None]


@dataclass(frozen=True, eq=False)
class RowPrior:
    """What is known of rows before their data: one Gaussian each. Here rows have no features and are independent."""

    Lam: np.ndarray  # (n, P): natural parameters to begin with, a line for each row or mode (see `per_row`)
    eta: np.ndarray  # (n, R)
    learned: ClassVar[bool] = False  # whether it has parameters that are learned

    @property
    def clocks(self) -> tuple[Any, ...]:
        """Of each mode its axis (`series.Clock`) or graph (`graph.Net`) or None; nothing where none has one."""
        return ()

    def for_rows(self, seen: Sequence[np.ndarray]) -> Any:
        """The prior that learns from those rows of each mode that have entries, (n_k,) bool."""
        return self

    def shift(self, k: int, modes: ModePrior, natural: bool = False) -> np.ndarray | None:
        """How far (natural) means of the rows of mode k are from that of their mode, (n_k, R); None: not at all."""
        return None

    def unsure(self, k: int, modes: ModePrior, rows: np.ndarray) -> np.ndarray | None:
        """What features leave open of prior means of some rows of mode k, in units of their own covariance, (n,)."""
        return None

    def axis(self, k: int) -> Any:
        """Mode k as a series (`ou_process.Axis`) or a graph (`gmrf.Field`); None where its rows are independent."""
        return None

    def links(self, k: int, modes: ModePrior) -> Any:
        """The prior of the rows with entries of mode k where they are coupled (`coupled.Joint`); None where not."""
        return None

    def chained(self, k: int, posterior: Any) -> Any:
        """The expected one of these under the posterior of the parameters (`coupled.Chained`)."""
        return None

    def in_columns(self, Lam: np.ndarray, eta: np.ndarray, index: np.ndarray) -> Any:
        """The same prior for the columns index (K, Q) of each mode, -1 being padding; Lam and eta are theirs."""
        return replace(self, Lam=Lam, eta=eta)


@dataclass(frozen=True, eq=False)
class LearnedPrior(RowPrior):
    """A prior with parameters of its own, which are learned from the rows that have entries."""

    # Their posterior follows from the rows' moments (`learn`) and gives the prior that the rows should have
    # (`expectation`, or `draw` for samplers) and what it adds to a lower bound (`bound`): these four make a prior.
    mean: np.ndarray  # (K, R): what is expected of a row of each mode before any entry
    scale: np.ndarray  # (K, R): the deviation from it
    free: np.ndarray  # (K, R) bool: columns that are inferred; the others keep the prior that they have
    # How many times as much as by default that counts. Without bound, the rows' prior stays at its expectation.
    strength: float = 1.0
    learned: ClassVar[bool] = True

    def learn(self, means: Arrays, covs: Arrays, coupled: Neighbours = ()) -> Any:
        """The posterior given, per mode, means (n, R), the sum of covariances (R, R), and those of neighbours."""
        raise NotImplementedError

    def expectation(self, now: ModePrior, posterior: Any) -> ModePrior:
        """The rows' prior under the posterior of the parameters; columns that are not free keep that of `now`."""
        raise NotImplementedError

    def draw(self, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
        """A draw of the rows' prior given draws of the rows, (n_k, R) per mode."""
        raise NotImplementedError

    def bound(self, posterior: Any) -> float:
        """What the parameters add to a lower bound that takes their expectation for the rows' prior."""
        raise NotImplementedError

    def in_columns(self, Lam: np.ndarray, eta: np.ndarray, index: np.ndarray) -> Any:
        """The same prior for the columns index (K, Q) of each mode; padding (-1) is N(0, 1), and not free."""
        used, take = index >= 0, np.maximum(index, 0)
        mean, scale = (np.take_along_axis(part, take, axis=1) for part in (self.mean, self.scale))
        return replace(self, Lam=Lam, eta=eta, mean=mean * used, scale=np.where(used, scale, 1.0), free=used)


class ModeParameters(NamedTuple):
    """What is learned of the prior of a mode's rows, in D columns: mean (D,), precision (D, D), slopes or a drift."""

    mean: np.ndarray
    precision: np.ndarray
    slopes: Slopes | None = None
    drift: Drift | None = None


class ModeLaw(Protocol):
    """The law of the parameters of a mode's prior; `PriorByMode` has one for each mode, its posterior `q` a record."""

    # Its fields: free (R,) bool, columns that are inferred; centre and width (D,), what is expected of a row before
    # any entry and the deviation from it, in these; and weight, how many times as much as by default that counts.
    # Given the moments of the rows with entries: means (n, R), the sum of covariances, those of neighbours
    def posterior(self, mean: np.ndarray, cov: np.ndarray, coupled: Coupled | None) -> Any: ...
    def expectation(self, q: Any) -> ModeParameters: ...  # the prior that the rows should have
    # Given draws (n, R) of the rows with entries; `now` is the draw before, where that matters
    def draw(self, now: ModeParameters | None, rows: np.ndarray, rng: np.random.Generator) -> ModeParameters: ...
    def bound(self, q: Any) -> float: ...  # what the parameters add to a lower bound that takes the `expectation`


class Conditional(NamedTuple):
    """The prior that the rows have at present."""

    Lam: np.ndarray  # (n, P): natural parameters, a line for each row, or one for each mode (see `per_row`)
    eta: np.ndarray  # (n, R)
    modes: ModePrior | None  # the same per mode, where it is learned
    # (n_rows,) bool: rows that it is learned from: those with entries, and those of a graph that are not integrated out
    seen: np.ndarray


Shape = Sequence[int]


def per_row(lines: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A line for each row, of such lines or of one for each mode."""
    return np.repeat(lines, shape, axis=0) if len(lines) == len(shape) else lines


def of_mode(lines: np.ndarray, k: int, shape: Sequence[int]) -> np.ndarray:
    """A line for each row of mode k, or one for all of them."""
    return lines[k : k + 1] if len(lines) == len(shape) else lines[slice(*offsets(shape)[k : k + 2])]


def for_kernel(lines: np.ndarray, k: int, shape: Sequence[int]) -> np.ndarray:
    """Lines of which line min(i, last) is that of packed row i, a row of mode k."""
    return lines[k : k + 1] if len(lines) == len(shape) else lines


def conditional_of_modes(modes: ModePrior, seen: np.ndarray) -> Conditional:
    """The prior of every row from that of its mode."""
    return Conditional(pack(modes.precision), np.einsum("kij,kj->ki", modes.precision, modes.mean), modes, seen)


def in_modes(flags: np.ndarray, shape: Sequence[int]) -> list[np.ndarray]:
    """The flags (n_rows,) of the rows of each mode."""
    return [flags[a:b] for a, b in itertools.pairwise(offsets(shape))]


def of_rows(lines: np.ndarray, prior: RowPrior, modes: ModePrior, shape: Shape, natural: bool = False) -> np.ndarray:
    """Prior means, or natural ones, of all rows, (n_rows, R), where those of a mode differ; else the modes' lines."""
    shifts = [prior.shift(k, modes, natural) for k in range(len(shape))]
    if all(shift is None for shift in shifts):
        return lines
    means = np.repeat(lines, shape, axis=0)
    for own, shift in zip(itertools.pairwise(offsets(shape)), shifts, strict=True):
        if shift is not None:
            means[slice(*own)] += shift
    return means


def moments_per_mode(mean: np.ndarray, cov: np.ndarray, seen: np.ndarray, shape: Shape) -> tuple[Arrays, Arrays]:
    """Means (n, R) of the rows of each mode that have entries, and the sum of their covariances (R, R)."""
    own = [slice(a, b) for a, b in itertools.pairwise(offsets(shape))]
    sums = [unpack(sum_of_lines(cov[k], seen[k]), mean.shape[1]) for k in own]
    return [mean[k][seen[k]] for k in own], sums


def damped(old: ModePrior, new: ModePrior, step: float) -> ModePrior:
    """The fraction `step` of the way from the old to the new natural parameters; of a series the new ones."""
    if step == 1.0:
        return new
    precision = old.precision + step * (new.precision - old.precision)
    natural_old, natural_new = (np.einsum("kij,kj->ki", p.precision, p.mean) for p in (old, new))
    natural = natural_old + step * (natural_new - natural_old)
    mean = np.linalg.solve(precision, natural[..., None])[..., 0]
    slopes = list(new.slopes)
    for k, found in enumerate(new.slopes):  # natural ones move, from 0 at first
        if found is not None:
            product = step * found.coef @ new.precision[k]
            before = old.slopes[k] if old.slopes else None
            if before is not None:
                product = product + (1.0 - step) * before.coef @ old.precision[k]
            slopes[k] = found._replace(coef=np.linalg.solve(precision[k], product.T).T)
    return ModePrior(mean, precision, tuple(slopes), new.drifts)


def moments_of(Lam: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means (m, R), packed covariances (m, P), and good (m,), 0 where a row is no Gaussian, or with roles exchanged."""
    Lam, eta = np.ascontiguousarray(Lam), np.ascontiguousarray(eta)
    mean, cov, good = np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta))
    row_moments(0, len(eta), Lam, eta, mean, cov, good)
    return mean, cov, good
