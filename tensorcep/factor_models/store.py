"""Saving and loading fitted factor models: one .npz of plain arrays with a JSON header, nothing of it pickled.

The posterior is stored, the training matrices are not.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tensorcep.core.files import read_archive, write_archive
from tensorcep.core.gammas import Gammas
from tensorcep.factor_models.layout import Layout, Link, no_data
from tensorcep.factor_models.moments import Moments
from tensorcep.factor_models.relations import RelationDraws, RelationPosterior, Sites
from tensorcep.factor_models.settings import params_of_file, plain_method

KIND = "tensorcep.factor_model"
VERSION = 1


def plain(value: Any) -> bool:
    """Whether JSON can hold a parameter."""
    if isinstance(value, (list, tuple)):
        return all(plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    return value is None or isinstance(value, (bool, int, float, str))


def write_relations(path: str | os.PathLike[str], model: Any, links: list[Link]) -> None:
    """Write a fitted model: class, parameters that JSON can hold, posterior, layout and trace."""
    posterior: RelationPosterior = model.posterior_
    arrays = _arrays_of(posterior, links)
    arrays.update({f"trace_{name}": values for name, values in model.trace_.items()})
    header = {
        "class": type(model).__name__,
        "params": {k: v for k, v in plain_method(model.get_params(deep=False)).items() if plain(v)},
        "diagonal": [moments.diagonal for moments in posterior.moments],
        "layouts": [[w.rank, w.one, [[m, c] for m, c in w.bias.items()]] for w in model._where],
        "links": [
            [
                link.row,
                link.col,
                link.likelihood,
                link.augmentation,
                link.bias,
                link.groups,
                list(link.matrix.cells.shape),
            ]
            for link in links
        ],
        "names": list(getattr(model, "_names", ())),
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names": [str(name) for name in getattr(model, "feature_names_in_", ())],
        "lower_bound": None if np.isnan(model.lower_bound_) else model.lower_bound_,
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "draws": posterior.draws is not None,
    }
    write_archive(path, KIND, VERSION, header, arrays)


def _arrays_of(posterior: RelationPosterior, links: list[Link]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for e, (moments, precisions) in enumerate(zip(posterior.moments, posterior.precisions, strict=True)):
        arrays.update({f"mean_{e}": moments.mean, f"cov_{e}": moments.cov})
        arrays.update({f"precision_{e}": precisions.mean, f"log_precision_{e}": precisions.log_mean})
    for m, sites in enumerate(posterior.sites):
        for name, found in (("noise", sites.noise), ("r", sites.r)):
            if found is not None:
                arrays[f"{name}_{m}"] = np.stack([found.mean, found.log_mean])
        if links[m].known_r is not None:
            arrays[f"known_r_{m}"] = np.asarray(links[m].known_r)
    if posterior.draws is not None:
        arrays.update({f"draws_{e}": rows for e, rows in enumerate(posterior.draws.rows)})
        for name, values in (("noise", posterior.draws.noise), ("r", posterior.draws.r)):
            arrays.update({f"draws_{name}_{m}": found for m, found in enumerate(values) if found is not None})
    return arrays


def read_relations(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Class name, parameters, and fitted attributes of what `write_relations` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is truncated, incomplete, of another kind, or of a newer version.
    """
    header, arrays = read_archive(path, KIND, VERSION)
    try:
        links = [_link(m, fields, arrays) for m, fields in enumerate(header["links"])]
        fitted = {
            "posterior_": _posterior(header, arrays, len(links)),
            "_where": [Layout(rank, one, dict(bias)) for rank, one, bias in header["layouts"]],
            "_links": links,
            "_names": header["names"],
            "lower_bound_": np.nan if header["lower_bound"] is None else header["lower_bound"],
            "n_iter_": header["n_iter"],
            "converged_": header["converged"],
            "trace_": {n.removeprefix("trace_"): a for n, a in arrays.items() if n.startswith("trace_")},
        }
        if header["n_features_in"] is not None:
            fitted["n_features_in_"] = header["n_features_in"]
        if header["feature_names"]:
            fitted["feature_names_in_"] = np.array(header["feature_names"], dtype=object)
        return header["class"], params_of_file(header["params"]), fitted
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"'{os.fspath(path)}' is not a complete model ({error}); save it again.") from error


def _link(m: int, fields: Any, arrays: dict[str, np.ndarray]) -> Link:
    row, col, likelihood, augmentation, bias, groups, (n, d) = fields
    return Link(no_data((int(n), int(d))), row, col, likelihood, augmentation, bias, groups, arrays.get(f"known_r_{m}"))


def _posterior(header: dict[str, Any], arrays: dict[str, np.ndarray], n_links: int) -> RelationPosterior:
    entities = range(len(header["diagonal"]))
    moments = tuple(Moments(arrays[f"mean_{e}"], arrays[f"cov_{e}"], header["diagonal"][e]) for e in entities)
    precisions = tuple(Gammas(arrays[f"precision_{e}"], arrays[f"log_precision_{e}"], 0.0) for e in entities)

    def gammas_of(name: str) -> Gammas | None:
        return Gammas(arrays[name][0], arrays[name][1], 0.0) if name in arrays else None

    nothing = np.zeros((1, 1))
    sites = tuple(Sites(nothing, nothing, gammas_of(f"noise_{m}"), gammas_of(f"r_{m}")) for m in range(n_links))
    draws = None
    if header["draws"]:
        rows = tuple(arrays[f"draws_{e}"] for e in entities)
        noise, r = (tuple(arrays.get(f"draws_{name}_{m}") for m in range(n_links)) for name in ("noise", "r"))
        draws = RelationDraws(rows, noise, r)
    return RelationPosterior(moments, precisions, sites, draws)
