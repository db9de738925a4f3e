"""Small-matrix algebra on lanes, and the work array of one thread that it works in."""

from __future__ import annotations

import itertools
from typing import NamedTuple, TypeVar

import numpy as np

from tensorcep.core.compile import block_kernel, inlined
from tensorcep.kernels import slots
from tensorcep.kernels.slots import LANES

Slots = TypeVar("Slots", bound=NamedTuple)


def layout(record: type[Slots], **sizes: int) -> Slots:
    """Where every part of a work array begins, by a record of int: its parts, and `size` last, the number of slots."""
    # `sizes` are the slots of the parts that take more or fewer than one; those of other names are refused.
    *parts, last = record._fields
    unknown = sizes.keys() - set(parts)
    if unknown or last != "size":
        raise TypeError(f"{record.__name__} has the parts {parts} and ends with {last!r}; got sizes of {set(sizes)}.")
    return record._make([0, *itertools.accumulate(sizes.get(name, 1) for name in parts)])


def work_array(at: Slots) -> tuple[np.ndarray, Slots]:
    """Zeros for all slots, with ones in the slot `one` where there is such, beside the record: scratch of a kernel."""
    w = slots.lane_zeros((at[-1], LANES))
    if "one" in at._fields:
        w[at[at._fields.index("one")]] = 1.0
    return w, at


# Small-matrix algebra on lanes: the same R x R operation for LANES entries at once.
#
# Every function works inside one lane array w, and its other arguments are the slots where operands and results start.
# A symmetric or lower triangular R x R matrix is packed by rows (slot ``i*(i+1)//2 + j`` for j <= i, P = R*(R+1)//2
# slots); a square one has slot ``i*R + j``. The storage of each matrix is chosen so that every product is a dot product
# over consecutive slots (see `tensorcep.kernels.slots`): the code serves any rank at full vector width.


@block_kernel
def cholesky(w, a, inv_diag, ok, R):
    """Factorise packed symmetric a = L L' in place (strictly lower part of L; 1/L_ii goes to inv_diag)."""
    # Slot ``ok`` is set to 0 in lanes where a is not positive definite; those lanes hold no result.
    for j in range(R):
        row_j = a + j * (j + 1) // 2
        slots.pivot_step(w, row_j + j, row_j, j, inv_diag + j, ok)
        for i in range(j + 1, R - 1, 2):
            row = a + i * (i + 1) // 2
            below = row + i + 1
            slots.solve_pair(w, row + j, below + j, row_j, row, below, j, inv_diag + j)
        if (R - 1 - j) % 2:
            row = a + R * (R - 1) // 2
            slots.solve_step(w, row + j, row, row_j, j, inv_diag + j)


@block_kernel
def invert_triangle(w, a, inv_diag, vt, R):
    """V = L^-1 from `cholesky`, transposed in the square vt: row j holds column j of V (slots j*R + i, i >= j)."""
    for i in range(R):
        row = a + i * (i + 1) // 2
        slots.copy(w, vt + i * R + i, inv_diag + i, 1)
        if i:
            slots.subtract(w, vt + i * R + i - 1, inv_diag, inv_diag, 1)  # a zero that a pair below runs over
        for j in range(0, i - 1, 2):
            x, y = vt + j * R, vt + (j + 1) * R
            slots.neg_pair(w, x + i, y + i, row + j, x + j, y + j, i - j, inv_diag + i)
        if i % 2:
            x = vt + (i - 1) * R
            slots.neg_dot_scaled(w, x + i, row + i - 1, x + i - 1, 1, inv_diag + i)


@block_kernel
def gram(w, vt, s, R):
    """Packed s = V'V, the inverse of the factorised matrix."""
    for i in range(R):
        row, x = s + i * (i + 1) // 2, vt + i * R + i
        for j in range(0, i, 2):
            y = vt + j * R + i
            slots.dot_pair(w, row + j, row + j + 1, x, y, y + R, R - i)
        if i % 2 == 0:
            slots.dot(w, row + i, x, x, R - i)


@block_kernel
def solve_lower(w, a, inv_diag, t, R):
    """In place t = L^-1 t, L from `cholesky`."""
    for i in range(R):
        slots.solve_step(w, t + i, a + i * (i + 1) // 2, t, i, inv_diag + i)


@block_kernel
def solve_upper(w, a, inv_diag, t, work, R):
    """In place t = L'^-1 t, L from `cholesky`; slot ``work`` is overwritten."""
    for i in range(R - 1, -1, -1):
        slots.multiply(w, t + i, t + i, inv_diag + i, 1)
        for lane in range(LANES):
            w[work, lane] = -w[t + i, lane]
        slots.axpy(w, t, t, a + i * (i + 1) // 2, i, work)


@block_kernel
def moments(w, a, t, s, m, vt, inv_diag, ok, R):
    """Packed covariance s and mean m of natural parameters (a, t), which are overwritten; vt as `invert_triangle`."""
    cholesky(w, a, inv_diag, ok, R)
    invert_triangle(w, a, inv_diag, vt, R)
    gram(w, vt, s, R)
    solve_lower(w, a, inv_diag, t, R)
    for j in range(R):
        slots.dot(w, m + j, vt + j * R + j, t + j, R - j)


@block_kernel
def add_outer(w, s, x, y, out, R):
    """Packed out = s + x y' (lower triangle; out may be s)."""
    for i in range(R):
        row = i * (i + 1) // 2
        slots.axpy(w, out + row, s + row, y, i + 1, x + i)


@block_kernel
def symmetric_times_vector(w, s, x, out, R):
    """out = s x for a packed symmetric matrix."""
    for i in range(R):
        row = s + i * (i + 1) // 2
        slots.dot(w, out + i, row, x, i + 1)
        slots.axpy(w, out, out, row, i, x + i)


@block_kernel
def trace_product(w, x, y, out, R):
    """Slot out = tr(X Y) for packed symmetric matrices."""
    slots.dot(w, out, x, y, R * (R + 1) // 2)
    for i in range(R):  # the strictly lower part counts twice
        row = i * (i + 1) // 2
        slots.dot_add(w, out, x + row, y + row, i)


@block_kernel
def site_precision(w, A, vt, full, v, y, yt, b, inv_diag, one, ok, t, R):
    """T = A (I - S A)^-1 for symmetric A and S = V'V: the message precision that turns covariance S into S - S A S."""
    # With Y = V A and I - Y V' = M M' this is T = A + (M^-1 Y)'(M^-1 Y): symmetric, free of differences of inverses,
    # and defined for singular or indefinite A. Slot ``ok`` drops where the new covariance S - S A S is not positive
    # definite. A and the result t are packed, vt is from `invert_triangle`, slot ``one`` holds 1; work slots: v and b
    # packed, full, y and yt square.
    for i in range(R):
        row = i * (i + 1) // 2
        slots.copy(w, full + i * R, A + row, i + 1)
        for j in range(i):
            slots.copy(w, full + j * R + i, A + row + j, 1)
        for j in range(i + 1):
            slots.copy(w, v + row + j, vt + j * R + i, 1)
    for i in range(R):
        for j in range(R):
            slots.dot(w, y + i * R + j, v + i * (i + 1) // 2, full + j * R, i + 1)
            slots.copy(w, yt + j * R + i, y + i * R + j, 1)
    for i in range(R):
        row = b + i * (i + 1) // 2
        for j in range(i + 1):
            slots.neg_dot_scaled(w, row + j, y + i * R, v + j * (j + 1) // 2, j + 1, one)
        slots.axpy(w, row + i, row + i, one, 1, one)
    cholesky(w, b, inv_diag, ok, R)
    for c in range(R):
        solve_lower(w, b, inv_diag, yt + c * R, R)
    slots.copy(w, t, A, R * (R + 1) // 2)
    for i in range(R):
        for j in range(i + 1):
            slots.dot_add(w, t + i * (i + 1) // 2 + j, yt + i * R, yt + j * R, R)


@inlined
def _upper_root(w, a, e, inv_diag, ok, R):
    """E of a = E E' for packed positive semidefinite a: row i of the upper triangle E at slots e + i*R + j, j >= i."""
    for i in range(R):
        for j in range(i, R):
            slots.copy(w, e + i * R + j, a + j * (j + 1) // 2 + i, 1)
    for j in range(R - 1, -1, -1):
        n, row = R - 1 - j, e + j * R + j
        slots.pivot_step(w, row, row + 1, n, inv_diag + j, ok)
        for i in range(0, j - 1, 2):
            x, y = e + i * R + j, e + (i + 1) * R + j
            slots.solve_pair(w, x, y, row + 1, x + 1, y + 1, n, inv_diag + j)
        if j % 2:
            x = e + (j - 1) * R + j
            slots.solve_step(w, x, row + 1, x + 1, n, inv_diag + j)
        # the root of the pivot; of one that is rounding alone, of a singular matrix, the pivot itself, as good as 0
        slots.solve_step(w, row, row + 1, row + 1, n, inv_diag + j)


@block_kernel
def scaled_site_precision(w, Z, b, S, e, f, full, y, a, inv_diag, one, ok, t, R):
    """T = b Z (I - b S Z)^-1 for semidefinite Z and S: the message that turns covariance S into S - b S Z S."""
    # With Z = E E' and I - b E'S E = M M' this is T = b (M^-1 E')'(M^-1 E'), for b of either sign: products of
    # triangles, half the work of `site_precision`. Slot ``ok`` drops where the new covariance is not positive definite.
    # Z, S and the result t are packed, slot b holds the factor and slot ``one`` 1; work slots: a packed, e, f, full and
    # y square.
    _upper_root(w, Z, e, inv_diag, y, R)  # slot y stands for a flag: a pivot may be 0
    for i in range(R):
        for j in range(i + 1):
            slots.copy(w, f + i * R + j, e + j * R + i, 1)
            slots.copy(w, full + i * R + j, S + i * (i + 1) // 2 + j, 1)
            slots.copy(w, full + j * R + i, S + i * (i + 1) // 2 + j, 1)
        if i + 1 < R:  # zeros that pairs below run over
            slots.subtract(w, f + i * R + i + 1, one, one, 1)
            slots.subtract(w, e + (i + 1) * R + i, one, one, 1)
    for i in range(R):
        x, row = y + i * R, a + i * (i + 1) // 2  # row i of E'S, up to its diagonal
        for j in range(0, i, 2):
            slots.dot_pair(w, x + j, x + j + 1, f + i * R, full + j * R, full + (j + 1) * R, i + 1)
        if i % 2 == 0:
            slots.dot(w, x + i, f + i * R, full + i * R, i + 1)
        for j in range(0, i, 2):
            slots.neg_pair(w, row + j, row + j + 1, x, f + j * R, f + (j + 1) * R, j + 2, b)
        if i % 2 == 0:
            slots.neg_dot_scaled(w, row + i, x, f + i * R, i + 1, b)
        slots.axpy(w, row + i, row + i, one, 1, one)
    cholesky(w, a, inv_diag, ok, R)
    for i in range(R):
        row = a + i * (i + 1) // 2
        for j in range(0, i, 2):
            x, z = e + j * R, e + (j + 1) * R
            slots.solve_pair(w, x + i, z + i, row + j, x + j, z + j, i - j, inv_diag + i)
        if i % 2 == 0:
            slots.multiply(w, e + i * R + i, e + i * R + i, inv_diag + i, 1)
    gram(w, e, t, R)
    slots.scale(w, t, t, R * (R + 1) // 2, b)
