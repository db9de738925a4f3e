"""Learning entries of a reservoir again with every batch of a stream.

The messages that an entry sent are taken out of the rows' posterior, the entry joins the batch and sends new ones: a
sweep of CEP over entries of the past, for which the posterior of the stream serves as the rest of the data. So what the
first batches said is corrected by what is known now, as far as the reservoir reaches.

Source: the cavity of Wang and Zhe, Conditional Expectation Propagation, sec. 3, applied to whole batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import GammaNoise, Posterior
from tensorcep.cp.messages.sent import Messages
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import diagonal
from tensorcep.cp.stream.adf import BatchProblem, StreamState, batch_of
from tensorcep.cp.stream.reservoir import Reservoir, Sample, aged, messages_at, resized, with_new
from tensorcep.kernels.rows import row_moments
from tensorcep.priors.fixed import FixedPrior

# A row without the messages may be this many times as wide as the prior; beyond that the precision that is left is a
# difference without digits, or the rest of the messages is not a Gaussian by itself.
MAX_WIDENING = 10.0
# The same for the noise: the least share of (a, b) that may be left.
MIN_NOISE_SHARE = 1e-9


class Revisit(NamedTuple):
    """A batch that revisits entries.

    Attributes
    ----------
    batch : BatchProblem
        The new entries first, then the revisited ones, whose messages the prior does not hold.
    coords, y : (n, K) int64, (n,) float64
        The new entries.
    held : (m,) int64
        Where the reservoir holds the revisited entries.
    reservoir : Reservoir
        The reservoir before the batch, at the time of the batch.
    limit : (n_rows, R) float64
        Largest variance that a row of the batch may get when messages are taken out.
    keep : float
        What remains of a row's information after one unit of time.
    noise_forgets : bool
        Whether the noise is forgotten too.
    seed, capacity : int
        Of the reservoir.
    """

    batch: BatchProblem
    coords: np.ndarray
    y: np.ndarray
    held: np.ndarray
    reservoir: Reservoir
    limit: np.ndarray
    keep: float
    noise_forgets: bool
    seed: int
    capacity: int


def revisit(
    state: StreamState,
    reservoir: Reservoir,
    coords: np.ndarray,
    y: np.ndarray,
    *,
    capacity: int,
    keep: float,
    time: float,
    seed: int,
    **how: Any,
) -> Revisit:
    """Join a batch, coords (n, K) and y (n,), with the reservoir; `how` is the rest that `adf.batch_of` takes.

    Entries without whose messages a row would not be a Gaussian, or nearly none, are not revisited.
    """
    reservoir = resized(reservoir, capacity)
    noise_forgets, weight = state.noise_prior is not None, keep ** max(0.0, time - state.time)
    sample = aged(reservoir.sample, weight, weight if noise_forgets else 1.0)
    index = np.arange(len(sample.y))
    while True:
        chosen = sample.at(index)
        both = np.concatenate([coords, chosen.coords]), np.concatenate([y, chosen.y])
        batch = batch_of(state, *both, keep=keep, time=time, seed=seed, **how)
        limit = _limit(state, batch)
        problem, needed = _without(batch.problem, batch.rows[len(y) :], chosen, limit)
        if not needed.any():
            break
        index = index[~needed]
    n_skipped = len(sample.y) - len(index)
    counted = Reservoir(sample, reservoir.seen, reservoir.revisited + len(index), reservoir.skipped + n_skipped)
    if len(index):
        batch = batch._replace(problem=problem)
    return Revisit(batch, coords, y, index, counted, limit, keep, noise_forgets, seed, capacity)


def _without(problem: Problem, rows: np.ndarray, chosen: Sample, limit: np.ndarray) -> tuple[Problem, np.ndarray]:
    """A problem whose prior lacks the messages of a sample, and which of its entries (m,) a row cannot do without."""
    Lam, eta = subtracted(problem.prior.Lam, problem.prior.eta, rows, chosen)
    needed = unsound(Lam, eta, limit)[rows].any(axis=1)
    noise = problem.noise_prior
    if noise is not None:
        a, b = noise.a - float(chosen.a.sum()), noise.b - float(chosen.b.sum())
        needed |= min(a / noise.a, b / noise.b) <= MIN_NOISE_SHARE
        noise = GammaNoise(a, b)
    start = _moments(problem.prior.Lam, problem.prior.eta)[0]  # where the rows were with the messages
    return problem._replace(prior=FixedPrior(Lam, eta), noise_prior=noise, start=start), needed


def revisited(made: Revisit, posterior: Posterior, sent: Messages, step: float = 1.0) -> tuple[Posterior, Reservoir]:
    """The posterior and the reservoir after a batch was learned with these messages.

    The posterior went a `step` of the way to them. With forgetting, a revisited entry sends again only the share of its
    message that its age leaves.
    """
    permutation, time, old = made.batch.problem.entries.permutation, made.batch.time, made.reservoir.sample
    lanes = np.argsort(permutation)[len(made.y) :]
    chosen = old.at(made.held)
    if step < 1.0:
        sent = Messages(*(step * part for part in sent))
    again = messages_at(sent, lanes)
    if step < 1.0:
        again = tuple((1.0 - step) * before + new for before, new in zip(chosen[3:], again, strict=True))
    chosen = Sample(chosen.coords, chosen.y, chosen.born, *again)
    if made.keep < 1.0 and len(lanes):
        lost = 1.0 - made.keep ** np.maximum(0.0, time - chosen.born)
        posterior, chosen = _discounted(posterior, chosen, lost, made)
    fields = [values.copy() for values in old]
    for field, values in zip(fields, chosen, strict=True):
        field[made.held] = values
    reservoir = made.reservoir._replace(sample=Sample(*fields))
    new = (made.coords, made.y, time)
    return posterior, with_new(reservoir, new, permutation, sent, seed=made.seed, capacity=made.capacity)


def with_messages(made: Revisit) -> tuple[np.ndarray, np.ndarray, GammaNoise | None]:
    """What the rows of the batch, and the noise, were with the messages of the entries that it revisits."""
    problem, chosen = made.batch.problem, made.reservoir.sample.at(made.held)
    lost = chosen._replace(Lam=-chosen.Lam, eta=-chosen.eta)
    Lam, eta = subtracted(problem.prior.Lam, problem.prior.eta, made.batch.rows[len(made.y) :], lost)
    noise = problem.noise_prior
    if noise is not None:
        noise = GammaNoise(noise.a + float(chosen.a.sum()), noise.b + float(chosen.b.sum()))
    return Lam, eta, noise


def _discounted(posterior: Posterior, chosen: Sample, lost: np.ndarray, made: Revisit) -> tuple[Posterior, Sample]:
    """Take the share `lost` (m,) of the messages out of the posterior, but for those that a row cannot do without."""
    rows = made.batch.rows[len(made.y) :]
    while True:
        part = chosen._replace(Lam=lost[:, None, None] * chosen.Lam, eta=lost[:, None, None] * chosen.eta)
        Lam, eta = subtracted(posterior.Lam, posterior.eta, rows, part)
        needed = unsound(Lam, eta, made.limit)[rows].any(axis=1) & (lost > 0.0)
        if not needed.any():
            break
        lost = np.where(needed, 0.0, lost)
    chosen = chosen._replace(Lam=chosen.Lam - part.Lam, eta=chosen.eta - part.eta)
    found = posterior.noise
    if found is not None and made.noise_forgets:
        a, b = lost * chosen.a, lost * chosen.b
        found = GammaNoise(found.a - float(a.sum()), found.b - float(b.sum()))
        chosen = chosen._replace(a=chosen.a - a, b=chosen.b - b)
    return posterior._replace(Lam=Lam, eta=eta, noise=found), chosen


def subtracted(Lam: np.ndarray, eta: np.ndarray, rows: np.ndarray, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters of packed rows without the messages of a sample, whose packed rows are rows (m, K)."""
    Lam, eta, to = Lam.copy(), eta.copy(), rows.ravel()
    np.subtract.at(Lam, to, sample.Lam.reshape(len(to), Lam.shape[1]))
    np.subtract.at(eta, to, sample.eta.reshape(len(to), eta.shape[1]))
    return Lam, eta


def unsound(Lam: np.ndarray, eta: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Whether a row is no Gaussian, or has a variance above its limit, (n_rows,) bool."""
    _, variance, good = _moments(Lam, eta)
    return np.asarray((good <= 0.0) | (variance > limit).any(axis=1))


def _moments(Lam: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variances of rows, both (n_rows, R), and good (n_rows,)."""
    mean, cov, good = np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta))
    row_moments(0, len(eta), Lam, eta, mean, cov, good)
    return mean, cov[:, diagonal(eta.shape[1])], good


def _limit(state: StreamState, batch: BatchProblem) -> np.ndarray:
    """Largest variance of each row of the batch without some of its messages."""
    parts = [(mode.prior_Lam[used], mode.prior_eta[used]) for mode, used in zip(state.modes, batch.used, strict=True)]
    Lam, eta = (np.concatenate(found) for found in zip(*parts, strict=True))
    return widest(Lam, eta)


def widest(prior_Lam: np.ndarray, prior_eta: np.ndarray) -> np.ndarray:
    """Largest variances (n_rows, R) that rows with these priors may get when messages are taken out."""
    return np.asarray(MAX_WIDENING * _moments(prior_Lam, prior_eta)[1])
