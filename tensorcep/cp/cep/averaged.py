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
from tensorcep.cp.cep.moments import layout
from tensorcep.cp.cep.sweep import (
    Rule,
    Sums,
    add_sums,
    gaussian_message,
    products_of_others,
    squared_error,
    tilted_message,
)
from tensorcep.cp.problem import Problem
from tensorcep.cp.rows import RowState, refresh_rows
from tensorcep.kernels.lanes import add_outer, moments, trace_product
from tensorcep.kernels.rows import gather, scatter_add
from tensorcep.kernels.slots import LANES, copy, damp, dot, lane_zeros, scale
from tensorcep.priors.record import Conditional


def averaged_pass(
    modes: tuple[int, int],
    rows: RowState,
    prior: Conditional,
    noise: tuple[float, float],
    sums: Sums,
    rule: Rule,
    problem: Problem,
    executor: Executor,
) -> tuple[float, float]:
    """Update the rows of the given modes and the noise (a, b), which is returned; `sums` holds what was skipped.

    With rule.from_posterior the other modes' moments are those of the posterior.
    """
    entries, prior_noise = problem.entries, problem.noise_prior
    counts = np.maximum(sums.counts, 1.0)[:, None]
    average = RowState((rows.Lam - prior.Lam) / counts, (rows.eta - prior.eta) / counts, *rows[2:])
    cavity = RowState(rows.Lam - average.Lam, rows.eta - average.eta, *(np.empty_like(part) for part in rows[2:]))
    refresh_rows(cavity, 0, len(counts), executor)
    others = rows if rule.from_posterior else cavity
    n = entries.weight.sum()
    if prior_noise is not None and not rule.from_posterior and n > 0:
        cavity_noise = (noise[0] - (noise[0] - prior_noise.a) / n, noise[1] - (noise[1] - prior_noise.b) / n)
    else:
        cavity_noise = noise

    def sweep(first: int, last: int) -> None:
        at = layout(len(problem.shape), problem.rank)
        work = lane_zeros((at.size, LANES))
        work[at.one] = 1.0
        averaged_chunks((first, last), modes, entries, others, cavity, average, sums, cavity_noise, rule, work, at)

    executor.over(len(entries.chunk_start) - 1, sweep)
    first, last = int(entries.offsets[modes[0]]), int(entries.offsets[modes[1]])
    part = slice(first, last)
    old_Lam, old_eta = rows.Lam[part].copy(), rows.eta[part].copy()

    def total(a: int, b: int) -> None:
        add_sums(first + a, first + b, prior.Lam, prior.eta, sums, rows.Lam, rows.eta)

    executor.over(last - first, total, LANES)
    step = np.where(sums.counts[part] > 0.0, rule.step, 1.0)[:, None]  # a row without entries is at its prior at once
    rows.Lam[part] = old_Lam + step * (rows.Lam[part] - old_Lam)
    rows.eta[part] = old_eta + step * (rows.eta[part] - old_eta)
    refresh_rows(rows, first, last, executor)
    if prior_noise is None or modes[1] < len(problem.shape):
        return noise
    a, b = sums.noise.sum(axis=0)
    new = (prior_noise.a + float(a), prior_noise.b + float(b))
    return noise[0] + rule.step * (new[0] - noise[0]), noise[1] + rule.step * (new[1] - noise[1])


@inlined
def _noise_total(k, tilted, weight, total, R, w, at):
    """Add 1/2 and E[(y - f)^2] / 2 of every entry, with all second moments (CEP eq. 18)."""
    dot(w, at.f_mean, w, at.z, w, at.m + k * R, R, w, 0)
    trace_product(w, at.Z2, at.G + k * (R * (R + 1) // 2), at.f_var, R)
    for lane in range(LANES):
        total[0] += 0.5 * weight[lane]
        total[1] += 0.5 * weight[lane] * squared_error(tilted, lane, w, at)


@inlined
def _add_message(rows, weight, average, sum_Lam, sum_eta, power, R, w, at):
    """Add the new messages to their rows, the average one where an update failed; returns the number of those."""
    P, skipped = R * (R + 1) // 2, 0
    gather(rows, average.Lam, w, at.a)
    gather(rows, average.eta, w, at.t)
    for lane in range(LANES):
        w[at.scalar, lane] = weight[lane]
        w[at.scalar + 1, lane] = power
        if weight[lane] > 0.0 and w[at.site_ok, lane] == 0.0:
            skipped += 1
    scale(w, at.T, w, at.T, w, 0, P, w, at.scalar + 1)
    scale(w, at.eta, w, at.eta, w, 0, R, w, at.scalar + 1)
    damp(w, at.a, w, at.a, w, at.T, P, w, at.site_ok)
    damp(w, at.t, w, at.t, w, at.eta, R, w, at.site_ok)
    scale(w, at.a, w, at.a, w, 0, P, w, at.scalar)
    scale(w, at.t, w, at.t, w, 0, R, w, at.scalar)
    scatter_add(rows, w[at.a : at.a + P], sum_Lam)
    scatter_add(rows, w[at.t : at.t + R], sum_eta)
    return skipped


@block_kernel
def averaged_chunks(chunks, modes, entries, others, cavity, average, sums, noise, rule, w, at):
    """New messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks, added up per row in ``sums``.

    ``others`` are the rows that give the other modes' moments; cavity and average as in `averaged_pass`.
    """
    K, R = entries.rows.shape[1], cavity.eta.shape[1]
    P = R * (R + 1) // 2
    first_row, last_row = entries.offsets[modes[0]], entries.offsets[modes[1]]
    for c in range(chunks[0], chunks[1]):
        sums.Lam[c, first_row:last_row] = 0.0
        sums.eta[c, first_row:last_row] = 0.0
        sums.noise[c] = 0.0
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            weight = entries.weight[b]
            for lane in range(LANES):
                w[at.ok, lane] = weight[lane]
                w[at.y, lane] = entries.y[b, lane]
                w[at.theta, lane] = noise[0] / noise[1] if rule.gaussian else rule.theta
            for k in range(K):
                gather(entries.rows[b, k], others.cov, w, at.S + k * P)
                gather(entries.rows[b, k], others.mean, w, at.m + k * R)
                add_outer(w, at.S + k * P, at.m + k * R, at.m + k * R, at.G + k * P, R)
                for lane in range(LANES):
                    w[at.ok, lane] *= cavity.good[entries.rows[b, k, lane]]
            for k in range(modes[0], modes[1]):
                rows = entries.rows[b, k]
                products_of_others(k, K, R, w, at)
                copy(w, at.site_ok, w, at.ok, w, 0, 1, w, 0)
                if rule.gaussian and k == K - 1:
                    _noise_total(k, rule.tilted_noise, weight, sums.noise[c], R, w, at)
                if rule.gaussian and rule.order == 1:
                    gaussian_message(R, w, at)
                else:
                    gather(rows, cavity.Lam, w, at.a)
                    gather(rows, cavity.eta, w, at.t)
                    S, m, vt = at.S + K * P, at.m + K * R, at.vt + K * R * R
                    moments(w, at.a, at.t, S, m, vt, at.inv_diag, at.site_ok, R)
                    tilted_message(rule, K, R, w, at)
                skipped += _add_message(rows, weight, average, sums.Lam[c], sums.eta[c], rule.power, R, w, at)
        sums.skipped[c] = skipped
