"""Tensors drawn from the model itself: for tests of calibration, benchmarks and notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_int, check_per_mode, check_random_state, check_range, check_shape
from tensorcep.entries.coo import sample_free_cells, unfold_cp
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.likelihoods import get_likelihood
from tensorcep.priors.fixed import Prior


class CPSimulation(NamedTuple):
    """A tensor with the parameters that made it.

    Attributes
    ----------
    tensor : SparseTensor
        N observed entries.
    latent : (N,) float64
        Latent value f of each entry, the intercept included.
    factors : list of (n_k, R) float64
        Rows of each mode.
    intercept : float
    prior : Prior
        The one that the rows were drawn from, after any rescaling; fit with it to test calibration.
    theta : float
        Parameter of the likelihood; for "gaussian" the noise precision.
    """

    tensor: SparseTensor
    latent: np.ndarray
    factors: list[np.ndarray]
    intercept: float
    prior: Prior
    theta: float


def simulate_cp(
    shape: Sequence[int],
    rank: int,
    n_entries: int | None = None,
    *,
    density: float | None = None,
    likelihood: str = "gaussian",
    noise_precision: float | None = None,
    prior_mean: float | Sequence[float] = 0.0,
    prior_sd: float | Sequence[float] = 1.0,
    latent_sd: float | None = None,
    intercept: float = 0.0,
    random_state: Any = None,
) -> CPSimulation:
    """Draw factors from their prior, cells uniformly without repeats, and values from the likelihood.

    Parameters
    ----------
    shape : sequence of K ints
    rank : int
    n_entries : int, optional
        Number of observed entries. Give this or `density`.
    density : float, optional
        Share of the cells that is observed, in (0, 1].
    likelihood : str, default="gaussian"
        Name of a likelihood; its values follow its own coding (0/1 labels, counts).
    noise_precision : float, optional
        For "gaussian" only; by default the likelihood's own.
    prior_mean, prior_sd : float or one per mode, default=0 and 1
        Mean and standard deviation of every element of the factors.
    latent_sd : float, optional
        Multiply prior mean and standard deviation of all modes by one number, so that the latent value of a random
        cell has this standard deviation over draws of the factors.
    intercept : float, default=0
        Added to the latent value of every cell.
    random_state : None, int, RandomState or Generator

    Returns
    -------
    CPSimulation

    Raises
    ------
    ValueError
        When an argument is outside its range, when `density` and `n_entries` are both given or both missing, or when
        there are fewer cells than entries asked for.

    Examples
    --------
    >>> from tensorcep import simulate_cp
    >>> data = simulate_cp((8, 6, 4), rank=2, n_entries=100, noise_precision=4.0, random_state=0)
    >>> data.tensor.nnz, [factor.shape for factor in data.factors]
    (100, [(8, 2), (6, 2), (4, 2)])
    """
    shape, rank = check_shape(shape), check_int("rank", rank)
    if (n_entries is None) == (density is None):
        given = "none" if density is None else "n_entries and density"
        raise ValueError(f"exactly one of n_entries and density must be given; got {given}.")
    if density is not None:
        n_entries = max(1, round(check_range("density", density, 0.0, 1.0, include_low=False) * math.prod(shape)))
    n_entries = check_int("n_entries", n_entries, maximum=math.prod(shape))
    record = get_likelihood(likelihood)
    theta = record.default_theta
    if noise_precision is not None:
        if likelihood != "gaussian":
            got = f"{noise_precision=} with {likelihood=}"
            raise ValueError(f"noise_precision has a meaning only with likelihood='gaussian'; got {got}.")
        theta = check_range("noise_precision", noise_precision, 0.0, include_low=False)
    means = check_per_mode("prior_mean", prior_mean, len(shape))
    sds = check_per_mode("prior_sd", prior_sd, len(shape), low=0.0)
    if latent_sd is not None:
        latent_sd = check_range("latent_sd", latent_sd, 0.0, include_low=False)
        # a product of independent numbers has variance prod(m^2 + s^2) - prod(m^2); terms of the sum are independent
        variance = rank * (np.prod(means**2 + sds**2) - np.prod(means**2))
        scale = float((latent_sd**2 / variance) ** (0.5 / len(means)))
        means, sds = means * scale, sds * scale
    intercept = check_range("intercept", intercept)

    rng = check_random_state(random_state)
    factors = [m + s * rng.standard_normal((n, rank)) for n, m, s in zip(shape, means, sds, strict=True)]
    nothing = np.empty((0, len(shape)), dtype=np.int64)
    coords, _ = sample_free_cells(n_entries, [nothing], shape, rng)
    latent = intercept + unfold_cp(None, factors, coords)
    values = record.sample(rng, latent, np.full(n_entries, theta))
    tensor = SparseTensor.from_coo(coords, values, shape=shape)
    return CPSimulation(tensor, latent, factors, intercept, Prior(list(means), list(1.0 / sds**2)), theta)
