"""What a fitted factor model says of its components: tidy tables of loadings, and the variance that they explain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from tensorcep.core.checks import check_choice, check_fraction, check_int
from tensorcep.factor_models.layout import Layout, Link, relation_of
from tensorcep.factor_models.moments import variances
from tensorcep.factor_models.relations import Relation, RelationPosterior
from tensorcep.factor_models.summary import energies, shares

FEATURES_OF = "features of "


class ReadingFactors:
    """Tables of a fitted factor model of one matrix or several."""

    posterior_: RelationPosterior
    _links: list[Link]
    _where: list[Layout]
    _columns_of: dict[int, Any]

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
        """
        names, z = self.matrix_names_, float(ndtri(0.5 + 0.5 * check_fraction("coverage", coverage)))
        m = names.index(check_choice("matrix", matrix, names)) if isinstance(matrix, str) else matrix
        m = check_int("matrix", m, 0, len(names) - 1)
        link, K = self._given_links()[m], self._where[0].rank
        cols = self._without_data(m).in_units(self.posterior_.moments[link.col])
        mean, sd = cols.mean[:, :K], np.sqrt(np.broadcast_to(variances(cols), cols.mean.shape)[:, :K])
        known = self._features(m)
        features = np.arange(len(mean)) if known is None or len(known) != len(mean) else np.asarray(known)
        table = {
            "feature": np.tile(features, K),
            "component": np.repeat(np.arange(K), len(mean)),
            "mean": mean.T.ravel(),
        }
        half = z * sd.T.ravel()
        ends = {"lower": table["mean"] - half, "upper": table["mean"] + half}
        return pd.DataFrame({**table, "sd": sd.T.ravel(), **ends})

    def _given_links(self) -> list[Link]:
        check_is_fitted(self, "posterior_")
        return self._links

    def _without_data(self, m: int) -> Relation:
        return relation_of(self._links[m].without_data(), m, self._where)

    def _features(self, m: int) -> Any:
        """The names of a matrix's columns, where it had some."""
        labels = vars(self).get("labels_", (None, None))[1]
        if labels is not None:
            return labels.index
        return vars(self).get("_columns_of", {}).get(m, vars(self).get("feature_names_in_"))
