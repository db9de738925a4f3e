"""The step that a batch of a stream takes: no farther than it is predicted better for it.

Messages to the rows of several modes explain the same surprise, each as if the others stayed: together they may go far
beyond it, most of all where one entry alone is learned. Each of them is right about the direction, so that a step short
enough predicts the batch better than none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensorcep.cp.estimators.batches import BatchPlan, Learned, learn_batch, part_of_the_way, plan_batch
from tensorcep.cp.estimators.before import belief_before, predictions
from tensorcep.cp.stream.standing import Predicted, Standing
from tensorcep.cp.stream.wild import (
    CERTAIN,
    SURPRISING,
    change_after,
    deciding,
    warn_of_wild,
    wild_values,
    without,
)
from tensorcep.entries.batch import Batch

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# The kinds of data whose values may be as far as they will; those of labels are bounded.
OPEN = ("values", "counts")
# Halvings after which a batch is not learned at all.
MAX_HALVINGS = 60


def learn_no_worse(plan: BatchPlan, values: np.ndarray, before: Predicted) -> Learned:
    """Learn a batch of these values and predictions by as long a step as it bears; the stream is not changed.

    Raises
    ------
    FloatingPointError
        If the result is not finite.
    """
    learned = learn_batch(plan)
    if plan.batch.problem.likelihood.observes not in OPEN:
        return learned
    found, step = learned, 1.0
    for _ in range(MAX_HALVINGS):
        if not _is_worse(plan, values, before, found):
            return found
        step *= 0.5
        found = part_of_the_way(plan, learned, step)
    return part_of_the_way(plan, learned, 0.0)


def _is_worse(plan: BatchPlan, values: np.ndarray, before: Predicted, found: Learned) -> bool:
    """Whether squared errors of a batch, each by its predicted variance, rose by more than that of an entry."""
    with np.errstate(over="ignore", invalid="ignore"):
        after = predictions(plan, found.posterior.components(), found.batch.rows[: len(values)])
        rise = ((values - after.mean) ** 2 - (values - before.mean) ** 2) / before.variance
    return not float(rise.sum()) <= 1.0


class Sifted(NamedTuple):
    """A batch without its errors: its entries, their plan (None where none are left), predictions and standing."""

    arrival: Batch
    plan: BatchPlan | None
    before: Predicted
    standing: Standing


def sifted(model: BaseCP, plan: BatchPlan, arrival: Batch, before: Predicted) -> tuple[Sifted, np.ndarray]:
    """The batch without values that nothing so far lets be, and which these are (N,) bool; neither is changed."""
    kind, standing = plan.batch.problem.likelihood.observes, plan.stream.standing
    wild = np.zeros(len(arrival.values), dtype=bool)
    if kind in OPEN:
        surprise = _surprises(plan, arrival.values, before)
        wild = wild_values(arrival.values, surprise, model.n_samples_seen_, standing, kind == "counts")
        standing = standing._replace(change=change_after(standing.change, wild))
    if not wild.any() or standing.change >= CERTAIN:
        return Sifted(arrival, plan, before, standing), np.zeros_like(wild)
    left = without(arrival, wild)
    return Sifted(left, None if wild.all() else plan_batch(model, left), before.at(~wild), standing), wild


def _surprises(plan: BatchPlan, values: np.ndarray, before: Predicted) -> np.ndarray:
    """What the values (N,) of a batch cost beside their means, in nats; what is no number costs all."""
    with np.errstate(all="ignore"):
        if plan.batch.problem.likelihood.observes == "values":
            found = 0.5 * (values - before.mean) ** 2 / before.variance
        else:
            found = -before.score
            if found.max() > SURPRISING:  # the mean costs something, too
                best = predictions(plan, belief_before(plan), plan.batch.rows, np.floor(before.mean)).score
                found = found + np.where(np.isfinite(best), best, 0.0)
    return np.where(np.isnan(found), np.inf, found)


def warn_of_sifted(arrival: Batch, wild: np.ndarray, before: Predicted) -> None:
    """Warn of the values of a batch that were left out, with what was predicted."""
    if wild.any() and before.variance is not None:
        far = np.abs(arrival.values - before.mean)
        place = int(np.argmax(np.where(wild, far, -np.inf)))
        sd = np.sqrt(before.variance)[place]
        warn_of_wild(arrival, wild, far, f"{before.mean[place]:.4g} with a standard deviation of {sd:.3g} was expected")


def first_sifted(model: BaseCP, arrival: Batch) -> tuple[Batch, np.ndarray]:
    """A first batch without values each of which outweighs all others, and which these are (N,) bool."""
    kind = model._asked_likelihood().observes
    out = np.zeros(len(arrival.values), dtype=bool)
    if kind in OPEN:
        out = deciding(arrival.values, kind == "counts")
    return (without(arrival, out) if out.any() else arrival), out
