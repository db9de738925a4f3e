"""What the estimators of several matrices share: checks of the views, fitting, and what is kept."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from tensorcep.core.checks import check_choice, check_int, check_random_state, fail_value
from tensorcep.entries.labels import Labels
from tensorcep.factor_models.base import FactorModel, empty_relations
from tensorcep.factor_models.cells import DenseCells
from tensorcep.factor_models.components import check_components, fit_components
from tensorcep.factor_models.entity_labels import by_entity, labels_of
from tensorcep.factor_models.fit import check_links, plan_run
from tensorcep.factor_models.kinds import augmentation_of, kind_of
from tensorcep.factor_models.known_rows import KnownRows
from tensorcep.factor_models.layout import BIASES, Layout, Link
from tensorcep.factor_models.limits import limits_of
from tensorcep.factor_models.predict import predict_training
from tensorcep.factor_models.read import Matrix, as_array, read_matrix
from tensorcep.factor_models.relations import RelationPosterior
from tensorcep.factor_models.summary import by_energy, energies, shares

# A component is active in a matrix where it explains this share of the variance that all of them explain there.
ACTIVE_SHARE = 1e-2


@dataclass(eq=False, repr=False)
class BaseRelations(FactorModel):
    """Several matrices whose rows and columns are shared entities."""

    _: KW_ONLY
    lower_limit: Any = None

    def _fit_relations(self, matrices: Any, relations: list[tuple[str, str, str]], fixed: tuple[str, ...]) -> Any:
        """Fit; entities in `fixed` have unit prior precisions, the components of others have learned ones."""
        plan = plan_run(self)
        rank = check_components(self.n_components)
        names = list(dict.fromkeys(name for row, col, _ in relations for name in (row, col)))
        links = self._planned_links(matrices, relations, names)
        check_links(plan, links)
        sides = [(link.row, link.col) for link in links]
        labels = by_entity([labels_of(X) for X in matrices], sides, names)
        sizes = _entity_sizes(links, names)
        learned = [bool(self.ard) and name not in fixed for name in names]
        known = self._known_rows(plan.method.name, links, labels)
        rng = check_random_state(self.random_state)
        result, posterior, where, rank = fit_components(plan, links, sizes, rank, learned, rng, "random", known)
        drawn = empty_relations(links, where)
        energy = sum((shares(posterior, relation, rank) for relation in drawn), np.zeros(rank))
        posterior = by_energy(posterior, energy)
        self._set_fitted(result, {**self._fitted(posterior, links, where, names), "_entity_labels": labels})
        return self

    def _known_rows(self, method: str, links: list[Link], labels: list[Labels | None]) -> tuple[KnownRows | None, ...]:
        """What is known of the rows of each entity beside their cells; nothing where that is nothing."""
        return ()

    def _planned_links(self, matrices: Any, relations: list[tuple[str, str, str]], names: list[str]) -> list[Link]:
        """How every matrix is modelled, as the parameters say."""
        bias = check_choice("bias", self.bias, BIASES)
        given = [self._matrix(matrices[m], likelihood, m) for m, (_, _, likelihood) in enumerate(relations)]
        shapes = [
            (matrix.cells.shape[1], likelihood) for matrix, (_, _, likelihood) in zip(given, relations, strict=True)
        ]
        limits = limits_of(self.lower_limit, shapes)
        return [
            self._measured(
                Link(
                    given[m],
                    names.index(row),
                    names.index(col),
                    likelihood,
                    augmentation_of(likelihood),
                    bias=bias,
                    groups=self._groups(likelihood),
                    limit=limits[m],
                )
            )
            for m, (row, col, likelihood) in enumerate(relations)
        ]

    def _groups(self, likelihood: str) -> str:
        return "column" if likelihood == "negbinomial" else "all"

    def _matrix(self, X: Any, likelihood: str, m: int) -> Matrix:
        kind = kind_of(likelihood, augmentation_of(likelihood))
        absent = self._checked_absent()
        X = check_array(
            as_array(X, kind.check, absent, f"matrix {m}"),
            accept_sparse=["csr", "csc", "coo"],
            dtype=np.float64,
            order="C",
            ensure_all_finite="allow-nan",
            input_name=f"matrix {m}",
        )
        return read_matrix(X, kind.check, absent, f"matrix {m}")

    def _fitted(
        self, posterior: RelationPosterior, links: list[Link], where: list[Layout], names: list[str]
    ) -> dict[str, Any]:
        K = where[0].rank
        relations = empty_relations(links, where)
        named = list(zip(names, posterior.moments, posterior.precisions, strict=True))
        noise = [
            None if sites.noise is None else 1.0 / relation.noise_in_units(sites.noise.mean)
            for sites, relation in zip(posterior.sites, relations, strict=True)
        ]
        return {
            "n_components_": K,
            "posterior_": posterior,
            "_links": links,
            "_where": where,
            "_names": names,
            "factors_": {name: moments.mean[:, :K].copy() for name, moments, _ in named},
            "relevance_": {name: 1.0 / precision.mean[:K] for name, _, precision in named},
            "explained_variance_": np.stack([energies(posterior, relation, K) for relation in relations]),
            "active_": np.stack([shares(posterior, relation, K) for relation in relations]) > ACTIVE_SHARE,
            "noise_variance_": noise,
        }

    def reconstruct(self, m: int) -> np.ndarray:
        """Predictive means of all cells of training matrix m, observed or not.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.reconstruct(1).shape
        (20, 2)
        """
        check_is_fitted(self, "posterior_")
        return predict_training(self.posterior_, self._number(m), self._relation(m))[0]

    def predict_missing(self, m: int, return_std: bool = False) -> Any:
        """Training matrix m with its missing cells replaced by their predictive means.

        With `return_std`, also the predictive standard deviations of all cells, 0 where observed.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.predict_missing(0).shape
        (20, 3)
        """
        check_is_fitted(self, "posterior_")
        mean, variance = predict_training(self.posterior_, self._number(m), self._relation(m))
        matrix = self._links[m].matrix
        if isinstance(matrix.cells, DenseCells) and matrix.x.shape != mean.shape:
            fail_value("a model that was loaded from a file does not hold its training matrices; use reconstruct.")
        return matrix.filled_with(mean, variance) if return_std else matrix.filled(mean)

    def _number(self, m: int) -> int:
        return check_int("m", m, 0, len(self._links) - 1)


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
