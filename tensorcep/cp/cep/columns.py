"""CEP with main effects and interactions at the cost of the free columns alone.

Every mode keeps only its free columns, Q of them, as rows of a CP model of rank Q do. What differs is z and Z2: an
element of them is a product, over the other modes, of a slot of the work array, the second moment G, the mean m or a
one, according to which of the two columns are free in that mode. Which slots is a table made once. The columns that are
clamped in the mode being updated add up to an offset c of the latent value, f = z'u + c.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.jit import block_kernel
from tensorcep.cp.cep.moments import layout
from tensorcep.cp.free_columns import Places, padded_columns
from tensorcep.kernels.slots import LANES, axpy, copy, multiply


class Columns(NamedTuple):
    """Slots whose product over the K - 1 other modes is an element, int64; no elements where all columns are free.

    Attributes
    ----------
    z : (K, K - 1, Q)
    Z2 : (K, K - 1, P)
    offset : (K, K - 1, C)
        Columns clamped in mode k: c is the sum of their products.
    cross : (K, K - 1, Q * C)
        E[z_q z_c] of free and clamped columns.
    square : (K, K - 1, C * C)
        E[z_c z_d] of clamped columns.
    """

    z: np.ndarray
    Z2: np.ndarray
    offset: np.ndarray
    cross: np.ndarray
    square: np.ndarray


def all_free(K: int) -> Columns:
    """The columns of the CP model: no tables."""
    return Columns(*(np.zeros((K, K - 1, 0), dtype=np.int64) for _ in Columns._fields))


def columns_of(free: np.ndarray) -> Columns:
    """Tables for the free columns (K, R) bool."""
    K, Q = len(free), int(free.sum(axis=1).max())
    at = layout(K, Q)
    mine, others = padded_columns(free).tolist(), padded_columns(~free).tolist()
    lower, P = np.tril_indices(Q), Q * (Q + 1) // 2
    places = [Places(at.G + j * P, at.m + j * Q, at.one, at.zero) for j in range(K)]
    tables: dict[str, list[list[list[int]]]] = {name: [] for name in Columns._fields}
    for k in range(K):
        pairs = {
            "z": [(a, a) for a in mine[k]],
            "Z2": [(mine[k][i], mine[k][j]) for i, j in zip(*lower, strict=True)],
            "offset": [(c, c) for c in others[k]],
            "cross": [(a, c) for a in mine[k] for c in others[k]],
            "square": [(c, d) for c in others[k] for d in others[k]],
        }
        for name, wanted in pairs.items():
            of_mean = name in ("z", "offset")
            tables[name].append(
                [
                    [p.of_mean(free[j], a) if of_mean else p.of_second_moment(free[j], a, b) for a, b in wanted]
                    for j, p in enumerate(places)
                    if j != k
                ]
            )
    return Columns(**{name: np.array(table, dtype=np.int64).reshape(K, K - 1, -1) for name, table in tables.items()})


@block_kernel
def _product(table, p, w, out):
    """Slot out = element p of a table (K - 1, n)."""
    copy(w, out, w, table[0, p], w, 0, 1, w, 0)
    for j in range(1, table.shape[0]):
        multiply(w, out, w, out, w, table[j, p], 1, w, 0)


@block_kernel
def _add_product(table, p, w, out, at):
    """Slot out += element p of a table (K - 1, n)."""
    if table.shape[0] == 1:
        axpy(w, out, w, out, w, table[0, p], 1, w, at.one)
    elif table.shape[0] == 2:
        axpy(w, out, w, out, w, table[0, p], 1, w, table[1, p])
    else:
        _product(table, p, w, at.product)
        axpy(w, out, w, out, w, at.product, 1, w, at.one)


@block_kernel
def structured_products(k, columns, w, at):
    """z and Z2 of the free columns of mode k, and the mean of the offset c of the clamped ones."""
    for q in range(columns.z.shape[2]):
        _product(columns.z[k], q, w, at.z + q)
    for p in range(columns.Z2.shape[2]):
        _product(columns.Z2[k], p, w, at.Z2 + p)
    for lane in range(LANES):
        w[at.offset, lane] = 0.0
    for c in range(columns.offset.shape[2]):
        _add_product(columns.offset[k], c, w, at.offset, at)


@block_kernel
def offset_moments(k, with_square, columns, R, w, at):
    """E[z c] of mode k and, if asked, E[c^2]."""
    C = columns.offset.shape[2]
    w[at.cross : at.cross + R] = 0.0
    for q in range(R):
        for c in range(C):
            _add_product(columns.cross[k], q * C + c, w, at.cross + q, at)
    if with_square:
        for lane in range(LANES):
            w[at.square, lane] = 0.0
        for p in range(C * C):
            _add_product(columns.square[k], p, w, at.square, at)


@block_kernel
def remove_offset(precision, R, w, at):
    """The Gaussian message of f = z'u + c: eta = E[tau] (y z - E[z c]), E[tau] in the slot `precision`."""
    for lane in range(LANES):
        w[at.scalar, lane] = -w[precision, lane]
    axpy(w, at.eta, w, at.eta, w, at.cross, R, w, at.scalar)
