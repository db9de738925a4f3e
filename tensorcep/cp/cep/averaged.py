"""CEP without stored messages: all entries of a row share one message, the average of theirs.

The cavity of a row is its posterior with one average message removed, the same for all its entries, so moments are
needed per row instead of per entry. A pass computes every entry's new message and adds it to its rows at once; memory
does not grow with R^2 times the number of entries.

Source: Li, Hernandez-Lobato and Turner, "Stochastic expectation propagation" (2015), whose averaged factors are used
here in the batch form: a sweep replaces the sum of the messages, damped, instead of one of them.
"""

from __future__ import annotations

import numpy as np

from tensorcep.core.executor import Executor
from tensorcep.core.jit import block_kernel, inlined
from tensorcep.cp.cep.closed import add_noise, factors_of
from tensorcep.cp.cep.slots import Rule
from tensorcep.cp.cep.sweep import prepare, propose
from tensorcep.cp.messages.kernels import clear_sums, load_values
from tensorcep.cp.messages.passes import GivenRows
from tensorcep.cp.messages.state import MessageState
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowState, refresh_rows
from tensorcep.kernels.lanes import add_outer, moments
from tensorcep.kernels.rows import gather, scatter_add
from tensorcep.kernels.slots import LANES, damp, scale
from tensorcep.priors.record import per_row


def averaged_rows(state: MessageState, problem: Problem, modes: tuple[int, int], executor: Executor) -> GivenRows:
    """The rows that give the other modes' moments, the cavities, the average messages, and the noise without one.

    Of messages in closed form the `Factors` say it all: their own cavities tell the noise alone.
    """
    rows, rule = state.rows, state.rule
    average, cavity = _average(state, problem)
    closed, first = in_closed_form(rule), problem.entries.offsets
    for k in range(len(problem.shape)):
        if not closed or (not rule.from_posterior and (modes != (k, k + 1) or k == len(problem.shape) - 1)):
            refresh_rows(cavity, int(first[k]), int(first[k + 1]), executor)
    others, noise, n = rows if rule.from_posterior else cavity, state.noise, problem.weights.sum()
    if not rule.from_posterior and problem.noise_prior is not None and n > 0:
        a, b = problem.noise_prior
        noise = (noise[0] - (noise[0] - a) / n, noise[1] - (noise[1] - b) / n)
    if closed:
        return (factors_of(others, average, modes, problem, executor),), noise
    return (others, cavity, average), noise


def in_closed_form(rule: Rule) -> bool:
    """Whether messages are in closed form, for `closed_chunks`: those of real values to first order."""
    return rule.gaussian and rule.order == 1


def _average(state: MessageState, problem: Problem) -> tuple[RowState, RowState]:
    """The average message of every row, and the rows without one, whose moments are not set yet."""
    rows, prior = state.rows, state.prior
    counts = np.maximum(state.sums.counts, 1.0)[:, None]
    Lam, eta = (per_row(part, problem.shape) for part in (prior.Lam, prior.eta))
    counts = np.where(problem.rows_of_fixed[:, None], np.inf, counts)  # rows that are not learned get no messages
    average = RowState(rows.Lam - Lam, rows.eta - eta, *rows[2:])
    for part in average[:2]:
        part /= counts
    unset = (np.zeros_like(rows.mean), np.zeros_like(rows.cov), np.ones(len(counts)))
    return average, RowState(rows.Lam - average.Lam, rows.eta - average.eta, *unset)


@inlined
def _add_message(rows, weight, average, sum_Lam, sum_eta, power, R, w, at):
    """Add the new messages to their rows, the average one where an update failed; returns the number of those."""
    P, skipped = R * (R + 1) // 2, 0
    gather(rows, average.Lam, w, at.a)
    gather(rows, average.eta, w, at.t)
    for lane in range(LANES):
        w[at.step, lane] = weight[lane]
        w[at.power, lane] = power
        if weight[lane] > 0.0 and w[at.site_ok, lane] == 0.0:
            skipped += 1
    scale(w, at.T, at.T, P, at.power)
    scale(w, at.eta, at.eta, R, at.power)
    damp(w, at.a, at.a, at.T, P, at.site_ok)
    damp(w, at.t, at.t, at.eta, R, at.site_ok)
    scale(w, at.a, at.a, P, at.step)
    scale(w, at.t, at.t, R, at.step)
    scatter_add(rows, w[at.a : at.a + P], sum_Lam)
    scatter_add(rows, w[at.t : at.t + R], sum_eta)
    return skipped


@block_kernel
def averaged_chunks(
    first, last, modes, entries, columns, others, cavity, average, messages, kept, sums, noise, rule, w, at
):
    """New messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks first:last, added up in ``sums``.

    ``others`` are the rows that give the other modes' moments; cavity and average as in `averaged_rows`.
    """
    K, R = entries.rows.shape[1], cavity.eta.shape[1]
    P, structured = R * (R + 1) // 2, columns.z.shape[2] > 0
    for c in range(first, last):
        clear_sums(c, modes, entries, sums)
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            load_values(b, True, entries, messages, noise, rule, w, at)
            for k in range(K):
                index, m = entries.rows[b, k], at.m + k * R
                gather(index, others.cov, w, at.S + k * P)
                gather(index, others.mean, w, m)
                add_outer(w, at.S + k * P, m, m, at.G + k * P, R)
                for lane in range(LANES):
                    w[at.ok, lane] *= cavity.good[index[lane]]
            for k in range(modes[0], modes[1]):
                index = entries.rows[b, k]
                prepare(k, columns, rule, K, R, w, at)
                if rule.gaussian and k == K - 1:
                    add_noise(entries.weight[b], sums.noise[c], w, at)
                own = K if rule.from_posterior or rule.order == 2 else k
                S, m, vt = at.S + own * P, at.m + own * R, at.vt + own * R * R
                if rule.order == 2:  # needs vt as well
                    gather(index, cavity.Lam, w, at.a)
                    gather(index, cavity.eta, w, at.t)
                    moments(w, at.a, at.t, S, m, vt, at.inv_diag, at.site_ok, R)
                elif rule.from_posterior:
                    gather(index, cavity.cov, w, S)
                    gather(index, cavity.mean, w, m)
                propose(own, structured, rule, R, w, at)
                weight = entries.weight[b]
                skipped += _add_message(index, weight, average, sums.Lam[c], sums.eta[c], rule.power, R, w, at)
        sums.skipped[c] = skipped
