"""What a file holds of a fitted factor model: the posterior, not the training matrices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_flag, check_random_state, check_size
from tensorcep.core.loop import Run
from tensorcep.core.packing import unpack
from tensorcep.core.persist.models import StoredModel, fitted_record, write_model
from tensorcep.core.persist.records import Sized
from tensorcep.core.settings import TakesMethod
from tensorcep.entries.labels import StoredLabels, stored_labels, why_not_stored
from tensorcep.factor_models.fit import plan_run
from tensorcep.factor_models.layout import BIASES, Layout, Link, empty_relations, layouts, no_data
from tensorcep.factor_models.problem import Relation, RelationPosterior, Units, units_of
from tensorcep.factor_models.results import ReadingFactors
from tensorcep.factor_models.settings import ENGINES
from tensorcep.factor_models.side_information import Moments, variances

NOTHING = np.zeros((1, 1))
# What numbers of rows, and of the units of columns, may reach: squares of their products do not overflow.
LARGEST_ROW, LARGEST_UNIT = 1e70, 1e150


class StoredLink(NamedTuple):
    """A `Link` with the shape of its matrix in place of the matrix."""

    shape: tuple[int, int]
    row: int
    col: int
    likelihood: str
    augmentation: str
    bias: str
    groups: str
    known_r: Annotated[np.ndarray, Sized("groups")] | None
    units: Units | None = None
    limit: Annotated[np.ndarray, Sized("_")] | None = None


class FittedRelations(NamedTuple):
    """What was fitted: the attributes of a factor model, without their last underscore."""

    posterior: RelationPosterior
    where: tuple[Layout, ...]
    links: tuple[StoredLink, ...]
    names: tuple[str, ...]
    n_features_in: int | None
    feature_names: tuple[str, ...]
    lower_bound: float | None
    n_iter: int
    converged: bool
    trace: dict[str, Annotated[np.ndarray, Sized("_", "n")]]
    labels: StoredLabels | None = None
    n_samples_seen: int | None = None
    sums_of_rows: Annotated[np.ndarray, Sized("_ _")] | None = None


def write_relations(path: str | os.PathLike[str], model: Any, links: list[Link]) -> None:
    """Write a fitted model: class, parameters that JSON can hold, posterior, layout and trace."""
    sites = (own._replace(weight=NOTHING, target=NOTHING, psi=None, psi_var=None) for own in model.posterior_.sites)
    shapes = [link.matrix.cells.shape for link in links]
    stored = [StoredLink((int(n), int(d)), *link[1:]) for link, (n, d) in zip(links, shapes, strict=True)]
    fitted = FittedRelations(
        posterior=model.posterior_._replace(sites=tuple(sites)),
        where=tuple(model._where),
        links=tuple(stored),
        names=tuple(model._names),
        n_features_in=getattr(model, "n_features_in_", None),
        feature_names=tuple(str(name) for name in getattr(model, "feature_names_in_", ())),
        lower_bound=None if np.isnan(model.lower_bound_) else float(model.lower_bound_),
        n_iter=int(model.n_iter_),
        converged=bool(model.converged_),
        trace=model.trace_,
        labels=stored_labels([None if why_not_stored(own, k) else own for k, own in enumerate(model._entity_labels)]),
        n_samples_seen=getattr(model, "n_samples_seen_", None),
        sums_of_rows=getattr(model, "_sums_of_rows", None),
    )
    write_model(path, model, fitted, read=read_attributes)


def read_attributes(stored: StoredModel, _own: Sequence[str] = ()) -> dict[str, Any]:
    """The fitted attributes that `write_relations` wrote, by name; raises one of `UNREADABLE` if something is wrong."""
    fitted: FittedRelations = fitted_record(stored, FittedRelations)
    links = [Link(no_data(link.shape), *link[1:]) for link in fitted.links]
    _check_sense(fitted, links)
    attributes = {
        "posterior_": fitted.posterior,
        "_where": list(fitted.where),
        "_links": links,
        "_names": list(fitted.names),
        "lower_bound_": np.nan if fitted.lower_bound is None else fitted.lower_bound,
        "n_iter_": fitted.n_iter,
        "converged_": fitted.converged,
        "trace_": fitted.trace,
        "_entity_labels": [None] * len(fitted.where) if fitted.labels is None else list(fitted.labels.labels()),
    }
    if fitted.n_features_in is not None:
        rows = fitted.posterior.moments[0].mean.shape[0]
        attributes["n_samples_seen_"] = rows if fitted.n_samples_seen is None else fitted.n_samples_seen
        attributes["_sums_of_rows"] = fitted.sums_of_rows
        attributes["n_features_in_"] = fitted.n_features_in
    if fitted.feature_names:
        attributes["feature_names_in_"] = np.array(fitted.feature_names, dtype=object)
    return attributes


def _check_sense(fitted: FittedRelations, links: list[Link]) -> None:
    """Refuse what has the right types and is no model: entities of other sizes, negative variances and precisions."""
    posterior = fitted.posterior
    sizes = [moments.mean.shape for moments in posterior.moments]
    if [own.size for own in fitted.where] != [C for _, C in sizes]:
        raise ValueError("the moments do not fit the layout of their coordinates")
    if any(own != layouts(links, len(sizes), own.rank)[e] for e, own in enumerate(fitted.where)):
        raise ValueError("the layout of the coordinates does not fit the matrices")
    if any((sizes[link.row][0], sizes[link.col][0]) != link.shape for link in fitted.links):
        raise ValueError("the moments do not fit the shapes of the matrices")
    if fitted.sums_of_rows is not None and fitted.sums_of_rows.shape != (sizes[0][1], sizes[0][1]):
        raise ValueError("the sums of the rows do not fit their coordinates")
    if len(fitted.links) == 1 and fitted.n_features_in not in (None, fitted.links[0].shape[1]):
        raise ValueError("the number of features is not that of the matrix")
    named = [] if fitted.labels is None else fitted.labels.labels()
    if any(own is not None and len(own) != n for own, (n, _) in zip(named, sizes, strict=False)):
        raise ValueError("the labels are not as many as the rows of their entity")
    if any(variances(moments).min() < 0.0 for moments in posterior.moments):
        raise ValueError("a variance is negative")
    learned = [*posterior.precisions, *(own.noise for own in posterior.sites), *(own.r for own in posterior.sites)]
    if any(own is not None and not (own.mean > 0.0).all() for own in learned):
        raise ValueError("a precision or dispersion is not positive")
    rows = [part for moments in posterior.moments for part in moments[:2]]
    if any(not float(np.abs(part).max(initial=0.0)) <= LARGEST_ROW for part in rows):
        raise ValueError("its rows are so large that predictions would overflow")
    for centre, scale in (link.units for link in fitted.links if link.units is not None):
        if not ((scale > 1.0 / LARGEST_UNIT).all() and (np.maximum(scale, np.abs(centre)) < LARGEST_UNIT).all()):
            raise ValueError("the units of its columns are not positive, or so large that predictions would overflow")


# What all factor models share: parameters in plain words, and a fit in three steps: plan, run, set.


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
        check_choice("bias", self.bias, BIASES)
        self._checked_absent()
        check_random_state(self.random_state)

    def _checked_absent(self) -> str:
        return check_choice("absent", self.absent, ("missing", "zero"))

    def _measured(self, link: Link) -> Link:
        """The link with the units of its columns, where these are real and to be on their own scales.

        Without column biases they are not centred. Values that are all so small that squares are 0 are refused.
        """
        if link.kind.theta == "noise":
            check_size("X", link.matrix.x)
        if not check_flag("standardize", self.standardize) or link.kind.theta != "noise":
            return link
        return link._replace(units=units_of(link.matrix, link.cols_have_bias))

    def _derived(
        self, posterior: RelationPosterior, relations: list[Relation], rank: int, names: list[str]
    ) -> dict[str, Any]:
        """The attributes that follow from a posterior, fitted now or read from a file."""
        raise NotImplementedError

    def _set_fitted(
        self, result: Run, links: list[Link], where: list[Layout], names: list[str], more: dict[str, Any]
    ) -> None:
        """Set all attributes of a fit, and some more, in one step; names of features of an earlier one go."""
        kept = {
            name: value for name, value in vars(self).items() if name not in ("feature_names_in_", "_entity_labels")
        }
        self.__dict__ = {
            **kept,
            "lower_bound_": float(result.trace["lower_bound"][-1]),
            "n_iter_": result.n_iter,
            "converged_": result.converged,
            "trace_": result.trace,
            **self._attributes(result.posterior, links, where, names),
            **more,
        }

    def _attributes(
        self, posterior: RelationPosterior, links: list[Link], where: list[Layout], names: list[str]
    ) -> dict[str, Any]:
        K, record = where[0].rank, {"posterior_": posterior, "_links": links, "_where": where, "_names": names}
        return {**record, "n_components_": K, **self._derived(posterior, empty_relations(links, where), K, names)}

    def _set_attributes(self) -> None:
        """Set the attributes that follow from those in a file."""
        self.__dict__ = {**vars(self), **self._attributes(self.posterior_, self._links, self._where, self._names)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to an .npz that `tensorcep.load` reads; the training data are not part of it.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA, load
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     again = load(f"{folder}/model.npz")
        ...
        >>> bool((again.reconstruct() == model.reconstruct()).all())
        True
        """
        check_is_fitted(self, "posterior_")
        write_relations(path, self, self._links)


def scores_of(rows: Moments, rank: int, return_cov: bool) -> Any:
    """Means (n, K) of the components of some rows and, if asked, their covariances (n, K, K)."""
    components = rows.select(np.arange(rank))
    mean = components.mean.copy()
    if not return_cov:
        return mean
    return mean, np.broadcast_to(unpack(components.cov, rank), (len(mean), rank, rank)).copy()
