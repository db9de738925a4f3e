"""Rows of unseen labels of one mode given their entries, everything else frozen: a Gaussian of each, or a draw.

With z the product of the other modes' rows, of which the belief has first and second moments, entries that are Gaussian
in f say of the row u

    precision w E[z z'],  natural mean w y E[z]    with weight w, the noise precision,

which is CEP's message (eqs 14-15) and the mean-field update at once; for points it is the conditional of a Gibbs step.

Others are as Gaussian as the log posterior of the row is about its mode:

    log p(u) = log N(u; prior) + sum_n l_n(E[z_n]'u),    l_n(m) = log E[p(y_n | f)] over f ~ N(m, u' cov(z_n) u).

The other modes' rows are integrated out of the likelihood; of draws, which are points, nothing is, and l is the log
likelihood. Newton's steps (`find_modes`) make each entry a Gaussian in f of weight -l'' and target l' - l'' m, after
which it goes on as above, with E[z] E[z]', as l counts cov(z) already. A row is N(mode, precision^-1);
each draw of a sampler has one draw of it. On simulated rows of 1 to 50 entries that is as good as messages, auxiliary
variables and exact draws, and covers the latent value better than mean-field laws did.

Columns that are clamped to 1 in the mode are taken as known. In a result with these rows (`with_new_rows`) the rows
that were there keep their bits. `transform` and `with_rows` are for users, who name entries X.

Source: Tierney and Kadane (1986), JASA 81, for the Gaussian; Rasmussen and Williams (2006), Gaussian Processes for
Machine Learning, sec. 3.4, for Newton's steps by a Gaussian of every entry.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.checks import check_not_empty, check_values, fail_value
from tensorcep.core.executor import Executor
from tensorcep.core.packing import diagonal, offsets, pack, unpack
from tensorcep.core.random import RandomStream, stream_key
from tensorcep.cp.fitted.alignment import layout_of, moments_beside
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.gibbs.row_draw import columns_of_mode, draw_rows, room_for
from tensorcep.cp.inputs.coordinates import column_of, coords_to_predict, mode_of, names_of, packed_rows
from tensorcep.cp.inputs.side_information import check_no_deviations, word_of
from tensorcep.cp.model.columns import CLAMPED, free_columns
from tensorcep.cp.model.entries import EntriesByRow, sum_products
from tensorcep.cp.model.latent import latent_moments, latent_of_draws
from tensorcep.cp.model.parameters import theta_of
from tensorcep.cp.posterior import Components, Mixture, PointEstimate, Posterior, Result
from tensorcep.entries.labels import Labels
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import split_observed
from tensorcep.kernels.rows import arrange, row_moments
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.likelihoods.base import Likelihood, log_density, tilted_moments
from tensorcep.likelihoods.counts import presence
from tensorcep.priors import LEARNED
from tensorcep.priors.base import ModePrior
from tensorcep.priors.graph import Net


class Natural(NamedTuple):
    """Natural parameters of rows, all columns: Lam (n, P) and eta (n, R)."""

    Lam: np.ndarray
    eta: np.ndarray


def with_new_rows(result: Result, mode: int, parts: list[Any]) -> Any:
    """A result with rows added at the end of a mode, of which `parts` has those for every component of the belief."""
    if isinstance(result, Mixture):
        pairs = zip(result.members, parts, strict=True)
        return Mixture(tuple(with_new_rows(member, mode, [own]) for member, own in pairs))
    end, new = int(offsets(result.shape)[mode + 1]), parts[0]  # `Natural`, or values (n, R) of draws and estimates
    n = len(new.eta if isinstance(new, Natural) else new)
    shape = tuple(size + n * (k == mode) for k, size in enumerate(result.shape))
    result = result._replace(shape=shape, seen=np.insert(result.seen, end, np.ones(n, dtype=bool), axis=0))
    if isinstance(result, Posterior):
        if result.dispersion is not None and result.dispersion.mode == mode:
            result = result._replace(dispersion=result.dispersion.of_new(n))
        Lam, eta = np.insert(result.Lam, end, new.Lam, axis=0), np.insert(result.eta, end, new.eta, axis=0)
        return result._replace(Lam=Lam, eta=eta)
    if isinstance(result, PointEstimate):
        return result._replace(rows=np.insert(result.rows, end, new, axis=0))
    if result.theta is not None and result.theta_mode == mode:
        theta = result.theta.mean(axis=2, keepdims=True) if result.uneven is None else result.uneven[..., :1]
        result = result._replace(theta=np.concatenate([result.theta, np.repeat(theta, n, axis=2)], axis=2))
    drawn = np.stack(parts).reshape(*result.rows.shape[:2], n, result.rank).astype(result.rows.dtype)
    return result._replace(rows=np.concatenate([result.rows[:, :, :end], drawn, result.rows[:, :, end:]], axis=2))


class NewEntries(NamedTuple):
    """Entries of the new rows, N in all."""

    mode: int
    y: np.ndarray  # (N,) float64, values as the likelihood has them
    free: np.ndarray  # (R,) bool, columns that are not clamped in the mode
    used: np.ndarray  # (m,) int64, the packed rows of the other modes that occur, as the belief has them
    by_row: EntriesByRow  # the entries of every new row, with the other rows counted among `used`
    places: np.ndarray  # (N, K) int64, rows among the new ones, `used` after them

    size: int  # how many new rows there are
    likelihood: Likelihood


def new_entries(
    mode: int, row: np.ndarray, others: np.ndarray, y: np.ndarray, free: np.ndarray, likelihood: Likelihood
) -> NewEntries:
    """The record of entries of the rows `row` (N,), counted from 0, with the packed rows `others` (N, K - 1)."""
    order, count = np.argsort(row, kind="stable"), np.bincount(row)
    start = np.concatenate([[0], np.cumsum(count)])
    used, index = np.unique(others, return_inverse=True)
    index = index.reshape(others.shape)
    listed = np.ascontiguousarray(index[order], dtype=np.int32)
    by_row = EntriesByRow(start, start[1:], order.astype(np.int32), np.zeros(0), listed, ())
    places = np.ascontiguousarray(np.insert(index + len(count), mode, row, axis=1))
    return NewEntries(mode, y, free, used, by_row, places, len(count), likelihood)


class Known(NamedTuple):
    """What one component of a belief knows beside the new rows."""

    mean: np.ndarray  # (m, R) float64, of the other modes' rows that occur
    cov: np.ndarray | None  # (m, P); None where they are points
    y: np.ndarray  # (N,) float64, as the next what kernels take as such of the new entries
    theta: np.ndarray  # (N,) float64, of a new row the mean over rows
    share: float = 0.0  # of structural zeros


def known_of(belief: Components, c: int, entries: NewEntries) -> Known:
    """What component c knows."""
    mean, likelihood = np.ascontiguousarray(belief.mean[c, entries.used], dtype=np.float64), entries.likelihood
    cov, theta, y = None if belief.cov is None else belief.cov[c, entries.used], theta_of(belief, likelihood), entries.y
    c %= len(theta.values)
    if likelihood.levels is not None:
        return Known(mean, cov, *likelihood.levels.between(y, theta.values[c]))
    if likelihood.zeros is not None:
        dispersion = likelihood.default_theta if likelihood.parameter is None else theta.values[c, 0]
        return Known(mean, cov, y, np.full(len(y), dispersion), float(theta.values[c, -1]))
    rows = np.concatenate([np.full(entries.size, -1), entries.used])[entries.places]
    return Known(mean, cov, y, np.ascontiguousarray(theta.of(rows)[c]))


def new_rows(belief: Components, c: int, entries: NewEntries, prior: Natural, executor: Executor) -> Natural:
    """The new rows under the Gaussian, or the estimate, c of a belief."""
    known = known_of(belief, c, entries)
    weight = precision_of(entries.likelihood, known)
    if weight is not None:
        return updated(prior, entries, known, weight, weight * known.y, executor)
    says = np.zeros((2, len(known.y)))
    find_modes(says, entries, known, prior, executor)
    return updated(prior, entries, known._replace(cov=None), says[0], says[1], executor)


def drawn_rows(
    belief: Components, c: int, entries: NewEntries, prior: Natural, says: np.ndarray, seed: int, executor: Executor
) -> np.ndarray:
    """One draw (n, R) of the new rows given the draw c of everything else."""
    # `says` (2, N) are weights and targets as of the draw before, at first zeros, and becomes those of this one
    known, by_row, free = known_of(belief, c, entries), entries.by_row, entries.free
    order, precision, each = by_row.entry, np.ones(1), precision_of(entries.likelihood, known)
    if each is None:
        find_modes(says, entries, known, prior, executor)
        weight, target = says[0, order], says[1, order]
    else:
        alike = bool(np.ptp(each) == 0.0)
        precision = each[:1].copy() if alike else precision
        weight, target = (np.zeros(0), known.y[order]) if alike else (each[order], (each * known.y)[order])
    columns = columns_of_mode(np.flatnonzero(free), np.flatnonzero(~free))
    source, out = lane_zeros((len(known.mean), len(columns.order))), np.ones((entries.size, len(free)))
    executor.run(arrange, 0, len(known.mean), known.mean, columns.order, source)
    lists, key = (by_row.start, by_row.end, by_row.others), stream_key(seed, c, 0, RandomStream.FOLDED)
    record = (0, lists, source, columns, (0, weight, target), *prior, precision, key, np.zeros(entries.size), out)
    room: Any = partial(room_for, len(columns.free), columns)
    executor.run(draw_rows, 0, entries.size, *record, align=LANES, scratch=room)
    return out


def precision_of(likelihood: Likelihood, known: Known) -> np.ndarray | None:
    """The noise precision (N,) of entries that are Gaussian in f; None where some are not."""
    normal = likelihood.normal
    if normal is None or (normal.expected is not None and normal.hides(known.y).any()):
        return None
    return known.theta if likelihood.parameter is not None else np.ones_like(known.theta)


def updated(
    prior: Natural, entries: NewEntries, known: Known, weight: np.ndarray, target: np.ndarray, executor: Executor
) -> Natural:
    """Prior x entries, in the free columns, for entries that say N(target / weight; f, 1 / weight)."""
    free, R = entries.free, known.mean.shape[1]
    i, j = np.tril_indices(R)
    square = known.mean[:, i] * known.mean[:, j]
    second = np.ascontiguousarray(square if known.cov is None else square + known.cov)
    Z2, z = np.empty((entries.size, second.shape[1])), np.empty((entries.size, R))
    for of_entry, source, out in ((weight, second, Z2), (target, known.mean, z)):
        room: Any = partial(lambda width: (np.empty(width),), source.shape[1])
        executor.run(sum_products, 0, entries.size, entries.by_row, of_entry, source, out, scratch=room)
    f, eta = np.flatnonzero(free), z
    if not free.all():
        full = unpack(Z2, R)
        eta = z[:, f] - full[:, f][:, :, ~free].sum(axis=2)
        Z2 = pack(full[:, f[:, None], f[None, :]])
    return Natural(prior.Lam + Z2, prior.eta + eta)


def in_all(rows: Natural, free: np.ndarray, clamped: float = CLAMPED) -> Natural:
    """Rows in all columns; the others are clamped to 1, by a precision of 0 not at all."""
    R, f = len(free), np.flatnonzero(free)
    Lam, eta = np.zeros((len(rows.eta), R * (R + 1) // 2)), np.full((len(rows.eta), R), clamped)
    Lam[:, diagonal(R)] = clamped
    i, j = np.tril_indices(len(f))
    Lam[:, f[i] * (f[i] + 1) // 2 + f[j]] = rows.Lam
    eta[:, f] = rows.eta
    return Natural(Lam, eta)


def moments(rows: Natural, executor: Executor) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n, R) and packed covariance (n, P)."""
    Lam, eta = map(np.ascontiguousarray, rows)  # the kernel takes rows one after the other in memory
    mean, cov, good = np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta))
    executor.run(row_moments, 0, len(good), Lam, eta, mean, cov, good)
    if not good.all():
        raise FloatingPointError("the precision of a new row is not positive definite; the model may be damaged.")
    return mean, cov


# Newton's steps at most; full ones, after which they are halved, as variances, which count as given in a step, could
# lead back and forth; the largest squared change of a latent value, times its entry's weight, at which they end, and
# the same for draws; how far a step may move a latent value, but for values with a noise precision, whose log
# likelihood curves nowhere more than a Gaussian's.
STEPS, FULL, SETTLED, SETTLED_OF_DRAW, LONGEST = 100, 12, 1e-10, 1e-2, 2.0


def find_modes(says: np.ndarray, entries: NewEntries, known: Known, prior: Natural, executor: Executor) -> None:
    """Move what entries say, weights and targets (2, N), to where it is at the modes of their rows."""
    exact, n, N = known._replace(cov=None), entries.size, len(known.y)
    spread = None if known.cov is None else np.concatenate([np.zeros((n, known.cov.shape[1])), known.cov])
    order, start, row = entries.by_row.entry, entries.by_row.start[:-1], entries.places[:, entries.mode]
    longest = np.inf if entries.likelihood.learns_precision else LONGEST
    settled = SETTLED_OF_DRAW if known.cov is None else SETTLED

    def newton() -> np.ndarray:
        return moments(in_all(updated(prior, entries, exact, says[0], says[1], executor), entries.free), executor)[0]

    def latent(mean: np.ndarray, out: np.ndarray) -> np.ndarray:
        executor.run(_latent, 0, N, entries.places, np.concatenate([mean, known.mean]), spread, out)
        return out

    def expand(some: np.ndarray) -> None:
        """What entries at some places say about their latent values."""
        part, said = known._replace(y=known.y[some], theta=known.theta[some]), np.empty((2, len(some)))
        executor.run(_expand, 0, len(some), entries.likelihood, part, now[:, some], said)
        says[:, some] = said

    mean, moves = newton(), np.arange(N)
    now, then = latent(mean, np.zeros((2, N))), np.zeros((2, N))
    for turn in range(STEPS):
        expand(moves)
        goal = newton()
        change = latent(goal, then)[0] - now[0]
        left = np.maximum.reduceat((says[0] * change * change)[order], start) >= settled
        if not left.any():
            now = then
            break
        moves = np.flatnonzero(left[row])  # entries of rows that are settled stay as they are
        length, most = np.maximum.reduceat(np.abs(change[order]), start), 1.0 if turn < FULL else 0.5
        if most < 1.0 or length.max() > longest:
            goal = mean + np.minimum(most, longest / np.maximum(length, LONGEST))[:, None] * (goal - mean)
            latent(goal, then)
        mean, now, then = goal, then, now
    expand(np.arange(N))


def _latent(first: int, last: int, places: np.ndarray, mean: np.ndarray, cov: np.ndarray | None, out: Any) -> None:
    """Mean and variance (2, N) of the latent values first:last."""
    f, v = out[0, first:last], out[1, first:last]
    if cov is None:
        latent_of_draws(mean[None], places[first:last], f[None])
    else:
        latent_moments(places[first:last], mean, cov, f, v)


def _expand(first: int, last: int, likelihood: Likelihood, known: Known, latent: np.ndarray, says: np.ndarray) -> None:
    """Weight and target of the Gaussian in f that each entry first:last is about its latent value."""
    at = slice(first, last)
    y, theta, (m, v) = known.y[at], known.theta[at], latent[:, at]
    if known.cov is None:
        value, slope, curve = log_density(likelihood.loglik, y, m, theta)
    else:
        value, slope, curve = tilted_moments(likelihood.tilted, y, m, v, theta)
        curve = -curve
    if likelihood.zeros is not None:  # a mixture, whose log curves upwards in places; there it counts as a line
        present = presence(y, value, known.share)
        curve = present * (curve + (1.0 - present) * slope * slope)
        slope *= present
    says[0, at] = np.maximum(-curve, 0.0)
    says[1, at] = slope + says[0, at] * m


@dataclass(frozen=True, repr=False, eq=False)
class NewRows:
    """Rows of unseen labels of one mode, as `transform` gives them."""

    mode: int
    name: Any  # what the mode is called
    labels: Labels | None  # None where the mode has indices: the rows then follow the known ones
    mean: np.ndarray  # (n, R) float64
    cov: np.ndarray  # (n, R, R) float64, zero for a point estimate
    parts: list[Any]
    cells: np.ndarray
    first: int  # how many rows the mode had
    model: str  # what tells the model that they were made by from others
    sampled: np.ndarray | None = None  # those of the cells that hold sampled zeros

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"<{len(self)} new rows of mode {self.name!r}, rank {self.mean.shape[1]}>"

    def to_frame(self) -> pd.DataFrame:
        """Mean and standard deviation of every column: a row per label; columns (component, "mean" or "sd")."""
        sd = np.sqrt(np.diagonal(self.cov, axis1=1, axis2=2))
        columns = pd.MultiIndex.from_product([range(self.mean.shape[1]), ["mean", "sd"]], names=["component", None])
        each = np.stack([self.mean, sd], axis=2).reshape(len(self), -1)
        return pd.DataFrame(each, index=None if self.labels is None else self.labels.index, columns=columns)


def transform(model: FittedModel, X: Any, y: Any, mode: Any, modes: Any, value: Any) -> NewRows:
    """The rows of unseen labels of one mode given their entries, everything else as it was fitted."""
    fit = model.fit
    belief, k = check_no_deviations(fit.belief, "transform"), mode_of(fit.labels, mode)
    coupled = fit.series[k] if fit.series else None
    if coupled is not None:
        instead = "fit with the new rows" if isinstance(coupled, Net) else "predict takes later labels"
        fail_value(f"transform cannot add rows to mode {mode!r}, which is {word_of(coupled)}; {instead}.")
    if fit.observation.has_extents:
        fail_value("transform takes no exposures or numbers of trials, which the fit had; fit with the new rows.")
    model.spec.target.check_even(belief.theta, "transform needs")
    coords, given, labels, row = _new_entries(model, X, y, k, modes, value)
    values = check_values(fit.observation.coded(given), len(coords), name="y")
    values = model.spec.target.checked(values, fit.likelihood)
    coords[:, k] = int(np.argmax(fit.posterior.seen[fit.layout.rows[k]]))
    packed = packed_rows(coords, fit.posterior, model.spec.unknown)
    free = free_columns(fit.interactions, len(fit.shape))[k]
    entries = new_entries(k, row, np.delete(packed, k, axis=1), values, free, fit.likelihood)
    with model.threads() as executor:
        parts = _folded(model, entries, executor)
        # in the columns of `factors_`: of draws as these are aligned
        n, R, end = entries.size, fit.posterior.rank, fit.layout.rows[k].stop
        if belief.n_chains:
            seen, at = np.insert(fit.posterior.seen, end, np.zeros(n, dtype=bool), axis=0), slice(end, end + n)
            layout = layout_of([size + n * (j == k) for j, size in enumerate(fit.shape)], fit.column_modes, seen)
            mean, cov = moments_beside(belief.mean[:, : sum(fit.shape)], parts, fit.aligned, layout, at)
        elif isinstance(fit.posterior, PointEstimate):
            mean, cov = parts[0], np.zeros((n, R, R))
        else:
            mean, packed_cov = moments(parts[0], executor)
            cov = unpack(packed_cov, R)
    coords[:, k] = fit.shape[k] + row
    known = (packed < sum(fit.shape)).all(axis=1)
    cells = coords[known].astype(np.int32)
    marks = X.sampled if isinstance(X, SparseTensor) else None
    of = (fit.shape[k], _digest(fit.posterior), None if marks is None else cells[marks[known]])
    return NewRows(k, names_of(fit.labels)[k], labels, mean, cov, parts, cells, *of)


def _new_entries(
    model: FittedModel, X: Any, y: Any, k: int, modes: Any, value: Any
) -> tuple[np.ndarray, Any, Labels | None, np.ndarray]:
    """Coordinates, values, new labels and the new row of each entry."""
    of_fit, n = model.fit.labels, model.fit.shape[k]
    X, y = split_observed(names_of(of_fit), X, y, modes, value)
    check_not_empty(len(X), "X")
    coords, name, known = coords_to_predict(X, of_fit).copy(), names_of(of_fit)[k], of_fit[k]
    if known is None:
        found, row = np.unique(coords[:, k]), coords[:, k] - n
        if not np.array_equal(found, np.arange(n, n + len(found))):
            fail_value(
                f"new indices of mode {name!r} must follow the known ones without a gap, from {n} on; got {found[0]} "
                f"to {found[-1]}."
            )
        return coords, y, None, row
    labels, row = Labels.from_column(column_of(X, of_fit, k), name=known.name)
    both = known.rows(labels.index, unknown="ignore") >= 0
    if both.any():
        fail_value(
            f"transform takes rows that the model does not know; got {labels.index[both].tolist()[0]!r} of mode "
            f"{name!r}, which it was fitted to ({int(both.sum())} such in all); leave them out."
        )
    return coords, y, labels, row


def _folded(model: FittedModel, entries: NewEntries, executor: Executor) -> list[Any]:
    """The new rows in every component of the belief."""
    belief, free = model.fit.belief, entries.free
    priors = []  # in the free columns
    for c in range(belief.size):
        mean, cov = prior_of_new(model, c, entries.mode)
        precision = np.linalg.inv(cov[np.ix_(free, free)])
        priors.append(Natural(pack(0.5 * (precision + precision.T))[None], (precision @ mean[free])[None]))
    if belief.n_chains:
        seed = abs(int(model.spec.random_state)) if isinstance(model.spec.random_state, (int, np.integer)) else 0
        says = np.zeros((2, len(entries.y)))
        return [drawn_rows(belief, c, entries, own, says, seed, executor) for c, own in enumerate(priors)]
    estimate = isinstance(model.fit.posterior, PointEstimate)
    if estimate and not entries.likelihood.is_gaussian:
        fail_value(f"transform of a fit by {model.fit.method!r} needs real values without a limit; use method='vmp'.")
    rows = [in_all(new_rows(belief, c, entries, prior, executor), free) for c, prior in enumerate(priors)]
    return [moments(part, executor)[0] for part in rows] if estimate else rows


def prior_of_new(model: FittedModel, c: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean (R,) and covariance (R, R) of a new row of mode k in component c, of draws drawn given their rows."""
    fit, belief, total = model.fit, model.fit.belief, sum(model.fit.shape)
    if belief.cov is not None:
        return belief.mean[c, total + k], unpack(belief.cov[c, total + k], belief.mean.shape[2])
    mean, cov = fit.unseen_mean, fit.unseen_cov
    if not belief.n_chains or fit.prior not in LEARNED:
        return mean[k], cov[k]
    now = ModePrior(mean, np.linalg.inv(cov))
    scale = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    eta = np.einsum("kij,kj->ki", now.precision, mean)
    free = free_columns(fit.interactions, len(fit.shape))
    prior = LEARNED[fit.prior](pack(now.precision), eta, mean, scale, free)
    rows = [belief.mean[c, seen].astype(np.float64) for seen in fit.layout.seen]
    drawn = prior.draw(now, rows, np.random.default_rng([c, k]))
    return drawn.mean[k], np.linalg.inv(drawn.precision[k])


def with_rows(model: FittedModel, rows: NewRows) -> FitResult:
    """The result with these rows too; what it says of the others is the same to the last bit."""
    if not isinstance(rows, NewRows):
        raise TypeError(f"rows must be what transform returns; got {type(rows).__name__}.")
    fit = model.fit
    own = _digest(fit.posterior)
    before = fit.grown_from[1:] if fit.grown_from[:1] == (own,) else ()
    if rows.model not in (own, *before):
        fail_value(
            f"rows must be what transform of this model gives; these {len(rows)} are of another model, or of this "
            "one before it was fitted again; transform their entries with it."
        )
    known, n = fit.labels[rows.mode], fit.shape[rows.mode]
    if known is None and n != rows.first:
        fail_value(
            f"the new rows of mode {rows.name!r} must follow the {n} known ones; these follow {rows.first}; "
            "transform them with this model."
        )
    if known is not None and (rows.labels is None or (known.rows(rows.labels.index, unknown="ignore") >= 0).any()):
        fail_value(f"the model knows some of the new rows of mode {rows.name!r} already; transform them with it.")
    cells, sampled = fit.cells, fit.sampled
    later = (n - rows.first) * (np.arange(len(fit.shape)) == rows.mode).astype(np.int32)
    if cells is not None:
        cells = np.unique(np.concatenate([cells, rows.cells + later]), axis=0)
    if rows.sampled is not None:
        sampled = rows.sampled + later if sampled is None else np.concatenate([sampled, rows.sampled + later])
    labels = list(fit.labels)
    if rows.labels is not None and known is not None:
        labels[rows.mode] = known.extended(rows.labels.index)
    new = with_new_rows(fit.posterior, rows.mode, rows.parts)
    grown = fit.with_posterior(new, labels=tuple(labels), cells=cells, sampled=sampled, kept=None, stream=None)
    return grown.changed(grown_from=(_digest(grown.posterior), own, *before))


def _digest(result: Result) -> str:
    """What tells the rows of a result from others', from a file, too; of draws the first and the last are enough."""
    found = hashlib.blake2b(repr([int(n) for n in result.shape]).encode(), digest_size=16)
    members: tuple[Any, ...] = result.members if isinstance(result, Mixture) else (result,)
    for member in members:
        rows = member.eta if isinstance(member, Posterior) else member.rows
        every = rows.reshape(-1, *rows.shape[-2:])
        for part in every[:: max(1, len(every) - 1)][:2]:
            found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()
