"""What a stream says of a batch before it is learned."""

from __future__ import annotations

import numpy as np

from tensorcep.core.belief import Posterior
from tensorcep.core.components import Components
from tensorcep.cp.estimators.batches import BatchPlan
from tensorcep.cp.predict import observed_logpdf, observed_moments
from tensorcep.cp.stream.standing import Predicted


def prequential(plan: BatchPlan) -> Predicted:
    """The predictions of a batch before it is learned."""
    belief, batch = belief_before(plan), plan.batch
    mean, _ = observed_moments(batch.problem.likelihood, belief, batch.rows, extent=plan.extent)
    score = observed_logpdf(batch.problem.likelihood, belief, batch.rows, plan.y, extent=plan.extent)
    return Predicted(mean, score)


def belief_before(plan: BatchPlan) -> Components:
    """What is known of the rows of a batch before it is learned, at its time."""
    known = plan.batch.problem
    none = np.zeros(len(known.prior.eta), dtype=bool)
    prior = Posterior(
        known.shape, known.rank, known.prior.Lam, known.prior.eta, known.noise_prior, none, plan.state.dispersion
    )
    return prior.components()
