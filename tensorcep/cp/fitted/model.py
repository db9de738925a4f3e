"""What a fit leaves (`FitResult`), and that together with the parameters that questions heed (`FittedModel`).

Every question about a fitted model is a function of a `FittedModel`, in the files beside this one. Results are never
changed: a fit, a batch of a stream, or new rows give another one, which the estimator puts in its place in one step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorcep.core.checks import fail_value, warn_user
from tensorcep.core.executor import threads_of
from tensorcep.core.packing import diagonal, pack, unpack
from tensorcep.cp.fitted import alignment
from tensorcep.cp.fitted.alignment import Aligned, RowLayout
from tensorcep.cp.fitted.diagnostics import Diagnostics
from tensorcep.cp.inputs.coordinates import packed_rows
from tensorcep.cp.methods import METHODS, methods_with, refuse_unable
from tensorcep.cp.model.columns import free_columns, modes_of_columns
from tensorcep.cp.plan.spec import FitSpec
from tensorcep.cp.posterior import Components, Draws, Result
from tensorcep.cp.targets.base import Observation
from tensorcep.entries.labels import Labels
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors.features import Design
from tensorcep.priors.graph import Net
from tensorcep.priors.series import Clock

AllLabels: TypeAlias = tuple[Labels | None, ...]
# The share of like draws up to which components say little of the fit, and the mean square, in posterior variances,
# from which on their latent values are not those of the predictions.
MAJORITY, BEYOND = 0.5, 1.0


class FittedRows(NamedTuple):
    """The posterior of all rows and their labels; a stream has another class with these, made when somebody asks."""

    posterior: Result
    belief: Components  # the same as predictions take it, with unknown rows
    labels: AllLabels


def rows_of_posterior(posterior: Result, labels: AllLabels, mean: np.ndarray, cov: np.ndarray) -> FittedRows:
    """Rows with this posterior, refused if not finite; `mean` (K, R) and `cov` (K, R, R) of rows without entries."""
    belief = posterior.components(Components(mean[None], pack(cov)[None]))
    arrays = (array for array in (belief.mean, belief.cov) if array is not None)
    if not all(np.isfinite(of_draw).all() for array in arrays for of_draw in array):
        raise FloatingPointError("the fit produced values that are not finite; add damping or a tighter prior.")
    return FittedRows(posterior.within(belief) if isinstance(posterior, Draws) else posterior, belief, labels)


@dataclass(frozen=True, eq=False, repr=False)
class FitResult:
    """What a fit, or a stream so far, left."""

    _: KW_ONLY
    rows: Any  # FittedRows or, of a stream, what makes them when somebody asks
    observation: Observation  # how it took its values
    method: str  # this and the next four are what the parameters came to
    rank: int
    max_iter: int
    prior: str
    interactions: dict[str, int]
    shape: tuple[int, ...]
    unseen_mean: np.ndarray  # (K, R), and the covariances (K, R, R), of a row of each mode that has no entries
    unseen_cov: np.ndarray
    n_iter: int
    converged: bool
    trace: dict[str, np.ndarray]
    n_samples_seen: int
    n_batches: int = 1
    features: tuple[Design | None, ...] = ()  # what is known of rows: designs and axes by mode, empty where nothing is
    series: tuple[Clock | Net | None, ...] = ()
    expected: Any = None  # what was expected of them
    apart: tuple[str, ...] = ()  # which of sample_weight and fixed_modes the fit had, which entries do not tell
    cells: np.ndarray | None = None  # (n, K) int32, those of the fit, as far as they are kept
    sampled: np.ndarray | None = None  # (n, K) int32, those of them that hold sampled zeros
    kept: Any = None  # `Kept`: entries and messages, where they are to be divided out
    stream: Any = None  # `Stream`
    diagnostics: Diagnostics | None = None
    forgotten: tuple[dict[str, Any], ...] = ()  # records of what was forgotten
    grown_from: tuple[str, ...] = ()  # digests of the model itself, and of those that it has the other rows of

    @property
    def posterior(self) -> Result:
        """The posterior of the rows."""
        return self.rows.posterior

    @property
    def belief(self) -> Components:
        """The same as predictions take it: with the rows that are not known."""
        return self.rows.belief

    @property
    def labels(self) -> AllLabels:
        """The labels of the rows of each mode; None of indices."""
        return self.rows.labels

    def changed(self, **fields: Any) -> FitResult:
        """The result with other fields."""
        return dataclasses.replace(self, **fields)

    def with_posterior(self, posterior: Result, **fields: Any) -> FitResult:
        """The result with another posterior, and other fields."""
        mean, cov = (fields.get(name, getattr(self, name)) for name in ("unseen_mean", "unseen_cov"))
        labels = fields.pop("labels", self.labels)
        return self.changed(rows=rows_of_posterior(posterior, labels, mean, cov), shape=posterior.shape, **fields)

    @property
    def likelihood(self) -> Likelihood:
        """That of the fit."""
        return self.observation.likelihood

    @property
    def layout(self) -> RowLayout:
        """Where the rows and columns of the factors are."""
        return alignment.layout_of(self.shape, self.column_modes, self.posterior.seen)

    @property
    def column_modes(self) -> list[tuple[int, ...]]:
        """The modes that each column of the factors belongs to; in the others it is 1."""
        return modes_of_columns(free_columns(self.interactions, len(self.shape)))

    @cached_property
    def aligned(self) -> Aligned:
        """Moments of the rows: of aligned draws, or those of the (best) posterior or estimate."""
        belief, layout = self.belief, self.layout
        rows, variance = belief.mean[:, : sum(self.shape)], np.zeros(())
        if belief.n_chains:
            found = alignment.align(rows, layout)
            self.warn_of_unlike(found)
            return found
        if belief.cov is not None:
            variance = belief.cov[0, : rows.shape[1], diagonal(rows.shape[2])].T
        reference = rows[0] if belief.size == 1 else alignment.reference_from(rows[0], layout)
        variance, ones = np.broadcast_to(variance, rows[0].shape), np.ones(rows.shape[2])
        return Aligned(reference, rows[0], variance, ones, np.ones(1, dtype=bool))

    def warn_of_unlike(self, found: Aligned) -> None:
        """Warn where draws do not agree on the components."""
        worst = found.unlike(self.layout)
        if worst.size:
            which = "cosine with their mean: " + ", ".join(f"{r} ({found.congruence[r]:.2f})" for r in worst[:3])
        elif found.apart > BEYOND:
            which = f"their latent values are {found.apart**0.5:.1f} standard deviations from the predicted ones"
        elif found.alike <= MAJORITY:
            which = f"{100 * found.alike:.0f} % of them are like a typical one"
        else:
            return
        parts, needs = self.interactions, METHODS[self.method].needs
        quick = methods_with("quick")
        mean_field = next((name for name in quick if METHODS[name].needs == needs), quick[0])
        cures = "a lower rank, " if self.rank > 1 else ""
        cures += "interactions='cp', " if parts["main"] or parts["pair"] else ""
        warn_user(
            f"the draws of {self.method!r} do not agree on the components even after alignment ({which}), so that "
            f"factors_ and what is made of it mean little; take {cures}more sweeps (max_iter), or "
            f"method={mean_field!r}, or use predictions alone.",
            UserWarning,
        )

    def aligned_draws(self, draws: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        """Some rows of draws (n, n_rows, R) of the factors, aligned where the belief has several components."""
        if self.belief.size == 1:
            return draws[:, rows]
        return alignment.aligned_rows(draws, self.aligned.reference, self.layout, rows)

    @cached_property
    def factors(self) -> list[np.ndarray]:
        """Posterior means of the factors, (n_k, R) per mode."""
        return [self.aligned.mean[own].copy() for own in self.layout.rows]

    @cached_property
    def factor_covs(self) -> list[np.ndarray]:
        """Posterior covariances of the rows, (n_k, R, R) per mode."""
        belief, found, layout = self.belief, self.aligned, self.layout
        if belief.n_chains:
            return list(alignment.covariances(belief.mean[:, : sum(self.shape)], found, layout))
        if belief.cov is not None:
            return [unpack(belief.cov[0, own], self.posterior.rank) for own in layout.rows]
        return [np.zeros((own.stop - own.start, *2 * (self.posterior.rank,))) for own in layout.rows]

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made of the result when somebody asks for it, and then kept with it."""
        if name not in self.__dict__:
            self.__dict__[name] = make()
        return self.__dict__[name]

    @cached_property
    def described(self) -> np.ndarray | None:
        """Whether a packed row has features, or is of a series or a graph, (n_rows,) bool; None where none is."""
        if not any(self.features) and not self.series:
            return None
        coupled = [clock is not None for clock in self.series] or [False] * len(self.shape)
        rows = [np.full(n, known) for n, known in zip(self.posterior.shape, coupled, strict=True)]
        for some, own in zip(rows, self.features, strict=bool(self.features)):
            if own is not None:  # rows that were added later have none
                some[: len(own.described)] |= own.described
        return np.concatenate(rows)

    @property
    def relevance(self) -> np.ndarray:
        """Share of each component in the mean square of the latent values, (R,); of a main effect, in its variance."""
        return alignment.relevance(self.aligned.mean, self.layout)


class FittedModel(NamedTuple):
    """A result, and the parameters as they are when something is asked of it."""

    fit: FitResult
    spec: FitSpec

    @property
    def likelihood_of_new(self) -> Likelihood:
        """That of observations to predict; it differs from that of the fit where entries were chosen by their value."""
        return self.spec.target.of_new(self.fit.observation, self.fit.stream, self.spec.prior)

    @property
    def has_uncertainty(self) -> bool:
        """Whether the method gave a posterior, not a point estimate."""
        return self.fit.belief.uncertain

    def check_uncertain(self, what: str) -> None:
        """Refuse what needs a posterior of a point estimate."""
        if not self.has_uncertainty:
            cannot = f"gives a point estimate, and {what} needs a posterior"
            refuse_unable(self.fit.method, "posterior", cannot, self.fit.likelihood)
            fail_value(f"{what} needs a posterior, and this fit is a point estimate; fit again.")

    def check_chains(self, what: str) -> None:
        """Refuse what needs chains of draws."""
        refuse_unable(self.fit.method, "sampler", f"draws no chains, as {what} needs", self.fit.likelihood)

    def packed(self, coords: np.ndarray) -> np.ndarray:
        """Packed rows (n, K) of coordinates; of rows that are not known their mode's prior row, or they are refused."""
        return packed_rows(coords, self.fit.posterior, self.spec.unknown, self.fit.described)

    def threads(self) -> Any:
        """The threads that a question may use, to be entered as a context."""
        return threads_of(self.spec.n_jobs)
