"""Small-matrix algebra on lanes against numpy.linalg, for every rank up to 13 and two large ones."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.core.packing import pack, unpack
from tensorcep.kernels import lanes
from tensorcep.kernels.rows import row_log_dets
from tensorcep.kernels.slots import LANES, lane_zeros

RANKS = each("R", [*range(1, 14), 20, 50])


def positive(rng, R, n=LANES):
    """Well-conditioned positive definite matrices (n, R, R) of different sizes."""
    root = rng.standard_normal((n, R, R))
    scale = 10.0 ** rng.uniform(-4, 4, size=(n, 1, 1))
    return scale * (root @ root.swapaxes(1, 2) / R + np.eye(R))


def symmetric(rng, R, n=LANES):
    root = rng.standard_normal((n, R, R))
    return 0.5 * (root + root.swapaxes(1, 2))


class Work:
    """A lane array that hands out consecutive slots and remembers where what lies."""

    def __init__(self, **sizes):
        self.first = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
        self.size = sizes
        self.w = lane_zeros((sum(sizes.values()), LANES))
        self.w[:] = 7.25  # what nobody may rely on

    def __getitem__(self, name):
        return int(self.first[name])

    def get(self, name):
        a = self.first[name]
        return self.w[a : a + self.size[name]].T.copy()

    def put(self, name, values):
        """values (LANES, size)."""
        a = self.first[name]
        self.w[a : a + self.size[name]] = np.asarray(values).reshape(LANES, -1).T


def factorised(rng, R, matrices):
    P = R * (R + 1) // 2
    work = Work(a=P, d=R, ok=1, vt=R * R, s=P, t=R, m=R)
    work.put("a", pack(matrices))
    work.put("ok", np.ones(LANES))
    lanes.cholesky(work.w, work["a"], work["d"], work["ok"], R)
    return work


def lower(packed, inv_diag):
    """L of `cholesky` as square matrices, from its strictly lower part and the inverse diagonal."""
    R = inv_diag.shape[1]
    return np.tril(unpack(packed, R), -1) + np.eye(R) / inv_diag[:, None, :]


@RANKS
def test_lanes_cholesky_equals_numpy(rng, R):
    A = positive(rng, R)
    work = factorised(rng, R, A)
    L = np.linalg.cholesky(A)
    np.testing.assert_allclose(lower(work.get("a"), work.get("d")), L, rtol=1e-11, atol=1e-12 * np.abs(L).max())
    np.testing.assert_array_equal(work.get("ok"), 1.0)


@RANKS
def test_lanes_invert_triangle_equals_numpy(rng, R):
    A = positive(rng, R)
    work = factorised(rng, R, A)
    work.put("vt", np.zeros((LANES, R * R)))
    lanes.invert_triangle(work.w, work["a"], work["d"], work["vt"], R)
    V = work.get("vt").reshape(LANES, R, R).swapaxes(1, 2)
    right = np.linalg.inv(np.linalg.cholesky(A))
    np.testing.assert_allclose(np.tril(V), right, rtol=1e-9, atol=1e-13 * np.abs(right).max())


@RANKS
def test_lanes_gram_is_the_inverse_matrix(rng, R):
    A = positive(rng, R)
    work = factorised(rng, R, A)
    lanes.invert_triangle(work.w, work["a"], work["d"], work["vt"], R)
    lanes.gram(work.w, work["vt"], work["s"], R)
    np.testing.assert_allclose(unpack(work.get("s"), R) @ A, np.broadcast_to(np.eye(R), A.shape), atol=1e-11)


@RANKS
def test_lanes_solve_lower_equals_numpy(rng, R):
    A, b = positive(rng, R), rng.standard_normal((LANES, R))
    work = factorised(rng, R, A)
    work.put("t", b)
    lanes.solve_lower(work.w, work["a"], work["d"], work["t"], R)
    right = np.linalg.solve(np.linalg.cholesky(A), b[..., None])[..., 0]
    np.testing.assert_allclose(work.get("t"), right, rtol=1e-9, atol=1e-12 * np.abs(right).max())


@RANKS
def test_lanes_moments_equal_numpy(rng, R):
    A, eta = positive(rng, R), rng.standard_normal((LANES, R))
    P = R * (R + 1) // 2
    work = Work(a=P, t=R, s=P, m=R, vt=R * R, d=R, ok=1)
    work.put("a", pack(A))
    work.put("t", eta)
    work.put("ok", np.ones(LANES))
    at = [work[name] for name in ("a", "t", "s", "m", "vt", "d", "ok")]
    lanes.moments(work.w, *at, R)
    S = np.linalg.inv(A)
    m = np.linalg.solve(A, eta[..., None])[..., 0]
    size = np.abs(S).max(axis=(1, 2))
    assert (np.abs(unpack(work.get("s"), R) - S).max(axis=(1, 2)) < 1e-11 * size).all()
    assert (np.abs(work.get("m") - m).max(axis=1) < 1e-11 * size * np.abs(eta).sum(axis=1)).all()
    np.testing.assert_array_equal(work.get("ok"), 1.0)


@RANKS
def test_lanes_moments_flag_lanes_that_are_not_positive_definite_and_only_those(rng, R):
    A, eta = positive(rng, R), rng.standard_normal((LANES, R))
    Q, _ = np.linalg.qr(rng.standard_normal((R, R)))
    values = np.linspace(1.0, 2.0, R)
    negative, singular = values.copy(), values.copy()
    negative[-1], singular[-1] = -0.01, 0.0
    A[2] = (Q * negative) @ Q.T
    A[5] = -A[5]
    A[7] = np.nan
    A[9] = np.inf
    A[11] = 0.0
    A[14] = (Q * singular) @ Q.T if R > 1 else 0.0
    P = R * (R + 1) // 2
    work = Work(a=P, t=R, s=P, m=R, vt=R * R, d=R, ok=1)
    work.put("a", pack(A))
    work.put("t", eta)
    work.put("ok", np.ones(LANES))
    lanes.moments(work.w, *(work[name] for name in ("a", "t", "s", "m", "vt", "d", "ok")), R)
    bad = [2, 5, 7, 9, 11, 14]
    good = np.setdiff1d(np.arange(LANES), bad)
    ok = work.get("ok")[:, 0]
    np.testing.assert_array_equal(ok[good], 1.0)
    # rounding may lift the singular matrix a little above zero, and the rule is free to take that for positive
    np.testing.assert_array_equal(ok[[2, 5, 7, 9, 11]], 0.0)
    S = np.linalg.inv(A[good])
    np.testing.assert_allclose(
        unpack(work.get("s"), R)[good], S, rtol=1e-8, atol=1e-11 * np.abs(S).max(), err_msg="a bad lane leaked"
    )


@RANKS
def test_lanes_add_outer_equals_numpy(rng, R):
    S, x, y = symmetric(rng, R), rng.standard_normal((LANES, R)), rng.standard_normal((LANES, R))
    work = Work(s=R * (R + 1) // 2, x=R, y=R, out=R * (R + 1) // 2)
    for name, value in (("s", pack(S)), ("x", x), ("y", y)):
        work.put(name, value)
    lanes.add_outer(work.w, work["s"], work["x"], work["y"], work["out"], R)
    right = pack(S + x[:, :, None] * y[:, None, :])
    np.testing.assert_allclose(work.get("out"), right, rtol=1e-13, atol=1e-14)
    lanes.add_outer(work.w, work["s"], work["x"], work["y"], work["s"], R)
    np.testing.assert_allclose(work.get("s"), right, rtol=1e-13, atol=1e-14)


@RANKS
def test_lanes_symmetric_times_vector_equals_numpy(rng, R):
    S, x = symmetric(rng, R), rng.standard_normal((LANES, R))
    work = Work(s=R * (R + 1) // 2, x=R, out=R)
    work.put("s", pack(S))
    work.put("x", x)
    lanes.symmetric_times_vector(work.w, work["s"], work["x"], work["out"], R)
    np.testing.assert_allclose(work.get("out"), np.einsum("nij,nj->ni", S, x), rtol=1e-12, atol=1e-13)


@RANKS
def test_lanes_trace_product_equals_numpy(rng, R):
    X, Y = symmetric(rng, R), symmetric(rng, R)
    work = Work(x=R * (R + 1) // 2, y=R * (R + 1) // 2, out=1)
    work.put("x", pack(X))
    work.put("y", pack(Y))
    lanes.trace_product(work.w, work["x"], work["y"], work["out"], R)
    np.testing.assert_allclose(work.get("out")[:, 0], np.einsum("nij,nji->n", X, Y), rtol=1e-12, atol=1e-12)


def site(R, Lam, A):
    """Run site_precision on A with the cavity precision Lam; returns T and the flags."""
    P, Q = R * (R + 1) // 2, R * R
    work = Work(
        A=P, vt=Q, full=Q, v=P, y=Q, yt=Q, b=P, d=R, one=1, ok=1, t=P, lam=P, eta=R, s=P, m=R, d2=R, ok2=1
    )  # fmt: skip
    work.put("lam", pack(Lam))
    work.put("eta", np.zeros((LANES, R)))
    for name in ("one", "ok", "ok2"):
        work.put(name, np.ones(LANES))
    lanes.moments(work.w, *(work[name] for name in ("lam", "eta", "s", "m", "vt", "d2", "ok2")), R)
    work.put("A", pack(A))
    names = ("A", "vt", "full", "v", "y", "yt", "b", "d", "one", "ok", "t")
    lanes.site_precision(work.w, *(work[name] for name in names), R)
    return unpack(work.get("t"), R), work.get("ok")[:, 0]


@RANKS
def test_lanes_site_precision_turns_the_cavity_into_the_new_covariance(rng, R):
    Lam = positive(rng, R)
    root = np.linalg.cholesky(np.linalg.inv(Lam))
    # S - S A S = root (I - B) root' for A = root^-T B root^-1, positive definite while the eigenvalues of B are below 1
    Q, _ = np.linalg.qr(rng.standard_normal((LANES, R, R)))
    values = rng.uniform(-5.0, 0.9, size=(LANES, R))
    values[3] = 0.0
    values[4, 1:] = 0.0
    inv = np.linalg.inv(root)
    A = inv.swapaxes(1, 2) @ ((Q * values[:, None, :]) @ Q.swapaxes(1, 2)) @ inv
    S = np.linalg.inv(Lam)
    T, ok = site(R, Lam, A)
    np.testing.assert_array_equal(ok, 1.0)
    new = np.linalg.inv(S - S @ A @ S) - Lam
    size = np.abs(Lam).max(axis=(1, 2))
    assert (np.abs(T - new).max(axis=(1, 2)) < 1e-9 * size).all()
    np.testing.assert_array_equal(T[3], 0.0)
    right = A @ np.linalg.inv(np.eye(R) - S @ A)
    assert (np.abs(T - right).max(axis=(1, 2)) < 1e-9 * size).all()


@RANKS
def test_lanes_site_precision_flags_an_indefinite_new_covariance_and_only_that(rng, R):
    Lam = positive(rng, R)
    S = np.linalg.inv(Lam)
    A = 0.3 * Lam
    x = rng.standard_normal(R)
    for lane in (0, 6, 15):
        A[lane] = 1.5 * np.outer(x, x) / (x @ S[lane] @ x)
    A[8] = np.nan
    T, ok = site(R, Lam, A)
    np.testing.assert_array_equal(np.flatnonzero(ok == 0.0), [0, 6, 8, 15])
    good = ok == 1.0
    np.testing.assert_allclose(T[good], Lam[good] * (0.3 / 0.7), rtol=1e-8, atol=1e-10 * np.abs(Lam[good]).max())


@each("R", [1, 2, 7])
def test_log_determinants_of_packed_covariances(R):
    root = np.random.default_rng(0).normal(size=(19, R, R))
    matrices, out = root @ root.transpose(0, 2, 1) + np.eye(R), np.empty(19)
    row_log_dets(0, 19, pack(matrices), out)
    np.testing.assert_allclose(out, np.linalg.slogdet(matrices)[1], rtol=1e-12, atol=1e-12)
