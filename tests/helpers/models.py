"""Estimators with the settings of the CEP paper, whatever the defaults are: tests about these, and quick fits."""

from __future__ import annotations

from typing import Any

import tensorcep as tc
from tensorcep.cp.settings.names import SETTINGS

PAPER = {"rank": 8, "method": "cep", "prior": "fixed", "interactions": "cp", "max_iter": 200, "n_ensemble": 1}


def paper(cls: type, *rank: int, **given: Any) -> Any:
    """An estimator of the class with `PAPER`, no lower limit, and what is given: parameters, settings of its method."""
    limit = {"lower_limit": None} if issubclass(cls, tc.CPRegressor) else {}
    params = {name: PAPER[name] for name in PAPER if not (rank and name == "rank")} | limit | given
    return cls(*rank, **with_settings(cls, params))


def with_settings(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the class; those of its method's settings that it has go into a record of them."""
    names = cls().get_params()
    params = {name: value for name, value in given.items() if name in names}
    own = {name: value for name, value in given.items() if name not in names}
    if isinstance(params["method"], str) and params["method"] in SETTINGS:
        engine = SETTINGS[params["method"]]
        own = {name: value for name, value in own.items() if hasattr(engine, name)}
        params["method"] = engine(**own) if own else params["method"]
    return params
