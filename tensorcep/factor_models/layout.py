"""Which coordinates of a row are components, ones and biases; and what is said of rows before a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorcep.core.checks import fail_value
from tensorcep.entries.labels import Labels
from tensorcep.factor_models.cells import DenseCells, Matrix
from tensorcep.factor_models.problem import Entity, Kind, Relation, RelationPosterior, Units, coded, count_table
from tensorcep.factor_models.side_information import KnownOf, KnownRows
from tensorcep.factor_models.sites import LIMITED, kind_of
from tensorcep.priors.features import Features, Mode, designed, warn_of_rows_without
from tensorcep.priors.regression import MOST_DIRECT
from tensorcep.priors.series import Series, clock

BIASES = ("column", "row", "both", "none")


class Link(NamedTuple):
    """One matrix and how it is modelled; `row` and `col` are the positions of its entities."""

    matrix: Matrix
    row: int
    col: int
    likelihood: str
    augmentation: str = "direct"
    bias: str = "column"
    groups: str = "all"
    known_r: np.ndarray | None = None
    units: Units | None = None
    limit: np.ndarray | None = None

    @property
    def kind(self) -> Kind:
        """What the words of likelihood and augmentation stand for, with a limit or without."""
        return kind_of(self.likelihood, self.augmentation) if self.limit is None else LIMITED

    @property
    def rows_have_bias(self) -> bool:
        """Whether every row has a bias in this matrix."""
        return self.bias in ("row", "both")

    @property
    def cols_have_bias(self) -> bool:
        """Whether every column has a bias in this matrix."""
        return self.bias in ("column", "both")

    @property
    def modelled(self) -> Matrix:
        """The matrix as the model sees it, in the units of its columns."""
        matrix, cells = self.matrix, self.matrix.cells
        if self.limit is not None:  # values below it are raised to it
            matrix = matrix._replace(x=cells.only_observed(np.maximum(matrix.x, cells.spread(self.limit, "column"))))
        if self.units is None:
            return matrix
        away = matrix.less_columns(self.units.centre)
        away /= cells.spread(self.units.scale, "column")
        return matrix._replace(x=away)

    def without_data(self) -> Link:
        """The same link of a matrix of this shape of which nothing is observed."""
        return self._replace(matrix=no_data(self.matrix.cells.shape))


def no_data(shape: tuple[int, int]) -> Matrix:
    """A matrix of which nothing is known but its shape."""
    return Matrix(DenseCells(shape, np.zeros((1, 1))), np.zeros((1, 1)))


class Layout(NamedTuple):
    """Where an entity's coordinates are: the components first, then the one that is 1, then its biases by relation."""

    rank: int
    one: int
    bias: dict[int, int]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.rank + (self.one >= 0) + len(self.bias)

    def entity(self, n: int, learn: bool, precision: np.ndarray | None = None) -> Entity:
        """n rows of these coordinates; the precisions of biases are learned, and, if asked for, those of components."""
        learned = np.zeros(self.size, dtype=bool)
        learned[: self.rank] = learn
        learned[list(self.bias.values())] = True
        return Entity(n, np.ones(self.size) if precision is None else precision, learned, self.one)

    def rows_at_zero(self, n: int) -> np.ndarray:
        """Means of n rows all of whose components and biases are 0."""
        mean = np.zeros((n, self.size))
        if self.one >= 0:
            mean[:, self.one] = 1.0
        return mean


def layouts(links: list[Link], n_entities: int, rank: int) -> list[Layout]:
    """The coordinates of every entity."""
    result = []
    for e in range(n_entities):
        row_of = [m for m, link in enumerate(links) if link.row == e]
        col_of = [m for m, link in enumerate(links) if link.col == e]
        has_one = any(links[m].cols_have_bias for m in row_of) or any(links[m].rows_have_bias for m in col_of)
        biased = [m for m in row_of if links[m].rows_have_bias] + [m for m in col_of if links[m].cols_have_bias]
        first = rank + has_one
        result.append(Layout(rank, rank if has_one else -1, {m: first + q for q, m in enumerate(sorted(biased))}))
    return result


def relation_of(link: Link, m: int, where: list[Layout]) -> Relation:
    """The relation of a link: the components, and each bias opposite to a one."""
    row, col = where[link.row], where[link.col]
    rows, cols = list(range(row.rank)), list(range(col.rank))
    if link.cols_have_bias:
        rows.append(row.one)
        cols.append(col.bias[m])
    if link.rows_have_bias:
        rows.append(row.bias[m])
        cols.append(col.one)
    cells, bias = link.matrix.cells, col.bias.get(m, -1) if link.cols_have_bias else -1
    x = coded(link.kind, cells, link.modelled.x)
    relation = Relation(link.row, link.col, np.array(rows), np.array(cols), cells, x, link.kind, link.groups)
    relation = relation._replace(known_r=link.known_r, units=link.units, col_bias=bias, limit=link.limit)
    return relation._replace(table=count_table(relation))


def check_row_prior(given: Any, method: str, link: Link) -> None:
    """Refuse a `row_prior` that cannot be, or not beside other parameters."""
    if given is None:
        return
    if not isinstance(given, (Features, Series)):
        fail_value(f"row_prior must be None, a tensorcep.Features or a tensorcep.Series; got {given!r}.")
    what = type(given).__name__
    if method != "vb":
        fail_value(f"method {method!r} cannot take row_prior={what}(...); use method='vb'.")
    if link.rows_have_bias:
        fail_value(f"row_prior={what}(...) is of the components alone; got bias={link.bias!r}; use 'column' or 'none'.")
    if isinstance(given, Series) and given.kind == "rw":
        fail_value("the components of row_prior=Series(...) have variance 1, a random walk has none; use kind='ou'.")


def known_rows(given: Any, labels: Labels | None, matrices: Sequence[Matrix]) -> KnownOf:
    """What is known of the rows that matrices have in common, with these labels; nothing where that is nothing."""
    if given is None:
        return ()
    # the rows are the first entity, the columns of each matrix are another
    n, others = matrices[0].cells.shape[0], (None,) * len(matrices)
    mode, seen = Mode("rows", labels, n), np.any([matrix.cells.counts("row") > 0.0 for matrix in matrices], axis=0)
    if isinstance(given, Series):
        return KnownRows(clock(given, mode), seen), *others
    design, found = designed(given, mode)
    if found.size > n:
        fail_value(f"row_prior names {found.size - n} rows that X does not have; add them to X, with missing cells.")
    if design.n_features > MOST_DIRECT:
        fail_value(f"row_prior takes at most {MOST_DIRECT} features of rows; got {design.n_features}; leave some out.")
    warn_of_rows_without(mode, design.described, seen)
    return KnownRows(design, seen), *others


def refuse_rows_alone(posterior: RelationPosterior) -> None:
    """Refuse rows by themselves where the prior of rows depends on what else is known of them."""
    if posterior.laws:
        cure = "put them into the X of fit, without cells if they have none, where a row_prior predicts them"
        fail_value(f"rows beside those of the fit have no features and no place in time here: {cure}.")


def told_of_rows(posterior: RelationPosterior) -> dict[str, Any]:
    """Fitted attributes that say how rows depend on what is known of them; None where that is not known."""
    law = posterior.laws[0] if posterior.laws else None
    if law is None or not law.names:
        return {"feature_effects_": None, "lengths_": None if law is None else law.lengths[0].copy()}
    F, K = law.coef.shape
    of = {"feature": np.repeat(np.array(law.names, dtype=object), K), "component": np.tile(np.arange(K), F)}
    table = pd.DataFrame({**of, "mean": law.coef.ravel(), "sd": law.sd.ravel()})
    order = np.argsort(-(table["mean"].abs() / table["sd"]).to_numpy(), kind="stable")
    return {"feature_effects_": table.iloc[order].reset_index(drop=True), "lengths_": None}
