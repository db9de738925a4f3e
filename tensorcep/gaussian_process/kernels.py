"""Kernels are those of scikit-learn: which are taken, and their derivatives summed against a matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Kernel,
    Matern,
    Product,
    Sum,
    WhiteKernel,
)

from tensorcep.core.checks import fail_value

# An eigenvalue of the kernel matrix may be below 0 by this fraction of its largest diagonal element, times its size.
NEGATIVE = 1e-10
# Matern kernels whose derivative has a closed form.
MATERN = (0.5, 1.5, 2.5)
# Rows at a time of a large matrix, so that what a kernel makes on the way stays small.
ROWS = 1024
# Kernels that are positive definite by their making.
DEFINITE = (RBF, ConstantKernel, Matern, Sum, Product, DotProduct)


def default_kernel(X: np.ndarray) -> Kernel:
    """A constant times an RBF, both learned, that starts at the spread of the points."""
    spread = float(np.sqrt(X.var(axis=0).sum()))
    scale = spread if 0.0 < spread < np.inf else 1.0
    return ConstantKernel(1.0) * RBF(scale, (1e-3 * scale, 1e3 * scale))


def check_kernel(kernel: Any) -> Kernel:
    """Return a kernel that a latent function can have."""
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel must be a kernel of sklearn.gaussian_process.kernels, or None; got {type(kernel).__name__}."
        )
    parts = _parts(kernel)
    if any(isinstance(part, WhiteKernel) for part in parts):
        fail_value(
            "kernel must have no WhiteKernel, because noise belongs to the likelihood of labels and counts; leave it "
            "out."
        )
    if any(isinstance(part, CompoundKernel) for part in parts):
        fail_value("kernel must be one kernel; got a CompoundKernel, which stands for several.")
    return kernel


def _parts(kernel: Any) -> list[Any]:
    """A kernel and those that it is made of."""
    inner = [
        getattr(kernel, name) for name in ("k1", "k2", "kernel") if isinstance(getattr(kernel, name, None), Kernel)
    ]
    return [kernel, *(part for one in inner for part in _parts(one))]


def check_covariance(kernel: Any, X: np.ndarray) -> None:
    """Refuse a kernel whose matrix at the points is no covariance.

    The kernels of scikit-learn that are positive definite by their making are not looked at further.
    """
    if all(type(part) in DEFINITE for part in _parts(kernel)):
        return
    K, n = kernel(X), len(X)
    if K.shape != (n, n) or not np.isfinite(K).all():
        fail_value(f"kernel must give a matrix of finite numbers at the points; got {kernel!r}.")
    top = float(np.abs(np.diag(K)).max())
    if not np.allclose(K, K.T, rtol=1e-8, atol=1e-12 * top):
        fail_value(f"kernel must be symmetric; got {kernel!r}, which is not.")
    shifted = K.copy()
    shifted[np.diag_indices(n)] += NEGATIVE * n * top
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        fail_value(
            f"kernel must be positive definite at the points; got {kernel!r}, whose matrix has the eigenvalue "
            f"{np.linalg.eigvalsh(K)[0]:.3g}; choose another kernel."
        )


def covariance_of(kernel: Any, X: np.ndarray) -> np.ndarray:
    """The kernel matrix of the points (n, n); a large one of the common kernels in parts."""
    n = len(X)
    if n <= 2 * ROWS or any(type(part) not in DEFINITE for part in _parts(kernel)):
        return np.asarray(kernel(X))
    K = np.empty((n, n))
    for first in range(0, n, ROWS):
        K[first : first + ROWS] = kernel(X[first : first + ROWS], X)
    return K


def gradient_matrices(kernel: Any) -> int:
    """Matrices of n^2 numbers that the derivatives of the kernel take beside those of a fit: none of common kernels."""
    return 0 if all(type(part) in _RULES for part in _parts(kernel)) else 2 * kernel.n_dims


def contract(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    """Sums of G times the derivative of the kernel matrix by each of `kernel.theta`, (p,); Z is None for X itself.

    For the common kernels without an array of n^2 p numbers, and in parts where X is large.
    """
    if len(X) > 2 * ROWS and all(type(part) in DEFINITE for part in _parts(kernel)):
        parts = [slice(first, first + ROWS) for first in range(0, len(X), ROWS)]
        return np.sum([contract(kernel, X[rows], X if Z is None else Z, G[rows]) for rows in parts], axis=0)
    rule = _RULES.get(type(kernel))
    if rule is not None and (not isinstance(kernel, Matern) or kernel.nu in MATERN):
        return rule(kernel, X, Z, G)
    if Z is not None:
        fail_value(
            "kernel must be made of ConstantKernel, RBF, Matern with nu 0.5, 1.5 or 2.5, DotProduct, sums and "
            f"products to be learned with n_inducing; got {kernel!r}; set optimizer=None."
        )
    return np.asarray(np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1]))


Rule = Callable[[Any, np.ndarray, np.ndarray | None, np.ndarray], np.ndarray]


def _sum(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    return np.concatenate([contract(kernel.k1, X, Z, G), contract(kernel.k2, X, Z, G)])


def _product(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    first, second = kernel.k1, kernel.k2
    if isinstance(first, ConstantKernel):  # one matrix serves both
        inner = second(X, Z)
        inner *= G
        own = [] if first.hyperparameter_constant_value.fixed else [first.constant_value * inner.sum()]
        del inner
        return np.concatenate([own, first.constant_value * contract(second, X, Z, G)])
    left, right = contract(first, X, Z, G * second(X, Z)), contract(second, X, Z, G * first(X, Z))
    return np.concatenate([left, right])


def _power(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    weight = kernel.exponent * kernel.kernel(X, Z) ** (kernel.exponent - 1.0)
    return contract(kernel.kernel, X, Z, weight * G)


def _constant(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    fixed = kernel.hyperparameter_constant_value.fixed
    return np.array([] if fixed else [kernel.constant_value * G.sum()])


def _dot(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    fixed = kernel.hyperparameter_sigma_0.fixed
    return np.array([] if fixed else [2.0 * kernel.sigma_0**2 * G.sum()])


def _rbf(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    if kernel.hyperparameter_length_scale.fixed:
        return np.empty(0)
    weight = kernel(X, Z)
    weight *= G
    return _by_scales(kernel, X, Z, weight)


def _matern(kernel: Any, X: np.ndarray, Z: np.ndarray | None, G: np.ndarray) -> np.ndarray:
    if kernel.hyperparameter_length_scale.fixed:
        return np.empty(0)
    distance = cdist(X / kernel.length_scale, (X if Z is None else Z) / kernel.length_scale)
    if kernel.nu == 0.5:
        weight = np.divide(np.exp(-distance), distance, out=np.zeros_like(distance), where=distance > 0.0)
    elif kernel.nu == 1.5:
        weight = 3.0 * np.exp(-np.sqrt(3.0) * distance)
    else:
        distance *= np.sqrt(5.0)
        weight = 5.0 / 3.0 * (1.0 + distance) * np.exp(-distance)
    weight *= G
    return _by_scales(kernel, X, Z, weight)


def _by_scales(kernel: Any, X: np.ndarray, Z: np.ndarray | None, weight: np.ndarray) -> np.ndarray:
    """Sums of the weights times the squared scaled differences, in every feature or, of one scale, in all."""
    centre = X.mean(axis=0)
    left = (X - centre) / kernel.length_scale
    right = left if Z is None else (Z - centre) / kernel.length_scale
    each = weight.sum(axis=1) @ left**2 + weight.sum(axis=0) @ right**2
    each = each - 2.0 * np.einsum("id,id->d", left, weight @ right)
    return each if kernel.anisotropic else np.array([each.sum()])


_RULES: dict[type, Rule] = {
    Sum: _sum,
    Product: _product,
    Exponentiation: _power,
    ConstantKernel: _constant,
    DotProduct: _dot,
    RBF: _rbf,
    Matern: _matern,
}
