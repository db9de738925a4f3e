"""What a fitted factor model says of its components: tidy tables of loadings, and the variance that they explain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_fraction, check_int
from tensorcep.core.reporting import Summary
from tensorcep.entries.labels import Labels
from tensorcep.factor_models.entity_labels import cells_of
from tensorcep.factor_models.health import health_line, noise_lines, sweeps_line
from tensorcep.factor_models.layout import Layout, Link, relation_of
from tensorcep.factor_models.moments import Moments, variances
from tensorcep.factor_models.predict import latent_of_draws, predict_cells
from tensorcep.factor_models.relations import Relation, RelationPosterior
from tensorcep.factor_models.summary import energies, shares

FEATURES_OF = "features of "


class ReadingFactors:
    """Tables of a fitted factor model of one matrix or several."""

    posterior_: RelationPosterior
    _links: list[Link]
    _where: list[Layout]
    _entity_labels: list[Labels | None]

    @property
    def matrix_names_(self) -> list[str]:
        """What the matrices are called: views by their names, others by their two entities, or by their number."""
        check_is_fitted(self, "posterior_")
        names = list(getattr(self, "_names", []))
        if not names:
            return ["X"]
        said = [(names[link.row], names[link.col]) for link in self._links]
        return [col.removeprefix(FEATURES_OF) if col.startswith(FEATURES_OF) else f"{row} x {col}" for row, col in said]

    def variance_explained(self) -> pd.DataFrame:
        """What each component explains in each matrix: a row per matrix, a column per component.

        Of real data that are fitted on the scales of their columns (`standardize`) the mean share of a column's
        variance; of other data the share in what all components explain.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.variance_explained().index.tolist()
        ['a', 'b']
        """
        found = []
        for m, link in enumerate(self._given_links()):
            relation, K = self._without_data(m), self._where[0].rank
            if link.units is not None:
                energy = energies(self.posterior_, relation._replace(units=None), K)
                found.append(energy / link.matrix.cells.shape[1])
            else:
                found.append(shares(self.posterior_, relation, K))
        columns = pd.RangeIndex(len(found[0]), name="component")
        return pd.DataFrame(np.stack(found), index=pd.Index(self.matrix_names_, name="matrix"), columns=columns)

    @property
    def weights_(self) -> np.ndarray:
        """Sizes of the components whose rows and columns have norm 1: (K,), or (matrices, K) of several matrices.

        In the units of the data, of posterior means; the order is that of the components, by the variance they explain.
        """
        check_is_fitted(self, "posterior_")
        K, moments, found = self._where[0].rank, self.posterior_.moments, []
        for m in range(len(self._links)):
            relation = self._without_data(m)
            sides = moments[relation.row], relation.in_units(moments[relation.col])
            found.append(np.prod([np.linalg.norm(side.mean[:, :K], axis=0) for side in sides], axis=0))
        return np.stack(found) if getattr(self, "_names", []) else np.asarray(found[0])

    def components(self, matrix: Any = 0, coverage: float = 0.9) -> pd.DataFrame:
        """The loadings of a matrix's columns, as a tidy table, in the units of the data.

        Parameters
        ----------
        matrix : name or position, default=0
        coverage : float, default=0.9
            Of the interval lower to upper.

        Returns
        -------
        DataFrame
            A row per column of the matrix and component: feature, component, mean, sd, lower, upper.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.components("b").shape[0]
        2
        """
        m = self._position(matrix)
        cols = self._without_data(m).in_units(self.posterior_.moments[self._given_links()[m].col])
        return self._tidy(cols, "feature", self._features(m), coverage)

    def scores_frame(self, entity: Any = 0, coverage: float = 0.9) -> pd.DataFrame:
        """The components of an entity's rows (samples, users, ...), as a tidy table with their labels.

        Parameters
        ----------
        entity : name or position, default=0
            Of a model of one matrix or of views 0, the rows.
        coverage : float, default=0.9
            Of the interval lower to upper.

        Returns
        -------
        DataFrame
            A row per row of the entity and component: row, component, mean, sd, lower, upper.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.scores_frame().shape[0]
        20
        """
        check_is_fitted(self, "posterior_")
        names = list(getattr(self, "_names", [])) or ["rows", "columns"]
        e = names.index(check_choice("entity", entity, names)) if isinstance(entity, str) else entity
        e = check_int("entity", e, 0, len(names) - 1)
        labels = self._entity_labels[e]
        return self._tidy(self.posterior_.moments[e], "row", None if labels is None else labels.index, coverage)

    def _tidy(self, moments: Moments, name: str, known: Any, coverage: float) -> pd.DataFrame:
        """A line per row and component, rows by the names that are known."""
        z, K = float(ndtri(0.5 + 0.5 * check_fraction("coverage", coverage))), self._where[0].rank
        mean, sd = moments.mean[:, :K], np.sqrt(np.broadcast_to(variances(moments), moments.mean.shape)[:, :K])
        rows = np.arange(len(mean)) if known is None or len(known) != len(mean) else np.asarray(known)
        table = {
            name: np.tile(rows, K),
            "component": np.repeat(np.arange(K), len(mean)),
            "mean": mean.T.ravel(),
        }
        half = z * sd.T.ravel()
        ends = {"lower": table["mean"] - half, "upper": table["mean"] + half}
        return pd.DataFrame({**table, "sd": sd.T.ravel(), **ends})

    def predict_cells(self, X: Any, matrix: Any = 0, return_std: bool = False) -> Any:
        """Predictive means of some cells of a matrix that was fitted, observed or not.

        Parameters
        ----------
        X : table, SparseTensor or coordinates (n, 2)
            A table has a column of row labels and one of column labels, found by the names that they had in the fit, or
            by those of the relation's entities; in this order where they had none.
        matrix : name or position, default=0
        return_std : bool, default=False
            Also return the standard deviations of new observations.

        Returns
        -------
        ndarray (n,), or a pair of them

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> model.predict_cells([[0, 1], [3, 2]], matrix="a").shape
        (2,)
        """
        m = self._position(matrix)
        cells = self._cells_of(X, m)
        mean, variance = predict_cells(self.posterior_, m, self._without_data(m), cells)
        return (mean, np.sqrt(variance)) if return_std else mean

    def _latent_draws(self, X: Any, matrix: Any = 0) -> np.ndarray:
        """A sampler's latent values of some cells of a matrix, (1, draws, n)."""
        m, draws = self._position(matrix), self.posterior_.draws
        if draws is None:
            raise TypeError("the posterior has no draws")
        return latent_of_draws(draws, self._without_data(m), self._cells_of(X, m))[None]

    def _cells_of(self, X: Any, m: int) -> np.ndarray:
        """Coordinates (n, 2) of cells of matrix m."""
        link = self._given_links()[m]
        labels = self._entity_labels[link.row], self._entity_labels[link.col]
        return cells_of(X, labels, link.matrix.cells.shape, self._entity_names(link))

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
        >>> import numpy as np
        >>> from tensorcep import GroupFactorAnalysis
        >>> scores = np.linspace(-1, 1, 20)[:, None] + 0.1 * np.cos(np.arange(20))[:, None]
        >>> noise = 0.1 * np.sin(np.arange(40)).reshape(20, 2)
        >>> views = {"a": scores @ [[1.0, 2.0, -1.0]], "b": scores @ [[-1.0, 1.0]] + noise}
        >>> model = GroupFactorAnalysis(1, random_state=0, tol=1e-2).fit(views)
        >>> "component" in str(model.summary())
        True
        """
        n_rows, explained = check_int("n_rows", n_rows), self.variance_explained()
        shapes = [link.matrix.cells.shape for link in self._given_links()]
        said = [f"{name} {n} x {d}" for name, (n, d) in zip(self.matrix_names_, shapes, strict=True)]
        relations = [self._without_data(m) for m in range(len(shapes))]
        limited = [f"{link.likelihood}{'' if link.limit is None else ' with a lower limit'}" for link in self._links]
        facts = {
            "model": f"{type(self).__name__}, {explained.shape[1]} components",
            "matrices": ", ".join(said),
            "likelihoods": ", ".join(limited),
            "sweeps": sweeps_line(self),
            **noise_lines(self.posterior_, relations, self.matrix_names_),
            "health": health_line(self, relations),
        }
        weights = pd.DataFrame(np.atleast_2d(self.weights_), index=explained.index).T.reset_index(drop=True)
        tables = {
            "Variance explained": explained.T.reset_index(),
            "Weights of components of unit norm": weights.reset_index(names="component"),
        }
        for m, name in enumerate(self.matrix_names_):
            tables[f"Largest loadings of {name}"] = self._largest(m, n_rows)
        return Summary(f"{type(self).__name__} of {', '.join(said)}", facts, tables)

    def _largest(self, m: int, n_rows: int) -> pd.DataFrame:
        """A row per component: its features of the largest loadings, with their standard deviations."""
        lines = []
        for r, own in self.components(m).groupby("component", sort=True):
            top = own.iloc[np.argsort(-own["mean"].abs().to_numpy(), kind="stable")[:n_rows]]
            each = zip(top["feature"], top["mean"], top["sd"], strict=True)
            lines.append({"component": r, "features": ", ".join(f"{f} {a:+.2g} ± {s:.1g}" for f, a, s in each)})
        return pd.DataFrame(lines)

    def _given_links(self) -> list[Link]:
        check_is_fitted(self, "posterior_")
        return self._links

    def _without_data(self, m: int) -> Relation:
        return relation_of(self._links[m].without_data(), m, self._where)

    def _features(self, m: int) -> Any:
        """The names of a matrix's columns, where it had some."""
        labels = self._entity_labels[self._links[m].col]
        return vars(self).get("feature_names_in_") if labels is None else labels.index
