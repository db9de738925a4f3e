"""Cases of files of models as version 0.2 wrote them, one of each kind: they are loaded, and predict what they did.

The files in `saved` stay as they are; ``python -m tests.golden --save`` wrote them, and writes those that are missing.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import tensorcep as tc
from tests.golden.cp_cases import FAMILIES, ROWS, answers, fitted, streamed
from tests.golden.data import cells, table, trials
from tests.golden.family_cases import of_other, other_models
from tests.golden.table import Arrays, case

FOLDER = Path(__file__).parent / "saved"
CP = (tc.CPRegressor, tc.CPClassifier, tc.CPCountRegressor, tc.CPOrdinalClassifier)
OF_CP: dict[str, tuple[str, Any]] = {
    "real-cep": ("real", tc.CEP(n_ensemble=2)),
    "real-laplace": ("real", "laplace"),
    "real-vmp": ("real", "vmp"),
    "real-wopt": ("real", "wopt"),
    "real-gibbs": ("real", tc.Gibbs(n_chains=2)),
    "limit-vmp": ("lower limit", "vmp"),
    "probit-cep": ("probit", "cep"),
    "logit-pg-vb": ("logit", "pg-vb"),
    "logit-pg-gibbs": ("logit", tc.PGGibbs(n_chains=2)),
    "poisson-vmp": ("poisson", "vmp"),
    "negbinomial-pg-vb": ("negbinomial", "pg-vb"),
    "binomial-pg-gibbs": ("binomial", tc.PGGibbs(n_chains=2)),
    "levels-gibbs": ("ordinal probit", tc.Gibbs(n_chains=2)),
    "levels-cep": ("ordinal probit", tc.CEP(n_ensemble=1)),
}


def models() -> dict[str, Any]:
    """A small fitted model of every kind, by the name of its file."""
    found: dict[str, Any] = {}
    for file, (name, method) in OF_CP.items():
        make, kind, params, _ = FAMILIES[name]
        given = {"n_trials": trials(140)} if name == "binomial" else {}
        found[file] = fitted(make, cells(kind), fit=given, method=method, **params)
    found["noise-by-mode"] = fitted(tc.CPRegressor, cells("real"), method="vmp", noise=1)
    found["logarithms"] = fitted(tc.CPRegressor, cells("positive"), method="vmp", power=0.0)
    found["zero-inflation"] = fitted(tc.CPCountRegressor, cells("holes"), method="vmp", zero_inflation=True)
    found["stream"] = streamed("real", {"method": "cep", "revisit": 30})[0]
    for what in ("features", "series", "graph", "local"):
        model = tc.CPRegressor(2, prior=ROWS[what], method="vmp", max_iter=6, random_state=0)
        found[f"rows-{what}"] = model.fit(table(), value="value")
    return found | {name.replace(" ", "-"): model for name, model in other_models().items()}


def save() -> list[str]:
    """Write the files that are missing; their names."""
    FOLDER.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {name: model for name, model in models().items() if not (FOLDER / f"{name}.npz").is_file()}
    for name, model in made.items():
        model.save(FOLDER / f"{name}.npz")
    return list(made)


def loaded(path: Path) -> Arrays:
    """What the model in a file answers."""
    model = tc.load(path)
    if not isinstance(model, CP):
        return of_other(model)
    asked = cells("real").asked if model.labels_[0] is None else table().drop(columns="value").iloc[:8]
    return answers(model, asked=asked)


for path in sorted(FOLDER.glob("*.npz")):
    case(f"file of 0.2/{path.stem}", path)(loaded)
