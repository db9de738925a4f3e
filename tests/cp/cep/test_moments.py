"""Expected conditional moments: first order, and second order against Taylor expansions and quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from oracles import cep as oracle

from tensorcep.core.compile import TILTED_SIGNATURE, address_of, block_kernel
from tensorcep.core.packing import pack, unpack
from tensorcep.cp.cep.update import cep_slots, first_order, first_order_message, second_order
from tensorcep.kernels.lanes import work_array
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import tilted_moments

NAMES = ["gaussian", "probit", "logit", "poisson"]


def scalar_tilted(name):
    """The likelihood's own tilted moments (tested elsewhere) as a function of numbers."""
    record = get_likelihood(name)

    def tilted(*numbers):
        y, m, v, theta = (np.array([float(number)]) for number in numbers)
        logz, alpha, beta = tilted_moments(record.tilted, y, m, v, theta)
        return float(logz[0]), float(alpha[0]), float(beta[0])

    return tilted


def inputs(rng, name, R, spread):
    """Per lane: y, theta, mean z, covariance Om of z, covariance S and mean m of the row."""
    y = {
        "gaussian": rng.standard_normal(LANES),
        "probit": rng.choice([-1.0, 1.0], LANES),
        "logit": rng.choice([-1.0, 1.0], LANES),
        "poisson": rng.poisson(2.0, LANES).astype(float),
    }[name]
    theta = np.full(LANES, 1.7)
    root = rng.standard_normal((2, LANES, R, R)) / np.sqrt(R)
    S = root[0] @ root[0].swapaxes(1, 2) + 0.2 * np.eye(R)
    Om = spread * (root[1] @ root[1].swapaxes(1, 2))
    return y, theta, rng.standard_normal((LANES, R)), Om, S, 0.7 * rng.standard_normal((LANES, R))


def compiled(order, name, R, y, theta, z, Om, S, m, positive=False):
    """g (LANES, R) and A (LANES, R, R) of the kernel."""
    w, at = work_array(cep_slots(3, R))
    P = R * (R + 1) // 2
    Z2 = Om + z[:, :, None] * z[:, None, :]
    for slot, value in ((at.y, y), (at.theta, theta), (at.z, z), (at.Z2, pack(Z2)), (at.S, pack(S)), (at.m, m)):
        value = value.reshape(LANES, -1).T
        w[slot : slot + len(value)] = value
    tilted = address_of(get_likelihood(name).tilted, TILTED_SIGNATURE)
    if order == 1:
        first_order(tilted, positive, at.S, at.m, R, w, at)
        b, c = w[at.beta][:, None, None], w[at.spread][:, None, None]
        return w[at.g : at.g + R].T.copy(), b * Z2 + c * z[:, :, None] * z[:, None, :]
    second_order(tilted, positive, w, at, at.S, at.m, R)
    return w[at.g : at.g + R].T.copy(), unpack(w[at.A : at.A + P].T.copy(), R)


@pytest.mark.parametrize("name", NAMES)
@each("R", [1, 2, 6])
@each("positive", [False, True])
def test_first_order_equals_the_twin(rng, name, R, positive):
    y, theta, z, Om, S, m = inputs(rng, name, R, 0.3)
    g, A = compiled(1, name, R, y, theta, z, Om, S, m, positive)
    tilted = scalar_tilted(name)
    for n in range(LANES):
        Z2 = Om[n] + np.outer(z[n], z[n])
        g_n, A_n = oracle.first_order(tilted, y[n], theta[n], z[n], Z2, S[n], m[n], positive)
        np.testing.assert_allclose(g[n], g_n, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(A[n], A_n, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@each("R", [1, 2, 6])
@each("positive", [False, True])
def test_second_order_is_the_exact_taylor_term(rng, name, R, positive):
    y, theta, z, Om, S, m = inputs(rng, name, R, 0.1)
    g, A = compiled(2, name, R, y, theta, z, Om, S, m, positive)
    tilted = scalar_tilted(name)
    for n in range(LANES):
        Z2 = Om[n] + np.outer(z[n], z[n])
        g_n, A_n = oracle.second_order(tilted, y[n], theta[n], z[n], Z2, S[n], m[n], positive)
        np.testing.assert_allclose(g[n], g_n, rtol=0, atol=3e-6 * (1 + np.abs(g_n).max()))
        np.testing.assert_allclose(A[n], A_n, rtol=0, atol=3e-6 * (1 + np.abs(A_n).max()))


@each("name", NAMES)
def test_both_orders_are_the_conditional_moments_when_z_is_known(rng, name):
    y, theta, z, Om, S, m = inputs(rng, name, 3, 0.0)
    first, second = (compiled(order, name, 3, y, theta, z, Om, S, m) for order in (1, 2))
    tilted = scalar_tilted(name)
    for n in range(LANES):
        _, alpha, beta = tilted(y[n], z[n] @ m[n], z[n] @ S[n] @ z[n], theta[n])
        for g, A in (first, second):
            np.testing.assert_allclose(g[n], alpha * z[n], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(A[n], beta * np.outer(z[n], z[n]), rtol=1e-9, atol=1e-12)


def quadrature(name, y, theta, z, Om, S, m, nodes=24):
    """E[z alpha] and E[z z' beta] - cov(z alpha) over z ~ N(z, Om), R = 2, by a product Gauss-Hermite rule."""
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    weights = np.outer(weight, weight).ravel() / weight.sum() ** 2
    root = np.linalg.cholesky(Om + 1e-14 * np.eye(2))
    points = z + np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2) @ root.T
    mean, var = points @ m, np.einsum("ni,ij,nj->n", points, S, points)
    _, alpha, beta = tilted_moments(get_likelihood(name).tilted, y, mean, var, theta)
    spread = np.cov((alpha[:, None] * points).T, aweights=weights, bias=True)
    return (weights * alpha) @ points, np.einsum("n,ni,nj->ij", weights * beta, points, points) - spread


@each("name", NAMES)
def test_second_order_leaves_a_remainder_of_order_omega_squared(rng, name):
    y, theta, z, Om, S, m = inputs(rng, name, 2, 1.0)
    errors = {}
    for order in (1, 2):
        for spread in (0.04, 0.01):
            g, A = compiled(order, name, 2, y, theta, z, spread * Om, S, m)
            right = [
                quadrature(name, y[n], theta[n], z[n], spread * Om[n] + 1e-14 * np.eye(2), S[n], m[n])
                for n in range(LANES)
            ]
            errors[order, spread] = np.array(
                [[np.abs(g[n] - right[n][0]).max(), np.abs(A[n] - right[n][1]).max()] for n in range(LANES)]
            )
    # four times less spread: a sixteenth of the error, where the first order (of g) gains a factor of four
    ratio = np.median(errors[2, 0.04] / errors[2, 0.01], axis=0)
    assert (ratio > 10).all()
    assert 3 < np.median(errors[1, 0.04][:, 0] / errors[1, 0.01][:, 0]) < 5.5
    assert (np.median(errors[2, 0.01], axis=0) < 0.1 * np.median(errors[1, 0.01], axis=0)).all()


@each("name", NAMES)
@each("R", [1, 4])
def test_positive_first_order_keeps_the_message_of_a_log_concave_likelihood_positive(rng, name, R):
    y, theta, z, Om, S, m = inputs(rng, name, R, 1.0)
    y = 8.0 * y if name in ("gaussian", "poisson") else y  # far from the predictions
    free, limited = (compiled(1, name, R, y, theta, z, Om, S, 3.0 * m, positive)[1] for positive in (False, True))
    assert (np.linalg.eigvalsh(limited)[:, 0] > -1e-12 * np.abs(limited).max(axis=(1, 2))).all()
    assert (np.linalg.eigvalsh(free)[:, 0] < 0).any(), "without the limit all are positive here too"


@block_kernel
def message_of(S, m, work, R, w, at):
    first_order_message(S, m, work, R, w, at)


def messages(R, b, c, alpha, z, Z2, S, m):
    """T (LANES, R, R), eta (LANES, R) and the flags of the message whose A is b Z2 + c z z' and whose g is alpha z."""
    w, at = work_array(cep_slots(3, R))
    P = R * (R + 1) // 2
    given = {"beta": b, "spread": c, "alpha": alpha, "site_ok": np.ones(LANES)}
    given |= {"z": z, "Z2": pack(Z2), "S": pack(S), "m": m, "g": alpha[:, None] * z}
    for name, value in given.items():
        slot, value = getattr(at, name), value.reshape(LANES, -1).T
        w[slot : slot + len(value)] = value
    message_of(at.S, at.m, at.vt, R, w, at)
    return unpack(w[at.T : at.T + P].T.copy(), R), w[at.eta : at.eta + R].T.copy(), w[at.site_ok].copy()


@each("R", [1, 2, 6, 7])
@each("spread", [0.0, 0.3])
def test_first_order_message_turns_the_cavity_into_the_new_moments(rng, R, spread):
    _, _, z, Om, S, m = inputs(rng, "gaussian", R, spread)
    Z2, alpha = Om + z[:, :, None] * z[:, None, :], rng.standard_normal(LANES)
    Z2[3], z[3] = 0.0, 0.0  # as where rows are known to be 0
    most = np.linalg.eigvalsh(np.linalg.cholesky(S).swapaxes(1, 2) @ Z2 @ np.linalg.cholesky(S))[:, -1]
    b, c = rng.uniform(-2.0, 0.4, LANES) / np.maximum(most, 1.0), rng.uniform(0.0, 0.4, LANES) / np.maximum(most, 1.0)
    T, eta, ok = messages(R, b, c, alpha, z, Z2, S, m)
    A = b[:, None, None] * Z2 + c[:, None, None] * z[:, :, None] * z[:, None, :]
    np.testing.assert_array_equal(ok, 1.0)
    new, Lam = np.linalg.inv(S - S @ A @ S), np.linalg.inv(S)
    size = np.abs(Lam).max(axis=(1, 2))
    assert (np.abs(Lam + T - new).max(axis=(1, 2)) < 1e-10 * size).all()
    mean = m + alpha[:, None] * np.einsum("nij,nj->ni", S, z)
    right = np.einsum("nij,nj->ni", new, mean) - np.einsum("nij,nj->ni", Lam, m)
    assert (np.abs(eta - right).max(axis=1) < 1e-9 * size).all()


@each("R", [1, 5])
def test_first_order_message_flags_an_indefinite_new_covariance_and_only_that(rng, R):
    _, _, z, Om, S, m = inputs(rng, "gaussian", R, 0.3)
    Z2 = Om + z[:, :, None] * z[:, None, :]
    most = np.linalg.eigvalsh(np.linalg.cholesky(S).swapaxes(1, 2) @ Z2 @ np.linalg.cholesky(S))[:, -1]
    b, c = 0.5 / most, np.zeros(LANES)
    b[2] = 1.1 / most[2]  # by the first part alone
    b[5], c[5] = 0.0, 1.1 / (z[5] @ S[5] @ z[5])  # by the second
    b[7] = np.nan
    assert np.flatnonzero(messages(R, b, c, np.ones(LANES), z, Z2, S, m)[2] == 0.0).tolist() == [2, 5, 7]
