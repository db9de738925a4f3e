"""What a stream says of a batch before it is learned."""

from __future__ import annotations

import numpy as np

from tensorcep.core.belief import Posterior
from tensorcep.core.components import Components
from tensorcep.cp.estimators.batches import BatchPlan
from tensorcep.cp.given import extended, given_at
from tensorcep.cp.predict import BLOCK_CELLS, with_parameter
from tensorcep.cp.stream.standing import Predicted


def prequential(plan: BatchPlan) -> Predicted:
    """The predictions of a batch before it is learned."""
    return predictions(plan, belief_before(plan), plan.batch.rows)


def predictions(plan: BatchPlan, belief: Components, rows: np.ndarray, values: np.ndarray | None = None) -> Predicted:
    """What a belief says of the entries of a batch, which lie in these of its rows (n, K), or had they these values.

    It is one Gaussian, whose noise is the same everywhere.
    """
    likelihood, parameter = with_parameter(plan.batch.problem.likelihood, belief.theta)
    coded = plan.y if values is None else values
    mean, score, variance = np.empty((3, len(coded)))
    for first in range(0, len(score), BLOCK_CELLS):
        part = slice(first, first + BLOCK_CELLS)
        m, v, theta = extended(likelihood, given_at(parameter, belief, rows[part]), plan.extent, part)
        y, given = coded[part], (m[0], v[0], theta[0])
        score[part] = likelihood.logpdf(y, *given)
        if likelihood.observes == "labels":
            mean[part] = np.where(y > 0.0, np.exp(score[part]), -np.expm1(score[part]))
            variance[part] = mean[part] * (1.0 - mean[part])
        else:
            mean[part], variance[part] = likelihood.predict(*given)
    return Predicted(mean, score, variance)


def belief_before(plan: BatchPlan) -> Components:
    """What is known of the rows of a batch before it is learned, at its time."""
    known = plan.batch.problem
    none = np.zeros(len(known.prior.eta), dtype=bool)
    prior = Posterior(
        known.shape, known.rank, known.prior.Lam, known.prior.eta, known.noise_prior, none, plan.state.dispersion
    )
    return prior.components()
