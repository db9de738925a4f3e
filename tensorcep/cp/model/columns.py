"""Main effects and interactions as CP components: which modes each column of the factors belongs to.

A component that is active in some modes only has the factor 1 in the others: active in one mode it is a main effect
(one number per row), in two a pairwise term, in all the full CP component.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_int, fail_value
from tensorcep.core.packing import diagonal, offsets, pack, unpack
from tensorcep.cp.model.problem import Problem
from tensorcep.cp.model.rows import RowState, seen_rows
from tensorcep.cp.posterior import Posterior
from tensorcep.cp.settings import PRESETS
from tensorcep.priors.base import Drift, ModePrior, of_mode

PARTS = ("main", "pair", "cp")
# Prior precision of a clamped element: it moves by less than the rounding of single precision.
CLAMPED = 1e12


def parts_of(interactions: Any, rank: int) -> dict[str, int]:
    """Number of columns of each part: of a mode ("main"), a pair ("pair"), all ("cp"); `interactions` is checked."""
    if isinstance(interactions, dict):
        for name in interactions:
            check_choice("a key of interactions", name, PARTS)
        given = {name: check_int(f"interactions[{name!r}]", interactions.get(name, 0), 0) for name in PARTS}
        if not any(given.values()):
            fail_value(f"interactions must give at least one part of {PARTS} a rank above 0; got {interactions!r}.")
        return given
    if not isinstance(interactions, str) or interactions not in PRESETS:
        fail_value(
            f"interactions must be one of {('auto', *PRESETS)}, or a dict of ranks for {PARTS}; got {interactions!r}."
        )
    pair = rank if interactions in ("pairwise", "all") else 0
    return {"main": int(interactions != "cp"), "pair": pair, "cp": 0 if interactions == "pairwise" else rank}


def free_columns(parts: dict[str, int], order: int) -> np.ndarray:
    """Whether column r is free (not clamped to 1) in mode k, (K, R) bool: main effects first, then pairs, then CP."""
    modes = range(order)
    sets: list[tuple[int, ...]] = [(k,) for k in modes for _ in range(parts["main"])]
    sets += [pair for pair in itertools.combinations(modes, 2) for _ in range(parts["pair"])]
    sets += [tuple(modes)] * parts["cp"]
    return np.array([[k in active for active in sets] for k in modes])


def columns_within(parts: dict[str, int], whole: dict[str, int], order: int) -> np.ndarray:
    """The columns of `whole` (see `free_columns`) that are those of `parts`, of which it has no fewer."""
    groups = [name for name, n in zip(PARTS, (order, order * (order - 1) // 2, 1), strict=True) for _ in range(n)]
    return np.flatnonzero(np.concatenate([np.arange(whole[name]) < parts[name] for name in groups]))


def modes_of_columns(free: np.ndarray) -> list[tuple[int, ...]]:
    """The modes that each column belongs to."""
    return [tuple(int(k) for k in np.flatnonzero(column)) for column in free.T]


def padded_columns(used: np.ndarray) -> np.ndarray:
    """The columns used in each mode, (K, Q) int64, of (K, R) bool; -1 where a mode uses fewer than another."""
    index = np.full((len(used), int(used.sum(axis=1).max())), -1)
    for row, mine in zip(index, used, strict=True):
        row[: mine.sum()] = np.flatnonzero(mine)
    return index


class Places(NamedTuple):
    """Where the numbers of a mode's rows begin: packed second moments and means of the free columns, a one, a zero."""

    second: int
    mean: int
    one: int
    zero: int

    def of_mean(self, free: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Where the means of columns a (n,) lie; free (R,) bool are the mode's columns, a = -1 is padding."""
        place = np.cumsum(free) - 1
        return np.where(a < 0, self.zero, np.where(free[a], self.mean + place[a], self.one))

    def of_second_moment(self, free: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Where E[u_a u_b] lies, of columns (n,) each: a mean where one of two columns is clamped."""
        place = np.cumsum(free) - 1
        p, q = np.minimum(place[a], place[b]), np.maximum(place[a], place[b])
        mean = self.of_mean(free, np.where(free[a], a, b))
        found = np.where(free[a] & free[b], self.second + q * (q + 1) // 2 + p, mean)
        return np.where((a < 0) | (b < 0), self.zero, found)


class FreeColumns(NamedTuple):
    """Which columns are free in which modes, and what follows; made once, by `encode_columns`."""

    # With f = z'u + c in mode k, z belongs to the columns that are free in it and c is the sum over those that are
    # clamped to 1. An element of z, of z z' or of z c is a product over the other modes of a mean or a second moment,
    # of a mean where one of two columns is clamped there, or of 1 where both are.
    free: np.ndarray  # (K, R) bool
    free_index: np.ndarray  # (K, Q) int64, the free columns of each mode; -1 stands for a column of zeros
    clamped_index: np.ndarray  # (K, C) int64, the others; -1 stands for none
    # (G, 2 + K) int64, of columns that follow each other and are free in the same modes: how many columns, how many
    # modes, and where the first lies among the free columns of each of these modes, counted through all modes
    groups: np.ndarray

    def cross(self, k: int) -> np.ndarray:
        """Pairs of columns of the elements of z c in mode k, free ones first, (Q, C, 2)."""
        return np.stack(np.meshgrid(self.free_index[k], self.clamped_index[k], indexing="ij"), axis=-1)

    def table(self, k: int, columns: np.ndarray, places: Sequence[Places]) -> np.ndarray:
        """Where the factors of elements of mode k lie, (K - 1, n) int64: a line for each other mode, in their order."""
        # `columns` are (n,) for products of means, (n, 2) for those of second moments; `places` has an item per mode
        others = [pair for j, pair in enumerate(zip(self.free, places, strict=True)) if j != k]
        if columns.ndim == 1:
            lines = [at.of_mean(free, columns) for free, at in others]
        else:
            lines = [at.of_second_moment(free, *columns.T) for free, at in others]
        return np.array(lines, dtype=np.int64).reshape(len(self.free) - 1, len(columns))


def packed_pairs(columns: np.ndarray) -> np.ndarray:
    """Pairs of the columns (n,) of the elements of a packed square, (n (n + 1) / 2, 2)."""
    return columns[np.stack(np.tril_indices(len(columns)), axis=1)]


def encode_columns(free: np.ndarray) -> FreeColumns:
    """The record of the free columns (K, R) bool."""
    Q, at = int(free.sum(axis=1).max()), np.cumsum(free, axis=1) - 1
    groups: list[list[int]] = []
    for r, column in enumerate(free.T):
        if r and (column == free[:, r - 1]).all():
            groups[-1][0] += 1
            continue
        modes = np.flatnonzero(column)
        groups.append([1, len(modes), *(k * Q + at[k, r] for k in modes), *[0] * (len(free) - len(modes))])
    return FreeColumns(free, padded_columns(free), padded_columns(~free), np.array(groups, dtype=np.int64))


# Where sums find their factors among the numbers of a row: in the order of the elements of z z' or z c (`FreeColumns`),
# rows of these numbers make each the elementwise product that it is for the CP model.

Order = tuple[tuple[np.ndarray | None, ...], ...]  # by mode to update, then by the mode of the row; None of its own


class Orders(NamedTuple):
    """Places in a row of numbers: its packed second moments in Q columns, its means, and 1; -1 stands for 0."""

    products: Order  # the elements of z z', packed, then of z_q z_c for every c and q
    means: Order  # the same of z and of the clamped columns, (Q + C,)
    squares: Order  # the elements of z_c z_d of the clamped columns, packed
    second: np.ndarray  # (K, P) int64, the second moments of all columns of a mode's own rows, packed
    n_clamped: int  # C


def orders_of(columns: FreeColumns) -> Orders:
    """The places for the free columns."""
    (K, R), Q, C = columns.free.shape, columns.free_index.shape[1], columns.clamped_index.shape[1]
    P = Q * (Q + 1) // 2
    at = Places(0, P, P + Q, -1)
    orders: list[tuple[tuple[np.ndarray | None, ...], ...]] = []
    for k, (free, clamped) in enumerate(zip(columns.free_index, columns.clamped_index, strict=True)):
        pairs = np.concatenate([packed_pairs(free), columns.cross(k).swapaxes(0, 1).reshape(-1, 2)])
        elements = pairs, np.concatenate([free, clamped]), packed_pairs(clamped)
        lines = (columns.table(k, each, [at] * K) for each in elements)
        orders.append(tuple((*others[:k], None, *others[k:]) for others in lines))
    second = [at.of_second_moment(free, *np.tril_indices(R)) for free in columns.free]
    products, means, squares = zip(*orders, strict=True)
    return Orders(products, means, squares, np.array(second, dtype=np.int64), C)


# Models with main effects and interactions in the free columns of every mode alone, Q of them, and back.


def free_problem(problem: Problem) -> Problem:
    """The problem in the free columns of every mode, which its prior must not couple with clamped ones."""
    # a mode with fewer of them gets columns that the data never touch
    free = problem.free
    if free is None:
        return problem
    K, prior, start = len(free), problem.prior, problem.start
    index = padded_columns(free)
    modes = np.arange(K) if len(prior.Lam) == K else np.repeat(np.arange(K), problem.shape)
    Lam = pack(_submatrices(unpack(prior.Lam, problem.rank), index[modes]))
    prior = prior.in_columns(Lam, _columns(prior.eta, index, problem.shape), index)
    start = None if start is None else _columns(start, index, problem.shape)
    fixed = problem.fixed
    if fixed is not None:
        Lam = pack(_submatrices(unpack(fixed.Lam, problem.rank), index[np.repeat(np.arange(K), problem.shape)]))
        fixed = fixed._replace(Lam=Lam, eta=_columns(fixed.eta, index, problem.shape))
    return problem._replace(rank=index.shape[1], prior=prior, start=start, fixed=fixed)


def some_columns(problem: Problem, which: np.ndarray) -> Problem:
    """The problem in some of its columns, which its prior must not couple with the others."""
    prior, free = problem.prior, problem.every_free[:, which]
    Lam = pack(unpack(prior.Lam, problem.rank)[:, which][:, :, which])
    prior = prior.in_columns(Lam, np.ascontiguousarray(prior.eta[:, which]), np.where(free, which, -1))
    start = None if problem.start is None else np.ascontiguousarray(problem.start[:, which])
    return problem._replace(rank=len(which), prior=prior, start=start, free=None if free.all() else free)


def _columns(lines: np.ndarray, index: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The columns index (K, Q) of each mode, of lines for each row or for each mode; padding is 0."""
    out = np.zeros((len(lines), index.shape[1]))
    for k, own in enumerate(index):
        n = np.count_nonzero(own >= 0)
        of_mode(out, k, shape)[:, :n] = of_mode(lines, k, shape)[:, own[:n]]
    return out


def _submatrices(full: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Submatrices (n, Q, Q) of (n, R, R); padding is uncoupled and as precise as the first column."""
    n = np.arange(len(full))[:, None, None]
    part = full[n, np.maximum(index, 0)[:, :, None], np.maximum(index, 0)[:, None, :]]
    used = index >= 0
    part = part * (used[:, :, None] & used[:, None, :])
    part[:, np.arange(index.shape[1]), np.arange(index.shape[1])] += part[:, :1, 0] * ~used
    return part


def all_means(mean: np.ndarray, free: np.ndarray | None, shape: Sequence[int], clamped: float = 1.0) -> np.ndarray:
    """Row means, or other lines (n_rows, R), of all columns from those of the free ones (None: all)."""
    if free is None:
        return mean
    full, first = np.full((len(mean), free.shape[1]), clamped), offsets(shape)
    for k, row in enumerate(free):
        full[first[k] : first[k + 1], row] = mean[first[k] : first[k + 1], : int(row.sum())]
    return full


def posterior_of_rows(rows: RowState, problem: Problem, modes: ModePrior | None, **learned: Any) -> Posterior:
    """The posterior of all columns, of rows in the free ones; those clamped at 1 have the precision CLAMPED."""
    free, shape, seen = problem.free, problem.shape, seen_rows(problem)
    if free is None:
        return Posterior(shape, rows.eta.shape[1], rows.Lam, rows.eta, seen=seen, mode_prior=modes, **learned)
    R = free.shape[1]
    Lam, eta = all_covariances(rows.Lam, free, shape), all_means(rows.eta, free, shape, CLAMPED)
    Lam[:, diagonal(R)] = np.where(problem.rows_free, Lam[:, diagonal(R)], CLAMPED)
    if modes is not None:
        precision = np.tile(CLAMPED * np.eye(R), (len(free), 1, 1))
        for full, row, own in zip(precision, free, modes.precision, strict=True):
            full[np.ix_(row, row)] = own[: row.sum(), : row.sum()]
        pairs = zip(modes.slopes, free, strict=False)
        slopes = tuple(None if one is None else one._replace(coef=_in_all(one.coef, row)) for one, row in pairs)
        drifts = tuple(
            None if one is None else Drift(_in_all(one.length[None], row)[0], _in_all(one.season, row))
            for one, row in zip(modes.drifts, free, strict=False)
        )
        modes = ModePrior(all_means(modes.mean, free, (1,) * len(free)), precision, slopes, drifts)
    return Posterior(shape, R, Lam, eta, seen=seen, mode_prior=modes, **learned)


def all_covariances(cov: np.ndarray, free: np.ndarray | None, shape: Sequence[int]) -> np.ndarray:
    """Packed covariances (n_rows, P), or precisions, of all columns from those of the free ones; of the others 0."""
    if free is None:
        return cov
    R = free.shape[1]
    full, first = np.zeros((len(cov), R * (R + 1) // 2)), offsets(shape)
    for k, row in enumerate(free):
        where, n = np.flatnonzero(row), int(row.sum())
        a, b = np.tril_indices(n)
        own, place = slice(first[k], first[k + 1]), where[a] * (where[a] + 1) // 2 + where[b]
        full[own, place] = cov[own, : n * (n + 1) // 2]
    return full


def _in_all(lines: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Lines (n, R) of all columns of a mode, of which those that are not free are 0."""
    return all_means(lines, free[None], (len(lines),), 0.0)
