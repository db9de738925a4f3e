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
    """The predictions of a batch before it is learned: of one Gaussian, whose noise is the same everywhere."""
    belief, batch = belief_before(plan), plan.batch
    likelihood, parameter = with_parameter(batch.problem.likelihood, belief.theta)
    mean, score = np.empty(len(plan.y)), np.empty(len(plan.y))
    for first in range(0, len(score), BLOCK_CELLS):
        part = slice(first, first + BLOCK_CELLS)
        m, v, theta = extended(likelihood, given_at(parameter, belief, batch.rows[part]), plan.extent, part)
        y, given = plan.y[part], (m[0], v[0], theta[0])
        score[part] = likelihood.logpdf(y, *given)
        if likelihood.observes == "labels":
            mean[part] = np.where(y > 0.0, np.exp(score[part]), -np.expm1(score[part]))
        else:
            mean[part], _ = likelihood.predict(*given)
    return Predicted(mean, score)


def belief_before(plan: BatchPlan) -> Components:
    """What is known of the rows of a batch before it is learned, at its time."""
    known = plan.batch.problem
    none = np.zeros(len(known.prior.eta), dtype=bool)
    prior = Posterior(
        known.shape, known.rank, known.prior.Lam, known.prior.eta, known.noise_prior, none, plan.state.dispersion
    )
    return prior.components()
