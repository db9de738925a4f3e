"""Gibbs sampling with a graph: Geweke's joint test of whole sweeps, and a twin with a planted bug."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.coupled import coupled_z
from helpers.samplers import CP, STRUCTURED

from tensorcep.priors import gmrf
from tensorcep.priors.by_mode import PriorByMode
from tensorcep.priors.features import Mode
from tensorcep.priors.graph import Graph, net

NET, _ = net(Graph([(0, 1), (1, 2, 3.0)]), Mode("s", None, 3))


def joint_z(free, n):
    of = gmrf.field(NET, np.ones(3, dtype=bool), 10.0)
    weights = NET.matrix.toarray()
    laplacian = np.diag(weights.sum(axis=0)) - weights

    def column(scale, rng):
        cov = np.linalg.inv(np.eye(3) + rng.choice(of.lengths) ** 2 * laplacian)
        root = np.linalg.cholesky(cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov))))
        return root @ rng.standard_normal(3) / np.sqrt(scale)

    return coupled_z(free, NET, of, column, n)


@pytest.fixture(autouse=True)
def few_lengths(monkeypatch):
    monkeypatch.setattr(gmrf, "LENGTHS", 4)
    monkeypatch.setattr(gmrf, "MOST_EDGES", 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("free", [CP, STRUCTURED])
def test_sweeps_with_a_graph_pass_the_joint_test(free):
    assert np.abs(joint_z(free, 600)).max() < 4.5


def test_sweeps_that_forget_the_neighbours_fail_the_joint_test(monkeypatch):
    right = PriorByMode.links

    def wrong(self, k, modes):
        found = right(self, k, modes)
        return None if found is None else found._replace(between=0.0 * found.between)

    monkeypatch.setattr(PriorByMode, "links", wrong)
    assert np.abs(joint_z(CP, 150)).max() > 6.0
