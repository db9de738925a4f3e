"""`fit(fixed_modes=)` of the CP estimators: the rows of some modes stay as an earlier fit left them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.core.belief import Draws
from tensorcep.core.checks import fail_value
from tensorcep.core.components import draw_rows
from tensorcep.core.loop import Run
from tensorcep.core.packing import offsets
from tensorcep.cp.alignment import aligned_rows
from tensorcep.cp.columns import free_columns
from tensorcep.cp.estimators.entries import Entries, matching_modes, names_of_modes
from tensorcep.cp.estimators.going_on import gaussian_model
from tensorcep.cp.estimators.modes import mode_of, names_of
from tensorcep.cp.estimators.plan import FitPlan, plan_fit
from tensorcep.cp.estimators.row_features import check_no_deviations, is_local
from tensorcep.cp.forget import run_from
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan import Plan
from tensorcep.cp.problem import FixedRows
from tensorcep.cp.starts import run_plan

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# Methods that can leave rows as they are.
FIXING = tuple(name for name in METHODS if name != "wopt")
# Draws of rows that stay, for a sampler.
MOST_DRAWS = 200


class FixedFit(NamedTuple):
    """A fit that leaves some modes as they are: its entries in the model's rows, its plan, and what runs that."""

    entries: Entries
    plan: FitPlan
    runner: Callable[[Plan], Run]


def fixed_fit(
    model: BaseCP,
    entries: Entries,
    coding: dict[str, Any],
    source: Any,
    fixed_modes: Any,
    extent: np.ndarray | None = None,
    power: np.ndarray | None = None,
) -> FixedFit:
    """Plan a fit to entries that learns all rows but those of the fixed modes. The estimator is not changed.

    Raises
    ------
    ValueError
        If there is no earlier fit, it has no posterior, the method cannot leave rows, or a row that is to stay is not
        known.
    """
    if "posterior_" not in vars(model) and "_stream" not in vars(model):
        fail_value("fixed_modes names modes of an earlier fit of this estimator, but it is not fitted; fit it first.")
    if is_local(model.prior):
        fail_value("fixed_modes cannot hold rows beside a Series with local=; fit all modes, or leave local= out.")
    if "posterior_" in vars(model):
        check_no_deviations(model._fitted_belief(), "fixed_modes")
    model = copy.copy(model)  # what is made of the factors here is not the model's
    given = fixed_modes if isinstance(fixed_modes, (list, tuple)) else [fixed_modes]
    modes = sorted({mode_of(model.labels_, mode) for mode in given})
    if not 0 < len(modes) < len(model.shape_):
        fail_value(f"fixed_modes must leave at least one mode to learn, and name one; got {fixed_modes!r}.")
    if "_classes" in coding and coding["_classes"] != model._classes:
        known = model._classes
        fail_value(f"y must hold the labels of the earlier fit, {known}, with fixed_modes; got {coding['_classes']}.")
    gaussian = gaussian_model(model, "fixed_modes")
    entries = _in_known_rows(model, entries, modes)
    fitted = _as_fitted(model)
    own = {name: getattr(model, name) for name in model._own_attributes if name not in _DECIDED}
    plan = plan_fit(fitted, entries, source, decided=(model._likelihood(), own), extent=extent, power=power)
    if plan.work.method.name not in FIXING:
        fail_value(f"method {plan.work.method.name!r} learns all rows; fixed_modes works with {', '.join(FIXING)}.")
    places = _places(model, entries, modes)
    rows = _fixed_rows(model, gaussian, places, modes, plan.work)

    def runner(work: Plan) -> Run:
        begin = work.starts[0]
        known = gaussian._aligned.mean[np.maximum(places, 0)]
        start = known if begin is None else np.where(places[:, None] >= 0, known, begin)
        return run_from(start, work._replace(problem=work.problem._replace(fixed=rows)), run_plan)

    return FixedFit(entries, plan, runner)


# Own attributes that a plan decides, or that begin anew.
_DECIDED = ("method_", "rank_", "max_iter_", "prior_", "interactions_", "forgotten_")


def _as_fitted(model: BaseCP) -> BaseCP:
    """The estimator with what it decided for the earlier fit in place of "auto"."""
    fitted = copy.copy(model)
    for name in ("method", "prior"):
        if isinstance(getattr(model, name), str) and getattr(model, name) == "auto":
            setattr(fitted, name, getattr(model, f"{name}_"))
    fitted.rank, fitted.interactions, fitted.shape = model.rank_, model.interactions_, None
    return fitted


def _in_known_rows(model: BaseCP, entries: Entries, modes: list[int]) -> Entries:
    """The entries with the model's order of modes, and its rows in the modes that stay."""
    coords, values, shape, labels = entries
    order = matching_modes(names_of_modes(model.labels_), names_of_modes(labels))
    coords, sizes, found = coords[:, order].copy(), [shape[k] for k in order], [labels[k] for k in order]
    for k in modes:
        known, theirs, name = model.labels_[k], found[k], names_of(model.labels_)[k]
        if (known is None) != (theirs is None):
            fail_value(f"mode {name!r} must have labels in both fits, or indices in both, to stay as it is.")
        if known is not None and theirs is not None:
            coords[:, k] = known.rows(theirs.index, unknown="ignore")[coords[:, k]]
        new = (coords[:, k] < 0) | (coords[:, k] >= model.shape_[k])
        if new.any():
            fail_value(
                f"mode {name!r} stays as it is, so that all its rows must be known; {int(new.sum())} entries are of "
                "others; leave them out, or fold them in first by transform and with_rows."
            )
        sizes[k], found[k] = model.shape_[k], known
    return coords, values, tuple(sizes), tuple(found)


def _places(model: BaseCP, entries: Entries, modes: list[int]) -> np.ndarray:
    """The earlier packed row of every packed row of the fit, -1 for new ones."""
    first, parts = offsets(model.shape_), []
    for k, (size, theirs) in enumerate(zip(entries[2], entries[3], strict=True)):
        known = model.labels_[k]
        if known is not None and theirs is not None and k not in modes:
            place = known.rows(theirs.index, unknown="ignore")
        else:
            place = np.where(np.arange(size) < model.shape_[k], np.arange(size), -1)
        parts.append(np.where(place >= 0, place + first[k], -1))
    return np.concatenate(parts)


def _fixed_rows(model: BaseCP, gaussian: BaseCP, places: np.ndarray, modes: list[int], work: Plan) -> FixedRows:
    posterior: Any = gaussian.posterior_
    at = np.maximum(places, 0)
    draws = np.zeros((0, len(places), posterior.rank))
    if work.method.sampler:
        draws = _draws_of(model, gaussian)[:, at]
    which = tuple(k in modes for k in range(len(model.shape_)))
    return FixedRows(which, posterior.seen[at], posterior.Lam[at], posterior.eta[at], draws)


def _draws_of(model: BaseCP, gaussian: BaseCP) -> np.ndarray:
    """Draws (D, n_rows, R) of all earlier rows, next to each other."""
    belief, n = model._fitted_belief(), sum(model.shape_)
    if isinstance(model.posterior_, Draws):
        like = np.flatnonzero(model._aligned.like)
        some = like[np.unique(np.linspace(0, len(like) - 1, min(MOST_DRAWS, len(like))).astype(int))]
        return aligned_rows(belief.mean[some, :n], model._aligned.reference, model._layout())
    belief = gaussian._fitted_belief()
    draws = draw_rows(belief.mean[0, :n], belief.cov[0, :n], MOST_DRAWS, np.random.default_rng(0))  # type: ignore[index]
    free = np.repeat(free_columns(model.interactions_, len(model.shape_)), model.shape_, axis=0)
    return np.where(free, draws, 1.0)
