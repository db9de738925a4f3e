"""Saving and loading fitted models: one .npz of plain arrays with a JSON header; nothing in it is pickled."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tensorcep.core.belief import Dispersion, Draws, GammaNoise, Mixture, ModePrior, PointEstimate, Posterior, Result
from tensorcep.core.checks import check_shape, fail_value
from tensorcep.core.files import read_archive, write_archive
from tensorcep.core.store import KIND, VERSION, StoredModel, plain, read_attributes
from tensorcep.cp.settings.names import plain_params
from tensorcep.cp.stream.adf import pack_stream, unpack_stream
from tensorcep.entries.labels import pack_labels, unpack_labels


def write_model(path: str | os.PathLike[str], model: Any, extra: dict[str, Any] | None = None) -> None:
    """Write a fitted CP estimator: class name, parameters that JSON can hold, posterior, trace and labels.

    A model that learns from a stream brings the state of the stream. `extra` is added to the header.
    """
    posterior: Result = model.posterior_
    result_header, arrays = _stored_result(posterior)
    arrays.update(unseen_mean=model._unseen_mean, unseen_cov=model._unseen_cov)
    arrays.update({f"trace_{name}": values for name, values in model.trace_.items()})
    header = {
        "class": type(model).__name__,
        "params": plain_params(model.get_params(deep=False)),
        "shape": list(posterior.shape),
        "rank": posterior.rank,
        **result_header,
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "n_samples_seen": int(model.n_samples_seen_),
        "n_batches": int(model.n_batches_),
        "own": {name: plain(getattr(model, name)) for name in model._own_attributes},
        "labels": [None if found is None else pack_labels(found, k, arrays) for k, found in enumerate(model.labels_)],
    }
    stream = model.__dict__.get("_stream")
    if stream is not None:
        header["stream"], stored = pack_stream(stream)
        arrays.update({f"stream_{name}": values for name, values in stored.items()})
    write_archive(path, KIND, VERSION, {**header, **(extra or {})}, arrays)


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
    if "attributes" in header:
        return read_attributes(path, header, arrays)
    try:
        posterior = _read_result(header, arrays)
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
            "n_samples_seen_": int(header.get("n_samples_seen", 0)),
            "n_batches_": int(header.get("n_batches", 1)),
            "trace_": {n.removeprefix("trace_"): a for n, a in arrays.items() if n.startswith("trace_")},
            "_unseen_mean": arrays["unseen_mean"],
            "_unseen_cov": arrays["unseen_cov"],
            **header.get("own", {}),
        }
        if "stream" in header:
            stored = {n.removeprefix("stream_"): a for n, a in arrays.items() if n.startswith("stream_")}
            fitted["_stream"] = unpack_stream(header["stream"], stored, labels)
        class_name = header["class"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"'{os.fspath(path)}' is not a complete model ({error}); save it again.") from error
    n_modes, n_rows, rank = len(posterior.shape), sum(posterior.shape), posterior.rank
    shapes = {
        **_shapes_of(posterior),
        "seen": (n_rows,),
        "unseen_mean": (n_modes, rank),
        "unseen_cov": (n_modes, rank, rank),
    }
    if len(labels) != n_modes or any(arrays[name].shape != shape for name, shape in shapes.items()):
        fail_value(f"'{os.fspath(path)}' holds arrays that do not fit its shape {posterior.shape}; save it again.")
    return StoredModel(class_name, params, fitted, header)


def _stored_result(result: Result) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header fields and arrays of what a method returned."""
    arrays: dict[str, np.ndarray] = {"seen": result.seen}
    if isinstance(result, Posterior):
        arrays.update(Lam=result.Lam, eta=result.eta)
        header: dict[str, Any] = {"noise": None if result.noise is None else list(result.noise)}
        if result.mode_prior is not None:
            arrays.update(prior_mean=result.mode_prior.mean, prior_precision=result.mode_prior.precision)
        if result.dispersion is not None:
            arrays.update(dispersion_a=result.dispersion.a, dispersion_b=result.dispersion.b)
            header["dispersion_mode"] = result.dispersion.mode
        return header, arrays
    if isinstance(result, Mixture):
        stored = [_stored_result(member) for member in result.members]
        for c, (_, own) in enumerate(stored):
            arrays.update({f"member{c}_{name}": values for name, values in own.items()})
        return {"result": "mixture", "members": [fields for fields, _ in stored]}, arrays
    arrays["rows"] = result.rows
    if isinstance(result, PointEstimate):
        return {"result": "point", "theta": result.theta}, arrays
    if result.theta is not None:
        arrays["theta"] = result.theta
    if result.unknown is not None:
        arrays["unknown"] = result.unknown
    return {"result": "draws", "theta_mode": result.theta_mode}, arrays


def _read_result(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Result:
    common: dict[str, Any] = {
        "shape": check_shape(header["shape"]),
        "rank": int(header["rank"]),
        "seen": arrays["seen"],
    }
    kind = header.get("result", "gaussian")
    if kind == "draws":
        theta, unknown = arrays.get("theta"), arrays.get("unknown")
        return Draws(rows=arrays["rows"], theta=theta, theta_mode=header["theta_mode"], unknown=unknown, **common)
    if kind == "point":
        return PointEstimate(rows=arrays["rows"], theta=header["theta"], **common)
    if kind == "mixture":
        each = enumerate(header["members"])
        return Mixture(tuple(_read_posterior(fields, _of_member(c, arrays), common) for c, fields in each))
    if kind != "gaussian":
        fail_value(f"the result is of an unknown kind {kind!r}; update tensorcep.")
    return _read_posterior(header, arrays, common)


def _of_member(c: int, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of one member of a mixture."""
    start = f"member{c}_"
    return {name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)}


def _read_posterior(header: dict[str, Any], arrays: dict[str, np.ndarray], common: dict[str, Any]) -> Posterior:
    noise = None if header["noise"] is None else GammaNoise(*header["noise"])
    dispersion = None
    if "dispersion_mode" in header:
        dispersion = Dispersion(header["dispersion_mode"], arrays["dispersion_a"], arrays["dispersion_b"])
    mode_prior = None
    if "prior_mean" in arrays:
        mode_prior = ModePrior(arrays["prior_mean"], arrays["prior_precision"])
    return Posterior(
        Lam=arrays["Lam"], eta=arrays["eta"], noise=noise, dispersion=dispersion, mode_prior=mode_prior, **common
    )


def _shapes_of(result: Result) -> dict[str, tuple[int, ...]]:
    """The shapes that the arrays of a result must have."""
    n_rows, rank = sum(result.shape), result.rank
    if isinstance(result, Posterior):
        found: dict[str, tuple[int, ...]] = {"Lam": (n_rows, rank * (rank + 1) // 2), "eta": (n_rows, rank)}
        if result.mode_prior is not None:
            found.update(prior_mean=(len(result.shape), rank), prior_precision=(len(result.shape), rank, rank))
        if result.dispersion is not None:
            mode = result.dispersion.mode
            size = (1 if mode is None else result.shape[mode],)
            found.update(dispersion_a=size, dispersion_b=size)
        return found
    if isinstance(result, Mixture):
        each = enumerate(result.members)
        return {f"member{c}_{name}": shape for c, member in each for name, shape in _shapes_of(member).items()}
    if isinstance(result, PointEstimate):
        return {"rows": (n_rows, rank)}
    chains, draws = result.rows.shape[:2]
    shapes: dict[str, tuple[int, ...]] = {"rows": (chains, draws, n_rows, rank)}
    if result.theta is not None:
        shapes["theta"] = (chains, draws, 1 if result.theta_mode is None else result.shape[result.theta_mode])
    if result.unknown is not None:
        shapes["unknown"] = (chains, draws, len(result.shape), rank)
    return shapes
