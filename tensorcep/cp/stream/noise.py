"""What a batch tells of the noise of real values: the same noise, known less surely than its messages say.

The messages of a batch, (1/2, E[(y - f)^2] / 2) per entry, lead to the right precision tau, but count every entry as if
its f were known. Within one fit that is no harm: all of them are sent again while the rows are learned. In a stream the
first batches, whose rows are hardly known, would hold the noise for ever where they found it. With f ~ N(m, v) but for
the entry itself, y ~ N(m, v + 1 / tau) has the Fisher information s^2 / 2 in log tau, where s = 1 / (1 + v tau), and a
Gamma(a, b) law has a. So an entry tells s^2 / 2 in place of 1/2, at the same tau: with the entry itself f has the
variance s v, and s = 1 - s v tau.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.cp.fitted.predict import latent
from tensorcep.cp.messages.sent import Messages
from tensorcep.cp.model.entries import rows_of
from tensorcep.cp.model.problem import Problem


def untold(problem: Problem, posterior: Posterior) -> np.ndarray:
    """What the message of each entry, in the order of the lanes, says too much in the shape of the noise's law (N,)."""
    noise, entries = posterior.noise, problem.entries
    if noise is None:
        return np.zeros(0)
    rows = rows_of(entries, np.arange(len(entries.permutation)))
    share = np.clip(1.0 - noise.precision * latent(posterior.components(), rows)[1], 0.0, 1.0)
    weight = problem.weights.ravel()[: len(share)]
    return np.asarray(weight * 0.5 * (1.0 - share**2))


def with_told(problem: Problem, posterior: Posterior, too_much: np.ndarray) -> Posterior:
    """The posterior with the noise as sure as the entries make it."""
    noise, before = posterior.noise, problem.noise_prior
    if noise is None or before is None:
        return posterior
    a = max(before.a, noise.a - float(too_much.sum()))
    return posterior._replace(noise=GammaNoise(a, a / noise.precision))


def told_messages(sent: Messages, posterior: Posterior, too_much: np.ndarray) -> Messages:
    """The messages to the noise as `with_told` counts them."""
    if posterior.noise is None:
        return sent
    lanes = np.zeros(sent.a.size)
    lanes[: len(too_much)] = too_much
    a = lanes.reshape(sent.a.shape)
    return sent._replace(a=sent.a - a, b=sent.b - a / posterior.noise.precision)
