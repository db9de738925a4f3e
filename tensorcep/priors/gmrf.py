"""Rows on a graph: a Gaussian Markov random field, its law, draws and marginals."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from tensorcep.core.checks import fail_value
from tensorcep.core.packing import diagonal, pack, unpack
from tensorcep.priors.base import ModePrior, Moments
from tensorcep.priors.graph import Net
from tensorcep.priors.normal_wishart import MEAN_ROWS
from tensorcep.priors.ou_process import SHAPE, Chained, laws_of_mode
from tensorcep.priors.solvers import sparse
from tensorcep.priors.solvers.chain import Key, Marginals
from tensorcep.priors.solvers.sparse import NOT_POSITIVE, EliminationOrder, perturb

# The field of a mode that is a graph: which rows are coupled, and what they say of each other at every length.
#
# A column of the rows of a graph is a level and x, a Gaussian Markov field of precision lam K,
#
#     K = S (I + g L) S,
#
# L the graph's Laplacian and S the diagonal matrix with which every row of x alone has the variance 1 / lam. The length
# is sqrt(g), about as many edges as a field goes together over; g = 0 is rows that do not depend on each other.
#
# Rows without entries are integrated out, one after the other, each of which then couples its neighbours; but for those
# that would couple too many, such as the root of a tree, which are rows like any other. Those of a part of the graph
# without any entry are left out.
# Source: Rue and Held (2005), Gaussian Markov Random Fields; Leroux, Lei and Breslow (2000); for a variance that means
# the same everywhere, Sorbye and Rue (2014).

# Lengths of the grid beside 0, in edges the least and the largest, which is at most so many times the rows of a part.
LENGTHS, LEAST_EDGES, MOST_EDGES, MOST_RANGES = 12, 0.3, 300.0, 3.0
MOST_WORK = 2e9  # products that a factor of numbers may take: some seconds


class Field(NamedTuple):
    """The rows of a graph, made once; those that have entries, and few others, in n rows and E edges."""

    clock: Net
    place: np.ndarray  # (n,) int64: these rows of the mode, ascending
    order: np.ndarray  # (n,) int64: all of them in order
    left: np.ndarray  # (E,) int64: the ends of each edge among them, left < right, by left
    right: np.ndarray  # (E,) int64
    lengths: np.ndarray  # (L,): sqrt(g)
    own: np.ndarray  # (L, n): the diagonal of K
    between: np.ndarray  # (L, E): less its elements at edges
    rest: np.ndarray  # (L, n): the diagonal without what its edges add to it
    total: np.ndarray  # (L, n): K summed over the columns
    scale: np.ndarray  # (L, N): S of all N rows of the mode
    log_det: np.ndarray  # (L,): log |K|
    strengths: np.ndarray  # this and what follows up to the vectors: as in `ou_process.Axis`, without a season
    mean_rows: float
    shape: float
    gram: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    pattern: EliminationOrder  # of a factor for these rows
    whole: EliminationOrder  # of one for all rows of the mode
    gaps: list[Gap]

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of all edges."""
        return self.left, self.right

    def sums(self, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The sums of rows (n, D), as of `ou_process.Axis`, with one phase."""
        near = rows[self.left] * rows[self.right] + cross
        squares = self.own @ (rows * rows + variance) - 2.0 * (self.between @ near)
        return np.asarray(squares), np.asarray(self.total @ rows)[:, None]

    def joint(self, scale: np.ndarray, level: np.ndarray, centre: np.ndarray) -> Bonds:
        """The prior that is the sum over lengths of scale (L, D) K, and of the field K times levels (L, 1, D)."""
        own, between, rest = (np.ascontiguousarray(part.T @ scale) for part in (self.own, self.between, self.rest))
        return Bonds(self, own, self.total.T @ (level[:, 0] + scale * centre), between, rest, scale.argmax(axis=0))

    def chained(self, prior: Bonds) -> Chained:
        """Such a prior without its means and determinants, of which a bound needs none."""
        return Chained(prior, np.zeros(prior.own.shape[1]), np.zeros_like(prior.own))

    def unseen(self, modes: ModePrior, k: int, seen: Any, mean: np.ndarray, cov: np.ndarray, told: Any) -> Moments:
        """Means (u, R) and packed covariances of the rows of mode k not in the field, given `told` of them, or None."""
        net, law, R = self.clock, laws_of_mode(modes, k), modes.mean.shape[1]
        scale = self.scale[np.argmin(np.abs(self.lengths[:, None] - law.length), axis=0)].T  # (N, R)
        Lam, eta = np.zeros((net.n, R * (R + 1) // 2)), np.zeros((net.n, R))
        if told is not None:
            Lam[self.place, : told[0].shape[1]] = told[0]
            eta[self.place, : told[1].shape[1]] += told[1]
        found, out = moments_of_all(net, self.whole, law, scale, Lam, eta), ~np.isin(np.arange(net.n), self.place)
        return found.mean[out], found.cov[out]


def check_graph(net: Net, name: Any) -> None:
    """Refuse a graph whose factors would take too long."""
    if sparse.ordered(net.n, net.left, net.right, MOST_WORK) is None:
        what = f"Graph of mode {name!r} connects too much of its {net.n} rows with each other to be learned"
        fail_value(f"{what}; got {len(net.left)} edges; keep those of each row's nearest neighbours.")


def field(net: Net, seen: np.ndarray, strength: float = 1.0) -> Field | None:
    """The rows of a graph, `seen` (n,) with entries; None for less than two; the prior counts `strength` times."""
    if seen.sum() < 2:
        return None
    _, part = connected_components(net.matrix, directed=False)
    most = min(MOST_EDGES, MOST_RANGES * float(np.bincount(part).max()))  # by how many rows the largest part has
    lengths = np.append(0.0, np.geomspace(LEAST_EDGES, most, LENGTHS))
    whole: Any = sparse.ordered(net.n, net.left, net.right)
    (scale, log_det), L = scales_of(net, whole, lengths), len(lengths)
    place, a, b, rest, weight, gaps = integrated_out(net, seen, lengths**2, scale)
    s, n = scale[:, place], len(place)
    own, total = rest.copy(), rest * s
    between, rest = weight * s[:, a] * s[:, b], rest * s * s
    for i in range(L):
        for one, other in ((a, b), (b, a)):
            own[i] += np.bincount(one, weight[i], n)
            total[i] += np.bincount(one, weight[i] * (s[i, one] - s[i, other]), n)
    own, total = own * s * s, total * s
    pattern: Any = whole if n == net.n else sparse.ordered(n, a, b)
    if n < net.n:
        parts = zip(own[:, :, None, None], between[:, :, None], strict=True)
        log_det = np.array([sparse.factor(pattern, *part).log_det for part in parts])
    rows, numbers = (net, place, np.arange(n), a, b, lengths), (own, between, rest, total, scale, log_det)
    law = np.ones(1), strength * MEAN_ROWS, strength * SHAPE, total.sum(axis=1)[:, None]
    no_season = np.zeros((L, 0)), np.zeros((L, 0, 0))
    return Field(*rows, *numbers, *law, *no_season, pattern, whole, gaps)


def moments_at(clock: Net, law: Any, Lam: np.ndarray, eta: np.ndarray) -> Marginals:
    """The moments of all rows of a graph, in D columns, at the parameters of a `coupled.Chain`."""
    whole: Any = sparse.ordered(clock.n, clock.left, clock.right)
    distinct, which = np.unique(law.length, return_inverse=True)
    return moments_of_all(clock, whole, law, scales_of(clock, whole, distinct)[0][which.ravel()].T, Lam, eta)


def scales_of(net: Net, whole: EliminationOrder, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """S of all rows, (L, N), and log |K|, (L,), at these lengths; `whole` is of a factor for all rows."""
    scale, log_det = np.ones((len(lengths), net.n)), np.zeros(len(lengths))
    for i in np.flatnonzero(lengths).tolist():
        length = float(lengths[i])
        own = 1.0 + length**2 * net.matrix.sum(axis=1)
        found = sparse.factor(whole, own[:, None, None], length**2 * net.weight[:, None])
        variance = sparse.inverted(found)[0][:, 0, 0]
        scale[i], log_det[i] = np.sqrt(variance), found.log_det + float(np.log(variance).sum())
    return scale, log_det


# Rows of a graph given their prior and what their entries say: a joint draw, or the moments of all of them.
#
# A draw solves one perturbed system by conjugate gradients. Moments come from the Cholesky factor in blocks of all
# columns; where that takes too long, columns are independent of each other in the approximation: their means are the
# same then, and each has a factor of its own.

# Products of numbers that a factor in blocks may take, some half a second, and numbers that it may hold.
MOST_BOND_WORK, MOST_NUMBERS = 3e8, 1e7
# Conjugate gradients end when the residual is so small beside the right side, or after so many steps.
TOL, MOST_STEPS = 1e-12, 20_000
Ends = tuple[np.ndarray, np.ndarray]  # of all edges


class Bonds(NamedTuple):
    """The prior of the rows of a graph that are in its field: precision and natural mean, in D columns."""

    of: Field
    own: np.ndarray  # (n, D): the diagonal of the precision
    field: np.ndarray  # (n, D): precision times mean
    between: np.ndarray  # (E, D): less the precision's element of two neighbours
    rest: np.ndarray  # (n, D): the diagonal without what edges add to it
    which: np.ndarray  # (D,) int64: the number of the length that counts most

    def draw(self, Lam: np.ndarray, eta: np.ndarray, key: Key, precision: float = 1.0, overwrite: bool = False) -> Any:
        """A draw (n, D) of the rows, at one length, given `precision` times what entries say (see `chain.Links`)."""
        of, (Lam, eta) = self.of, self._told(Lam, eta, precision)
        right = eta + self.field
        scale = np.ascontiguousarray(of.scale[:, of.place][self.which].T)
        if not perturb(Lam, self.rest, of.left, of.right, self.between, scale, key, right):
            raise FloatingPointError(NOT_POSITIVE)
        return _solution(of.pairs, _with_prior(Lam, self.own), self.between, right)

    def marginals(self, Lam: np.ndarray, eta: np.ndarray, precision: float = 1.0) -> Marginals:
        """The moments of the rows given `precision` times what entries say (see `chain.Links`)."""
        of, (Lam, eta) = self.of, self._told(Lam, eta, precision)
        found = _moments(of.pattern, of.pairs, _with_prior(Lam, self.own), self.between, eta + self.field)
        return found._replace(told=(Lam, eta))

    def _told(self, Lam: np.ndarray, eta: np.ndarray, precision: float) -> tuple[np.ndarray, np.ndarray]:
        """What the entries say in the first D columns."""
        D = self.own.shape[1]
        return np.ascontiguousarray((precision * Lam)[:, : D * (D + 1) // 2]), (precision * eta)[:, :D]


def moments_of_all(
    net: Net, whole: EliminationOrder, law: Any, scale: np.ndarray, Lam: np.ndarray, eta: np.ndarray
) -> Marginals:
    """The moments of all rows of a graph with what entries say, Lam (N, P), eta (N, D), at a `law` of each column."""
    own = law.precision * scale**2 * (1.0 + law.length**2 * net.matrix.sum(axis=1)[:, None])
    weight, field = law.precision * law.length**2 * net.weight[:, None], law.precision * scale**2
    for one, other in ((net.left, net.right), (net.right, net.left)):
        np.add.at(field, one, weight * scale[one] * (scale[one] - scale[other]))
    between = weight * scale[net.left] * scale[net.right]
    return _moments(whole, (net.left, net.right), _with_prior(Lam, own), between, eta + field * law.mean)


def _with_prior(Lam: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Packed blocks with this on their diagonals."""
    D, out = own.shape[1], Lam.copy()
    out[:, diagonal(D)] += own
    return out


def _solution(ends: Ends, Lam: np.ndarray, between: np.ndarray, field: np.ndarray) -> np.ndarray:
    """The solution (n, D) by conjugate gradients."""
    out = np.empty_like(field)
    if sparse.solve_by_gradients(Lam, *ends, between, field, TOL, MOST_STEPS, out) < 0:
        raise FloatingPointError(NOT_POSITIVE)
    return out


def _moments(order: EliminationOrder, ends: Ends, Lam: np.ndarray, between: np.ndarray, field: np.ndarray) -> Marginals:
    """The moments of rows of this joint precision and natural mean (n, D)."""
    D, numbers = field.shape[1], len(order.rows) + len(field)
    if D == 1 or (order.work * D**3 <= MOST_BOND_WORK and numbers * D * D <= MOST_NUMBERS):
        found = sparse.factor(order, unpack(Lam, D), between)
        mean, (cov, cross) = sparse.solved(found, field), sparse.inverted(found)
        return Marginals(mean, pack(cov), cross.copy(), found.log_det)
    mean = _solution(ends, Lam, between, field)
    cov, cross, log_det = np.zeros_like(Lam), np.empty_like(between), 0.0
    for d, at in enumerate(diagonal(D)):
        found = sparse.factor(order, Lam[:, at][:, None, None], between[:, [d]])
        log_det += found.log_det
        own, edges = sparse.inverted(found)
        cov[:, at], cross[:, d] = own[:, 0, 0], edges[:, 0]
    return Marginals(mean, cov, cross, log_det, apart=True)


# Rows of a graph without entries: integrated out of its field, and what is then known of them given the others.
#
# A row that is integrated out couples its neighbours. With y = S x, S as above, the precision of y is always a
# diagonal `rest` and a Laplacian with positive weights, so that nothing is ever subtracted.

MOST_COUPLED = 16  # neighbours of a row that is integrated out, at most


class Gap(NamedTuple):
    """A row that was integrated out, and what it depends on: neighbours that come later."""

    row: int
    other: np.ndarray  # (k,) int64
    share: np.ndarray  # (L, k): how much of a neighbour's distance from the level the row is expected to have
    spread: np.ndarray  # (L,): its variance given them, times lam


def integrated_out(net: Net, seen: np.ndarray, multiples: np.ndarray, scale: np.ndarray) -> tuple[Any, ...]:
    """The precision I + g L of y, for each multiple g (L,), with rows that are not `seen` (n,) integrated out."""
    # Gives the rows that are left, ascending, (n,); edges among these, left < right, by left, (E,) and (E,); `rest`
    # (L, n) and weights (L, E); and the rows that were integrated out, of x = y / scale (L, N), in order.
    L, n = len(multiples), net.n
    if seen.all():
        return np.arange(n), net.left, net.right, np.ones((L, n)), multiples[:, None] * net.weight, []
    _, part = connected_components(net.matrix, directed=False)
    known, rest = np.isin(part, part[seen]), np.ones((n, L))
    near: list[dict[int, np.ndarray]] = [{} for _ in range(n)]  # the weights (L,) of the edges of each row
    for a, b, each in zip(net.left.tolist(), net.right.tolist(), net.weight.tolist(), strict=True):
        near[a][b] = near[b][a] = each * multiples
    none = np.zeros(0, dtype=np.int64), np.zeros((L, 0)), np.ones(L)
    gaps = [Gap(row, *none) for row in np.flatnonzero(~known).tolist()]
    heap = [(len(near[row]), row) for row in np.flatnonzero(known & ~seen).tolist()]
    heapq.heapify(heap)
    is_left = known.copy()
    while heap:
        degree, row = heapq.heappop(heap)
        if not is_left[row] or degree != len(near[row]):
            continue
        if degree > MOST_COUPLED:
            break
        is_left[row] = False
        others = sorted(near[row])
        weights = np.array([near[row][other] for other in others]).reshape(-1, L)
        pivot = rest[row] + weights.sum(axis=0)
        share = weights / pivot
        for i, a in enumerate(others):
            rest[a] += share[i] * rest[row]
            del near[a][row]
            for j, b in enumerate(others[:i]):
                near[a][b] = near[b][a] = near[a].get(b, 0.0) + weights[i] * share[j]
        near[row] = {}
        spread, at = 1.0 / (pivot * scale[:, row] ** 2) if others else np.ones(L), np.array(others, dtype=np.int64)
        gaps.append(Gap(row, at, share.T * scale[:, at] / scale[:, [row]], spread))
        for other in others:
            if not seen[other]:
                heapq.heappush(heap, (len(near[other]), other))
    place, number = np.flatnonzero(is_left), np.cumsum(is_left) - 1
    edges = [(a, b) for a in place.tolist() for b in sorted(near[a]) if b > a]
    weight = np.array([near[a][b] for a, b in edges]).reshape(-1, L).T
    left, right = number[np.array(edges, dtype=np.int64).reshape(-1, 2)].T.copy()
    return place, left, right, rest[place].T.copy(), np.ascontiguousarray(weight), gaps


def draw_gaps(gaps: list[Gap], rows: np.ndarray, which: np.ndarray, level: np.ndarray, noise: np.ndarray) -> None:
    """Draw the rows that were integrated out, together, in place in `rows` (S, N, R)."""
    # In each draw a column has length number `which`, `level` (S, R) and `noise` (S, u, R), divided by the root of lam.
    for i in range(len(gaps) - 1, -1, -1):
        row, others, share, spread = gaps[i]
        found = np.sqrt(spread)[which] * noise[:, i]
        for j, other in enumerate(others.tolist()):
            found = found + share[:, j][which] * (rows[:, other] - level)
        rows[:, row] = level + found
