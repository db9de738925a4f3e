"""The learned prior: a law for each mode, of rows that are alike, that differ by features, or that are coupled."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tensorcep.priors.base import Arrays, Drift, LearnedPrior, ModeLaw, ModeParameters, ModePrior, Neighbours, Slopes
from tensorcep.priors.coupled import CoupledLaw, Joint, Known, Prepared, prepared
from tensorcep.priors.features import Design
from tensorcep.priors.normal_wishart import MEAN_ROWS, Expected, NormalWishartLaw
from tensorcep.priors.regression import STRENGTH, FeaturesLaw, PreparedFeatures, leverage, ready


@dataclass(frozen=True, eq=False)
class PriorByMode(LearnedPrior):
    """Rows whose prior is learned mode by mode; its methods are those of `base.LearnedPrior`."""

    designs: tuple[Design | None, ...] = ()  # the features of the rows of each mode; nothing where none has any
    clocks: tuple[Known | None, ...] = ()  # the axis of each mode that is a series, and the graph of each that is one
    feature_strength: tuple[float, float] = STRENGTH  # prior shape and rate, in units of features' mean square length
    have: tuple[PreparedFeatures | Prepared | None, ...] = ()  # of the rows with entries; nothing before `for_rows`

    def for_rows(self, seen: Sequence[np.ndarray]) -> PriorByMode:
        have: list[Any] = []
        for own, design, clock in itertools.zip_longest(seen, self.designs, self.clocks):
            have.append(None if clock is None else prepared(clock, own, self.strength))
            if design is not None:
                have[-1] = ready(design.some(own), self.strength * MEAN_ROWS, self.feature_strength)
        return replace(self, have=tuple(have))

    @cached_property
    def laws(self) -> tuple[ModeLaw | None, ...]:
        """The law of each mode; None where no column is free."""
        laws: list[ModeLaw | None] = []
        for k, free in enumerate(self.free):
            have = self.have[k] if self.have else None
            kind: Any = FeaturesLaw if isinstance(have, PreparedFeatures) else CoupledLaw
            kind, more = (NormalWishartLaw, ()) if have is None else (kind, (have,))
            given = free, self.mean[k, free], self.scale[k, free], self.strength, *more
            laws.append(kind(*given) if free.any() else None)
        return tuple(laws)

    @cached_property
    def _in_turn(self) -> list[int]:
        """The modes with free columns in the order in which they draw from one stream of random numbers."""
        kinds: list[Any] = [NormalWishartLaw, FeaturesLaw, CoupledLaw]
        some = [k for k, law in enumerate(self.laws) if law is not None]
        return sorted(some, key=lambda k: kinds.index(type(self.laws[k])))

    def learn(self, means: Arrays, covs: Arrays, coupled: Neighbours = ()) -> tuple[Any, ...]:
        """The posterior of the parameters of each mode; None where no column is free."""
        parts = zip(self.laws, means, covs, coupled or [None] * len(means), strict=True)
        return tuple(None if law is None else law.posterior(mean, cov, more) for law, mean, cov, more in parts)

    def expectation(self, now: ModePrior, posterior: tuple[Any, ...]) -> ModePrior:
        parts = zip(self.laws, posterior, strict=True)
        return self._in_all(now, [None if law is None or q is None else law.expectation(q) for law, q in parts])

    def draw(self, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
        found: list[ModeParameters | None] = [None] * len(rows)
        for k in self._in_turn:
            law: Any = self.laws[k]
            found[k] = law.draw(self._in_free(now, k) if isinstance(law, FeaturesLaw) else None, rows[k], rng)
        return self._in_all(now, found)

    def bound(self, posterior: tuple[Any, ...]) -> float:
        parts: list[Any] = [(self.laws[k], posterior[k]) for k in self._in_turn if posterior[k] is not None]
        coupled = [law.bound(q) for law, q in parts if isinstance(law, CoupledLaw)]
        return sum(law.bound(q) for law, q in parts if not isinstance(law, CoupledLaw)) + sum(coupled, 0.0)

    def shift(self, k: int, modes: ModePrior, natural: bool = False) -> np.ndarray | None:
        design, slopes = self.designs[k] if self.designs else None, modes.slopes[k] if modes.slopes else None
        if design is None or slopes is None:
            return None
        return design.times(slopes.coef @ modes.precision[k] if natural else slopes.coef)

    def unsure(self, k: int, modes: ModePrior, rows: np.ndarray) -> np.ndarray | None:
        design, slopes = self.designs[k] if self.designs else None, modes.slopes[k] if modes.slopes else None
        have = self.have[k] if self.have else None
        if design is None or slopes is None or not isinstance(have, PreparedFeatures):
            return None
        return leverage(have, design.some(rows), slopes.strength)

    def axis(self, k: int) -> Prepared | None:
        have = self.have[k] if self.have and self.free[k].any() else None
        return None if isinstance(have, PreparedFeatures) else have

    def links(self, k: int, modes: ModePrior) -> Joint | None:
        law = self.laws[k] if modes.drifts and modes.drifts[k] is not None else None
        return law.links(self._in_free(modes, k)) if isinstance(law, CoupledLaw) else None

    def chained(self, k: int, posterior: tuple[Any, ...]) -> Any:
        return getattr(posterior[k], "chained", None)

    def _in_free(self, modes: ModePrior, k: int) -> ModeParameters:
        """What is known of mode k, in its free columns."""
        free, slopes = self.free[k], modes.slopes[k] if modes.slopes else None
        drift = modes.drifts[k] if modes.drifts else None
        slopes = None if slopes is None else slopes._replace(coef=slopes.coef[:, free])
        drift = None if drift is None else drift._replace(length=drift.length[free], season=drift.season[:, free])
        return ModeParameters(modes.mean[k, free], modes.precision[k][np.ix_(free, free)], slopes, drift)

    def _in_all(self, now: ModePrior, found: Sequence[ModeParameters | None]) -> ModePrior:
        """What was learned of each mode in all columns; those that are not free keep their present prior `now`."""
        mean, precision = now.mean.copy(), now.precision.copy()
        slopes: list[Slopes | None] = [None] * len(found)
        drifts: list[Drift | None] = [None] * len(found)
        for k, (own, free) in enumerate(zip(found, self.free, strict=True)):
            if own is None:
                continue
            if len(own.mean) == len(free):
                mean[k], precision[k] = own.mean, own.precision
            else:
                mean[k, free], precision[k][np.ix_(free, free)] = own.mean, own.precision
            if own.slopes is not None:
                slopes[k] = own.slopes._replace(coef=_wide(own.slopes.coef, free))
            if own.drift is not None:
                length, season = _wide(own.drift.length[None], free)[0], _wide(own.drift.season, free)
                drifts[k] = own.drift._replace(length=length, season=season)
        return ModePrior(mean, precision, tuple(slopes) if self.designs else (), tuple(drifts) if self.clocks else ())


def _wide(lines: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Lines (n, D) of the free columns as lines (n, R), of which the others are 0."""
    whole = np.zeros((len(lines), len(free)))
    whole[:, free] = lines
    return whole


def expected_of(prior: Any) -> Expected:
    """What a learned prior expects of rows before any entry."""
    mean, scale = (np.array(part, order="C") for part in (prior.mean, prior.scale))  # as a file brings them back
    return Expected(mean, scale, float(prior.strength))
