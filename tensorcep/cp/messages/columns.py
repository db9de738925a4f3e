"""Message passing with main effects and interactions at the cost of the free columns alone.

Every mode keeps only its free columns, Q of them, as rows of a CP model of rank Q do. A number that the CP model has as
an elementwise product over the other modes is then a product of slots of the work array that differ from column to
column: a second moment or a mean of the other mode, or a one, according to which columns are free there. Which slots is
a table made once. The columns that are clamped in the mode being updated add up to an offset c: f = z'u + c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tensorcep.core.compile import block_kernel
from tensorcep.cp.model.columns import Places, encoded
from tensorcep.kernels.slots import LANES, axpy, copy, multiply


class ProductSlots(NamedTuple):
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


def columns_of(free: np.ndarray | None, K: int, places_of_modes: Callable[[int, int], list[Places]]) -> ProductSlots:
    """Tables for the free columns (K, R) bool of K modes, or None for all.

    ``places_of_modes(K, Q)`` says where the numbers of every mode lie among the slots of the method.
    """
    if free is None:
        return ProductSlots(*(np.zeros((K, K - 1, 0), dtype=np.int64) for _ in ProductSlots._fields))
    columns, tables = encoded(free), []
    places = places_of_modes(K, columns.free_index.shape[1])
    for k, clamped in enumerate(columns.clamped_index):
        elements = ProductSlots(
            z=columns.free_index[k],
            Z2=columns.products(k),
            offset=clamped,
            cross=columns.cross(k).reshape(-1, 2),
            square=np.stack(np.meshgrid(clamped, clamped, indexing="ij"), axis=-1).reshape(-1, 2),
        )
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
