"""Loopy BP: stored marginals, exact on trees, and the Bethe evidence as minus the energy of EP."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each

from tensorcep import LoopyBP

STORED = json.loads((Path(__file__).parents[1] / "oracles" / "ep.json").read_text())


def loop(n_edges=4, weights=None):
    stored = STORED["loopy4"]
    single = [((i,), table) for i, table in enumerate(stored["theta"])]
    pairs = list(zip(stored["edges"], weights or stored["psi"], strict=True))
    return single + [(tuple(edge), np.array(table)) for edge, table in pairs[:n_edges]]


def enumerate_states(n_states, factors):
    """Log of the sum, and the marginals, by going through every state."""
    weights = np.ones(n_states)
    for variables, table in factors:
        for state in itertools.product(*map(range, n_states)):
            weights[state] *= np.asarray(table)[tuple(state[v] for v in variables)]
    axes = range(len(n_states))
    marginals = [weights.sum(axis=tuple(a for a in axes if a != v)) / weights.sum() for v in axes]
    return np.log(weights.sum()), marginals


def random_tree(rng, n=7):
    """Tables of one to three variables that join in no loop, some entries zero."""
    sizes = list(rng.integers(2, 5, n))
    scopes = [(0, 1, 2), (2, 3), (3, 4, 5), (5,), (6, 1), (4,)]
    factors = []
    for scope in scopes:
        table = rng.gamma(0.5, size=tuple(sizes[v] for v in scope))
        table[(0,) * len(scope)] = 0.0
        factors.append((scope, table))
    return sizes, factors


def test_loopy_bp_equals_stored_marginals_and_bethe_evidence():
    found = LoopyBP(tol=1e-13).fit([2] * 4, loop())
    assert found.converged
    np.testing.assert_allclose([m[1] for m in found.marginals], STORED["loopy4"]["bp_p1"], rtol=1e-9)
    assert abs(found.log_evidence - STORED["loopy4"]["bethe_logZ"]) < 1e-11


def test_loopy_bp_on_a_chain_equals_stored_exact_values():
    found = LoopyBP().fit([2] * 4, loop(3))
    np.testing.assert_allclose([m[1] for m in found.marginals], STORED["chain4"]["exact_p1"], rtol=1e-12)
    assert abs(found.log_evidence - STORED["chain4"]["exact_logZ"]) < 1e-12


@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_loopy_bp_is_exact_on_trees(damping, rng):
    for _ in range(5):
        sizes, factors = random_tree(rng)
        found = LoopyBP(damping=damping, max_iter=500, tol=1e-13).fit(sizes, factors)
        log_sum, marginals = enumerate_states(sizes, factors)
        assert abs(found.log_evidence - log_sum) < 1e-10
        for mine, exact in zip(found.marginals, marginals, strict=True):
            np.testing.assert_allclose(mine, exact, atol=1e-10)


def test_loopy_bp_fixed_point_does_not_depend_on_order_or_damping(rng):
    wanted = LoopyBP(tol=1e-13).fit([2] * 4, loop())
    factors = [loop()[i] for i in rng.permutation(8)]
    found = LoopyBP(damping=0.3, tol=1e-13).fit([2] * 4, factors)
    np.testing.assert_allclose(found.marginals, wanted.marginals, rtol=1e-10)
    assert abs(found.log_evidence - wanted.log_evidence) < 1e-10


def test_loopy_bp_overestimates_a_frustrated_loop():
    """An odd number of edges that favour different states: the Bethe evidence is then too large."""
    weights = [np.array([[4.0, 1.0], [1.0, 4.0]])] * 3 + [np.array([[1.0, 4.0], [4.0, 1.0]])]
    factors = loop(weights=weights)
    found = LoopyBP(damping=0.2, max_iter=1000).fit([2] * 4, factors)
    assert found.converged
    assert found.log_evidence > enumerate_states([2] * 4, factors)[0] + 0.1


def test_loopy_bp_beliefs_agree_with_marginals_and_scale_goes_into_the_evidence():
    found = LoopyBP(tol=1e-13).fit([2] * 4, loop())
    for (variables, _), belief in zip(loop(), found.beliefs, strict=True):
        for axis, v in enumerate(variables):
            others = tuple(a for a in range(belief.ndim) if a != axis)
            np.testing.assert_allclose(belief.sum(axis=others), found.marginals[v], atol=1e-11)
    scaled = [(variables, 3.0 * np.asarray(table)) for variables, table in loop()]
    assert abs(LoopyBP(tol=1e-13).fit([2] * 4, scaled).log_evidence - found.log_evidence - 8 * np.log(3.0)) < 1e-10


def test_loopy_bp_with_hard_constraints_and_free_variables():
    equal = np.eye(3)
    found = LoopyBP().fit([3, 3, 2], [((0, 1), equal), ((0,), [0.2, 0.3, 0.5])])
    np.testing.assert_allclose(found.marginals[1], [0.2, 0.3, 0.5], rtol=1e-12)
    np.testing.assert_allclose(found.marginals[2], [0.5, 0.5])
    assert abs(found.log_evidence - np.log(2.0)) < 1e-12


@each(
    ("factors", "message"),
    [
        ([((0, 4), np.ones((2, 2)))], "variables must be an integer from 0 to 1; got 4"),
        ([((0, 0), np.ones((2, 2)))], "factor 0 must join distinct variables, at least one; got \\(0, 0\\)"),
        ([((0,), [1.0, 2.0, 3.0])], "the table of factor 0 must have shape \\(2,\\); got \\(3,\\)"),
        ([((0,), [1.0, -2.0])], "the table of factor 0 must hold finite numbers >= 0"),
        ([((0,), [1.0, 0.0]), ((0, 1), [[0.0, 0.0], [1.0, 1.0]])], "the factors rule out every state"),
    ],
)
def test_loopy_bp_refuses_bad_factors(factors, message):
    with pytest.raises(ValueError, match=message):
        LoopyBP().fit([2, 2], factors)
