"""The compiled pass of conditional expectation propagation: the loop over the blocks of entries.

One pass visits every entry of its chunks, block by block: (a) moments of the K rows of each entry, on lanes; (b) the
likelihood's tilted moments, through its address; (c) new messages, damped, and their sums per row, on lanes. What the
messages are stands in `update`.
"""

from __future__ import annotations

from tensorcep.core.jit import block_kernel, call_clamped, call_first, call_second, inlined
from tensorcep.cp.cep.update import (
    gaussian_message,
    latent_moments,
    observe,
    products_of_others,
    squared_errors,
)
from tensorcep.cp.messages.kernels import (
    cavity_moments,
    clear_sums,
    kept_moments,
    load_values,
    store_message,
    store_noise,
)
from tensorcep.kernels.lanes import add_outer
from tensorcep.kernels.rows import gather
from tensorcep.kernels.slots import copy


@inlined
def load_block(b, modes, unused, entries, rows, messages, kept, noise, rule, w, at):
    """Step (a): values, likelihood parameter and moments of the modes of block b, but for the unused one."""
    load_values(b, rule.from_posterior, entries, messages, noise, rule, w, at)
    P, R = rows.cov.shape[1], rows.eta.shape[1]
    for k in range(entries.rows.shape[1]):
        index = entries.rows[b, k]
        if k == unused:
            continue
        if rule.from_posterior:
            gather(index, rows.cov, w, at.S + k * P)
            gather(index, rows.mean, w, at.m + k * R)
        elif modes[0] <= k < modes[1] and rule.order == 2:
            # vt is needed as well, which takes longer to read than to compute
            cavity_moments(index, rows.Lam, rows.eta, messages.Lam[b, k], messages.eta[b, k], w, at, k, at.ok)
        else:
            kept_moments(b, k, entries, rows, messages, kept, w, at)
        if rule.gaussian or modes != (k, k + 1):  # z has no part of the mode's own, only E[f^2] of real values
            m = at.m + k * R
            add_outer(w, at.S + k * P, m, m, at.G + k * P, R)


@inlined
def prepare(k, columns, rule, K, R, w, at):
    """z and Z2 of mode k; for the Gaussian, of f what its message and, with the last mode, the noise need."""
    structured = columns.z.shape[2] > 0
    if structured:
        call_clamped(rule.clamped, k, columns, rule.gaussian, rule.side != 0.0, rule.order, R, w, at)
    else:
        products_of_others(k, K, R, w, at)
    copy(w, at.site_ok, at.ok, 1)
    if not rule.gaussian:
        return
    if rule.side != 0.0 or k == K - 1:
        latent_moments(k, structured, R, w, at)
    observe(rule, w, at)
    if k == K - 1:
        squared_errors(rule, w, at)


@inlined
def propose(own, structured, rule, R, w, at):
    """Step (b): the message to one row, T and eta, given that its cavity is number `own` of S, m and vt."""
    if rule.gaussian and rule.order == 1:
        gaussian_message(structured, R, w, at)
        return
    S, m, vt = at.S + own * (R * (R + 1) // 2), at.m + own * R, at.vt + own * R * R
    if rule.order == 1:
        how = rule.positive, rule.nearest, rule.narrow, rule.loglik
        call_first(rule.first, rule.tilted, *how, S, m, vt, R, w, at)
    else:
        call_second(rule.second, rule.tilted, rule.positive, S, m, vt, R, w, at)


@block_kernel
def cep_chunks(first, last, modes, entries, columns, rows, messages, kept, sums, noise, rule, w, at):
    """Update the messages to the modes ``modes[0]:modes[1]`` of every entry of the chunks first:last.

    All messages of one entry are computed from the same state (the parallel schedule when modes covers all of them).
    `columns` tells which columns are clamped, if any are. New messages replace old ones in place; their sums per row of
    the updated modes go to ``sums``. ``noise`` is the (a, b) of the noise posterior, whose messages are updated with
    those of the last mode.
    """
    K, R = entries.rows.shape[1], rows.eta.shape[1]
    closed_form, structured = rule.gaussian and rule.order == 1, columns.z.shape[2] > 0
    # the Gaussian message to a mode does not depend on that mode unless there are limits; its moments serve the noise
    alone = modes[1] == modes[0] + 1 and modes[1] < K
    unused = modes[0] if closed_form and alone and rule.side == 0.0 else -1
    for c in range(first, last):
        clear_sums(c, modes, entries, sums)
        skipped = 0
        for b in range(entries.chunk_start[c], entries.chunk_start[c + 1]):
            load_block(b, modes, unused, entries, rows, messages, kept, noise, rule, w, at)
            for k in range(modes[0], modes[1]):
                index, Lam, eta, own = entries.rows[b, k], messages.Lam[b, k], messages.eta[b, k], k
                prepare(k, columns, rule, K, R, w, at)
                if rule.gaussian and k == K - 1:
                    store_noise(entries.weight[b], messages.a[b], messages.b[b], sums.noise[c], rule.step, w, at)
                if rule.from_posterior and not closed_form:
                    own = K  # beside the posterior's moments
                    cavity_moments(index, rows.Lam, rows.eta, Lam, eta, w, at, own, at.site_ok)
                propose(own, structured, rule, R, w, at)
                skipped += store_message(index, entries.weight[b], Lam, eta, sums.Lam[c], sums.eta[c], rule, w, at)
        sums.skipped[c] = skipped
