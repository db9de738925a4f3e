"""Features of rows in a stream: how prior means depend on them is learned on from batch to batch.

The law of the linear map given the rows needs sums over the rows with entries alone (`priors.regressed`). A batch takes
what its rows said before out of them and puts what they say now in, so that it costs no more than its rows and the cube
of the number of features. A row's prior is replaced by what its features say when the row is next looked at: its
messages stay. Rows without entries are as unsure as the map, too.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from tensorcep.core.belief import ModePrior
from tensorcep.core.packing import pack, unpack
from tensorcep.core.records import Sized
from tensorcep.cp.fitted.new_rows import Natural, in_all
from tensorcep.kernels.rows import row_moments
from tensorcep.priors.design import Design
from tensorcep.priors.learned import MEAN_ROWS, Expected, inverse
from tensorcep.priors.regressed import best_strength, solution
from tensorcep.priors.slopes import STRENGTH, Ready, Sums, scatter_at


class MapOfFeatures(NamedTuple):
    """What is known of the map from the F features of a mode to the prior means of its rows, in D free columns.

    Attributes
    ----------
    free : (R,) bool
    centre, width : (D,) float64
        What was expected of a row before any entry, and the deviation from it.
    weight : float
        How many times as much as by default that counts.
    rows : int
        Rows with entries.
    total, gram : (F,), (F, F) float64
        Sums of their features, and of products of these.
    apart, cross, square : (D,), (F, D), (D, D) float64
        Sums of the rows less the centre, of these times features, and of their second moments.
    mean, precision : (D,), (D, D) float64
        The prior of a row without features that has entries.
    coef : (F, D) float64
    strength : float
        Precision of coef beside that of the rows.
    root : (F, F) float64
        Of what coef varies by, in units of the rows' own covariance.
    """

    free: Annotated[np.ndarray, Sized("R", "b")]
    centre: Annotated[np.ndarray, Sized("D")]
    width: Annotated[np.ndarray, Sized("D")]
    weight: float
    rows: int
    total: Annotated[np.ndarray, Sized("F")]
    gram: Annotated[np.ndarray, Sized("F F")]
    apart: Annotated[np.ndarray, Sized("D")]
    cross: Annotated[np.ndarray, Sized("F D")]
    square: Annotated[np.ndarray, Sized("D D")]
    mean: Annotated[np.ndarray, Sized("D")]
    precision: Annotated[np.ndarray, Sized("D D")]
    coef: Annotated[np.ndarray, Sized("F D")]
    strength: float
    root: Annotated[np.ndarray, Sized("F F")]

    @property
    def weight_of_mean(self) -> float:
        """Rows, and as how many the prior mean counts."""
        return self.rows + self.weight * MEAN_ROWS


def first_map(design: Design, expected: Expected, k: int, free: np.ndarray, prior: ModePrior) -> MapOfFeatures:
    """The map of mode k that a fit has found, before it is told of rows; `free` (R,) bool are the mode's columns."""
    F, D, slopes = design.n_features, int(free.sum()), prior.slopes[k]
    if slopes is None:
        raise ValueError(f"the fit found no map of the features of mode {k}")
    return MapOfFeatures(
        free=free,
        centre=expected.mean[k, free],
        width=expected.scale[k, free],
        weight=expected.strength,
        rows=0,
        total=np.zeros(F),
        gram=np.zeros((F, F)),
        apart=np.zeros(D),
        cross=np.zeros((F, D)),
        square=np.zeros((D, D)),
        mean=prior.mean[k, free],
        precision=prior.precision[k][np.ix_(free, free)],
        coef=slopes.coef[:, free],
        strength=slopes.strength,
        root=np.eye(F) / np.sqrt(slopes.strength),
    )


def told(known: MapOfFeatures, design: Design, rows: np.ndarray, new: Natural, old: Natural | None) -> MapOfFeatures:
    """The map with sums that hold rows (m,) with natural parameters `new` in place of `old`; None: of nothing.

    Its law stays as it is (see `learned_on`).
    """
    some = some_rows(design, rows)
    known = _with(known, some, new, 1.0)
    if old is not None:
        return _with(known, some, old, -1.0)
    total = some.transposed(np.ones((len(rows), 1)))[:, 0]
    return known._replace(rows=known.rows + len(rows), total=known.total + total, gram=known.gram + some.gram())


def _with(known: MapOfFeatures, some: Design, rows: Natural, sign: float) -> MapOfFeatures:
    """The map with the sums over rows, times `sign`."""
    mean, cov = _moments(rows)
    apart, own = mean[:, known.free] - known.centre, np.ix_(known.free, known.free)
    square = apart.T @ apart + unpack(cov.sum(axis=0), mean.shape[1])[own]
    return known._replace(
        apart=known.apart + sign * apart.sum(axis=0),
        cross=known.cross + sign * some.transposed(apart),
        square=known.square + sign * square,
    )


def learned_on(known: MapOfFeatures, design: Design) -> MapOfFeatures:
    """The map with its law given the rows that it was told of."""
    count, D = known.weight_of_mean, len(known.centre)
    values, vectors = np.linalg.eigh(known.gram - np.outer(known.total, known.total) / count)
    a, b = STRENGTH
    have = Ready(design, known.total, count, np.maximum(values, 0.0), vectors, (a, b / design.size))
    square = known.weight * np.diag(known.width**2) + known.square - np.outer(known.apart, known.apart) / count
    cross = vectors.T @ (known.cross - np.outer(known.total, known.apart) / count)
    sums = Sums(known.apart, square, cross, known.weight * D + known.rows)
    strength = best_strength(have, sums)
    coef, level = solution(have, sums, strength)
    return known._replace(
        mean=known.centre + level,
        precision=sums.df * inverse(scatter_at(have, sums, strength)),
        coef=coef,
        strength=strength,
        root=vectors / np.sqrt(have.values + strength),
    )


def with_root(known: MapOfFeatures) -> MapOfFeatures:
    """The map as unsure as the rows that it was told of leave it at its strength; all else stays."""
    values, vectors = np.linalg.eigh(known.gram - np.outer(known.total, known.total) / known.weight_of_mean)
    return known._replace(root=vectors / np.sqrt(np.maximum(values, 0.0) + known.strength))


def prior_lines(known: MapOfFeatures, design: Design, rows: np.ndarray, seen: np.ndarray) -> Natural:
    """Natural parameters, in all columns, of the prior of rows (m,), of which some have entries, `seen` (m,) bool."""
    some = some_rows(design, rows)
    mean = known.mean + some.times(known.coef)
    apart = some.times(known.root) - (known.total @ known.root) / known.weight_of_mean
    unsure = np.where(seen, 0.0, 1.0 / known.weight_of_mean + (apart**2).sum(axis=1))
    share = 1.0 / (1.0 + unsure)
    Lam = share[:, None] * pack(known.precision)[None]
    return in_all(Natural(Lam, share[:, None] * (mean @ known.precision)), known.free)


def sound_lines(lines: Natural, before: Natural, rows: Natural) -> Natural:
    """The prior `lines` of rows whose prior was `before`; that where a row would be no Gaussian with the other one."""
    moved = Natural(rows.Lam + (lines.Lam - before.Lam), rows.eta + (lines.eta - before.eta))
    mean, cov, good = np.empty_like(moved.eta), np.empty_like(moved.Lam), np.empty(len(moved.eta))
    row_moments(0, len(good), moved.Lam, moved.eta, mean, cov, good)
    keep = (good > 0.0)[:, None]
    return Natural(*(np.where(keep, new, old) for new, old in zip(lines, before, strict=True)))


def some_rows(design: Design, rows: np.ndarray) -> Design:
    """The features of rows (m,), of which those beyond the design have none."""
    n = len(design.described)
    inside = rows < n
    take = np.where(inside, rows, 0)
    described = design.described[take] & inside
    matrix: Any = design.matrix[take]
    if not inside.all():
        matrix = matrix * inside[:, None] if isinstance(matrix, np.ndarray) else _cleared(matrix, inside)
    return design._replace(matrix=matrix, described=described)


def _cleared(matrix: Any, keep: np.ndarray) -> Any:
    """A sparse matrix whose other lines are 0."""
    out = matrix.copy()
    out.data = out.data * np.repeat(keep, np.diff(out.indptr))
    return out


def _moments(rows: Natural) -> tuple[np.ndarray, np.ndarray]:
    """Means (m, R) and packed covariances (m, P)."""
    Lam, eta = map(np.ascontiguousarray, rows)
    mean, cov, good = np.empty_like(eta), np.empty_like(Lam), np.empty(len(eta))
    row_moments(0, len(eta), Lam, eta, mean, cov, good)
    return mean, cov
