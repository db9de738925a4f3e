"""CEP with one message per row in place of one per entry (stochastic EP), and its closed form for real values.

The cavity of a row is its posterior with one average message removed, the same for all its entries, so moments are
needed per row instead of per entry. A pass computes every entry's new message and adds it to its rows at once; memory
does not grow with R^2 times the number of entries.

Source: Li, Hernandez-Lobato and Turner, "Stochastic expectation propagation" (2015), whose averaged factors are used
here in the batch form: a sweep replaces the sum of the messages, damped, instead of one of them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from tensorcep.core.compile import block_kernel, inlined
from tensorcep.core.executor import Executor, Pass
from tensorcep.cp.cep.update import Rule, prepare, propose, squared_errors
from tensorcep.cp.messages.cavities import PASS_SUMS, clear_sums, load_values
from tensorcep.cp.messages.engine import GivenRows, MessageState
from tensorcep.cp.model.columns import Orders, encode_columns, orders_of
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowSource, RowState, refresh_rows, times_in_sum
from tensorcep.kernels.lanes import add_outer, moments
from tensorcep.kernels.rows import gather, scatter_add, second_moments
from tensorcep.kernels.slots import LANES, damp, scale
from tensorcep.priors.base import per_row


def averaged_rows(state: MessageState, problem: Problem, modes: tuple[int, int], executor: Executor) -> GivenRows:
    """The rows that give the other modes' moments, the cavities, the average messages, and the noise without one."""
    rows, rule, prior = state.rows, state.own.rule, state.hyper.now
    Lam, eta = (per_row(part, problem.shape) for part in (prior.Lam, prior.eta))
    counts = np.maximum(state.own.sums.counts, 1.0)[:, None]
    counts = np.where(problem.rows_of_fixed[:, None], np.inf, counts)  # rows that are not learned get no messages
    average = RowState(rows.Lam - Lam, rows.eta - eta, *rows[2:])
    for part in average[:2]:
        part /= counts
    unset = (np.zeros_like(rows.mean), np.zeros_like(rows.cov), np.ones(len(counts)))
    cavity = RowState(rows.Lam - average.Lam, rows.eta - average.eta, *unset)
    # of messages in closed form the `Factors` say it all: their own cavities tell the noise alone
    closed, first = in_closed_form(rule), problem.entries.offsets
    for k in range(len(problem.shape)):
        if not closed or (not rule.from_posterior and (modes != (k, k + 1) or k == len(problem.shape) - 1)):
            refresh_rows(cavity, int(first[k]), int(first[k + 1]), executor)
    others, noise, n = rows if rule.from_posterior else cavity, state.noise, problem.weights.sum()
    if not rule.from_posterior and problem.noise_prior is not None and n > 0:
        a, b = problem.noise_prior
        noise = (noise[0] - (noise[0] - a) / n, noise[1] - (noise[1] - b) / n)
    if not closed:
        return (others, cavity, average), noise
    tables = [_of_mode(k, others, problem, executor) for k in range(*modes)]
    second, mean = tables[0] if len(tables) == 1 else (np.concatenate(t, axis=1) for t in zip(*tables, strict=True))
    return (Factors(second, mean, others.good, average.Lam, average.eta),), noise


def in_closed_form(rule: Rule) -> bool:
    """Whether messages are in closed form, for `closed_chunks`: those of real values to first order."""
    return rule.gaussian and rule.order == 1


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
    """New messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks first:last, added up in ``sums``."""
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


AVERAGED_PASS = Pass(
    averaged_chunks,
    over="chunks",
    reads=("others.mean", "others.cov", "cavity.Lam", "cavity.eta", "cavity.good", "average.Lam", "average.eta"),
    sums=PASS_SUMS,
)


# Averaged CEP of real values: their messages have a closed form, so only sums per row are needed.
#
# The message of an entry of value y to a row is T = tau E[z z'] and eta = tau (y E[z] - E[z c]) (CEP eqs 14-15, see
# `update`): R^2 products of numbers of the other rows. With one cavity per row those are numbers of rows, not of
# entries, and are made before the pass. In it an entry costs one product and one addition per element of z z', on
# vectors of R^2 numbers; lanes, which hold that many numbers for each of LANES entries, would leave the caches.


class Factors(NamedTuple):
    """Numbers of all rows whose products over the modes are moments of the latent value, and the average messages."""

    # (n_rows, T * W) float64, for each of T modes that get messages: of the rows of the other modes the factors of the
    # elements of z z', packed, of z c and of c c', W in all; of the rows of the mode itself those that make E[f^2]
    # their sum.
    second: np.ndarray
    mean: np.ndarray  # (n_rows, T * (R + C)) float64: the same of z and of the C columns clamped in it, and of E[f]
    good: np.ndarray  # (n_rows,) float64: 1 where the row's cavity is a Gaussian
    Lam: np.ndarray  # (n_rows, P) and (n_rows, R) float64: the average message of every row
    eta: np.ndarray


@functools.lru_cache(maxsize=4)
def _orders(shape: tuple[int, int], free: bytes) -> Orders:
    """Those of the free columns (K, R) bool."""
    return orders_of(encode_columns(np.frombuffer(free, dtype=bool).reshape(shape)))


def _of_mode(k: int, others: RowState, problem: Problem, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """`second` and `mean` of one mode."""
    first, mean, (n_rows, P) = problem.entries.offsets, others.mean, others.cov.shape
    own, R, free = slice(int(first[k]), int(first[k + 1])), mean.shape[1], problem.free
    numbers = np.empty((n_rows, P if free is None else P + R + 1))
    executor.run(second_moments, 0, n_rows, mean, others.cov, numbers)
    if free is None:
        numbers[own] *= times_in_sum(R)
        return numbers, mean
    numbers[:, P:-1], numbers[:, -1] = mean, 1.0
    orders = _orders(free.shape, free.tobytes())
    C = orders.n_clamped
    pairs = zip(orders.products[k], orders.squares[k], strict=True)
    both = tuple(None if one is None or more is None else np.concatenate([one, more]) for one, more in pairs)
    second, means = (
        RowSource("", numbers, {}, order=order, first=first).made(executor) for order in (both, orders.means[k])
    )
    second[own, :P] = numbers[own, :P] * times_in_sum(R)
    second[own, P : P + R * C] = np.tile(2.0 * mean[own], C)
    second[own, P + R * C :] = times_in_sum(C)
    means[own, :R], means[own, R:] = mean[own], 1.0
    return second, means


@inlined
def add_noise(weight, total, w, at):
    """Add the messages to the noise, 1/2 and half of the expected squared error, of every entry."""
    for lane in range(LANES):
        total[0] += 0.5 * weight[lane]
        total[1] += 0.5 * weight[lane] * w[at.error, lane]


@inlined
def _product(source, rows, k, lane, first, out):
    """out[p] = the product over the modes but k of source[row, first + p] for one lane of rows (K, LANES)."""
    n, j = len(out), 1 if k == 0 else 0
    x = source[rows[j, lane], first : first + n]
    j += 2 if j + 1 == k else 1
    if j >= len(rows):
        for p in range(n):
            out[p] = x[p]
        return
    y = source[rows[j, lane], first : first + n]
    for p in range(n):
        out[p] = x[p] * y[p]
    for i in range(j + 1, len(rows)):
        if i != k:
            y = source[rows[i, lane], first : first + n]
            for p in range(n):
                out[p] *= y[p]


@inlined
def _sum(x, y):
    """The sum of x[p] y[p]."""
    total = 0.0
    for p in range(len(x)):
        total += x[p] * y[p]
    return total


@inlined
def _add(x, z, factor, pull, Lam, eta):
    """Add the message of an entry: factor times E[z z'] in x, and pull times E[z] in z less factor times E[z c]."""
    P, R = len(Lam), len(eta)
    for p in range(P):
        Lam[p] += factor * x[p]
    for r in range(R):
        eta[r] += pull * z[r]
    for c in range(len(z) - R):
        for r in range(R):
            eta[r] -= factor * x[P + c * R + r]


@block_kernel
def closed_chunks(first, last, modes, entries, columns, factors, messages, kept, sums, noise, rule, w, at):
    """Messages in closed form to the modes ``modes[0]:modes[1]`` of the chunks first:last, added up in ``sums``."""
    K, R, T = entries.rows.shape[1], sums.eta.shape[2], modes[1] - modes[0]
    W, M = factors.second.shape[1] // T, factors.mean.shape[1] // T
    flat = w.reshape(w.size)
    x, z = flat[at.flat * LANES : at.flat * LANES + W], flat[at.flat * LANES + W : at.flat * LANES + W + M]
    for c in range(first, last):
        clear_sums(c, modes, entries, sums)
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            load_values(b, True, entries, messages, noise, rule, w, at)
            rows = entries.rows[b]
            for k in range(K):
                for lane in range(LANES):
                    w[at.ok, lane] *= factors.good[rows[k, lane]]
            for k in range(modes[0], modes[1]):
                W_k, M_k = (k - modes[0]) * W, (k - modes[0]) * M
                for lane in range(LANES):
                    weight, row = entries.weight[b, lane], rows[k, lane]
                    Lam, eta = sums.Lam[c, row], sums.eta[c, row]
                    if weight == 0.0:
                        continue
                    _product(factors.second, rows, k, lane, W_k, x)
                    _product(factors.mean, rows, k, lane, M_k, z)
                    if k == K - 1:
                        f = _sum(z, factors.mean[row, M_k : M_k + M])
                        w[at.f_mean, lane] = f
                        w[at.f_var, lane] = max(0.0, _sum(x, factors.second[row, W_k : W_k + W]) - f * f)
                    if w[at.ok, lane] > 0.0:
                        factor = weight * rule.power * w[at.theta, lane]
                        _add(x, z, factor, factor * w[at.y, lane], Lam, eta)
                    else:  # a cavity that is no Gaussian: the average message
                        skipped += 1
                        for p in range(len(Lam)):
                            Lam[p] += weight * factors.Lam[row, p]
                        for r in range(R):
                            eta[r] += weight * factors.eta[row, r]
                if k == K - 1:
                    squared_errors(rule, w, at)
                    add_noise(entries.weight[b], sums.noise[c], w, at)
        sums.skipped[c] = skipped


CLOSED_PASS = Pass(
    closed_chunks, over="chunks", reads=tuple(f"factors.{name}" for name in Factors._fields), sums=PASS_SUMS
)
