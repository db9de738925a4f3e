"""Ordered levels of any kind: their order, and the numbers 0, 1, ... in their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.arrays import empty_near, fill_by_parts, leaves
from tensorcep.core.checks import check_choice, check_unmasked, check_values, fail_value, warn_user
from tensorcep.cp.inputs.coordinates import Entries
from tensorcep.cp.targets.base import Chosen, Decided, Facts, Observation, OfEach, Target, classed_entries
from tensorcep.likelihoods.base import Likelihood, log_density
from tensorcep.likelihoods.ordinal import FEWEST, LINKS, MOST, constant_of, ordinal, shares_of


def classes_of(y: Any) -> list[Any]:
    """The 2 to 20 levels of a fit in their order: all of an ordered Categorical, else those that occur, sorted."""
    dtype = getattr(y, "dtype", None)
    ordered = isinstance(dtype, pd.CategoricalDtype) and bool(dtype.ordered)
    classes = (plain(y.dtype.categories.to_numpy()) if ordered else np.unique(plain(y))).tolist()
    if not FEWEST <= len(classes) <= MOST:
        some = ", ".join(map(repr, classes[:3]))
        fail_value(
            f"y must hold {FEWEST} to {MOST} different levels; got {len(classes)}, such as {some}; use CPRegressor for "
            "values that are no levels."
        )
    if len(classes) > FEWEST and isinstance(classes[0], str) and not ordered:
        warn_user(
            f"the levels are text without an order and are taken in that of the alphabet, {' < '.join(classes)}; give "
            "y as an ordered Categorical, or as numbers, for another."
        )
    return list(classes)


def coded(y: Any, classes: list[Any]) -> np.ndarray:
    """Levels as float64 numbers 0, 1, ... in the order of the classes, refused if one is of none."""
    levels, place = plain(y), {level: float(k) for k, level in enumerate(classes)}
    found = np.array([place.get(level, np.nan) for level in levels.ravel().tolist()]).reshape(levels.shape)
    if np.isnan(found).any():
        n = int(np.argmax(np.isnan(found.ravel())))
        fail_value(
            f"y must hold the levels {', '.join(map(repr, classes))}; got {levels.ravel()[n : n + 1].tolist()[0]!r} at "
            f"entry {n}."
        )
    return found


def worth_of(classes: list[Any]) -> list[float] | None:
    """What the levels are worth: themselves where they are growing numbers, otherwise nothing but their places."""
    if isinstance(classes[0], str) or not (np.diff(classes) > 0.0).all():
        return None
    return [float(level) for level in classes]


def is_text(labels: np.ndarray) -> bool:
    """Whether all labels, or levels, are words."""
    return labels.dtype.kind in "UO" and labels.ndim == 1 and all(isinstance(label, str) for label in labels)


def plain(y: Any) -> np.ndarray:
    """Labels, or levels, as an array of text or of finite numbers."""
    levels = np.asarray(check_unmasked(y, "y"))
    if is_text(levels):
        return levels.astype(str)
    check_none_missing(levels)
    numbers = check_values(levels, name="y")
    return levels if levels.dtype.kind in "iu" else numbers


def check_none_missing(labels: np.ndarray) -> None:
    """Refuse words some of which are missing, as in a Categorical."""
    missing = pd.isna(labels)
    if labels.dtype.kind == "O" and missing.any() and any(isinstance(label, str) for label in labels.ravel()):
        n = int(np.argmax(missing))
        fail_value(
            f"y must have no missing labels; got {missing.sum()}, the first at entry {n}; leave such entries out."
        )


@dataclass(frozen=True)
class LevelObservation(Observation):
    """What a fit to ordered levels decided; `shares` (L,) are how often each of the levels was seen."""

    ESTIMATOR = "CPOrdinalClassifier"
    FACTS = ("link_", "_shares", "_classes")

    link: str = "probit"
    shares: tuple[float, ...] | list[float] = (1.0, 1.0)
    classes: tuple[Any, ...] | list[Any] = (0, 1)

    @property
    def likelihood(self) -> Likelihood:
        return ordinal(self.link, self.shares, worth_of(list(self.classes)))

    def coded(self, y: Any) -> np.ndarray:
        return coded(y, list(self.classes))

    def decoded(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.array(list(self.classes))[y.astype(np.int64)])


@dataclass(frozen=True)
class LevelTarget(Target):
    """What a user says of ordered levels; see the parameters of `CPOrdinalClassifier`. `classes` are found in y."""

    OBSERVATION = LevelObservation

    link: str = "probit"
    classes: tuple[Any, ...] = (0, 1)

    def asked(self, method: str) -> Likelihood:
        """That of the link; how many levels there are makes no difference."""
        return ordinal(check_choice("link", self.link, LINKS), np.ones(3))

    def decide(self, y: np.ndarray, chosen: Chosen, coords: np.ndarray, extent: OfEach, weight: OfEach) -> Decided:
        shares = shares_of(y, len(self.classes), weight).tolist()
        return ordinal(self.link, shares, worth_of(list(self.classes))), {"link_": self.link, "_shares": shares}

    def knowing(self, coding: Mapping[str, Any]) -> Target:
        return replace(self, classes=tuple(coding.get("_classes", self.classes)))

    def intercept(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> float:
        """The latent value that makes every level as likely as it is among y."""
        levels: Any = likelihood.levels
        return constant_of("logit" if levels.logistic else "probit", shares_of(y, levels.n, weight))

    def latent_guess(self, y: np.ndarray, likelihood: Likelihood, weight: OfEach = None) -> np.ndarray:
        """A step up the log likelihood from the constant."""
        levels: Any = likelihood.levels
        constant = self.intercept(y, likelihood, weight)

        def guessed(at: slice) -> np.ndarray:
            low, high = levels.between(y[at], levels.start)
            return np.asarray(constant + log_density(likelihood.loglik, low, constant, high)[1])

        return fill_by_parts(empty_near(y), guessed)

    def code_columns(self, values: np.ndarray) -> Facts:
        classes = classes_of(np.unique(np.concatenate([np.unique(values[a:b]) for a, b in leaves(len(values))])))
        fill_by_parts(values, lambda at: coded(values[at], classes))
        return {"_classes": classes}

    def entries(self, X: Any, y: Any, shape: tuple[int, ...] | None) -> tuple[Entries, Facts]:
        return classed_entries(X, y, shape, classes_of, coded)
