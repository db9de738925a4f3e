"""What modes whose rows are coupled have in common: a series, whose rows follow each other, and a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.priors import blocks, bonds
from tensorcep.priors.axis import Axis, Chained, Links, axis, chained, links
from tensorcep.priors.blocks import Marginals
from tensorcep.priors.bonds import Bonds
from tensorcep.priors.drift import Sums, sums
from tensorcep.priors.field import Field, field
from tensorcep.priors.graph import Net
from tensorcep.priors.series import Clock

Known = Clock | Net
Prepared = Axis | Field
Joint = Links | Bonds


def prepared(known: Known, seen: np.ndarray, strength: float) -> Prepared | None:
    """What is made once of the rows with entries, `seen` (n,); None where there are less than two."""
    return field(known, seen, strength) if isinstance(known, Net) else axis(known, seen, strength)


def sums_of(of: Prepared, rows: np.ndarray, variance: Any = 0.0, cross: Any = 0.0) -> Sums:
    """The sums of rows (n, D), with their variances (n, D) and covariances of neighbours (E, D)."""
    if isinstance(of, Axis):
        return sums(of, rows, variance, cross)
    near = rows[of.left] * rows[of.right] + cross
    squares = of.own @ (rows * rows + variance) - 2.0 * (of.between @ near)
    return Sums(np.asarray(squares), np.asarray(of.total @ rows)[:, None])


def joint(of: Prepared, scale: np.ndarray, level: np.ndarray, centre: np.ndarray) -> Joint:
    """The prior of the rows together: see `axis.links`."""
    return links(of, scale, level, centre) if isinstance(of, Axis) else bonds.bonds(of, scale, level, centre)


def expected(prior: Joint) -> Chained:
    """The prior with its means and determinants; of a graph without these, of which a bound needs none."""
    if isinstance(prior, Links):
        return chained(prior)
    return Chained(prior, np.zeros(prior.own.shape[1]), np.zeros_like(prior.own))


def draw(
    prior: Joint,
    Lam: np.ndarray,
    eta: np.ndarray,
    key: tuple[int, int, int],
    precision: float = 1.0,
    overwrite: bool = False,
) -> np.ndarray:
    """A draw (n, D) of the rows given `precision` times what their entries say (see `blocks.draw`)."""
    if isinstance(prior, Links):
        return blocks.draw(prior, Lam, eta, key, precision, overwrite)
    return bonds.draw(prior, precision * Lam, precision * eta, key)


def marginals(prior: Joint, Lam: np.ndarray, eta: np.ndarray, precision: float = 1.0) -> Marginals:
    """The moments of the rows given `precision` times what their entries say (see `blocks.marginals`)."""
    if isinstance(prior, Links):
        return blocks.marginals(prior, Lam, eta, precision)
    return bonds.marginals(prior, precision * Lam, precision * eta)


def in_place(of: Prepared) -> slice | np.ndarray:
    """Where the rows that depend on each other are among those of the mode, in order."""
    return as_slice(of.place)


def in_order(of: Prepared, rows: np.ndarray) -> np.ndarray:
    """The rows with entries, in order."""
    found: np.ndarray = rows[as_slice(of.order)]
    return found


def as_slice(places: np.ndarray) -> slice | np.ndarray:
    """The places; a slice, by which nothing is copied, where they follow each other."""
    first, last = int(places[0]), int(places[-1]) + 1
    follow = last - first == len(places) and bool((np.diff(places) == 1).all())
    return slice(first, last) if follow else places


def damped_joint(old: Joint | None, new: Joint, step: float) -> Joint:
    """The fraction `step` of the way from the old prior to the new one in natural parameters; all of it at first."""
    if old is None or step == 1.0:
        return new
    names = ("own", "field", "between") if isinstance(new, Links) else ("own", "field", "between", "rest")
    parts = {name: getattr(old, name) + step * (getattr(new, name) - getattr(old, name)) for name in names}
    return new._replace(**parts)
