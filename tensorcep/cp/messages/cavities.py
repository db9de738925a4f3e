"""The compiled steps that every message-passing method takes, whatever its messages are.

A method's kernel visits the blocks of its chunks: `clear_sums` once per chunk, `load_values` per block and
`kept_moments` per row; then, with its own message in the slots T and eta (site_ok = 0 where there is none),
`store_message`; and, with the expected squared error of each entry in the slot `error`, `store_noise`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.compile import block_kernel, inlined
from tensorcep.core.executor import Pass
from tensorcep.cp.model.columns import Places, encode_columns, packed_pairs
from tensorcep.cp.model.entries import Entries
from tensorcep.kernels.lanes import moments
from tensorcep.kernels.rows import gather, scatter_add
from tensorcep.kernels.slots import LANES, axpy, copy, damp, multiply, scale, subtract


@inlined
def clear_sums(c, modes, entries, sums):
    """Nothing yet in the sums of chunk c to the rows of these modes."""
    first, last = entries.offsets[modes[0]], entries.offsets[modes[1]]
    sums.Lam[c, first:last] = 0.0
    sums.eta[c, first:last] = 0.0
    sums.noise[c] = 0.0


@inlined
def load_values(b, with_own, entries, messages, noise, rule, w, at):
    """Which lanes of block b are entries, their values, and the likelihood's parameter."""
    for lane in range(LANES):
        w[at.ok, lane] = 1.0 if entries.weight[b, lane] > 0.0 else 0.0
        w[at.y, lane] = entries.y[b, lane]
        w[at.theta, lane] = entries.theta[b, lane] if len(entries.theta) > 0 else rule.theta
        w[at.known, lane] = entries.known[b, lane] if len(entries.known) > 0 else 0.0
        if len(rule.cuts) > 0:  # of an ordered level, the cuts around it
            level = int(entries.y[b, lane])
            w[at.y, lane] = rule.cuts[level]
            w[at.theta, lane] = rule.cuts[level + 1]
        if rule.gaussian and with_own:  # the expected noise precision under (a, b), with the entry's own message or not
            w[at.theta, lane] = noise[0] / noise[1]
        elif rule.gaussian:
            w[at.theta, lane] = (noise[0] - messages.a[b, lane]) / (noise[1] - messages.b[b, lane])


@block_kernel
def cavity_moments(rows, Lam, eta, msg_Lam, msg_eta, w, at, slot, ok):
    """Moments of the rows of one block without the entries' own messages, to number `slot` of S, m and vt."""
    P, R = Lam.shape[1], eta.shape[1]
    gather(rows, Lam, w, at.a)
    gather(rows, eta, w, at.t)
    subtract(w, at.a, at.a, (msg_Lam, 0), P)
    subtract(w, at.t, at.t, (msg_eta, 0), R)
    moments(w, at.a, at.t, at.S + slot * P, at.m + slot * R, at.vt + slot * R * R, at.inv_diag, ok, R)


@block_kernel
def kept_moments(b, k, entries, rows, messages, kept, w, at):
    """Cavity moments of mode k of block b to number k of S and m, those kept if they hold; lanes without are not ok."""
    Lam, eta, index = messages.Lam[b, k], messages.eta[b, k], entries.rows[b, k]
    if len(kept.moments) == 0:
        cavity_moments(index, rows.Lam, rows.eta, Lam, eta, w, at, k, at.ok)
        return
    P, R, moments = rows.Lam.shape[1], rows.eta.shape[1], kept.moments[b, k]
    S, m = at.S + k * P, at.m + k * R
    if kept.fresh[k] > 0.0:
        copy(w, S, (moments, 0), P)
        copy(w, m, (moments, P), R)
    else:
        for lane in range(LANES):
            w[at.step, lane] = 1.0
        cavity_moments(index, rows.Lam, rows.eta, Lam, eta, w, at, k, at.step)
        copy(w, (moments, 0), S, P)
        copy(w, (moments, P), m, R)
        copy(w, (moments, P + R), at.step, 1)
    multiply(w, at.ok, at.ok, (moments, P + R), 1)


@inlined
def store_message(rows, weight, Lam, eta, sum_Lam, sum_eta, rule, w, at):
    """Damp in natural parameters and add to the sums of the rows; returns the number of skipped updates."""
    # An entry of weight n > 1 counts as n equal ones, each with the message that is stored; the message of one of
    # weight below 1 is taken to that power.
    skipped, plain, most = 0, rule.power == 1.0, 1.0
    for lane in range(LANES):
        part = weight[lane] if 0.0 < weight[lane] < 1.0 else 1.0
        plain, most = plain and part == 1.0, max(most, weight[lane])
        w[at.step, lane] = rule.step * w[at.site_ok, lane]
        w[at.power, lane] = rule.power * part
        if weight[lane] > 0.0 and w[at.site_ok, lane] == 0.0:
            skipped += 1
    if not plain:
        scale(w, at.T, at.T, Lam.shape[0], at.power)
        scale(w, at.eta, at.eta, eta.shape[0], at.power)
    damp(w, (Lam, 0), (Lam, 0), at.T, Lam.shape[0], at.step)
    damp(w, (eta, 0), (eta, 0), at.eta, eta.shape[0], at.step)
    if most == 1.0:
        scatter_add(rows, Lam, sum_Lam)
        scatter_add(rows, eta, sum_eta)
        return skipped
    P, R = Lam.shape[0], eta.shape[0]
    for lane in range(LANES):
        w[at.power, lane] = max(1.0, weight[lane])
    scale(w, at.T, (Lam, 0), P, at.power)
    scale(w, at.eta, (eta, 0), R, at.power)
    scatter_add(rows, w[at.T : at.T + P], sum_Lam)
    scatter_add(rows, w[at.eta : at.eta + R], sum_eta)
    return skipped


@inlined
def store_noise(weight, a, b, total, step, w, at):
    """Messages to the noise: a = 1/2 and b = half of the expected squared error; weights as in `store_message`."""
    for lane in range(LANES):
        if w[at.ok, lane] > 0.0:
            part = 0.5 * min(1.0, weight[lane])
            a[lane] += step * (part - a[lane])
            b[lane] += step * (part * w[at.error, lane] - b[lane])
        total[0] += max(1.0, weight[lane]) * a[lane]
        total[1] += max(1.0, weight[lane]) * b[lane]


@block_kernel
def add_sums(first, last, prior_Lam, prior_eta, sums, step, Lam, eta):
    """Natural parameters of rows first:last go the way `step` to prior + messages; chunks add up in a fixed order."""
    # a row without entries is at its prior at once; the last lines of the prior serve the rows beyond them; the sums of
    # the first chunk become those of all
    for i in range(first, last):
        way = step if sums.counts[i] > 0.0 else 1.0
        _add_row(prior_Lam[min(i, len(prior_Lam) - 1)], sums.Lam, i, way, Lam[i])
        _add_row(prior_eta[min(i, len(prior_eta) - 1)], sums.eta, i, way, eta[i])


@inlined
def _add_row(prior, sums, i, way, row):
    """The row goes the way to the prior and the sums of all chunks: chunk after chunk, to add whole vectors."""
    total = sums[0, i]
    for p in range(len(row)):
        total[p] += prior[p]
    for c in range(1, len(sums)):
        more = sums[c, i]
        for p in range(len(row)):
            total[p] += more[p]
    if way == 1.0:
        for p in range(len(row)):
            row[p] = total[p]
    else:
        for p in range(len(row)):
            row[p] += way * (total[p] - row[p])


@block_kernel
def scale_messages(first, last, factor, rows, Lam, eta):
    """Multiply every message to row i by factor[i], of the blocks first:last; 0 also removes what is not a number."""
    for b in range(first, last):
        for k in range(rows.shape[1]):
            for w in range(LANES):
                s = factor[rows[b, k, w]]
                if s != 1.0:
                    for p in range(Lam.shape[2]):
                        Lam[b, k, p, w] = s * Lam[b, k, p, w] if s > 0.0 else 0.0
                    for r in range(eta.shape[2]):
                        eta[b, k, r, w] = s * eta[b, k, r, w] if s > 0.0 else 0.0


def scale_chunks(first: int, last: int, entries: Entries, factor: np.ndarray, messages: Any) -> None:
    """`scale_messages` of the entries of the chunks first:last, if they are kept."""
    if len(messages.Lam):
        begin, end = entries.chunk_start[first], entries.chunk_start[last]
        scale_messages(begin, end, factor, entries.rows, messages.Lam, messages.eta)


# What passes add up of messages: `MessageSums`.
PASS_SUMS = ("sums.Lam", "sums.eta", "sums.noise", "sums.skipped")
SCALING = Pass(scale_chunks, over="chunks", keeps="messages")


# Main effects and interactions at the cost of the free columns alone.
#
# Every mode keeps only its free columns, Q of them, as rows of a CP model of rank Q do. A number that the CP model has
# as an elementwise product over the other modes is then a product of slots of the work array that differ from column to
# column: a second moment or a mean of the other mode, or a one, according to which columns are free there. Which slots
# is a table made once. The columns that are clamped in the mode being updated add up to an offset c: f = z'u + c.


class ProductSlots(NamedTuple):
    """Slots whose product over the K - 1 other modes is an element, int64; no elements where all columns are free."""

    z: np.ndarray  # (K, K - 1, Q)
    Z2: np.ndarray  # (K, K - 1, P)
    offset: np.ndarray  # (K, K - 1, C): columns clamped in mode k; c is the sum of their products
    cross: np.ndarray  # (K, K - 1, Q * C): E[z_q z_c] of free and clamped columns
    square: np.ndarray  # (K, K - 1, C * C): E[z_c z_d] of clamped columns


def product_slots(free: np.ndarray | None, K: int, places_of_modes: Callable[[int, int], list[Places]]) -> ProductSlots:
    """Tables for free columns (K, R) bool of K modes, None: all; ``places_of_modes(K, Q)``: where their numbers lie."""
    if free is None:
        return ProductSlots(*(np.zeros((K, K - 1, 0), dtype=np.int64) for _ in ProductSlots._fields))
    columns, tables = encode_columns(free), []
    places = places_of_modes(K, columns.free_index.shape[1])
    for k, (own, clamped) in enumerate(zip(columns.free_index, columns.clamped_index, strict=True)):
        cross, square = columns.cross(k).reshape(-1, 2), np.stack(np.meshgrid(clamped, clamped, indexing="ij"), axis=-1)
        elements = ProductSlots(z=own, Z2=packed_pairs(own), offset=clamped, cross=cross, square=square.reshape(-1, 2))
        tables.append([columns.table(k, part, places) for part in elements])
    return ProductSlots(*(np.stack(table) for table in zip(*tables, strict=True)))


@block_kernel
def _product(table, p, w, out):
    """Slot out = element p of a table (K - 1, n)."""
    copy(w, out, table[0, p], 1)
    for j in range(1, table.shape[0]):
        multiply(w, out, out, table[j, p], 1)


@block_kernel
def table_products(table, w, out):
    """Slots out = all elements of a table (K - 1, n)."""
    for p in range(table.shape[1]):
        _product(table, p, w, out + p)


@block_kernel
def add_product(table, p, w, out, at):
    """Slot out += element p of a table (K - 1, n)."""
    if table.shape[0] == 1:
        axpy(w, out, out, table[0, p], 1, at.one)
    elif table.shape[0] == 2:
        axpy(w, out, out, table[0, p], 1, table[1, p])
    else:
        _product(table, p, w, at.product)
        axpy(w, out, out, at.product, 1, at.one)


@block_kernel
def offset_mean(k, columns, w, at):
    """Slot offset = E[c] of mode k."""
    for lane in range(LANES):
        w[at.offset, lane] = 0.0
    for c in range(columns.offset.shape[2]):
        add_product(columns.offset[k], c, w, at.offset, at)


@block_kernel
def offset_moments(k, with_square, columns, R, w, at):
    """E[z c] of mode k and, if asked, E[c^2]."""
    C = columns.offset.shape[2]
    w[at.cross : at.cross + R] = 0.0
    for q in range(R):
        for c in range(C):
            add_product(columns.cross[k], q * C + c, w, at.cross + q, at)
    if with_square:
        for lane in range(LANES):
            w[at.square, lane] = 0.0
        for p in range(C * C):
            add_product(columns.square[k], p, w, at.square, at)
