"""Saving and loading fitted models: one .npz of plain arrays with a JSON header; nothing in it is pickled."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from tensorcep._checks import check_shape, fail_value
from tensorcep._files import read_archive, write_archive
from tensorcep.labels import pack_labels, unpack_labels
from tensorcep.posterior import GammaNoise, Posterior

KIND = "tensorcep.model"
VERSION = 1


class StoredModel(NamedTuple):
    """What a model file holds: class name, parameters, and the fitted attributes by name."""

    class_name: str
    params: dict[str, Any]
    fitted: dict[str, Any]


def write_model(path: str | os.PathLike[str], model: Any) -> None:
    """Write a fitted CP estimator: class name, parameters that JSON can hold, posterior, trace and labels."""
    posterior: Posterior = model.posterior_
    arrays = {"Lam": posterior.Lam, "eta": posterior.eta, "seen": posterior.seen}
    arrays.update(unseen_mean=model._unseen_mean, unseen_cov=model._unseen_cov)
    arrays.update({f"trace_{name}": values for name, values in model.trace_.items()})
    header = {
        "class": type(model).__name__,
        "params": {k: _plain(v) for k, v in model.get_params(deep=False).items() if _is_plain(v)},
        "shape": list(posterior.shape),
        "rank": posterior.rank,
        "noise": None if posterior.noise is None else list(posterior.noise),
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "labels": [None if found is None else pack_labels(found, k, arrays) for k, found in enumerate(model.labels_)],
    }
    write_archive(path, KIND, VERSION, header, arrays)


def read_model(path: str | os.PathLike[str]) -> StoredModel:
    """Read what `write_model` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is truncated, incomplete, of another kind, or of a newer version.
    """
    header, arrays = read_archive(path, KIND, VERSION)
    try:
        posterior = Posterior(
            shape=check_shape(header["shape"]),
            rank=int(header["rank"]),
            Lam=arrays["Lam"],
            eta=arrays["eta"],
            noise=None if header["noise"] is None else GammaNoise(*header["noise"]),
            seen=arrays["seen"],
        )
        described = header["labels"]
        labels = tuple(None if item is None else unpack_labels(item, k, arrays) for k, item in enumerate(described))
        params = {k: tuple(v) if isinstance(v, list) else v for k, v in header["params"].items()}
        fitted = {
            "posterior_": posterior,
            "labels_": labels,
            "shape_": posterior.shape,
            "n_features_in_": len(posterior.shape),
            "n_iter_": header["n_iter"],
            "converged_": header["converged"],
            "trace_": {n.removeprefix("trace_"): a for n, a in arrays.items() if n.startswith("trace_")},
            "_unseen_mean": arrays["unseen_mean"],
            "_unseen_cov": arrays["unseen_cov"],
        }
        class_name = header["class"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"'{os.fspath(path)}' is not a complete model ({error}); save it again.") from error
    n_modes, n_rows, rank = len(posterior.shape), sum(posterior.shape), posterior.rank
    shapes = {
        "Lam": (n_rows, rank * (rank + 1) // 2),
        "eta": (n_rows, rank),
        "seen": (n_rows,),
        "unseen_mean": (n_modes, rank),
        "unseen_cov": (n_modes, rank, rank),
    }
    if len(labels) != n_modes or any(arrays[name].shape != shape for name, shape in shapes.items()):
        fail_value(f"'{os.fspath(path)}' holds arrays that do not fit its shape {posterior.shape}; save it again.")
    return StoredModel(class_name, params, fitted)


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):  # not a Prior, which is a tuple too
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, np.integer, np.floating))


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
