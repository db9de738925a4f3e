"""Graphs in a stream: the rows of a mode are a Gaussian Markov field, whatever batch tells of them.

What entries say of a row is kept as that of a series is (see `drifting`). With the law of the field it gives the
moments of all rows at once, from a sparse Cholesky factor. Rows that the graph does not name are rows without edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.packing import unpack
from tensorcep.cp.fitted.new_rows import Natural
from tensorcep.cp.model.rows import diagonal
from tensorcep.kernels.rows import row_moments
from tensorcep.priors.blocks import Marginals
from tensorcep.priors.bonds import Law, moments_of_all
from tensorcep.priors.coupled import joint, marginals
from tensorcep.priors.elimination import ordered
from tensorcep.priors.field import Field, scales_of
from tensorcep.priors.graph import Net

# Mean, precision and length (D,) of the columns of a field.
Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


def all_of_field(law: Columns, net: Net, sites: Natural) -> Marginals:
    """The moments of all N rows of a graph, of which the entries say `sites` in the D columns of the field.

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    mean, precision, length = law
    whole: Any = ordered(net.n, net.left, net.right)
    distinct, which = np.unique(length, return_inverse=True)
    scale = scales_of(net, whole, distinct)[0][which.ravel()].T
    return moments_of_all(net, whole, Law(mean, precision, length, scale), *sites)


def some_of_field(law: Columns, of: Field, sites: Natural) -> Marginals:
    """The moments of the rows that a field is learned from, in order, the others being integrated out.

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    mean, precision, length = law
    at = np.zeros((len(of.lengths), len(length)))
    at[np.argmin(np.abs(of.lengths[:, None] - length), axis=0), np.arange(len(length))] = precision
    prior = joint(of, at, at[:, None] * mean, np.zeros(len(mean)))
    return marginals(prior, sites.Lam[of.place], sites.eta[of.place])


def natural_rows(found: Marginals, sites: Natural) -> Natural:
    """Natural parameters of rows with these moments, of which the entries say `sites`.

    Where columns are independent of each other by approximation, what the others say of each column by itself stands
    beside the sites: no more of a batch's messages can be taken off.
    """
    eta, Lam, good = np.empty_like(found.mean), np.empty_like(found.cov), np.empty(len(found.mean))
    row_moments(0, len(good), found.cov, found.mean, eta, Lam, good)  # their roles exchanged
    if not found.apart:
        return Natural(Lam, eta)
    D = eta.shape[1]
    own, at = sites.Lam.copy(), diagonal(D)
    own[:, at] = Lam[:, at]
    return Natural(own, np.einsum("nij,nj->ni", unpack(own, D), found.mean))
