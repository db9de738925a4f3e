"""What the estimators of several matrices share: checks of the views, fitting, and what is kept."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from tensorcep.core.checks import check_choice, check_int, check_random_state, fail_value
from tensorcep.factor_models.fit import (
    BIASES,
    LIKELIHOODS,
    Link,
    build_problem,
    checked_method,
    fit_problem,
    relation_of,
)
from tensorcep.factor_models.model import DenseCells, Relation
from tensorcep.factor_models.read import Matrix, read_matrix
from tensorcep.factor_models.sites import Priors
from tensorcep.factor_models.store import write_relations
from tensorcep.factor_models.summary import energies, predict_training, reordered

# A component is active in a matrix where it explains this share of the variance that all of them explain there.
ACTIVE_SHARE = 1e-2


class BaseRelations(BaseEstimator):  # type: ignore[misc]
    """Several matrices whose rows and columns are shared entities."""

    def _fit_relations(self, matrices: Any, relations: list[tuple[str, str, str]], fixed: tuple[str, ...]) -> Any:
        """Fit; entities in `fixed` have unit prior precisions, the components of others have learned ones."""
        names = list(dict.fromkeys(name for row, col, _ in relations for name in (row, col)))
        bias, absent = check_choice("bias", self.bias, BIASES), check_choice("absent", self.absent, ("missing", "zero"))
        rank = check_int("n_components", self.n_components)
        method, options, how = checked_method(self)
        links = [
            Link(
                self._matrix(matrices[m], likelihood, absent, m),
                names.index(row),
                names.index(col),
                likelihood,
                bias=bias,
                groups=self._groups(likelihood),
            )
            for m, (row, col, likelihood) in enumerate(relations)
        ]
        sizes = _entity_sizes(links, names)
        learned = [bool(self.ard) and name not in fixed for name in names]
        rng = check_random_state(self.random_state)
        problem, where = build_problem(links, sizes, rank, learned, Priors(), rng, "random")
        result = fit_problem(method, problem, options, **how)
        posterior: Any = result.posterior
        total = sum(_shares(posterior, m, relation, rank) for m, relation in enumerate(problem.relations))
        self.posterior_ = reordered(posterior, np.argsort(-np.asarray(total), kind="stable"))
        self._links, self._where, self._names = links, where, names
        self.lower_bound_ = float(result.trace["lower_bound"][-1])
        self.n_iter_, self.converged_, self.trace_ = result.n_iter, result.converged, result.trace
        self._set_attributes()
        return self

    def _groups(self, likelihood: str) -> str:
        return "column" if likelihood == "negbinomial" else "all"

    def _matrix(self, X: Any, likelihood: str, absent: str, m: int) -> Matrix:
        check_choice("likelihood", likelihood, LIKELIHOODS[:3])
        X = check_array(
            X,
            accept_sparse=["csr", "csc", "coo"],
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            input_name=f"matrix {m}",
        )
        return read_matrix(X, likelihood, absent, f"matrix {m}")

    def _set_attributes(self) -> None:
        K = self._where[0].rank
        self.factors_ = {
            name: moments.mean[:, :K].copy() for name, moments in zip(self._names, self.posterior_.moments, strict=True)
        }
        self.relevance_ = {
            name: 1.0 / found.mean[:K] for name, found in zip(self._names, self.posterior_.precisions, strict=True)
        }
        relations = [self._relation(m) for m in range(len(self._links))]
        self.explained_variance_ = np.stack([energies(self.posterior_, m, r, K) for m, r in enumerate(relations)])
        shares = np.stack([_shares(self.posterior_, m, r, K) for m, r in enumerate(relations)])
        self.active_ = shares > ACTIVE_SHARE
        noise = [sites.noise for sites in self.posterior_.sites]
        self.noise_variance_ = [None if found is None else 1.0 / found.mean for found in noise]

    def _relation(self, m: int) -> Relation:
        nothing = Matrix(DenseCells((1, 1)), np.zeros((1, 1)))
        return relation_of(self._links[m]._replace(matrix=nothing), m, self._where)

    def reconstruct(self, m: int) -> np.ndarray:
        """Predictive means of all cells of training matrix m, observed or not."""
        check_is_fitted(self, "posterior_")
        return predict_training(self.posterior_, self._number(m), self._relation(m))[0]

    def predict_missing(self, m: int, return_std: bool = False) -> Any:
        """Training matrix m with its missing cells replaced by their predictive means.

        With `return_std`, also the predictive standard deviations of all cells, 0 where observed.
        """
        check_is_fitted(self, "posterior_")
        mean, variance = predict_training(self.posterior_, self._number(m), self._relation(m))
        matrix = self._links[m].matrix
        if matrix.x.shape == (1, 1) != mean.shape:
            fail_value("a model that was loaded from a file does not hold its training matrices; use reconstruct.")
        filled = matrix.filled(mean)
        return (filled, matrix._replace(x=np.zeros_like(matrix.x)).filled(np.sqrt(variance))) if return_std else filled

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to an .npz that `tensorcep.load` reads; the training data are not part of it."""
        check_is_fitted(self, "posterior_")
        write_relations(path, self, self._links)

    def _number(self, m: int) -> int:
        return check_int("m", m, 0, len(self._links) - 1)


def _shares(posterior: Any, m: int, relation: Relation, rank: int) -> np.ndarray:
    found = energies(posterior, m, relation, rank)
    return np.asarray(found / max(found.sum(), np.finfo(float).tiny))


def _entity_sizes(links: list[Link], names: list[str]) -> list[int]:
    sizes: dict[int, int] = {}
    for m, link in enumerate(links):
        for e, n, side in zip((link.row, link.col), link.matrix.cells.shape, ("rows", "columns"), strict=True):
            if sizes.setdefault(e, n) != n:
                fail_value(
                    f"every matrix must have the same number of {names[e]!r}; matrix {m} has {n} {side}, an "
                    f"earlier one {sizes[e]}."
                )
    return [sizes[e] for e in range(len(names))]
