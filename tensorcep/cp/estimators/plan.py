"""From an estimator and its entries to a plan of the fit: every choice and every refusal, before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.cp.columns import free_columns
from tensorcep.cp.estimators.defaults import choose
from tensorcep.cp.estimators.options import checked_options, is_random, with_numbers
from tensorcep.cp.estimators.priors import plan_rows
from tensorcep.cp.methods import get_method
from tensorcep.cp.model import pack_entries
from tensorcep.cp.plan import Plan
from tensorcep.cp.problem import Problem
from tensorcep.priors.fixed import Prior

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP


class FitPlan(NamedTuple):
    """What `fit` does, and what it will know of the result beside the run.

    Attributes
    ----------
    work : Plan
    prior : Prior
        Of the rows, as the fit begins with it.
    labels : tuple of Labels or None
    attributes : dict
        Fitted attributes that are decided: method_, rank_, prior_, ...
    """

    work: Plan
    prior: Prior
    labels: tuple[Any, ...]
    attributes: dict[str, Any]


def plan_fit(
    model: BaseCP,
    entries: tuple[np.ndarray, np.ndarray, tuple[int, ...], tuple[Any, ...]],
    source: Any,
    streaming: bool = False,
) -> FitPlan:
    """Decide all of a fit. The estimator is not changed.

    Parameters
    ----------
    model : BaseCP
    entries : tuple
        Coordinates, values, shape and labels, as `training_entries` gives them.
    source : object
        What the user passed, which may know more than the entries.
    streaming : bool
        Whether they are the first batch of a stream.

    Raises
    ------
    ValueError, TypeError
        If a parameter or a value is not allowed.
    """
    coords, values, shape, labels = entries
    chosen = choose(model, len(values), shape, streaming)
    likelihood, own = model._decide_likelihood(values, chosen, coords)
    method = get_method(chosen.method, likelihood, chosen.learns_prior)
    own |= model._source_attributes(source, first=True)
    options = checked_options(model)
    free = free_columns(chosen.parts, len(shape))
    learned, n_numbers = chosen.prior_name == "learned", sum(shape) * free.shape[1]
    settings = with_numbers(chosen.settings, likelihood.name, learned, chosen.max_iter, n_numbers)
    values = model._checked_targets(values, likelihood)
    packed = pack_entries(coords, values, shape)
    values = values[packed.permutation]  # sums over them then do not depend on the order of the input
    noise_prior = model._noise_prior(values)
    several = method.trial_sweeps(settings) > 0 and is_random(model.init)
    n_starts = chosen.members * (settings.get_params().get("n_starts", 1) if several else 1)
    rows = plan_rows(model, values, shape, chosen.prior, free, likelihood, n_starts)
    problem = Problem(
        entries=packed,
        shape=shape,
        rank=free.shape[1],
        likelihood=likelihood,
        prior=rows.prior_of_rows(shape, free.shape[1]),
        start=rows.starts[0],
        noise_prior=noise_prior,
        seed=rows.seed,
        free=None if free.all() else free,
    )
    work = Plan(method, settings, problem, rows.starts, chosen.members, chosen.max_iter, *options)
    decided = {
        "method_": chosen.method,
        "rank_": chosen.rank,
        "max_iter_": chosen.max_iter,
        "prior_": chosen.prior_name,
        "interactions_": chosen.parts,
    }
    return FitPlan(work, rows.prior, labels, {**decided, **own})
