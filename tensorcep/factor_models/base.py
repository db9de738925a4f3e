"""What all factor models have: parameters, files, and what a fitted one tells of its matrices and components."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tensorcep.core import checks
from tensorcep.core.checks import check_choice, check_coords, check_int, fail_value
from tensorcep.core.fitted import Part
from tensorcep.core.loop import Run
from tensorcep.core.packing import unpack
from tensorcep.core.persist.models import StoredModel, fitted_record, write_model
from tensorcep.core.persist.records import Sized
from tensorcep.core.reporting import Summary
from tensorcep.core.settings import TakesMethod
from tensorcep.entries.labels import StoredLabels, stored_labels, why_not_stored
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.factor_models import results
from tensorcep.factor_models.fit import plan_run
from tensorcep.factor_models.layout import BIASES, Layout, Link, layouts, no_data, relation_of
from tensorcep.factor_models.problem import Relation, RelationPosterior, Units, units_of
from tensorcep.factor_models.results import CellPredictive, LabelPair
from tensorcep.factor_models.settings import ENGINES
from tensorcep.factor_models.side_information import Moments, variances
from tensorcep.factor_models.sites import OBSERVED

FEATURES_OF = "features of "  # a view's name follows
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


def read_attributes(stored: StoredModel, _own: Sequence[str] = ()) -> dict[str, Any]:
    """The fitted attributes that `save` wrote, by name; raises one of `UNREADABLE` if something is wrong."""
    fitted: FittedRelations = fitted_record(stored, FittedRelations)
    links = [Link(no_data(link.shape), *link[1:]) for link in fitted.links]
    _check_sense(fitted, links)
    where, labels = list(fitted.where), fitted.labels
    attributes: dict[str, Any] = {"posterior_": fitted.posterior, "_where": where, "_links": links}
    attributes |= {"n_iter_": fitted.n_iter, "converged_": fitted.converged, "trace_": fitted.trace}
    attributes["_names"] = list(fitted.names)
    attributes["lower_bound_"] = np.nan if fitted.lower_bound is None else fitted.lower_bound
    attributes["_entity_labels"] = [None] * len(where) if labels is None else list(labels.labels())
    if fitted.n_features_in is not None:
        rows = fitted.posterior.moments[0].mean.shape[0]
        attributes["n_samples_seen_"] = rows if fitted.n_samples_seen is None else fitted.n_samples_seen
        attributes |= {"_sums_of_rows": fitted.sums_of_rows, "n_features_in_": fitted.n_features_in}
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


@dataclass(eq=False, repr=False)
class FactorModel(TakesMethod, BaseEstimator):  # type: ignore[misc]
    """The constructors are made of the fields."""

    engines = ENGINES

    # Those that all models have are here, but for `n_components`, `method` and `ard`, which stand elsewhere in each.
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
        checks.check_random_state(self.random_state)

    def _checked_absent(self) -> str:
        return check_choice("absent", self.absent, ("missing", "zero"))

    def _measured(self, link: Link) -> Link:
        """The link with the units of its columns, where these are real and to be on their own scales."""
        real, standardize = link.kind.theta == "noise", checks.check_flag("standardize", self.standardize)
        if real:
            checks.check_size("X", link.matrix.x)  # values that are all so small that squares are 0 are refused
        return link._replace(units=units_of(link.matrix, link.cols_have_bias)) if real and standardize else link

    def _derived(self) -> dict[str, Any]:
        """The attributes that follow from a posterior, fitted now or read from a file."""
        raise NotImplementedError

    def _set_fitted(self, result: Run, links: list[Link], where: list[Layout], names: list[str], **more: Any) -> None:
        """Set all attributes of a fit, and some more, in one step; names of features of an earlier one go."""
        new, gone = copy.copy(self), ("feature_names_in_", "_entity_labels")
        new.__dict__ = {name: value for name, value in vars(self).items() if name not in gone}
        new.__dict__ |= {"posterior_": result.posterior, "_links": links, "_where": where, "_names": names}
        new.__dict__ |= {"n_iter_": result.n_iter, "converged_": result.converged, "trace_": result.trace}
        new._set_attributes()
        self.__dict__ = {**vars(new), "lower_bound_": float(result.trace["lower_bound"][-1]), **more}

    def _set_attributes(self) -> None:
        """Set the attributes that follow from those in a file."""
        self.__dict__ = {**vars(self), "n_components_": self._where[0].rank, **self._derived()}

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
        posterior, labels = self.posterior_, enumerate(self._entity_labels)
        sites = (own._replace(weight=NOTHING, target=NOTHING, psi=None, psi_var=None) for own in posterior.sites)
        shapes = [link.matrix.cells.shape for link in self._links]
        stored = [StoredLink((int(n), int(d)), *link[1:]) for link, (n, d) in zip(self._links, shapes, strict=True)]
        fitted = FittedRelations(
            posterior=posterior._replace(sites=tuple(sites)),
            where=tuple(self._where),
            links=tuple(stored),
            names=tuple(self._names),
            n_features_in=getattr(self, "n_features_in_", None),
            feature_names=tuple(str(name) for name in getattr(self, "feature_names_in_", ())),
            lower_bound=None if np.isnan(self.lower_bound_) else float(self.lower_bound_),
            n_iter=int(self.n_iter_),
            converged=bool(self.converged_),
            trace=self.trace_,
            labels=stored_labels([None if why_not_stored(own, k) else own for k, own in labels]),
            n_samples_seen=getattr(self, "n_samples_seen_", None),
            sums_of_rows=getattr(self, "_sums_of_rows", None),
        )
        write_model(path, self, fitted, read=read_attributes)

    @property
    def matrix_names_(self) -> list[str]:
        """What the matrices are called: views by their names, others by their two entities, or by their number."""
        check_is_fitted(self, "posterior_")
        if not self._names:
            return ["X"]
        said = [(self._names[link.row], self._names[link.col]) for link in self._links]
        return [col.removeprefix(FEATURES_OF) if col.startswith(FEATURES_OF) else f"{row} x {col}" for row, col in said]

    @property
    def n_chains_(self) -> int:
        """Chains whose draws the posterior holds; 0 of other methods."""
        check_is_fitted(self, "posterior_")
        return int(self.posterior_.draws is not None)

    @property
    def parts_(self) -> tuple[Part, ...]:
        """The matrices that were fitted: names of their rows and columns, their labels, shapes, and kinds of cells.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> part = BayesianPCA(1, random_state=0).fit(load_iris().data).parts_[0]
        >>> part.modes, part.shape, part.kind
        (['row', 'column'], (150, 4), 'values')
        """
        parts = []
        for name, link in zip(self.matrix_names_, self._links, strict=True):
            row, column = self._entity_names(link)
            modes = ["row" if row is None else row, "column" if column is None else column]
            labels, shape = (self._entity_labels[link.row], self._entity_labels[link.col]), link.matrix.cells.shape
            parts.append(Part(name, modes, labels, shape, OBSERVED[link.likelihood], link.limit))
        return tuple(parts)

    def variance_explained(self) -> pd.DataFrame:
        """What each component explains in each matrix: a row per matrix, a column per component.

        Of real data that are fitted on the scales of their columns (`standardize`) the mean share of a column's
        variance; of other data the share in what all components explain.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.variance_explained().shape
        (1, 1)
        """
        names, K, found = self.matrix_names_, self._where[0].rank, []
        for m, link in enumerate(self._links):
            whole = None if link.units is None else link.matrix.cells.shape[1]
            found.append(results.shares(self.posterior_, self._relation(m), K, whole))
        columns = pd.RangeIndex(K, name="component")
        return pd.DataFrame(np.stack(found), index=pd.Index(names, name="matrix"), columns=columns)

    @property
    def weights_(self) -> np.ndarray:
        """Sizes of the components whose rows and columns have norm 1: (K,), or (matrices, K) of several matrices.

        In the units of the data, of posterior means; the order is that of the components, by the variance they explain.
        """
        check_is_fitted(self, "posterior_")
        K, moments, found = self._where[0].rank, self.posterior_.moments, []
        for m in range(len(self._links)):
            relation = self._relation(m)
            sides = moments[relation.row], relation.in_units(moments[relation.col])
            found.append(np.prod([np.linalg.norm(side.mean[:, :K], axis=0) for side in sides], axis=0))
        return np.stack(found) if self._names else np.asarray(found[0])

    def components(self, matrix: Any = 0, coverage: float = 0.9) -> pd.DataFrame:
        """The loadings of a matrix's columns, as a tidy table, in the units of the data.

        A row per column of the matrix and component: feature, component, mean, sd, lower, upper.

        Parameters
        ----------
        matrix : name or position, default=0
        coverage : float, default=0.9
            Of the interval lower to upper.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris(as_frame=True).data)
        >>> model.components()["feature"].tolist()[0]
        'sepal length (cm)'
        """
        m = self._position(matrix)
        e = self._links[m].col
        labels, cols = self._entity_labels[e], self._relation(m).in_units(self.posterior_.moments[e])
        names = vars(self).get("feature_names_in_") if labels is None else labels.index
        return self._tidy(cols, "feature", names, coverage)

    def scores_frame(self, entity: Any = 0, coverage: float = 0.9) -> pd.DataFrame:
        """The components of an entity's rows (samples, users, ...), as a tidy table with their labels.

        A row per row of the entity and component: row, component, mean, sd, lower, upper.

        Parameters
        ----------
        entity : name or position, default=0
            Of a model of one matrix or of views 0, the rows.
        coverage : float, default=0.9
            Of the interval lower to upper.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.scores_frame().shape[0]
        150
        """
        check_is_fitted(self, "posterior_")
        names = self._names or ["rows", "columns"]
        e = names.index(check_choice("entity", entity, names)) if isinstance(entity, str) else entity
        e = check_int("entity", e, 0, len(names) - 1)
        labels = self._entity_labels[e]
        return self._tidy(self.posterior_.moments[e], "row", None if labels is None else labels.index, coverage)

    def _tidy(self, moments: Moments, name: str, known: Any, coverage: float) -> pd.DataFrame:
        """A line per row and component, rows by the names that are known."""
        z, K = float(ndtri(0.5 + 0.5 * checks.check_fraction("coverage", coverage))), self._where[0].rank
        mean, sd = moments.mean[:, :K], np.sqrt(np.broadcast_to(variances(moments), moments.mean.shape)[:, :K])
        rows = np.arange(len(mean)) if known is None or len(known) != len(mean) else np.asarray(known)
        table = {name: np.tile(rows, K), "component": np.repeat(np.arange(K), len(mean)), "mean": mean.T.ravel()}
        half = z * sd.T.ravel()
        ends = {"lower": table["mean"] - half, "upper": table["mean"] + half}
        return pd.DataFrame({**table, "sd": sd.T.ravel(), **ends})

    def predict_cells(self, X: Any, matrix: Any = 0, return_std: bool = False) -> Any:
        """Predictive means (n,) of some cells of a matrix that was fitted, observed or not.

        Parameters
        ----------
        X : table, SparseTensor or coordinates (n, 2)
            A table has a column of row labels and one of column labels, found by the names that they had in the fit, or
            by those of the relation's entities; in this order where they had none.
        matrix : name or position, default=0
        return_std : bool, default=False
            Also return the standard deviations of new observations.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> model.predict_cells([[0, 1], [3, 2]]).shape
        (2,)
        """
        m = self._position(matrix)
        mean, variance = results.predict_cells(self.posterior_, m, self._relation(m), self._cells_of(X, m))
        return (mean, np.sqrt(variance)) if return_std else mean

    def predictive(self, X: Any, part: Any = 0) -> CellPredictive:
        """The laws of new observations of some cells of a matrix, as models of tensors give them, too.

        They have `mean`, `sd`, `interval(coverage)`, `holds(y, coverage)` and `log_score(y)`.

        Parameters
        ----------
        X : table, SparseTensor or coordinates (n, 2)
            As in `predict_cells`.
        part : name or position, default=0
            The matrix.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> law = BayesianPCA(1, random_state=0).fit(load_iris().data).predictive([[0, 1], [3, 2]])
        >>> law.interval(0.9).shape
        (2, 2)
        """
        m = self._position(part)
        cells, relation, limit = self._cells_of(X, m), self._relation(m), self._links[m].limit
        mean, variance = results.predict_cells(self.posterior_, m, relation, cells)
        if limit is None:
            return CellPredictive(self._links[m].likelihood, mean, np.sqrt(variance))
        free, apart = results.predict_cells(self.posterior_, m, relation._replace(limit=None), cells)
        law = free, np.sqrt(apart), limit[cells[:, 1]]
        return CellPredictive(self._links[m].likelihood, mean, np.sqrt(variance), law)

    def latent_draws(self, X: Any, part: Any = 0) -> np.ndarray:
        """A sampler's latent values of some cells of a matrix, (1, draws, n); a ValueError where the method draws none.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, method="gibbs", max_iter=250, random_state=0).fit(load_iris().data)
        >>> model.latent_draws([[0, 1]]).shape[::2]
        (1, 1)
        """
        m, draws = self._position(part), self.posterior_.draws
        if draws is None:
            fail_value(f"latent_draws needs draws, but method {self.method!r} draws none; use method='gibbs'.")
        return results.latent_of_draws(draws, self._relation(m), self._cells_of(X, m))[None]

    def anomaly_score(self, X: Any, y: Any = None, part: Any = 0) -> pd.DataFrame:
        """How odd the observed cells of a matrix are: a row each, with the columns of both modes and

        value : what was observed
        mean, sd : of a new observation
        surprise : minus the log density or probability, in nats; of use to rank

        Parameters
        ----------
        X : matrix as in `fit`, or SparseTensor of some of its cells
        y : None
            The matrix brings its values.
        part : name or position, default=0

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> X = load_iris().data
        >>> BayesianPCA(1, random_state=0).fit(X).anomaly_score(X).columns.tolist()
        ['row', 'column', 'value', 'mean', 'sd', 'surprise']
        """
        known, tensor = self.parts_[self._position(part)], results.observed_cells(X)
        if y is not None:
            fail_value("y must be None: a matrix brings its values.")
        if tensor.shape != tuple(known.shape):
            fail_value(f"X must be the matrix of the fit, of shape {tuple(known.shape)}; got {tensor.shape}.")
        law = self.predictive(tensor.coords, part)
        places = zip(known.modes, known.labels, tensor.coords.T, strict=True)
        rows = {name: at if own is None else own.index.take(at) for name, own, at in places}
        said = {"mean": law.mean, "sd": law.sd, "surprise": -law.log_score(tensor.values)}
        return pd.DataFrame({**rows, "value": tensor.values, **said})

    def _cells_of(self, X: Any, m: int) -> np.ndarray:
        """Coordinates (n, 2) of cells of matrix m: a table of rows and columns, or a SparseTensor, or coordinates."""
        link = self._links[m]
        labels, shape = (self._entity_labels[link.row], self._entity_labels[link.col]), link.matrix.cells.shape
        if isinstance(X, SparseTensor):
            if all(found is None for found in X.labels):
                return check_coords(X.coords, shape, name="X", order=2)
            nameless = any(found is None or found.name is None for found in X.labels)
            X = X.to_pandas().iloc[:, :2]
            X = X.set_axis([0, 1], axis=1) if nameless else X
        if not isinstance(X, pd.DataFrame):
            return check_coords(X, shape, name="X", order=2)
        # Columns of a table are found by the names of the labels, or of the entities where the relation names them;
        # they are taken in order where neither is known, or where the table has no names.
        places = zip(columns_of_cells(X, labels, self._entity_names(link)), labels, strict=True)
        parts = [X.iloc[:, at].to_numpy() if known is None else known.rows(X.iloc[:, at]) for at, known in places]
        return check_coords(np.stack(parts, axis=1), shape, name="X")

    def _entity_names(self, link: Link) -> tuple[str | None, str | None]:
        """What a user called the two entities of a matrix; None where they have no such names."""
        return None, None

    def _position(self, matrix: Any) -> int:
        """Which matrix a name or a position is."""
        names = self.matrix_names_
        m = names.index(check_choice("matrix", matrix, names)) if isinstance(matrix, str) else matrix
        return check_int("matrix", m, 0, len(names) - 1)

    def summary(self, n_rows: int = 5) -> Summary:
        """What was fitted, what its components explain, and the features of the largest loadings.

        Printed it is text; a notebook shows it as HTML, and so does ``to_html()``.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from tensorcep import BayesianPCA
        >>> model = BayesianPCA(1, random_state=0).fit(load_iris().data)
        >>> "component" in str(model.summary())
        True
        """
        n_rows, explained = check_int("n_rows", n_rows), self.variance_explained()
        shapes = [link.matrix.cells.shape for link in self._links]
        said = [f"{name} {n} x {d}" for name, (n, d) in zip(self.matrix_names_, shapes, strict=True)]
        relations = [self._relation(m) for m in range(len(shapes))]
        limited = [f"{link.likelihood}{'' if link.limit is None else ' with a lower limit'}" for link in self._links]
        seconds = f", {float(np.sum(self.trace_['seconds'])):.2g} s" if "seconds" in self.trace_ else ""
        facts = {
            "model": f"{type(self).__name__}, {explained.shape[1]} components",
            "matrices": ", ".join(said),
            "likelihoods": ", ".join(limited),
            "sweeps": f"{self.n_iter_}, {'' if self.converged_ else 'not '}converged{seconds}",
            **results.noise_lines(self.posterior_, relations, self.matrix_names_),
            "health": results.health_line(self, relations),
        }
        weights = pd.DataFrame(np.atleast_2d(self.weights_), index=explained.index).T.reset_index(drop=True)
        tables = {"Variance explained": explained.T.reset_index()}
        tables["Weights of components of unit norm"] = weights.reset_index(names="component")
        for m, name in enumerate(self.matrix_names_):
            lines = []
            for r, own in self.components(m).groupby("component", sort=True):
                top = own.iloc[np.argsort(-own["mean"].abs().to_numpy(), kind="stable")[:n_rows]]
                each = zip(top["feature"], top["mean"], top["sd"], strict=True)
                lines.append({"component": r, "features": ", ".join(f"{f} {a:+.2g} ± {s:.1g}" for f, a, s in each)})
            tables[f"Largest loadings of {name}"] = pd.DataFrame(lines)
        return Summary(f"{type(self).__name__} of {', '.join(said)}", facts, tables)

    def _relation(self, m: int) -> Relation:
        """How rows and columns of matrix m of a fit meet; without data."""
        check_is_fitted(self, "posterior_")
        return relation_of(self._links[m].without_data(), m, self._where)


def scores_of(rows: Moments, rank: int, return_cov: bool) -> Any:
    """Means (n, K) of the components of some rows and, if asked, their covariances (n, K, K)."""
    components = rows.select(np.arange(rank))
    mean = components.mean.copy()
    if not return_cov:
        return mean
    return mean, np.broadcast_to(unpack(components.cov, rank), (len(mean), rank, rank)).copy()


def columns_of_cells(X: pd.DataFrame, labels: LabelPair, entities: tuple[str | None, str | None]) -> list[int]:
    """Where in a table the rows and the columns of cells are."""
    given = list(X.columns)
    names = [
        [name for name in (None if known is None else known.name, entity) if name is not None]
        for known, entity in zip(labels, entities, strict=True)
    ]
    found = [next((given.index(name) for name in own if given.count(name) == 1), -1) for own in names]
    if min(found) >= 0 and found[0] != found[1]:
        return found
    if len(given) < 2:
        fail_value(f"X must hold a column of rows and one of columns; got {given}.")
    if all(names) and not all(isinstance(name, (int, np.integer)) for name in given):
        wanted = ", ".join(repr(own[-1]) for own in names)
        got = f"which name the rows and the columns of the matrix; got {', '.join(map(repr, given))}"
        fail_value(f"X must have the columns {wanted}, {got}; rename or choose them.")
    return [0, 1]
