"""Block-tridiagonal precisions: factors, draws and marginals of rows that are coupled in a chain."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.compile import block_kernel, kernel
from tensorcep.core.packing import diagonal, pack, unpack
from tensorcep.core.random import normals, start_stream
from tensorcep.kernels.rank_update import COLUMNS, ROWS, add_row, add_tile, multiply_rows, padded, scale_row
from tensorcep.kernels.slots import lane_zeros

# Rows that are coupled in a chain: exact draws and marginals of a Gaussian with a block-tridiagonal precision.
#
# The precision of m blocks of D numbers has blocks Lam_t on its diagonal and -diag(between_t) between block t and block
# t + 1. Elimination forwards factorises
#
#     L_t L_t' = D_t = Lam_t - C_{t-1} D_{t-1}^-1 C_{t-1},  h_t = eta_t + C_{t-1} D_{t-1}^-1 h_{t-1}, C = diag(between).
#
# It is a Kalman filter in information form, linear in the blocks, that knows no transition which could be singular.
# Draws and marginals follow backwards; all that they need are V_t = L_t^-1 and y_t = V_t h_t.
#
# Work arrays have `padded` columns, so that lines are whole vectors: a block's line is worked on at once.
# Source: Rue and Held (2005), Gaussian Markov Random Fields, sec. 2.4; Takahashi, Fagan and Chin (1973) for marginals.

# Between these the product of pivots stays before its logarithm is taken: that of each takes as long as much else.
LEAST_PRODUCT, MOST_PRODUCT = 1e-100, 1e100


class Carry(NamedTuple):
    """What elimination of the blocks before a block leaves for it, and room."""

    start: np.ndarray  # (S, S): what is added to the upper triangle of the block's precision
    h: np.ndarray  # (1, S): what is added to its natural mean
    sums: np.ndarray  # (2,): a log determinant, and a product of inverse pivots whose logarithm is not taken off it yet
    A: np.ndarray  # (S, S)
    following: np.ndarray  # (S, S)
    inverse: np.ndarray  # (S,)
    more: tuple[np.ndarray, ...]  # room of `eliminate`


def nothing_before(D: int) -> Carry:
    """What the first block of D numbers begins with."""
    S = padded(D)
    start, A, following, root, moved, minus = (lane_zeros((S, S)) for _ in range(6))
    h, c, past, inverse = lane_zeros((1, S)), lane_zeros((1, S)), lane_zeros((S,)), lane_zeros((S,))
    more = root, c, lane_zeros((COLUMNS, S)), moved, minus, past
    return Carry(start, h, np.array([0.0, 1.0]), A, following, inverse, more)


@block_kernel
def _load(q, Lam, precision, t, own, A):
    """The upper triangle of the first D lines of A becomes that of precision Lam[q] + diag(own[t])."""
    for i in range(own.shape[1]):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            A[j, i] = precision * Lam[q, row + j]
        A[i, i] += own[t, i]


@block_kernel
def _times_panel(V, spare, first, begin, end, M):
    """Lines first:first + COLUMNS of M, columns begin:end: V's block on the diagonal times them; `spare` is room."""
    S = M.shape[1]
    for j in range(begin, end, COLUMNS):
        for i in range(COLUMNS):
            scale_row(spare, i * S + j, M, (first + i) * S + j, 0.0, COLUMNS)
        for i in range(0, COLUMNS, ROWS):
            add_tile(COLUMNS, V, (first + i) * S + first, 1, S, M, first * S + j, S, spare, i * S + j, S)
        for i in range(COLUMNS):
            scale_row(M, (first + i) * S + j, spare, i * S + j, 1.0, COLUMNS)


@block_kernel
def _eliminate_below(first, spare, A, V, h, inverse):
    """Make lines first:first + COLUMNS of A and V ready, of which the diagonal is; take them off those below."""
    last, S = first + COLUMNS, len(A)
    _times_panel(V, spare, first, last, S, A)
    _times_panel(V, spare, first, 0, first, V)
    for k in range(COLUMNS):
        scale_row(spare, k * S + last, A, (first + k) * S + last, -inverse[first + k], S - last)
        add_row(h, last, spare, k * S + last, h[0, first + k], S - last)
    for i in range(last, S, ROWS):
        for j in range(i & -COLUMNS, S, COLUMNS):
            add_tile(COLUMNS, spare, i, S, 1, A, first * S + j, S, A, i * S + j, S)
        for j in range(0, last, COLUMNS):
            add_tile(COLUMNS, spare, i, S, 1, V, first * S + j, S, V, i * S + j, S)


@block_kernel
def _factorise(D, A, V, h, spare, inverse):
    """V A V' becomes diagonal, its inverse is `inverse` (S,), V being lower triangular, and h (1, S) becomes V h."""
    # A and V are (S, S), of which D lines count; what A has below its diagonal is not read. A is overwritten; `spare`
    # (COLUMNS, S) is room.
    S = len(A)
    V[:] = 0.0
    for i in range(D):
        V[i, i] = 1.0
    for first in range(0, D, COLUMNS):
        last = min(D, first + COLUMNS)
        for k in range(first, last):
            inverse[k] = 1.0 / A[k, k]
            for i in range(k + 1, last):
                factor = -inverse[k] * A[k, i]
                add_row(A, i * S + first, A, k * S + first, factor, COLUMNS)
                add_row(V, i * S + first, V, k * S + first, factor, COLUMNS)
                h[0, i] += factor * h[0, k]
        if S > COLUMNS:
            _eliminate_below(first, spare, A, V, h, inverse)


@block_kernel
def _take_off(D, V, c, inverse, moved, minus, following):
    """Take what a block says of the next one off `following`; `moved` and `minus` (S, S) become products on the way."""
    S = len(V)
    for q in range(D):
        size = (q & -COLUMNS) + COLUMNS
        multiply_rows(moved, q * S, V, q * S, c, 0, size)
        scale_row(minus, q * S, moved, q * S, -inverse[q], size)
    for j in range(0, D, COLUMNS):
        for i in range(0, j + COLUMNS, ROWS):
            add_tile(D - j, moved, j * S + i, S, 1, minus, j * S + j, S, following, i * S + j, S)


@kernel
def eliminate(first, Lam, eta, precision, own, field, between, V, y, carry):
    """Eliminate the blocks first:first + k of a chain forwards, which Lam (k, P) and eta (k, D) tell of."""
    # Gives packed V (m, P) and y (m, D) of these blocks. Both, packed blocks and natural means, are times `precision`,
    # beside the diagonal own (m, D) and field (m, D); between is (m - 1, D). `carry` (Carry) has what is before and,
    # then, before the next one. V may be Lam. After the last block the log determinant of the whole precision is given,
    # NaN if it is not positive definite.
    k, D = len(Lam), y.shape[1]
    start, h, sums, A, following, inverse, (root, c, spare, moved, minus, past) = carry
    m, S, log_det, product = len(V), len(A), sums[0], sums[1]
    _load(0, Lam, precision, first, own, following)
    for i in range(D):
        for j in range(i + 1):
            following[j, i] += start[j, i]
    for q in range(k):
        A, following = following, A
        t = first + q
        if q + 1 < k:  # in time for what is stored by numbers to be loaded as vectors
            _load(q + 1, Lam, precision, t + 1, own, following)
        else:
            following[:D, :D] = 0.0
        # with A = L L' packed L^-1 goes to V[t], L^-1 times the natural mean to y[t], and the inverse squares of the
        # diagonal of L to `inverse`; what the next block has from this one is taken off `following`, and is h then
        for i in range(D):
            h[0, i] += precision * eta[q, i] + field[t, i]
            c[0, i] = between[t, i] if t + 1 < m else 0.0
        _factorise(D, A, root, h, spare, inverse)
        _take_off(D, root, c, inverse, moved, minus, following)
        for i in range(D):
            row, scale, past[i] = i * (i + 1) // 2, math.sqrt(inverse[i]), h[0, i]
            y[t, i] = scale * past[i]
            for j in range(i + 1):
                V[t, row + j] = scale * root[i, j]
        h[:] = 0.0
        for i in range(D):
            add_row(h, 0, minus, i * S, -past[i], (i & -COLUMNS) + COLUMNS)
        for i in range(D):
            if not inverse[i] > 0.0:
                return np.nan
            product *= inverse[i]
            if not LEAST_PRODUCT < product < MOST_PRODUCT:
                log_det -= math.log(product)
                product = 1.0
    for i in range(D):
        for j in range(i + 1):
            start[j, i] = following[j, i]
    sums[0], sums[1] = log_det, product
    return log_det - math.log(product)


@block_kernel
def _draw_block(t, V, y, noise, between, x, rest, out):
    """out[t] and x become V_t' (y_t + noise + V_t C x), x being the next block before; the last one has none."""
    m, D = y.shape
    for i in range(D):
        x[i] = x[i] * between[t, i] if t + 1 < m else 0.0
    for i in range(D):
        row, total = i * (i + 1) // 2, y[t, i] + noise[i]
        for j in range(i + 1):
            total += V[t, row + j] * x[j]
        rest[i] = total
    for i in range(D):
        row = i * (i + 1) // 2
        x[i] = 0.0
        for j in range(i + 1):
            x[j] += V[t, row + j] * rest[i]
    for i in range(D):
        out[t, i] = x[i]


@kernel
def draw_back(V, y, between, key, out):
    """A draw of all blocks to out (m, D) after `eliminate`; `key` is (seed, sweep, what) of the stream."""
    m, D = y.shape
    x, rest, s = np.zeros(D), np.zeros(D), np.zeros(4, dtype=np.uint64)
    noise, spare = np.zeros(D + 1), np.zeros(D + 1)
    for t in range(m - 1, -1, -1):
        start_stream(s, key[0], key[1], key[2] * (1 << 32) + t)
        normals(s, D, noise, spare)
        _draw_block(t, V, y, noise, between, x, rest, out)


@block_kernel
def _products(x, y, out, D):
    """out += x' y, all (S, S), of which the first D lines count."""
    S = len(out)
    for i in range(0, S, ROWS):
        for j in range(0, S, COLUMNS):
            add_tile(D, x, i, S, 1, y, j, S, out, i * S + j, S)


@kernel
def marginals_back(V, y, between, mean, cov, cross):
    """Means (m, D), packed covariances (m, P) and Cov(x_t, x_{t+1})_ii, (m - 1, D), after `eliminate`."""
    # With G_t = D_t^-1 C_t the covariance of block t is D_t^-1 + G_t S_{t+1} G_t'.
    m, D = y.shape
    S = -(-D // COLUMNS) * COLUMNS
    rest, x, nothing = np.zeros(S), np.zeros(S), np.zeros(S)
    root, inverse, moved = np.zeros((S, S)), np.zeros((S, S)), np.zeros((S, S))
    now, between_both = np.zeros((S, S)), np.zeros((S, S))
    for t in range(m - 1, -1, -1):
        _draw_block(t, V, y, nothing, between, x, rest, mean)
        for i in range(D):
            row = i * (i + 1) // 2
            for j in range(i + 1):
                root[i, j] = V[t, row + j]
        inverse[:] = 0.0
        _products(root, root, inverse, D)
        if t < m - 1:
            for i in range(D):
                scale_row(moved, i * S, inverse, i * S, between[t, i], S)
            between_both[:] = 0.0
            _products(now, moved, between_both, D)
            for i in range(D):
                cross[t, i] = between_both[i, i]
            _products(between_both, moved, inverse, D)
        now, inverse = inverse, now
        for i in range(D):
            row = i * (i + 1) // 2
            for j in range(i + 1):
                cov[t, row + j] = now[i, j]


# Rows of a series given their prior and what their entries say: a joint draw, or the moments of all of them.
#
# A circle is folded: block b holds the rows b and n - 1 - b, so that blocks are coupled by diagonals again. An odd
# number of rows gets one more, which is integrated out: a node of precision d that is coupled by d with both ends of
# the edge that closes the circle takes the place of that edge, if the ends' own precisions grow by d.

NO_COUPLING = 1e-50  # couplings below this are none
Key = tuple[int, int, int]  # of a random stream: seed, sweep, what


class Marginals(NamedTuple):
    """Moments of rows in order: means (n, D), packed covariances (n, P), of neighbours (E, D), and log |precision|."""

    mean: np.ndarray
    cov: np.ndarray
    cross: np.ndarray
    log_det: float
    told: tuple[np.ndarray, np.ndarray] | None = None  # of rows of a graph: what entries say, (n, P) and (n, D)
    apart: bool = False  # columns are taken for independent


class Links(NamedTuple):
    """The prior of the rows with entries of a mode, coupled: precision and natural mean, in D columns."""

    of: Any  # the rows in the order of their times (`ou_process.Axis`), or None
    closed: bool  # whether the last of them is a neighbour of the first
    own: np.ndarray  # (n, D): the diagonal of the precision
    field: np.ndarray  # (n, D): precision times mean
    between: np.ndarray  # (E, D): less the precision's element of two neighbours

    def draw(self, Lam: np.ndarray, eta: np.ndarray, key: Key, precision: float = 1.0, overwrite: bool = False) -> Any:
        """A draw (n, D) given `precision` times what entries say, the same for the same key; Lam may be overwritten."""
        blocks = _blocks(self, Lam, eta, precision)
        V, y, _ = _eliminate_all(blocks, overwrite)
        out = np.empty_like(y)
        draw_back(V, y, blocks[-1], key, out)
        return _unfold(out, len(self.own)) if self.closed else out

    def marginals(self, Lam: np.ndarray, eta: np.ndarray, precision: float = 1.0) -> Marginals:
        """The moments of the rows given the same; without a definite joint precision both raise FloatingPointError."""
        blocks = _blocks(self, Lam, eta, precision)
        V, y, log_det = _eliminate_all(blocks)
        mean, cov, cross = np.empty_like(y), np.empty_like(V), np.empty_like(blocks[-1])
        marginals_back(V, y, blocks[-1], mean, cov, cross)
        return self._unfolded(mean, cov, cross, log_det) if self.closed else Marginals(mean, cov, cross, log_det)

    def _unfolded(self, mean: np.ndarray, cov: np.ndarray, cross: np.ndarray, log_det: float) -> Marginals:
        """The moments of rows on a circle from those of their blocks."""
        (n, D), m = self.own.shape, len(mean)
        whole, i = unpack(cov, 2 * D), np.arange(D)
        first, last = (whole[block, i, D + i][None] for block in (0, m - 1))
        cov = np.concatenate([whole[:, :D, :D], whole[::-1, D:, D:]])[:n]
        cross = np.concatenate([cross[:, :D], last, cross[::-1, D:], first])
        if n % 2:  # the mean of the extra row given others is the sum of its neighbours
            used, d = _extra(self)
            cross = np.concatenate([cross[: n - 1], np.where(used, cross[-1] - whole[0, i, i], 0.0)[None]])
            log_det -= float(np.log(np.where(used, d, 1.0)).sum())
        return Marginals(_unfold(mean, n), pack(cov), cross, log_det)


class PiecewiseDraw:
    """A draw as by `draw`, of rows on a line whose entries are told of some rows at a time, in order."""

    def __init__(self, prior: Links, precision: float):
        n, D = prior.own.shape
        self.prior, self.precision, self.told, self.log_det = prior, float(precision), 0, 0.0
        self.V, self.y, self.carry = np.empty((n, D * (D + 1) // 2)), np.empty((n, D)), nothing_before(D)

    def tell(self, Lam: np.ndarray, eta: np.ndarray) -> None:
        """What the entries of the next k rows say, (k, P) and (k, D)."""
        prior, V, y = self.prior, self.V, self.y
        parts = Lam, eta, self.precision, prior.own, prior.field, prior.between
        self.log_det = _check_log_det(eliminate(self.told, *parts, V, y, self.carry))
        self.told += len(Lam)

    def rows(self, key: Key) -> np.ndarray:
        """The draw (n, D) once all is told."""
        out = np.empty_like(self.y)
        draw_back(self.V, self.y, self.prior.between, key, out)
        return out


def _eliminate_all(blocks: tuple[Any, ...], overwrite: bool = False) -> tuple[np.ndarray, np.ndarray, float]:
    Lam, eta = blocks[:2]
    V, y = Lam if overwrite else np.empty_like(Lam), np.empty_like(eta)
    return V, y, _check_log_det(eliminate(0, *blocks, V, y, nothing_before(y.shape[1])))


def _check_log_det(log_det: float) -> float:
    if not np.isfinite(log_det):
        raise FloatingPointError("the precision of the rows of a series is not positive definite; use a tighter prior.")
    return float(log_det)


def _blocks(prior: Links, Lam: np.ndarray, eta: np.ndarray, precision: float) -> tuple[Any, ...]:
    """The joint precision and natural mean of the rows, as `eliminate` takes them: Lam, eta, ..., between."""
    n, D = prior.own.shape
    Lam, eta = Lam[:, : D * (D + 1) // 2], eta[:, :D]
    if not prior.closed:
        Lam, eta, *rest = (np.ascontiguousarray(part) for part in (Lam, eta, prior.own, prior.field, prior.between))
        return Lam, eta, float(precision), *rest
    Lam, eta, at = precision * Lam, precision * eta + prior.field, diagonal(D)
    Lam[:, at] += prior.own
    between = prior.between
    if n % 2:
        used, extra = _extra(prior)
        more = np.zeros((1, Lam.shape[1]))
        more[0, at] = np.where(used, extra, 1.0)
        for end in (0, -1):
            Lam[end, at] += extra
        Lam, eta = np.concatenate([Lam, more]), np.concatenate([eta, np.zeros((1, D))])
        between = np.concatenate([between[:-1], extra[None], extra[None]])
    n, m, i = len(eta), len(eta) // 2, np.arange(D)  # blocks of two rows each
    whole, nothing = np.zeros((m, 2 * D, 2 * D)), np.zeros((m, 2 * D))
    whole[:, :D, :D], whole[:, D:, D:] = unpack(Lam[:m], D), unpack(Lam[: m - 1 : -1], D)
    for block, edge in ((0, n - 1), (m - 1, m - 1)):
        whole[block, i, D + i] -= between[edge]
        whole[block, D + i, i] -= between[edge]
    coupled = np.concatenate([between[: m - 1], between[n - 2 : m - 1 : -1]], axis=1)
    natural = np.concatenate([eta[:m], eta[: m - 1 : -1]], axis=1)
    return pack(whole), natural, 1.0, nothing, nothing, np.ascontiguousarray(coupled)


def _extra(prior: Links) -> tuple[np.ndarray, np.ndarray]:
    """Which columns have a coupling of the last row with the first one, and it, (D,)."""
    closing = prior.between[-1]
    used = closing > NO_COUPLING
    return used, np.where(used, closing, 0.0)


def _unfold(blocks: np.ndarray, n: int) -> np.ndarray:
    """Rows (n, D) of blocks of two."""
    D = blocks.shape[1] // 2
    return np.concatenate([blocks[:, :D], blocks[::-1, D:]])[:n]


# Rows of a series and their neighbours: sums over them, and their prior from tables of phases and distances.
#
# Row t and the next one are number `which[t]` of J distances apart; on a circle the last one and the first one are
# neighbours, too. Row t has number `phase[t]` of P phases.


def kernel_moments(rows: np.ndarray, variance: Any, cross: Any) -> tuple[np.ndarray, ...]:
    """Moments as kernels take them: C-contiguous, those that are no arrays without lines."""
    nothing = np.zeros((0, rows.shape[1]))
    parts = (part if isinstance(part, np.ndarray) else nothing for part in (rows, variance, cross))
    return tuple(np.ascontiguousarray(part) for part in parts)


@block_kernel
def neighbour_sums(rows, variance, cross, which, phase, square, near_squares, products, own, near, between):
    """Sums over rows with `kernel_moments`: means (n, D), variances (n, D) and covariances of neighbours (E, D)."""
    # Of the last two arrays without lines are zeros. Sums go to zeros. First those of squares: of all rows (1, D), and
    # by distance (J, D), of both neighbours and of their products. Then those of rows by phase, (P, D), and by distance
    # and phase, (J, P, D), of neighbours in their own phases, and in those of the other one.
    n, D = rows.shape
    for t in range(n):
        for d in range(D):
            x = rows[t, d]
            square[0, d] += x * x + (variance[t, d] if len(variance) else 0.0)
            own[phase[t], d] += x
    for t in range(len(which)):
        after = t + 1 if t + 1 < n else 0
        j, p, q = which[t], phase[t], phase[after]
        for d in range(D):
            x, y = rows[t, d], rows[after, d]
            spread = variance[t, d] + variance[after, d] if len(variance) else 0.0
            near_squares[j, d] += x * x + y * y + spread
            products[j, d] += x * y + (cross[t, d] if len(cross) else 0.0)
            near[j, p, d] += x
            near[j, q, d] += y
            between[j, p, d] += y
            between[j, q, d] += x


@block_kernel
def neighbour_lines(which, phase, tables, own, field, between):
    """What the rows have from themselves and their neighbours: own, field (n, D), and between (E, D)."""
    # `tables` has what a row adds to `own`, (D,), and neighbours to `own` and `between`, (J, D) each; then what a row
    # adds to `field` by its phase, (P, D), and neighbours by distance and phase, (J, P, D) each, to their own and the
    # other's.
    one, near, apart, level, near_level, apart_level = tables
    n, D = own.shape
    for t in range(n):
        for d in range(D):
            own[t, d] = one[d]
            field[t, d] = level[phase[t], d]
    for t in range(len(which)):
        after = t + 1 if t + 1 < n else 0
        j, p, q = which[t], phase[t], phase[after]
        for d in range(D):
            own[t, d] += near[j, d]
            own[after, d] += near[j, d]
            between[t, d] = apart[j, d]
            field[t, d] += near_level[j, p, d] + apart_level[j, q, d]
            field[after, d] += near_level[j, q, d] + apart_level[j, p, d]


@block_kernel
def expected_parts(left, right, own, between, field, mean, rows, variance, cross):
    """Expected x'Kx and sum of field (x - mean / 2), all (n, D), of x with these moments (see `neighbour_sums`)."""
    # K has `own` (n, D) on its diagonal, and less `between` (E, D) where rows left (E,) and right (E,) meet.
    square, linear, (n, D) = 0.0, 0.0, own.shape
    for t in range(n):
        for d in range(D):
            x = rows[t, d]
            square += own[t, d] * (x * x + (variance[t, d] if len(variance) else 0.0))
            linear += field[t, d] * (x - 0.5 * mean[t, d])
    for e in range(len(between)):
        for d in range(D):
            product = rows[left[e], d] * rows[right[e], d] + (cross[e, d] if len(cross) else 0.0)
            square -= 2.0 * between[e, d] * product
    return square, linear


@block_kernel
def solve_banded(bands, x, product, log_det):
    """x (n, D) = A_d^-1 x_d for D symmetric positive definite matrices, and the logarithms of determinants (D,)."""
    # bands[b, i] holds the elements i + b, i of all matrices: (2, n, D), or (3, n, D) where there is a second band.
    # They are overwritten. `product` is ones, and log_det zeros.
    n, D = x.shape
    wide = len(bands) > 2
    for i in range(n):
        for d in range(D):
            pivot = bands[0, i, d]
            product[d] *= pivot
            if not LEAST_PRODUCT < product[d] < MOST_PRODUCT:
                log_det[d] += math.log(product[d])
                product[d] = 1.0
            if i + 1 < n:
                factor = bands[1, i, d] / pivot
                bands[0, i + 1, d] -= factor * bands[1, i, d]
                x[i + 1, d] -= factor * x[i, d]
                if wide and i + 2 < n:
                    second = bands[2, i, d] / pivot
                    bands[1, i + 1, d] -= second * bands[1, i, d]
                    bands[0, i + 2, d] -= second * bands[2, i, d]
                    x[i + 2, d] -= second * x[i, d]
    for d in range(D):
        log_det[d] += math.log(product[d])
    for i in range(n - 1, -1, -1):
        for d in range(D):
            rest = x[i, d]
            if i + 1 < n:
                rest -= bands[1, i, d] * x[i + 1, d]
            if wide and i + 2 < n:
                rest -= bands[2, i, d] * x[i + 2, d]
            x[i, d] = rest / bands[0, i, d]
