"""New rows by methods that pass messages, where entries are not Gaussian in f: sweeps over the new entries alone.

The rows that are known get no messages from them, so that the moments of the other modes, cavity or posterior, are
those of the fit.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tensorcep.core.belief import GammaNoise
from tensorcep.core.components import Components
from tensorcep.core.executor import Executor
from tensorcep.core.loop import AnyMethod
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.cep.sweep import cep_chunks
from tensorcep.cp.fold_in import Natural, NewEntries
from tensorcep.cp.laplace.method import LAPLACE
from tensorcep.cp.laplace.sweep import laplace_chunks
from tensorcep.cp.messages.passes import settle_mode
from tensorcep.cp.messages.state import Pace
from tensorcep.cp.model import pack_entries
from tensorcep.cp.problem import Problem
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.fixed import FixedPrior

KERNELS: dict[str, tuple[AnyMethod, Any]] = {"cep": (CEP, cep_chunks), "laplace": (LAPLACE, laplace_chunks)}
SWEEPS, TOL, STEP = 200, 1e-7, 0.5


def message_rows(
    belief: Components, c: int, likelihood: Likelihood, theta: float, entries: NewEntries, prior: Natural,
    free: np.ndarray, settings: Any, executor: Executor,
) -> Natural:  # fmt: skip
    """The new rows under the Gaussian c of a belief.

    Parameters
    ----------
    theta : float
        The likelihood's parameter.
    prior : Natural
        Of a new row, in all columns.
    free : (K, R) bool
        Columns that are not clamped to 1, of every mode.
    settings : CEP or Laplace
    """
    if belief.cov is None:
        raise TypeError("messages need Gaussian rows")
    method, kernel = KERNELS[settings.name]
    K, R = free.shape
    if settings.name == "cep":
        settings = dataclasses.replace(settings, messages="full")
    settings = dataclasses.replace(settings, damping=0.0, anneal=0)
    rows, coords, shape = _rows_of_problem(belief.mean[c], belief.cov[c], entries, prior, K)
    gaussian = likelihood.parameter is not None and likelihood.parameter.is_precision
    noise = GammaNoise(1e12 * theta, 1e12) if gaussian else None
    known = likelihood._replace(default_theta=theta, parameter=likelihood.parameter if gaussian else None)
    problem = Problem(
        pack_entries(coords, entries.y, shape), tuple(shape), R, known, FixedPrior(*rows), None, noise, 0,
        None if free.all() else free,
    )  # fmt: skip
    state = method.init(problem, settings, executor)
    step = 1.0 if gaussian else STEP
    rule = state.rule._replace(step=step, power=1.0, theta=theta)
    if settings.name == "cep":
        rule = rule._replace(order=settings.order)
    for sent in (state.messages.a, state.messages.b):
        sent[:] = 0.0
    state = state._replace(rule=rule, pace=Pace(step), noise=(0.0, 1.0) if noise is None else tuple(noise))
    state = settle_mode(state, problem, entries.mode, kernel, executor, SWEEPS, TOL)
    first, n_free = int(problem.entries.offsets[entries.mode]), int(free[entries.mode].sum())
    new, P = slice(first, first + entries.size), n_free * (n_free + 1) // 2
    return Natural(state.rows.Lam[new, :P].copy(), state.rows.eta[new, :n_free].copy())


def _rows_of_problem(
    mean: np.ndarray, cov: np.ndarray, entries: NewEntries, prior: Natural, K: int
) -> tuple[Natural, np.ndarray, tuple[int, ...]]:
    """The new rows at their prior between the rows of the other modes that occur; coordinates among them; the shape."""
    parts, coords, R = [], np.empty((len(entries.y), K), dtype=np.int64), mean.shape[1]
    others = iter(entries.others.T)
    for k in range(K):
        if k == entries.mode:
            coords[:, k] = entries.row
            parts.append(Natural(*(np.repeat(part, entries.size, axis=0) for part in prior)))
            continue
        used, coords[:, k] = np.unique(next(others), return_inverse=True)
        precision = np.linalg.inv(unpack(cov[used], R))
        parts.append(Natural(pack(precision), np.einsum("nij,nj->ni", precision, mean[used])))
    rows = Natural(np.concatenate([part.Lam for part in parts]), np.concatenate([part.eta for part in parts]))
    return rows, coords, tuple(len(part.eta) for part in parts)
