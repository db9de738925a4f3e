"""What all factor models share: parameters in plain words, and a fit in three steps: plan, run, set."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_flag, check_random_state, check_size
from tensorcep.core.loop import Run
from tensorcep.core.packing import unpack
from tensorcep.core.settings import TakesMethod
from tensorcep.factor_models.fit import check_components, plan_run
from tensorcep.factor_models.layout import BIASES, Layout, Link, relation_of
from tensorcep.factor_models.problem import Relation, RelationPosterior
from tensorcep.factor_models.results import ReadingFactors
from tensorcep.factor_models.settings import ENGINES
from tensorcep.factor_models.side_information import Moments
from tensorcep.factor_models.store import write_relations


@dataclass(eq=False, repr=False)
class FactorModel(TakesMethod, ReadingFactors, BaseEstimator):  # type: ignore[misc]
    """The constructors are made of the fields.

    Those that all models have are here, but for `n_components`, `method` and `ard`, which stand elsewhere in each.
    """

    engines = ENGINES

    _: KW_ONLY
    bias: str = "column"
    standardize: bool = True
    absent: str = "missing"
    max_iter: int = 500
    tol: float = 1e-4
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    def _check_parameters(self) -> None:
        """Refuse parameters that no fit takes, whatever the matrices: files may hold any."""
        plan_run(self)
        check_components(self.n_components)
        check_choice("bias", self.bias, BIASES)
        self._checked_absent()
        check_random_state(self.random_state)

    def _checked_absent(self) -> str:
        return check_choice("absent", self.absent, ("missing", "zero"))

    def _measured(self, link: Link) -> Link:
        """The link with the units of its columns, where they are to be on their own scales.

        Raises
        ------
        ValueError
            If all values are so small that squares are 0.
        """
        if link.kind.theta == "noise":
            check_size("X", link.matrix.x)
        return link._replace(units=link.own_units) if check_flag("standardize", self.standardize) else link

    def _fitted(
        self, posterior: RelationPosterior, links: list[Link], where: list[Layout], names: list[str]
    ) -> dict[str, Any]:
        """The attributes that follow from a posterior, fitted now or read from a file."""
        raise NotImplementedError

    def _set_fitted(self, result: Run, attributes: dict[str, Any]) -> None:
        """Set all attributes of a fit in one step; names of features of an earlier one go."""
        run = {
            "lower_bound_": float(result.trace["lower_bound"][-1]),
            "n_iter_": result.n_iter,
            "converged_": result.converged,
            "trace_": result.trace,
        }
        kept = {
            name: value for name, value in vars(self).items() if name not in ("feature_names_in_", "_entity_labels")
        }
        self.__dict__ = {**kept, **run, **attributes}

    def _set_attributes(self) -> None:
        """Set the attributes that follow from those in a file."""
        self.__dict__ = {**vars(self), **self._fitted(self.posterior_, self._links, self._where, self._names)}

    def _relation(self, m: int) -> Relation:
        """How rows and columns of matrix m meet; without data."""
        return relation_of(self._links[m].without_data(), m, self._where)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to an .npz that `tensorcep.load` reads; the training data are not part of it.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from tensorcep import BayesianPCA, load
        >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
        >>> X[0, 2] = np.nan
        >>> model = BayesianPCA(1, random_state=0).fit(X)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     again = load(f"{folder}/model.npz")
        ...
        >>> bool((again.reconstruct() == model.reconstruct()).all())
        True
        """
        check_is_fitted(self, "posterior_")
        write_relations(path, self, self._links)


def empty_relations(links: list[Link], where: list[Layout]) -> list[Relation]:
    """The relations of links, without data."""
    return [relation_of(link.without_data(), m, where) for m, link in enumerate(links)]


def scores_of(rows: Moments, rank: int, return_cov: bool) -> Any:
    """Means (n, K) of the components of some rows and, if asked, their covariances (n, K, K)."""
    components = rows.select(np.arange(rank))
    mean = components.mean.copy()
    if not return_cov:
        return mean
    return mean, np.broadcast_to(unpack(components.cov, rank), (len(mean), rank, rank)).copy()
