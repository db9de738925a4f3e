"""What the values of a fit are: what a user says of them (`Target`), and what a fit decided (`Observation`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from tensorcep.core.arrays import mean_square
from tensorcep.core.checks import fail_value
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs.batches import Coder
from tensorcep.cp.inputs.coordinates import Entries, refuse_others, training_entries
from tensorcep.cp.inputs.weights import Weighted
from tensorcep.cp.model.entries import OfEach as OfEach
from tensorcep.cp.model.problem import Uneven
from tensorcep.cp.posterior import EntryTheta, GammaNoise
from tensorcep.entries.io import Batch
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors import LEARNED
from tensorcep.priors.fixed import Prior

Known = TypeVar("Known", bound="Observation")
# What a fit decided, by the names that files give it.
Facts = dict[str, Any]
Decided = tuple[Likelihood, Facts]


class Chosen(NamedTuple):
    """What a fit is to be: the parameters that may be "auto", and the settings of the method."""

    method: str
    settings: Settings
    rank: int
    prior: Any  # "fixed", "learned", "ard" or a Prior
    parts: dict[str, int]  # columns of each part, as `tensorcep.cp.model.columns.parts_of` gives them
    max_iter: int
    members: int  # fits that are mixed
    uniform: bool  # whether means of rows are drawn where the prior is fixed
    from_least: bool  # whether positive rows stand for values above the least one: in streams that choose their prior
    random: bool  # whether the starts of rows differ from one another

    @property
    def prior_name(self) -> str:
        return "given" if isinstance(self.prior, Prior) else str(self.prior)

    @property
    def has_positive_rows(self) -> bool:
        """Whether rows have the paper's prior, whose mean is positive."""
        return self.prior_name == "fixed" and self.uniform and not (self.parts["main"] or self.parts["pair"])

    @property
    def learns_prior(self) -> bool:
        return self.prior_name in LEARNED


def classed_entries(
    X: Any, y: Any, shape: tuple[int, ...] | None, classes_of: Callable[[Any], list[Any]], coded: Callable[..., Any]
) -> tuple[Entries, Facts]:
    """Checked entries whose labels are coded as numbers, and the classes that `classes_of` finds in them."""
    given = X.values if isinstance(X, SparseTensor) and y is None else y
    if given is None or np.size(given) == 0:
        return training_entries(X, y, shape), {}
    classes = classes_of(given)
    if isinstance(X, SparseTensor):
        coords, values, sizes, labels = training_entries(X, y, shape)
        return (coords, coded(values, classes), sizes, labels), {"_classes": classes}
    return training_entries(X, coded(y, classes), shape), {"_classes": classes}


@dataclass(frozen=True)
class Observation:
    """How a fit took its values: decided once, held by its file, asked by every prediction."""

    ESTIMATOR: ClassVar[str]
    of_logs: ClassVar[bool] = False  # whether latent values are logarithms of counts
    # What files call its fields: their names, with underscores around them.
    FACTS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls: type[Known], facts: Mapping[str, Any]) -> Known:
        """The observation of which these facts, by their names in files, are known; others are as by default."""
        return cls(**{name.strip("_"): facts[name] for name in cls.FACTS if name in facts})

    def with_facts(self: Known, facts: Mapping[str, Any]) -> Known:
        """The observation with other facts; of names that it does not have nothing is taken."""
        return self.of({**self.facts, **facts})

    @property
    def facts(self) -> Facts:
        """The fields by their names in files."""
        return {name: getattr(self, name.strip("_")) for name in self.FACTS}

    @property
    def likelihood(self) -> Likelihood:
        """That of the fit."""
        raise NotImplementedError

    @property
    def origin(self) -> float:
        """What a latent value in the units of y is beside the CP sum."""
        return 0.0

    @property
    def has_extents(self) -> bool:
        """Whether the fit had exposures or numbers of trials."""
        return False

    def coded(self, y: Any) -> Any:
        """Observations as likelihoods know them."""
        return y

    def decoded(self, y: np.ndarray) -> np.ndarray:
        """New observations of likelihoods as users know them."""
        return y

    def extent_of(self, X: Any, given: dict[str, Any], needed: bool = False) -> OfEach:
        """Extents (n,) of entries to predict, None where they have none; `needed`: they cannot be left out."""
        refuse_others(self.ESTIMATOR, given)
        return None

    def without_extent(self, X: Any, given: dict[str, Any] | None = None) -> Any:
        """Entries without a column that holds extents."""
        return X


@dataclass(frozen=True)
class Target:
    """What a user says of the values: the parameters that only some estimators have."""

    OBSERVATION: ClassVar[type[Observation]]
    is_scaled: ClassVar[bool] = False  # whether latent values have the units of the data
    # What estimators that do not have these parameters mean by them.
    noise = "one"
    dispersion = None
    zero_inflation = False

    def check(self) -> None:
        """Refuse parameters that no fit takes, whatever the entries: files may hold any."""

    def likelihoods(self) -> list[Likelihood]:
        """Those that a fit may come to, by its method."""
        return [self.asked("auto")]

    def asked(self, method: str) -> Likelihood:
        """The likelihood that a method, which may be "auto", is chosen for, after the checks of what names it."""
        raise NotImplementedError

    def decide(self, y: np.ndarray, chosen: Chosen, coords: np.ndarray, extent: OfEach, weight: OfEach) -> Decided:
        """The likelihood of a fit to y at coords (n, K), by weights, and the facts that say so."""
        raise NotImplementedError

    def decide_noise(self, labels: Any, chosen: Chosen, streaming: bool, prior: Any) -> tuple[Uneven | None, Facts]:
        """How the noise of a fit differs, None where it does not, and the facts that say so."""
        return None, {}

    def checked(self, y: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        """Values as the likelihood has them."""
        return likelihood.check_y(y)

    def has_intercept(self, chosen: Chosen) -> bool:
        """Whether the mean of y is subtracted before the fit."""
        return False

    def is_wild(self, values: np.ndarray) -> bool:
        """Whether one of the values could decide all of a fit by chains."""
        return False

    def gamma_noise(self, y: np.ndarray, weight: OfEach = None) -> GammaNoise | None:
        """The prior of the noise precision; None where there is no such noise."""
        return None

    def intercept(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> float:
        """Latent value that every entry would have if they did not differ, where main effects need one to start at."""
        return 0.0

    def latent_guess(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> np.ndarray:
        """What the latent values that belong to y may be, (n,), from which scales are taken."""
        return y

    def auto_scale(self, y: np.ndarray, order: int, rank: int, weight: OfEach = None) -> float:
        """Prior standard deviation of a factor element when prior_scale="auto"."""
        # where units are those of the data, a sum of `rank` products of `order` factors then has the mean square of y
        square = mean_square(y, weight) if self.is_scaled else 0.0
        return float((square / rank) ** (0.5 / order)) if square > 0.0 else 1.0

    def entries(self, X: Any, y: Any, shape: tuple[int, ...] | None) -> tuple[Entries, Facts]:
        """Checked entries with values as likelihoods know them, and the facts that say how they were coded."""
        return training_entries(X, y, shape), {}

    def code_columns(self, values: np.ndarray) -> Facts:
        """Code the values of files in place; gives the facts that say how."""
        return {}

    def knowing(self, coding: Mapping[str, Any]) -> Target:
        """The target as the plan of a fit sees it, where how entries are coded is needed there."""
        return self

    def coder(self, before: Any) -> Coder | None:
        """What codes the labels of batches, as the observation so far (None before the first one) has them."""
        return None

    def of_batch(self, batch: Batch) -> Facts:
        """The facts that a batch whose labels are coded tells of them."""
        return {}

    def of_source(self, source: Any, before: Any = None) -> Facts:
        """The facts that the source of entries knows beyond them; `before` is what an earlier batch left."""
        return {}

    def check_even(self, theta: EntryTheta | None, needs: str) -> None:
        """Refuse a fit whose noise or dispersion differs; `needs` begins the sentence."""
        if theta is None or theta.uneven is None:
            return
        name, one = ("noise", "one") if self.dispersion is None else ("dispersion", "learned")
        fail_value(f"{needs} {name}={one!r}; got a fit with {name}={getattr(self, name)!r}; fit with the new rows.")

    def of_new(self, observation: Any, stream: Any, prior: Any) -> Likelihood:
        """The likelihood of observations to predict, after a stream, if there was one, with this parameter `prior`."""
        return observation.likelihood

    def for_batches(self) -> Target:
        """The target of values that are learned batch by batch from the first one on."""
        return self

    def split_extents(self, X: Any, given: dict[str, Any], call: str = "fit") -> tuple[Any, Any, str | None]:
        """X without a column of exposures, these, and that column; None where there are none."""
        refuse_others(f"{self.OBSERVATION.ESTIMATOR}.{call}", given)
        return X, None, None

    def column_of_extents(self, given: dict[str, Any]) -> str | None:
        """The column of exposures or trials that `stream` was told of; None where there is none."""
        refuse_others(f"{self.OBSERVATION.ESTIMATOR}.stream", given)
        return None

    def checked_extents(self, extents: Any, n: int) -> np.ndarray | None:
        """The extents of n values, None where they have none."""
        return None

    def summed(self, weighted: Weighted) -> Weighted:
        """The entries of a fit with extents, those of one cell as one where the likelihood takes them so."""
        return weighted

    def in_units(self, extents: OfEach, column: str | None, before: Any, weight: OfEach) -> tuple[OfEach, Facts]:
        """What the fit gets of extents, by weights, and the facts that tell of it; `before` is what it goes on from."""
        return None, {}

    def batch_in_units(self, batch: Batch, before: Any) -> tuple[Batch, Facts]:
        """A batch whose extents are in the model's unit, and the facts that tell of them."""
        return batch, {}


# Values that outweigh all others together: what a fit does not learn from a stream, and warns of elsewhere.

# The share of values that may be errors.
ERRORS = 0.1
# A value that nothing predicts outweighs all others if its square, or its count, is so many times that of these
# together. Fewer values tell nothing of one of them.
OUTWEIGHS, FEWEST = 100.0, 20


def outweighing(size: np.ndarray, least: float = 0.0, times: float = 1.0) -> np.ndarray:
    """Which of some sizes (N,) are each larger than so many times all smaller ones and `least` together, (N,) bool."""
    order = np.argsort(size, kind="stable")
    rest = least + np.append(0.0, np.cumsum(size[order])[:-1])
    out, found = np.zeros(len(size), dtype=bool), np.flatnonzero((size[order] > times * rest) & (rest > 0.0))
    first = found[found >= len(size) // 2]  # the most are no exceptions
    out[order[first.min(initial=len(size)) :]] = True  # of equal ones, or such as hide others, all
    return out


def deciding(values: np.ndarray, counts: bool) -> np.ndarray:
    """Which values (N,) that nothing predicts are errors, so far as they outweigh all others by far, (N,) bool."""
    none = np.zeros(len(values), dtype=bool)
    apart = values if counts else np.abs(values - np.median(values))
    if len(values) < FEWEST or not apart.max() > 0.0:
        return none
    # Those between the median and the errors weigh at least this much, so that most data need not be sorted.
    typical, others = float(np.median(apart)), (0.5 - ERRORS) * len(values)
    if float(apart.max()) <= typical * (OUTWEIGHS * others) ** (1.0 if counts else 0.5):
        return none
    out = outweighing(apart, 1.0, OUTWEIGHS) if counts else outweighing((apart / apart.max()) ** 2, times=OUTWEIGHS)
    return out if out.sum() <= ERRORS * len(values) else none
