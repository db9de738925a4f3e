"""The best rows of one mode for combinations of rows of the others, and the rows that are alike.

Combinations are ranked by products of matrices, block by block. For a row w of products over the other modes the latent
value of row u is w'u, so that a block of combinations needs one matrix product for means. Of a Gaussian belief the
variance is one more: with D the covariance of w, S that of u,

    var = sum over pairs of columns of (D + w w') * S + D * (m m'),

whose terms are all positive semidefinite (`tensorcep.cp.model.latent.latent_moments`). Draws have no variance of their
own: theirs is taken over the draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from tensorcep.core import checks
from tensorcep.core.executor import Executor
from tensorcep.core.packing import offsets, unpack
from tensorcep.cp.fitted.alignment import TINY, RowLayout
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.fitted.predict import draw, knowledge, observed_moments, placed
from tensorcep.cp.inputs import coordinates
from tensorcep.cp.inputs.side_information import check_no_deviations
from tensorcep.cp.posterior import Components, draw_rows
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import as_frame
from tensorcep.kernels.sorting import best_of_rows

# Scores that exist at a time.
BLOCK = 1 << 22
MOST_QUERIES = 1 << 12
Arrays = Sequence[np.ndarray]


def best_rows(
    belief: Components, candidates: slice, others: Arrays, left_out: Arrays, z: float, n: int, executor: Executor
) -> np.ndarray:
    """The n best of the packed rows `candidates` for every query, (n_queries, n); -1 where there are no more."""
    # Every combination of the packed rows `others` (n_k,) of each other mode is a query, which has no use for
    # column[start:stop] of what is left out, counted as results are from the first candidate. A row's score is its mean
    # plus z standard deviations; if z is infinite, its standard deviation.
    sizes, size = [len(rows) for rows in others], candidates.stop - candidates.start
    total = math.prod(sizes)
    best = np.empty((total, min(n, size)), dtype=np.int64)
    step = int(np.clip(BLOCK // size, 1, MOST_QUERIES))
    start, stop, column = left_out
    i, j = np.tril_indices(belief.mean.shape[2])
    # what the candidates bring to the variance in every Gaussian, (2 P, n): S and m m', off-diagonals twice
    targets, twice = [], np.where(i == j, 1.0, 2.0)
    if belief.cov is not None and z:
        for mean, cov in zip(belief.mean[:, candidates], belief.cov[:, candidates], strict=True):
            pair = cov * twice, mean[:, i] * mean[:, j] * twice
            targets.append(np.ascontiguousarray(np.concatenate(pair, axis=1).T))
    for first in range(0, total, step):
        queries = np.arange(first, min(total, first + step))
        rows = np.stack([own[at] for own, at in zip(others, np.unravel_index(queries, sizes), strict=True)], axis=1)
        scores = _scores(belief, candidates, rows, z, targets)
        own = best[queries[0] : queries[-1] + 1]
        executor.run(best_of_rows, 0, len(own), scores, start[queries], stop[queries], column, own)
    return best


def _scores(belief: Components, candidates: slice, rows: np.ndarray, z: float, targets: list[np.ndarray]) -> np.ndarray:
    """Scores (q, n) of the candidates: of the mean over components, and of what they say of its uncertainty."""
    C, R = belief.size, belief.mean.shape[2]
    mean = np.zeros((len(rows), candidates.stop - candidates.start))
    spread, within = np.zeros_like(mean), np.zeros_like(mean)
    i, j = np.tril_indices(R)
    for c in range(C):
        w = reduce(np.multiply, (belief.mean[c, own] for own in rows.T), np.ones((len(rows), R)))
        found = w @ belief.mean[c, candidates].T
        if not z:
            mean += found
            continue
        off = found - mean  # a running mean, so that nothing cancels
        mean += off / (c + 1)
        spread += off * off * (c / (c + 1))
        if targets and belief.cov is not None:
            D, product = np.zeros((len(rows), len(i))), np.ones((len(rows), len(i)))
            for own in rows.T:
                m, cov = belief.mean[c, own], belief.cov[c, own]
                square = m[:, i] * m[:, j]
                D = D * (cov + square) + product * cov
                product *= square
            within += np.concatenate([D + w[:, i] * w[:, j], D], axis=1) @ targets[c]
    if not z:
        return mean
    doubt = 0.0 if belief.cov is None or belief.doubt is None else float(belief.doubt.sum())
    sd = np.sqrt((within + spread + doubt) / C)
    return np.asarray(sd if np.isinf(z) else mean + z * sd)


# How alike two rows of a mode are: the cosine of what they say of all combinations of the other modes.
#
# Row u has the latent value u'z at a combination with the product z of the other modes' rows. Over all combinations of
# rows that have entries the inner product of two rows is u'Gv, where G is the elementwise product of the other modes'
# mean second moments: a number that neither the order, the signs and scales of components nor a rotation changes. Rows
# are centred first, so that the cosine is that of what sets them apart from the average row.

# Draws of Gaussian rows from which the uncertainty of cosines is taken.
DRAWS = 400


def _metric(belief: Components, c: int, layout: RowLayout, mode: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G, the mean row, and the columns of the mode."""
    columns = np.array([r for b in layout.blocks if mode in b.modes for r in range(b.columns.start, b.columns.stop)])
    G = np.ones((len(columns), len(columns)))
    for k, seen in enumerate(layout.seen):
        if k != mode and len(seen):
            m = belief.mean[c, seen].astype(np.float64)
            second = m.T @ m / len(seen)
            if belief.cov is not None:
                second += unpack(belief.cov[c, seen].mean(axis=0), m.shape[1])
            G *= second[np.ix_(columns, columns)]
    centre = belief.mean[c, layout.seen[mode]][:, columns].mean(axis=0, dtype=np.float64)
    return G, centre, columns


def _cosine(U: np.ndarray, u: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Cosines of the rows (m, Q) with a row (Q,)."""
    size = np.sqrt(np.maximum(np.einsum("mq,mq->m", U @ G, U), 0.0))
    return np.asarray((U @ (G @ u)) / np.maximum(size * np.sqrt(max(float(u @ G @ u), 0.0)), TINY))


# Of so many rows for each one that is wanted the cosine is averaged over draws; the means choose them.
CANDIDATES = 4
RANKINGS = ("mean", "lower", "upper", "thompson", "sd")


class Combined(NamedTuple):
    """The rows of every mode that are combined, (n,) each."""

    belief: Components  # with rows of series at other times, where they are asked for
    rows: list[np.ndarray]  # of each mode; -1 of those that the model does not know
    packed: list[np.ndarray]  # rows of the belief
    shown: list[Any]  # what they are called
    fixed: set[int]  # the modes that are held at one row


# Cells that are predicted at a time, and at most.
CELLS, MOST = 1 << 20, 1 << 31


def recommend(
    model: FittedModel, mode: Any, given: Any, n: int, exclude: Any, by: str, coverage: float, random_state: Any
) -> pd.DataFrame:
    """The best rows of a mode, for every combination of rows of the other modes."""
    by, n = checks.check_choice("by", by, RANKINGS), checks.check_int("n", n)
    tail = 0.5 * (1.0 - checks.check_fraction("coverage", coverage))
    if by != "mean":
        model.check_uncertain(f"by={by!r}")
    fit, k = model.fit, coordinates.mode_of(model.fit.labels, mode)
    check_no_deviations(fit.belief, f"recommend of mode {mode!r}", k)
    chosen = _combinations(model, k, coordinates.by_mode(fit.labels, given))
    left_out = _left_out(fit, exclude, k, chosen)
    z = {"lower": float(ndtri(tail)), "upper": -float(ndtri(tail)), "sd": np.inf}.get(by, 0.0)
    others, used = [own for j, own in enumerate(chosen.packed) if j != k], chosen.belief
    if by == "thompson":
        used = Components(draw(used, fit.likelihood, 1, checks.check_random_state(random_state))[0])
    with model.threads() as executor:
        best = best_rows(used, fit.layout.rows[k], others, left_out, z, n, executor)
    query, place = np.nonzero(best >= 0)
    where: list[Any] = list(np.unravel_index(query, [len(own) for own in others]))
    where.insert(k, best[query, place])
    rows = np.stack([own[at] for own, at in zip(chosen.packed, where, strict=True)], axis=1)
    known = knowledge(model.likelihood_of_new, chosen.belief, rows, coverage)
    known = known if model.has_uncertainty else {"mean": known["mean"]}
    named = zip(coordinates.names_of(fit.labels), chosen.shown, where, strict=True)
    return pd.DataFrame({**{name: shown.take(at) for name, shown, at in named}, "rank": place + 1, **known})


def _combinations(model: FittedModel, k: int, given: dict[int, Any]) -> Combined:
    """The rows of every mode that are combined."""
    fit, names = model.fit, coordinates.names_of(model.fit.labels)
    if k in given:
        checks.fail_value(f"given must not name the mode that is ranked, {names[k]!r}; use exclude.")
    first, total = offsets(fit.shape), sum(fit.shape)
    rows = [np.arange(size) for size in fit.shape]
    packed = [own + start for own, start in zip(rows, first, strict=False)]
    shown = [coordinates.labels_at(fit.labels, j, own) for j, own in enumerate(rows)]
    fixed = {j for j, value in given.items() if not coordinates.are_several(value)}
    listed = {j: [value] if j in fixed else list(value) for j, value in given.items()}
    if not all(listed.values()) or not listed:
        for j in listed:
            rows[j] = packed[j] = rows[j][:0]
        return Combined(fit.belief, rows, packed, shown, fixed)
    # cells in whose first lines each of these modes has its rows, as `predict` takes them
    n, columns = max(map(len, listed.values())), []
    for j, labels in enumerate(fit.labels):
        items = listed.get(j, [0 if labels is None else labels.index[0]])
        if labels is None:
            items = [checks.check_int(f"a row of mode {names[j]!r}", item, 0) for item in items]
        columns.append(pd.Index(items, tupleize_cols=False).take(np.arange(n) % len(items)))
    cells: Any = pd.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1)
    if all(labels is None for labels in fit.labels):
        cells = np.stack([np.asarray(column) for column in columns], axis=1)
    found = placed(model, cells)
    known, unknown = fit.posterior.seen if fit.described is None else fit.posterior.seen | fit.described, []
    for j, given_rows in listed.items():
        at, later = found.coords[: len(given_rows), j], found.later[: len(given_rows), j]
        beyond = (at < 0) | (at >= fit.shape[j])
        own = np.where(beyond, total + j, at + first[j])
        unseen = beyond | ((later < 0) & ~known[np.where(beyond, 0, own)])
        unknown += [(names[j], given_rows[i]) for i in np.flatnonzero(unseen)]
        packed[j] = np.where(later >= 0, later, own)
        rows[j] = np.where(beyond | (later >= 0), -1, at)
        new = (rows[j] < 0).any()
        shown[j] = pd.Index(given_rows, tupleize_cols=False) if new else coordinates.labels_at(fit.labels, j, rows[j])
    if unknown:
        n = sum(map(len, listed.values()))
        what = f"{len(unknown)} of {n} rows in given= have no training entries (the first is {unknown[0][1]!r} of mode "
        what += f"{unknown[0][0]!r})"
        if model.spec.unknown == "error":
            checks.fail_value(f'{what}; fit with such rows, or set unknown="prior".')
        checks.warn_user(f"{what}; their prior is used.", UserWarning)
    return Combined(found.belief, rows, packed, shown, fixed)


def _left_out(fit: FitResult, exclude: Any, k: int, chosen: Combined) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `best_rows` has as left_out, for each combination of rows; modes that the cells do not have do not count."""
    rows, shape, fixed = chosen.rows, fit.shape, chosen.fixed
    modes, cells = list(range(len(shape))), np.zeros((0, len(shape)), dtype=np.int64)
    if isinstance(exclude, str):
        checks.check_choice("exclude", exclude, ("seen",))
        if fit.cells is None:
            checks.fail_value(
                "exclude='seen' needs the cells of the fit, which streams, fits on scratch and files of earlier "
                "versions do not keep; pass them as exclude=, or None."
            )
        if len(fixed) < len(modes) - 1:
            modes = [j for j in modes if j not in fixed]
        cells = fit.cells if fit.sampled is None else fit.cells[~coordinates.lines_among(fit.cells, fit.sampled)]
        cells = cells[:, modes].astype(np.int64)
    elif exclude is not None:
        modes, cells = _cells_of(fit, exclude, k)
    kept = (cells >= 0).all(axis=1) & (cells < np.array(shape)[modes]).all(axis=1)
    compared = [j for j in modes if j != k]
    for j in compared:
        kept &= np.isin(cells[:, modes.index(j)], rows[j])
    cells = cells[kept]
    others = [j for j in range(len(shape)) if j != k]
    sizes = [len(rows[j]) for j in others]
    queries, keys = np.zeros(int(np.prod(sizes)), dtype=np.int64), np.zeros(len(cells), dtype=np.int64)
    at = np.unravel_index(np.arange(len(queries)), sizes)
    for j in compared:
        # A row that the model does not know, -1, has no cells.
        queries = queries * (shape[j] + 1) + rows[j][at[others.index(j)]] + 1
        keys = keys * (shape[j] + 1) + cells[:, modes.index(j)] + 1
    order = np.argsort(keys, kind="stable")
    keys, columns = keys[order], np.ascontiguousarray(cells[order, modes.index(k)])
    return np.searchsorted(keys, queries, "left"), np.searchsorted(keys, queries, "right"), columns


def _cells_of(fit: FitResult, exclude: Any, k: int) -> tuple[list[int], np.ndarray]:
    """The modes that a table of cells names, and its rows there; -1 where one is not known."""
    table, names = as_frame(exclude), coordinates.names_of(fit.labels)
    if not isinstance(table, (pd.DataFrame, SparseTensor)) and np.ndim(table) != 2:
        checks.fail_value(
            f"exclude must be cells: a table with a column {names[k]!r}, or rows of all modes; got {exclude!r}."
        )
    if not isinstance(table, pd.DataFrame):
        return list(range(len(names))), coordinates.coords_to_predict(exclude, fit.labels)
    modes = [j for j, name in enumerate(names) if name in table.columns]
    if k not in modes:
        checks.fail_value(f"exclude must have a column {names[k]!r}; got {', '.join(map(repr, table.columns))}.")
    return modes, np.stack([coordinates.rows_of_column(fit.labels, j, table[names[j]]) for j in modes], axis=1)


def similar(model: FittedModel, mode: Any, row: Any, n: int, coverage: float, random_state: Any) -> pd.DataFrame:
    """The rows of a mode that are most like one of them."""
    n, tail = checks.check_int("n", n), 0.5 * (1.0 - checks.check_fraction("coverage", coverage))
    fit, k = model.fit, coordinates.mode_of(model.fit.labels, mode)
    belief, layout, name = fit.belief, fit.layout, coordinates.names_of(fit.labels)[k]
    if coordinates.are_several(row):
        checks.fail_value(f"row must be one row of mode {name!r}; got {row!r}; call similar for each.")
    (own,) = coordinates.rows_of(fit.labels, fit.shape, k, row)
    metrics = [_metric(belief, c, layout, k) for c in range(belief.size)]
    each, rng = np.zeros(fit.shape[k]), checks.check_random_state(random_state)
    for mean, (G, centre, columns) in zip(belief.mean[:, layout.rows[k]], metrics, strict=True):
        U = mean[:, columns] - centre
        each += _cosine(U, U[own], G)
    each[own] = -np.inf
    best = np.argsort(-each / belief.size, kind="stable")[: min(CANDIDATES * n, len(each) - 1)]
    both, drawn = layout.rows[k].start + np.array([own, *best]), []
    for c, (G, centre, columns) in enumerate(metrics):
        if belief.cov is None:
            rows = belief.mean[c, both][None].astype(np.float64)
        else:
            rows = draw_rows(belief.mean[c, both], belief.cov[c, both], -(-DRAWS // belief.size), rng)
        drawn += [_cosine(U[1:], U[0], G) for U in rows[:, :, columns] - centre]
    draws = np.stack(drawn)
    order = np.argsort(-draws.mean(axis=0), kind="stable")[:n]
    best, draws = best[order], draws[:, order]
    ranks, shown = np.arange(1, len(best) + 1), coordinates.labels_at(fit.labels, k, best)
    frame = pd.DataFrame({name: shown, "rank": ranks, "cosine": draws.mean(axis=0)})
    if model.has_uncertainty:
        lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0)
        frame = frame.assign(sd=draws.std(axis=0), lower=lower, upper=upper)
    return frame


def predict_block(model: FittedModel, given: Mapping[Any, Any] | None, modes: Any, return_std: bool) -> Any:
    """Predictive means of every combination of rows of some modes, the others being given."""
    fit = model.fit
    if fit.likelihood.levels is not None:
        checks.fail_value(
            "predict_block is for real values, labels and counts; of ordered levels use predict_proba or "
            "expected_value of the cells."
        )
    if return_std:
        model.check_uncertain("return_std=True")
    rows = _block_rows(fit, given, modes)
    sizes = tuple(len(own) for own in rows.values())
    if np.prod([float(n) for n in sizes]) > MOST:
        checks.fail_value(f"a block may have 2**31 cells; got {' x '.join(map(str, sizes))}; give fewer rows.")
    n = int(np.prod(sizes))
    mean, variance = np.empty(n), np.empty(n)
    with model.threads() as executor:
        for first in range(0, n, CELLS):  # the last mode fastest
            part = slice(first, min(n, first + CELLS))
            coords = np.empty((part.stop - first, len(sizes)), dtype=np.int64)
            for (k, own), at in zip(rows.items(), np.unravel_index(np.arange(first, part.stop), sizes), strict=True):
                coords[:, k] = own[at]
            packed = model.packed(coords)
            mean[part], variance[part] = observed_moments(model.likelihood_of_new, fit.belief, packed, executor)
    names = coordinates.names_of(fit.labels)
    shown = [k for k in rows if given is None or k not in coordinates.by_mode(fit.labels, given)]
    *lead, last = [pd.Index(coordinates.labels_at(fit.labels, k, rows[k]), name=names[k]) for k in shown]
    index: Any = pd.MultiIndex.from_product(lead) if len(lead) > 1 else lead[0] if lead else pd.RangeIndex(1)
    frames = [pd.DataFrame(x.reshape(-1, len(last)), index, last) for x in (mean, np.sqrt(variance))]
    return tuple(frames) if return_std else frames[0]


def _block_rows(fit: FitResult, given: Mapping[Any, Any] | None, modes: Any) -> dict[int, np.ndarray]:
    """The rows of every mode: first those that are given, one each, then those of the block in their order."""
    labels, names, fixed = fit.labels, coordinates.names_of(fit.labels), coordinates.by_mode(fit.labels, given)
    wanted = modes if isinstance(modes, Mapping) else None
    if modes is None:
        modes = [name for k, name in enumerate(names) if k not in fixed]
    modes = [modes] if isinstance(modes, (str, int)) else list(modes)
    checks.check_not_empty(len(modes), "a block without modes")
    chosen = {coordinates.mode_of(labels, mode): None if wanted is None else wanted[mode] for mode in modes}
    twice, none = set(chosen) & set(fixed), set(range(len(names))) - set(chosen) - set(fixed)
    if twice or none or len(chosen) < len(modes):
        checks.fail_value(f"every mode must be in given or in modes, once; got given={given!r}, modes={modes!r}.")
    rows = {k: coordinates.rows_of(labels, fit.shape, k, [row]) for k, row in fixed.items()}
    for k, some in chosen.items():
        rows[k] = np.arange(fit.shape[k]) if some is None else coordinates.rows_of(labels, fit.shape, k, some)
        checks.check_not_empty(len(rows[k]), f"mode {names[k]!r} of the block")
    return rows
