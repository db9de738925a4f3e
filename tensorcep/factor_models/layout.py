"""Where components and biases lie in the rows of the entities, and the relations that follow from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.coding import coded
from tensorcep.factor_models.kinds import LIMITED, kind_of
from tensorcep.factor_models.read import Matrix
from tensorcep.factor_models.relations import Kind, Relation
from tensorcep.factor_models.units import Units, standardised, units_of

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
    def own_units(self) -> Units | None:
        """The units of the columns of real data; None for others. A matrix without column biases is not centred."""
        return units_of(self.matrix, self.cols_have_bias) if self.kind.theta == "noise" else None

    @property
    def modelled(self) -> Matrix:
        """The matrix as the model sees it."""
        return standardised(self.matrix if self.limit is None else self.matrix.at_least(self.limit), self.units)

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


def layouts(links: list[Link], n_entities: int, rank: int) -> list[Layout]:
    """The coordinates of every entity."""
    result = []
    for e in range(n_entities):
        has_one = any(
            (link.row == e and link.cols_have_bias) or (link.col == e and link.rows_have_bias) for link in links
        )
        biased = [
            m
            for m, link in enumerate(links)
            if (link.row == e and link.rows_have_bias) or (link.col == e and link.cols_have_bias)
        ]
        first = rank + has_one
        result.append(Layout(rank, rank if has_one else -1, {m: first + q for q, m in enumerate(biased)}))
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
    return Relation(
        row=link.row,
        col=link.col,
        row_coords=np.array(rows),
        col_coords=np.array(cols),
        cells=link.matrix.cells,
        x=coded(link.kind, link.matrix.cells, link.modelled.x),
        kind=link.kind,
        groups=link.groups,
        known_r=link.known_r,
        units=link.units,
        col_bias=col.bias.get(m, -1) if link.cols_have_bias else -1,
        limit=link.limit,
    )
