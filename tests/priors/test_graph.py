"""Rows of a graph: a plain dense Gaussian says the same; closed forms; rows without entries; what a graph may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.cases import each
from scipy import sparse
from scipy.stats import multivariate_t

from tensorcep.core.packing import pack, unpack
from tensorcep.entries.labels import Labels
from tensorcep.priors import gmrf
from tensorcep.priors.base import Coupled, Drift, ModePrior
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import Mode
from tensorcep.priors.gmrf import check_graph, field
from tensorcep.priors.graph import Graph, net, warn_of_nodes
from tensorcep.priors.ou_process import table

N = 14
# Two parts, one of them a pair, and a row by itself.
EDGES = [(0, 1), (1, 2, 2.0), (2, 3), (3, 0), (3, 4, 0.5), (4, 5), (5, 6), (6, 7), (7, 4), (7, 8), (8, 9), (2, 9)]
EDGES += [(10, 9), (11, 12, 3.0)]
SOME = ~np.isin(np.arange(N), [1, 4, 8, 10])  # one of the others is a leaf, the rest are between rows with entries


def net_of(edges=EDGES, n=N):
    return net(Graph(edges), Mode("s", None, n))[0]


def covariance(of_net, length):
    """The covariance of the field at scale 1."""
    weights = of_net.matrix.toarray()
    free = np.linalg.inv(np.eye(of_net.n) + length**2 * (np.diag(weights.sum(axis=0)) - weights))
    s = np.sqrt(np.diag(free))
    return free / np.outer(s, s)


def some_bonds(of, rng, D=2):
    """A prior with a length and a scale for each column, and the covariances and means that it stands for."""
    which, scale, mean = rng.integers(1, len(of.lengths), size=D), 0.5 + rng.random(D), rng.standard_normal(D)
    at = (np.arange(len(of.lengths))[:, None] == which) * scale
    covs = [covariance(of.clock, of.lengths[i]) / s for i, s in zip(which, scale, strict=True)]
    modes = ModePrior(mean[None], np.diag(scale)[None], drifts=(Drift(of.lengths[which], np.zeros((0, D))),))
    return of.joint(at, (at * mean)[:, None], np.zeros(D)), covs, mean, modes


def dense(covs, mean, Lam, eta):
    """Means (n, D), covariances (n, D, n, D) and log normaliser of the rows given what their entries say."""
    n, D = eta.shape
    K = np.zeros((n, D, n, D))
    for d, cov in enumerate(covs):
        K[:, d, :, d] = np.linalg.inv(cov)
    prior, means = K.reshape(n * D, n * D).copy(), np.tile(mean, n)
    for t in range(n):
        K[t, :, t] += Lam[t]
    K = K.reshape(n * D, n * D)
    S, right = np.linalg.inv(K), prior @ means + eta.ravel()
    z = 0.5 * (right @ S @ right - means @ prior @ means + np.linalg.slogdet(prior)[1] - np.linalg.slogdet(K)[1])
    return (S @ right).reshape(n, D), S.reshape(n, D, n, D), z


def told(rng, n, D=2):
    roots = rng.standard_normal((n, D, 3))
    return roots @ roots.swapaxes(1, 2), rng.standard_normal((n, D))


@pytest.mark.parametrize("seen", [np.ones(N, dtype=bool), SOME])
def test_field_is_that_of_dense_matrices_and_its_table_their_evidence(rng, seen):
    of = field(net_of(), seen)
    assert of.place.tolist() == np.flatnonzero(seen).tolist()
    n, rate = len(of.place), np.array([0.3, 0.7])
    u = rng.standard_normal((n, 2))
    known = table(of, of.sums(u), rate)
    for i, length in enumerate(of.lengths):
        cov = covariance(of.clock, length)[np.ix_(seen, seen)]
        np.testing.assert_allclose(np.diag(cov), 1.0)
        K = np.diag(of.own[i])
        K[of.left, of.right] = K[of.right, of.left] = -of.between[i]
        np.testing.assert_allclose(K @ cov, np.eye(n), atol=1e-8)
        np.testing.assert_allclose(of.total[i], K.sum(axis=0), atol=1e-8)
        assert of.log_det[i] == pytest.approx(-np.linalg.slogdet(cov)[1], abs=1e-8)
        exact = [
            multivariate_t.logpdf(u[:, d], np.zeros(n), 2.0 * rate[d] * (cov + 1.0 / of.mean_rows), df=1.0)
            for d in (0, 1)
        ]
        np.testing.assert_allclose(known.log_z[i, 0], exact - np.log(len(of.lengths)), atol=1e-8)


def test_rows_have_the_moments_of_a_dense_gaussian(rng):
    of = field(net_of(), np.ones(N, dtype=bool))
    prior, covs, mean, _ = some_bonds(of, rng)
    Lam, eta = told(rng, N)
    exact, cov, log_z = dense(covs, mean, Lam, eta)
    found = prior.marginals(pack(Lam), eta)
    np.testing.assert_allclose(found.mean, exact, atol=1e-8)
    np.testing.assert_allclose(unpack(found.cov, 2), [cov[t, :, t] for t in range(N)], atol=1e-8)
    cross = [np.diag(cov[a, :, b]) for a, b in zip(*of.pairs, strict=True)]
    np.testing.assert_allclose(found.cross, cross, atol=1e-8)
    # the bound, but for constants of the prior, that the bound of its parameters takes off again
    whole, variance = np.einsum("nd,nd->", eta, found.mean), found.cov[:, [0, 2]]
    whole -= 0.5 * np.einsum("nde,nde->", Lam, unpack(found.cov, 2) + found.mean[:, :, None] * found.mean[:, None])
    whole += 0.5 * (found.mean.size * (1.0 + np.log(2.0 * np.pi)) - found.log_det)
    whole += of.chained(prior).expected(found.mean, variance, found.cross)
    constant = sum(-np.linalg.slogdet(c)[1] - m * m * np.linalg.inv(c).sum() for c, m in zip(covs, mean, strict=True))
    assert whole + 0.5 * constant == pytest.approx(log_z, abs=1e-8)


def errors_of_draws(rng):
    """How far means and covariances of draws are from those of a dense Gaussian, in standard errors."""
    of = field(net_of(), np.ones(N, dtype=bool))
    prior, covs, mean, _ = some_bonds(of, rng)
    Lam, eta = told(rng, N)
    Lam[3] = 0.0  # a row of which entries say nothing
    exact, cov, _ = dense(covs, mean, Lam, eta)
    draws = np.array([prior.draw(pack(Lam), eta, (1, s, 0)) for s in range(4000)]).reshape(4000, -1)
    cov = cov.reshape(2 * N, -1)
    scale = np.sqrt(np.diag(cov))
    of_mean = np.abs((draws.mean(axis=0) - exact.ravel()) / scale).max() * np.sqrt(4000)
    return of_mean, np.abs((np.cov(draws.T) - cov) / np.outer(scale, scale)).max() / np.sqrt(2.0 / 4000)


def test_draws_have_the_moments_of_a_dense_gaussian(rng):
    assert max(errors_of_draws(rng)) < 6.0


def test_draws_without_the_noise_of_edges_do_not(rng, monkeypatch):
    right = gmrf.perturb

    def wrong(Lam, rest, left, ends, between, *others):
        return right(Lam, rest, left[:0], ends[:0], between[:0], *others)

    monkeypatch.setattr(gmrf, "perturb", wrong)
    of_mean, of_cov = errors_of_draws(rng)
    assert of_mean < 6.0 < of_cov


def test_columns_by_themselves_have_the_exact_means(rng, monkeypatch):
    of = field(net_of(), np.ones(N, dtype=bool))
    prior, covs, mean, _ = some_bonds(of, rng)
    Lam, eta = told(rng, N)
    monkeypatch.setattr(gmrf, "MOST_BOND_WORK", 0.0)
    found = prior.marginals(pack(Lam), eta)
    np.testing.assert_allclose(found.mean, dense(covs, mean, Lam, eta)[0], atol=1e-8)
    for d, cov in enumerate(covs):  # the best law of a column by itself has its conditional precision
        own = np.linalg.inv(np.linalg.inv(cov) + np.diag(Lam[:, d, d]))
        np.testing.assert_allclose(found.cov[:, [0, 2][d]], np.diag(own), atol=1e-8)
        np.testing.assert_allclose(found.cross[:, d], own[of.pairs], atol=1e-8)
    assert not found.cov[:, 1].any()


@pytest.mark.parametrize("most", [gmrf.MOST_COUPLED, 2])
def test_rows_without_entries_have_their_conditional_law(rng, monkeypatch, most):
    monkeypatch.setattr(gmrf, "MOST_COUPLED", most)
    seen = ~np.isin(np.arange(N), [1, 3, 4, 8, 10, 11, 12])  # a whole part, too
    of = field(net_of(), seen)
    assert (len(of.place) > seen.sum()) == (most == 2)
    prior, covs, mean, modes = some_bonds(of, rng)
    Lam, eta = (part * seen.reshape(-1, *(part.ndim - 1) * [1]) for part in told(rng, N))
    exact, cov, _ = dense(covs, mean, Lam, eta)
    out = np.setdiff1d(np.arange(N), of.place)
    found = prior.marginals(pack(Lam)[of.place], eta[of.place])
    np.testing.assert_allclose(found.mean, exact[of.place], atol=1e-8)
    means, packed = of.unseen(modes, 0, None, None, None, found.told)
    np.testing.assert_allclose(means, exact[out], atol=1e-8)
    np.testing.assert_allclose(unpack(packed, 2), [cov[t, :, t] for t in out], atol=1e-8)
    rows = np.repeat(rng.standard_normal((1, N, 2)), 6000, axis=0)
    which = np.argmin(np.abs(of.lengths[:, None] - modes.drifts[0].length), axis=0)
    noise = rng.standard_normal((6000, len(out), 2)) / np.sqrt(np.diag(modes.precision[0]))
    gmrf.draw_gaps(of.gaps, rows, np.tile(which, (6000, 1)), np.tile(mean, (6000, 1)), noise)
    for d, own in enumerate(covs):
        share = np.linalg.solve(own[np.ix_(of.place, of.place)], own[np.ix_(of.place, out)]).T
        center, rest = mean[d] + share @ (rows[0, of.place, d] - mean[d]), own[np.ix_(out, out)]
        rest = rest - share @ own[np.ix_(of.place, out)]
        alone = np.isin(out, [11, 12])  # rows of a part without entries are drawn one by one
        rest = np.where(alone[:, None] & alone, np.diag(np.diag(rest)), rest)
        scale = np.sqrt(np.diag(rest))
        assert np.abs((rows[:, out, d].mean(axis=0) - center) / scale).max() < 6.0 / np.sqrt(6000)
        assert np.abs((np.cov(rows[:, out, d].T) - rest) / np.outer(scale, scale)).max() < 6.0 * np.sqrt(2.0 / 6000)


def test_a_path_and_a_ring_have_their_closed_forms():
    n = 9
    path = field(net_of([(i, i + 1) for i in range(n - 1)], n), np.ones(n, dtype=bool))
    ring = field(net_of([(i, (i + 1) % n) for i in range(n)], n), np.ones(n, dtype=bool))
    wave = np.sqrt(2.0 / n) * np.cos(np.pi * np.outer(np.arange(n) + 0.5, np.arange(n)) / n)
    wave[:, 0] = np.sqrt(1.0 / n)
    for i, g in enumerate(path.lengths**2):  # the eigenvectors of a path are cosines
        values = 1.0 + g * (2.0 - 2.0 * np.cos(np.pi * np.arange(n) / n))
        np.testing.assert_allclose(path.scale[i] ** 2, (wave**2 / values).sum(axis=1), rtol=1e-10)
        log_det = np.log(values).sum() + 2.0 * np.log(path.scale[i]).sum()
        assert path.log_det[i] == pytest.approx(log_det, abs=1e-8)
    for g in ring.lengths[1:] ** 2:  # on a ring a field is an Ornstein-Uhlenbeck process on a circle
        step = np.arccosh(1.0 + 0.5 / g)
        apart = np.abs(np.arange(n)[:, None] - np.arange(n))
        exact = np.cosh((0.5 * n - apart) * step) / np.cosh(0.5 * n * step)
        np.testing.assert_allclose(covariance(ring.clock, np.sqrt(g)), exact, atol=1e-8)


def test_bound_of_known_rows_is_their_evidence(rng):
    full = np.ones((1, 2), dtype=bool)
    plain = PriorByMode(np.ones((1, 3)), np.zeros((1, 2)), np.full((1, 2), 0.3), np.full((1, 2), 0.7), full)
    prior, u = replace(plain, clocks=[net_of()]).for_rows([np.ones(N, dtype=bool)]), rng.standard_normal((N, 2))
    of = prior.axis(0)
    q = prior.learn([u], [np.zeros((2, 2))], [Coupled(np.zeros((N, 2)), np.zeros((len(of.left), 2)))])
    known = table(of, of.sums(u - 0.3), of.shape * np.full(2, 0.49))
    total = q[0].chained.expected(u) + prior.bound(q)
    assert total == pytest.approx(float(known.log_sum.sum()), abs=1e-9)


def test_names_and_order_of_rows_do_not_matter(rng):
    order = rng.permutation(N)
    moved = [(int(order[edge[0]]), int(order[edge[1]]), *edge[2:]) for edge in EDGES]
    one, two = field(net_of(), SOME), field(net_of(moved), SOME[np.argsort(order)])
    u = rng.standard_normal((len(one.place), 2))
    v = np.empty((N, 2))
    v[order[one.place]] = u
    for found, other in zip(one.sums(u), two.sums(v[two.place]), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-9)
    np.testing.assert_allclose(one.log_det, two.log_det, atol=1e-8)


MATRIX = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
TRIPLES = [("b", "a", 2.0), ("b", "c", 1.0)]


class Linked:
    """A graph as networkx has it."""

    nodes = ("a", "b", "c", "z")

    def is_directed(self):
        return False

    def edges(self, data, default):
        return iter(TRIPLES)

    def number_of_edges(self):
        return 2


SAME = [
    Graph(MATRIX),
    Graph(sparse.csr_matrix(MATRIX)),
    Graph(MATRIX[::-1, ::-1], labels=["c", "b", "a"]),
    Graph(TRIPLES),
    Graph(edge for edge in [*TRIPLES, ("a", "b", 2.0)]),
    Graph(pd.DataFrame(TRIPLES)),
    Graph(pd.DataFrame(TRIPLES).astype({0: "category"})),
    Graph(Linked()),
]


@each("graph", SAME)
def test_a_graph_is_read_however_it_is_said(graph):
    found, mode = net(graph, Mode("s", Labels(["a", "b", "c"]), 3))
    assert (found.left.tolist(), found.right.tolist()) == ([0, 1], [1, 2])
    np.testing.assert_allclose(found.weight, np.array([2.0, 1.0]) / 1.5)
    assert mode.size == found.n == len(mode.labels) == (4 if isinstance(graph.edges, Linked) else 3)
    assert repr(graph).startswith("Graph(")


def test_rows_that_a_graph_names_become_rows():
    found, mode = net(Graph([("a", "new"), ("new", "newer")]), Mode("s", Labels(["a", "b"]), 2))
    assert (found.n, list(mode.labels)) == (4, ["a", "b", "new", "newer"])
    assert net(Graph([(0, 5)]), Mode(0, None, 3))[1].size == 6


AB = Labels(["a", "b"])
REFUSED = [
    ([("a", "a")], AB, "must have edges between two rows; got one from 'a' to itself"),
    ([("a", "b", -1)], AB, "must have weights above 0; got -1"),
    (np.array([[0.0, np.inf], [np.inf, 0.0]]), AB, "must have weights that are finite numbers; got"),
    ([("a", "b", 10**400)], AB, "finite numbers; got a whole number beyond the range of floats"),
    ([(["a"], "b")], AB, "must hold labels, such as numbers, text or dates"),
    ([("a", "b", "far")], AB, "must have weights that are finite numbers; got 'far'"),
    ([("a", "b", 1), ("b", "a", 2)], AB, "must give every edge one weight; got two for 'a' and 'b'"),
    ([("a",)], AB, r"must have edges \(a, b\) or \(a, b, weight\); got \('a',\)"),
    ([("x", "y")], AB, "must be indexed by its labels, such as 'a'; got none of them"),
    ([], AB, "must be indexed by its labels"),
    ([("a", "b", 0.0)], AB, "must have an edge; got none"),
    (np.array([[0, 1], [0, 0]]), AB, "must be a symmetric matrix"),
    (np.array([[1, 1], [1, 1]]), AB, "from 'a' to itself"),
    (np.ones((2, 3)), AB, r"must be a square matrix; got the shape \(2, 3\)"),
    (MATRIX, AB, "must have 2 lines, one per row; got 3; name its lines by labels="),
    (pd.DataFrame({"a": ["a"]}), AB, "must have two columns of labels, and perhaps one of weights; got 1"),
    (pd.DataFrame({"a": ["a"], "b": [None]}), AB, "must have labels at both ends of its edges"),
    ("ab", AB, "must be a square matrix, a DataFrame of edges"),
    ([(-1, 0)], None, "must be indexed by row numbers from 0"),
    (
        [("a", "b", 1e300), ("b", "c", 1e-300), ("c", "d", 1.0)],
        AB,
        "weights from 1e-300 to 1e.300, the largest between 'a' and",
    ),
    (
        [("a", "b", 1e13), ("b", "c", 1.0), ("c", "d", 1.0)],
        AB,
        r"at most 1e\+12 times their median; got weights from 1 to",
    ),
]


@each(("edges", "labels", "sentence"), REFUSED)
def test_what_is_no_graph_is_refused(edges, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        net(Graph(edges), Mode("s", labels, 2))


def test_labels_of_edges_directions_and_dense_graphs_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="edges name their rows themselves"):
        net(Graph([("a", "b")], labels=["a", "b"]), Mode("s", AB, 2))
    with pytest.raises(ValueError, match="must name its 3 lines; got 2"):
        net(Graph(MATRIX, labels=["a", "b"]), Mode("s", AB, 2))
    monkeypatch.setattr(Linked, "is_directed", lambda self: True)
    with pytest.raises(ValueError, match="got a directed graph; use its to_undirected"):
        net(Graph(Linked()), Mode("s", AB, 2))
    monkeypatch.setattr("tensorcep.priors.gmrf.MOST_WORK", 3.0)
    with pytest.raises(ValueError, match="connects too much of its 14 rows .* keep those of each row's nearest"):
        check_graph(net_of(), "s")


def test_too_few_rows_with_entries_are_no_field():
    assert field(net_of(), np.arange(N) == 3) is None


def test_edges_that_a_sparse_matrix_lists_twice_are_summed():
    at = np.array([[0, 1, 0, 1, 1, 2], [1, 0, 1, 0, 2, 1]])
    twice = sparse.coo_array((np.ones(6), tuple(at)), shape=(3, 3))
    unsummed = sparse.csr_array((np.ones(6), np.array([1, 1, 0, 0, 2, 1]), np.array([0, 2, 5, 6])), shape=(3, 3))
    for edges in (twice, twice.tocsr(), twice.toarray(), unsummed, sparse.dok_array(twice), sparse.bsr_array(twice)):
        found, _ = net(Graph(edges), Mode("s", None, 3))
        assert (found.left.tolist(), found.right.tolist()) == ([0, 1], [1, 2])
        np.testing.assert_array_equal(found.weight, np.array([2.0, 1.0]) / 1.5)


def test_nodes_that_look_misspelt_are_told_with_counts():
    seen = np.array([True, True, True])

    def told(edges):
        known, mode = net(Graph(edges), Mode("s", Labels(list("abc")), 3))
        warn_of_nodes(known, mode, np.append(seen, np.zeros(known.n - 3, dtype=bool)))

    with pytest.warns(
        UserWarning, match="1 of 3 nodes .* no entries, such as 'C', and 1 of 3 rows with entries no edge, such as 'c'"
    ):
        told([("a", "b"), ("b", "C")])
    with pytest.warns(UserWarning, match="1 of 4 nodes of the Graph of mode 's' have no entries, such as 'A '; where"):
        told([("a", "b"), ("b", "c"), ("c", "A ")])
    told([("a", "b"), ("b", "c"), ("c", "new")])  # a row to predict
    told([("a", "group"), ("b", "group"), ("c", "group")])  # a taxonomy
    told([("a", "b")])  # a row without an edge
