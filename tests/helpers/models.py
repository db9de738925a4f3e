"""Estimators with the settings of the CEP paper, whatever the defaults are: tests about these, and quick fits."""

from __future__ import annotations

from typing import Any

import tensorcep as tc

PAPER = {"rank": 8, "method": "cep", "prior": "fixed", "interactions": "cp", "max_iter": 200, "n_ensemble": 1}


def paper(cls: type, *rank: int, **params: Any) -> Any:
    """An estimator of the class with `PAPER`, no lower limit, and what is given: its rank and other parameters."""
    limit = {"lower_limit": None} if issubclass(cls, tc.CPRegressor) else {}
    return cls(*rank, **{name: PAPER[name] for name in PAPER if not (rank and name == "rank")} | limit | params)
