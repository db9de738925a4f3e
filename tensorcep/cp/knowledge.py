"""What a belief knows of the mean of an observation, apart from the noise of a single one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.components import Components
from tensorcep.cp.given import latent_components
from tensorcep.cp.predict import CHUNK, latent_quantiles, with_parameter
from tensorcep.likelihoods.record import Likelihood

# Nodes of the Gauss-Hermite rule over a Gaussian latent value; exact where observations are linear in it.
NODES = 16


class Knowledge(NamedTuple):
    """Of the expected observations E[y | f]: mean, standard deviation, and a central interval, (n,) each."""

    mean: np.ndarray
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def knowledge(likelihood: Likelihood, belief: Components, rows: np.ndarray, coverage: float) -> Knowledge:
    """What is known of the expected observations at packed rows (n, K).

    The ends of the interval are those of the latent value, as observations.
    """
    mean, sd = np.empty(len(rows)), np.empty(len(rows))
    typical = None if belief.theta is None else belief.theta.averaged()
    at_ends, parameter_at_ends = with_parameter(likelihood, typical)
    likelihood, parameter = with_parameter(likelihood, belief.theta)
    nodes, weights = np.polynomial.hermite_e.hermegauss(1 if belief.points else NODES)
    weights = weights / weights.sum()
    step = max(1, 16 * CHUNK // (belief.size * len(nodes)))
    for part in (slice(a, a + step) for a in range(0, len(rows), step)):
        m, v = latent_components(belief, rows[part])
        theta = np.broadcast_to(parameter.of(rows[part]), m.shape)
        each = np.stack([_expected(likelihood, m + x * np.sqrt(v), theta) for x in nodes])
        mean[part] = middle = np.einsum("x,xcn->n", weights, each) / belief.size
        if belief.cov is not None and belief.doubt is not None:  # which moves no mean
            each = np.stack([_expected(likelihood, m + x * np.sqrt(v + belief.doubt[:, None]), theta) for x in nodes])
            middle = np.einsum("x,xcn->n", weights, each) / belief.size
        sd[part] = np.sqrt(np.einsum("x,xcn->n", weights, (each - middle) ** 2) / belief.size)
    tail = 0.5 * (1.0 - coverage)
    theta = parameter_at_ends.of(rows)[0]
    ends = latent_quantiles(belief, rows, (tail, 1.0 - tail))
    lower, upper = (_expected(at_ends, end, theta) for end in ends.T)
    return Knowledge(mean, sd, lower, upper)


def _expected(likelihood: Likelihood, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The mean of an observation at latent values f."""
    flat = np.ascontiguousarray(f).ravel()
    mean, _ = likelihood.predict(flat, np.zeros(flat.size), np.ascontiguousarray(theta).ravel())
    return np.asarray(mean).reshape(f.shape)
