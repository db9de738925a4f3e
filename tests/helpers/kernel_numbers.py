"""Numbers of small runs of kernels, the same whether the kernels are compiled, bounds-checked or run as Python.

As a script: ``python kernel_numbers.py out.npz lanes rows cep`` writes those of the named groups.
"""

from __future__ import annotations

import sys

import numpy as np
from helpers.problems import fit, problem

from tensorcep.core.packing import pack
from tensorcep.kernels import lanes
from tensorcep.kernels.rank_update import add_outer_products, padded, times_narrow, transposed_times_narrow
from tensorcep.kernels.rows import row_moments, scatter_add
from tensorcep.kernels.slots import LANES, lane_zeros
from tensorcep.priors.solvers.chain import eliminate, marginals_back, nothing_before

R = 3
P = R * (R + 1) // 2


def _positive(rng: np.random.Generator, n: int) -> np.ndarray:
    root = rng.standard_normal((n, R, R))
    return pack(root @ root.swapaxes(1, 2) + np.eye(R))


def of_lanes(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Factorisations, solutions and moments, one lane not positive definite."""
    a, t, s, m, vt, d, ok = np.cumsum([0, P, R, P, R, R * R, R])
    w = lane_zeros((ok + 1, LANES))
    w[a:t], w[t:s], w[ok] = _positive(rng, LANES).T, rng.standard_normal((R, LANES)), 1.0
    w[a, 5] = -1.0
    solved = w.copy()
    lanes.cholesky(solved, a, d, ok, R)
    lanes.solve_lower(solved, a, d, t, R)
    lanes.solve_upper(solved, a, d, t, m, R)
    lanes.moments(w, a, t, s, m, vt, d, ok, R)
    return {"solved": np.delete(solved, 5, axis=1), "moments": np.delete(w, 5, axis=1), "ok": w[ok]}


def of_rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Moments of rows, rows added up, sums of outer products."""
    n = LANES + 3
    mean, cov, good = np.empty((n, R)), np.empty((n, P)), np.empty(n)
    row_moments(0, n, _positive(rng, n), rng.standard_normal((n, R)), mean, cov, good)
    total = np.zeros((4, 6))
    scatter_add(rng.integers(4, size=LANES).astype(np.int32), rng.standard_normal((6, LANES)), total)
    x, sums = rng.standard_normal((5, padded(R))), np.zeros((padded(R) + 1, padded(R)))
    add_outer_products(5, R, x, x, x[:, 0].copy(), sums)
    return {"mean": mean, "cov": cov, "total": total, "sums": np.tril(sums)[:R, :R], "last": sums[-1, :R]}


def of_cep(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Two sweeps of CEP on labels and on real values."""
    result = {}
    for likelihood in ("probit", "gaussian"):
        _, _, p = problem(rng, 3, 2, 20, likelihood)
        run = fit(p, 2)
        result[likelihood + "_Lam"], result[likelihood + "_eta"] = run.posterior.Lam, run.posterior.eta
    return result


def of_chains(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Moments of rows in a chain, of one panel and of two; products with features."""
    result = {}
    for D in (3, 9):
        root, m = rng.standard_normal((5, D, D)), 5
        Lam, y, between = pack(root @ root.swapaxes(1, 2)), np.empty((m, D)), rng.random((m - 1, D))
        V, own, mean = np.empty_like(Lam), 2.0 + rng.random((m, D)), np.empty((m, D))
        result[f"log_det {D}"] = np.array(
            eliminate(0, Lam, rng.random((m, D)), 0.5, own, own, between, V, y, nothing_before(D))
        )
        marginals_back(V, y, between, mean, Lam, between.copy())
        result |= {f"mean {D}": mean, f"cov {D}": Lam}
    x, narrow = rng.standard_normal((19, 11)), rng.standard_normal((11, 3))
    return result | {"times": times_narrow(x, narrow), "transposed": transposed_times_narrow(x, x[:, :3])}


GROUPS = {"lanes": of_lanes, "rows": of_rows, "cep": of_cep, "chains": of_chains}


def numbers(*groups: str) -> dict[str, np.ndarray]:
    """Those of the named groups."""
    result: dict[str, np.ndarray] = {}
    for group in groups:
        result.update(GROUPS[group](np.random.default_rng(7)))
    return result


if __name__ == "__main__":
    np.savez(sys.argv[1], **numbers(*sys.argv[2:]))
