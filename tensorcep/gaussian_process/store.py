"""Files of Gaussian processes: kernels as records by name and parameters, sites and points as arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Kernel,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
)

from tensorcep.core.checks import fail_value
from tensorcep.core.persist.models import StoredModel, check_names, fitted_record, text_array, write_model
from tensorcep.core.persist.records import RECORD
from tensorcep.ep.gaussian import Functions
from tensorcep.gaussian_process.machine import Machine, from_sites

# The kernels that a file can name.
KERNELS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        RBF,
        ConstantKernel,
        DotProduct,
        Exponentiation,
        ExpSineSquared,
        Matern,
        Product,
        RationalQuadratic,
        Sum,
    )
}
SHARED = ("_X_fit", "_y_fit", "n_features_in_")
IF_THERE = ("classes_", "feature_names_in_", "prior_mean_")
NAMES = (*SHARED, *IF_THERE, "tau", "nu", "points", "dual", "cov", "means", "evidence", "n_iter", "converged", "trace_")


def kernel_record(kernel: Any) -> dict[str, Any]:
    """A kernel as a tree of names and parameters.

    Raises
    ------
    ValueError
        If it is not one of `KERNELS`.
    """
    if KERNELS.get(type(kernel).__name__) is not type(kernel):
        listed = ", ".join(KERNELS)
        fail_value(
            f"kernel must be made of {listed} to be saved; got {type(kernel).__name__}, which files cannot hold."
        )
    params = {name: _plain(value) for name, value in kernel.get_params(deep=False).items()}
    return {RECORD: type(kernel).__name__, **params}


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return kernel_record(value)
    return value if isinstance(value, str) else np.asarray(value, dtype=np.float64).tolist()


def kernel_of(tree: Any) -> Any:
    """The kernel that a tree says; a name that is not among `KERNELS` raises KeyError."""
    params = {name: _value(name, value) for name, value in tree.items() if name != RECORD}
    kernel = KERNELS[tree[RECORD]](**params)
    if not np.isfinite(kernel.theta).all():
        raise ValueError("a kernel's parameters are not finite")
    return kernel


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return kernel_of(value)
    if isinstance(value, list) and name.endswith("_bounds"):
        return tuple(value) if np.ndim(value) == 1 else np.asarray(value, dtype=np.float64)
    return value


def write_machines(path: str | os.PathLike[str], model: Any) -> None:
    """Write a fitted Gaussian process."""
    machines: Sequence[Machine] = model._machines
    sparse = machines[0].tau.size == 0
    fitted: dict[str, Any] = {name: getattr(model, name) for name in SHARED}
    fitted |= {name: text_array(getattr(model, name)) for name in IF_THERE if hasattr(model, name)}
    for name in ("log_evidence", "mean", "n_iter", "converged"):
        stored = {"log_evidence": "evidence", "mean": "means"}.get(name, name)
        fitted[stored] = np.array([getattr(machine, name) for machine in machines])
    if sparse:
        fitted["points"] = machines[0].points
        fitted["dual"] = np.stack([machine.functions.dual for machine in machines])
        fitted["cov"] = np.stack([machine.functions.cov for machine in machines])
    else:
        fitted["tau"] = np.stack([machine.tau for machine in machines])
        fitted["nu"] = np.stack([machine.nu for machine in machines])
    kernels = {
        "given": None if model.kernel is None else kernel_record(model.kernel),
        "fitted": [kernel_record(machine.kernel) for machine in machines],
    }
    write_model(path, model, fitted, {"kernels": kernels}, read=read_attributes)


def read_attributes(stored: StoredModel, _own: Sequence[str] = ()) -> dict[str, Any]:
    """The fitted attributes that a file holds, its machines put together, and the kernel that was given.

    Raises
    ------
    One of `tensorcep.core.persist.models.UNREADABLE`
        If something is missing or wrong, or has another name.
    """
    fitted = dict(fitted_record(stored, dict[str, Any]))
    check_names(fitted, NAMES)
    for name in set(fitted) & {"_X_fit", "_y_fit", "tau", "nu", "points", "dual", "cov", "means", "evidence"}:
        if fitted[name].dtype.kind not in "fi" or not np.isfinite(fitted[name]).all():
            raise ValueError(f"{name} does not hold finite real numbers")
    kernels = stored.header["kernels"]
    made = [kernel_of(tree) for tree in kernels["fitted"]]
    given = None if kernels["given"] is None else kernel_of(kernels["given"])
    machines = tuple(_machine(made[i], fitted, i) for i in range(len(made)))
    attributes = {name: fitted[name] for name in (*SHARED, *IF_THERE) if name in fitted}
    return {**attributes, "_machines": machines, "kernel": given}


def _machine(kernel: Any, fitted: dict[str, Any], i: int) -> Machine:
    mean, X = float(fitted["means"][i]), fitted["_X_fit"]
    about = {
        "kernel": kernel,
        "mean": mean,
        "log_evidence": float(fitted["evidence"][i]),
        "n_iter": int(fitted["n_iter"][i]),
        "converged": bool(fitted["converged"][i]),
    }
    if "points" in fitted:
        functions, nothing = Functions(fitted["dual"][i], fitted["cov"][i]), np.empty(0)
        return Machine(points=fitted["points"], tau=nothing, nu=nothing, functions=functions, **about)
    tau, nu = fitted["tau"][i], fitted["nu"][i]
    if tau.shape != (len(X),) or nu.shape != (len(X),):
        raise ValueError("the arrays do not fit its shape: there is not one site for each point")
    return Machine(points=X, tau=tau, nu=nu, functions=from_sites(kernel, X, mean, tau, nu), **about)
