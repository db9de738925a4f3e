"""`row_prior` of factor models: what is known of the rows, checked before any work, and told after a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tensorcep.core.checks import fail_value
from tensorcep.entries.labels import Labels
from tensorcep.factor_models.known_rows import KnownRows
from tensorcep.factor_models.layout import Link
from tensorcep.factor_models.read import Matrix
from tensorcep.factor_models.relations import RelationPosterior
from tensorcep.priors.features import Features, Mode, designed, warn_of_rows_without
from tensorcep.priors.regression import MOST_DIRECT
from tensorcep.priors.series import Series, clock


def check_row_prior(given: Any, method: str, link: Link) -> None:
    """Refuse what cannot be known of rows, or not beside other parameters.

    Raises
    ------
    ValueError
    """
    if given is None:
        return
    if not isinstance(given, (Features, Series)):
        fail_value(f"row_prior must be None, a tensorcep.Features or a tensorcep.Series; got {given!r}.")
    what = type(given).__name__
    if method != "vb":
        fail_value(f"method {method!r} cannot take row_prior={what}(...); use method='vb'.")
    if link.rows_have_bias:
        fail_value(f"row_prior={what}(...) is of the components alone; got bias={link.bias!r}; use 'column' or 'none'.")
    if isinstance(given, Series) and given.kind == "rw":
        fail_value("the components of row_prior=Series(...) have variance 1, a random walk has none; use kind='ou'.")


def known_rows(given: Any, labels: Labels | None, matrices: Sequence[Matrix]) -> tuple[KnownRows | None, ...]:
    """What is known of the rows of matrices, which have them and these labels in common; nothing where that is nothing.

    There is an item for the rows, which are the first entity, and one for the columns of each matrix.

    Raises
    ------
    ValueError, TypeError
        If features or times do not fit the rows.
    """
    if given is None:
        return ()
    n, others = matrices[0].cells.shape[0], (None,) * len(matrices)
    mode, seen = Mode("rows", labels, n), np.any([matrix.row_counts() > 0.0 for matrix in matrices], axis=0)
    if isinstance(given, Series):
        return KnownRows(clock(given, mode), seen), *others
    design, found = designed(given, mode)
    if found.size > n:
        fail_value(f"row_prior names {found.size - n} rows that X does not have; add them to X, with missing cells.")
    if design.n_features > MOST_DIRECT:
        fail_value(f"row_prior takes at most {MOST_DIRECT} features of rows; got {design.n_features}; leave some out.")
    warn_of_rows_without(mode, design.described, seen)
    return KnownRows(design, seen), *others


def refuse_rows_alone(posterior: RelationPosterior) -> None:
    """Refuse rows by themselves where the prior of rows depends on what else is known of them.

    Raises
    ------
    ValueError
    """
    if posterior.laws:
        fail_value(
            "rows beside those of the fit have no features and no place in time here: put them into the X of fit, "
            "without cells if they have none, where a row_prior predicts them."
        )


def told_of_rows(posterior: RelationPosterior) -> dict[str, Any]:
    """Fitted attributes that say how rows depend on what is known of them; None where that is not known."""
    law = posterior.laws[0] if posterior.laws else None
    if law is None:
        return {"feature_effects_": None, "lengths_": None}
    if not law.names:
        return {"feature_effects_": None, "lengths_": law.lengths[0].copy()}
    F, K = law.coef.shape
    table = pd.DataFrame(
        {
            "feature": np.repeat(np.array(law.names, dtype=object), K),
            "component": np.tile(np.arange(K), F),
            "mean": law.coef.ravel(),
            "sd": law.sd.ravel(),
        }
    )
    order = np.argsort(-(table["mean"].abs() / table["sd"]).to_numpy(), kind="stable")
    return {"feature_effects_": table.iloc[order].reset_index(drop=True), "lengths_": None}
