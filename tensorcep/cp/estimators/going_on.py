"""How a stream goes on from a fit by a method that learns no streams: by CEP, from a Gaussian of every row."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorcep.core.belief import Draws, PointEstimate, first_member
from tensorcep.core.checks import fail_value
from tensorcep.core.packing import offsets
from tensorcep.cp.columns import free_columns
from tensorcep.cp.estimators.defaults import SWEEPS, given_int
from tensorcep.cp.estimators.fitted import moment_attributes
from tensorcep.cp.stream.adf import STREAMING
from tensorcep.cp.stream.from_draws import MOST_LEFT, Summary, laws_of, left_over, summary_of

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# Cells at which a summary is compared with the draws.
COMPARED = 2000
OTHERWISE = "fit with method='cep' or method='vmp', from which it always does."


def must_be_summed_up(model: BaseCP) -> bool:
    """Whether a model was fitted by a method that learns no streams."""
    return "_stream" not in vars(model) and "posterior_" in vars(model) and model.method_ not in STREAMING


def gaussian_model(model: BaseCP, what: str = "partial_fit") -> BaseCP:
    """A copy of a fitted model that goes on as a stream by CEP, from the Gaussians that its result is or comes to.

    `what` goes on from it, for the error.

    Raises
    ------
    ValueError
        If there are no Gaussians of the rows that say what the result says.
    """
    model = copy.copy(model)  # what is made of the factors here is not the model's
    result = first_member(model.posterior_)
    if isinstance(result, PointEstimate):
        fail_value(f"{what} needs a posterior, but method {model.method_!r} gives a point estimate; {OTHERWISE}")
    mean, cov = model._unseen_mean, model._unseen_cov
    posterior: Any = result
    if isinstance(result, Draws):
        posterior, mean, cov = _summary(model, result, what)
    sweeps = given_int("max_iter", model.max_iter, SWEEPS)
    changed = {
        "labels_": model.labels_,
        "method_": "cep",
        "max_iter_": sweeps,
        "_unseen_mean": mean,
        "_unseen_cov": cov,
    }
    new = copy.copy(model)
    new._assign({**changed, **moment_attributes(posterior, mean, cov)})
    return new


def _summary(model: BaseCP, draws: Draws, what: str) -> Summary:
    """The summary of a sampler's draws.

    Raises
    ------
    ValueError
        If it misses much of what they say.
    """
    free = free_columns(model.interactions_, len(model.shape_))
    parameter = model._likelihood().parameter
    if model._likelihood().levels is not None:  # thresholds are learned anew
        draws = draws._replace(theta=None, n_thresholds=0)
    laws = laws_of(draws, parameter is not None and parameter.is_precision, model.n_samples_seen_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how well draws agree is judged here by what they predict
        found, covs = model._aligned, model.factor_covs_
    belief = model._fitted_belief()
    summary = summary_of(draws, belief, found, covs, model._layout(), free, laws)
    left = left_over(belief, summary, _some_cells(model) + offsets(model.shape_)[:-1])
    if left > MOST_LEFT:
        fail_value(
            f"the draws of {model.method_!r} do not agree on the components: Gaussians of the rows, from "
            f"which {what} goes on, miss {100 * left:.0f} % of what the draws predict; {OTHERWISE}"
        )
    return summary


def _some_cells(model: BaseCP) -> np.ndarray:
    """Cells (n, K) of the fit, spread over all; of all rows with entries, where these are not known."""
    if model._cells is not None and len(model._cells):
        return np.asarray(model._cells[:: -(-len(model._cells) // COMPARED)], dtype=np.int64)
    rng, layout = np.random.default_rng(0), model._layout()
    each = zip(layout.rows, layout.seen, strict=True)
    return np.stack([rng.choice(seen, COMPARED) - own.start for own, seen in each], axis=1)
