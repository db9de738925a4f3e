"""Summaries of the components: shares, switched-off ones, and the table of a mode."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers.data import entries, fitted, new
from helpers.models import paper

import tensorcep as tc
from tensorcep.cp.fitted.alignment import layout_of, relevance, signs


def test_relevance_is_the_share_in_the_mean_square(rng):
    factors = [rng.standard_normal((n, 3)) for n in (5, 4, 6)]
    layout = layout_of((5, 4, 6), [(0, 1, 2)] * 3, np.ones(15, dtype=bool))
    parts = np.einsum("ir,jr,kr->ijkr", *factors)
    squares = np.mean(parts**2, axis=(0, 1, 2))
    np.testing.assert_allclose(relevance(np.concatenate(factors), layout), squares / squares.sum())


def test_signs_leave_products_alone_and_point_up(rng):
    factors = [rng.standard_normal((n, 3)) for n in (5, 4, 6)]
    modes = [(0, 1, 2), (1, 2), (2,)]
    sign = signs(factors, modes)
    for r, active in enumerate(modes):
        assert np.prod(sign[:, r]) == 1.0
        assert all((factors[k][:, r] ** 2 * np.sign(factors[k][:, r]) * sign[k, r]).sum() >= 0.0 for k in active[1:])
        assert all(sign[k, r] == 1.0 for k in range(3) if k not in active)


def test_components_hold_labels_means_and_sds_in_order():
    frame = pd.DataFrame({"who": list("aabbccdd"), "what": list("xyxyxyxy"), "value": np.arange(8.0)})
    model = paper(tc.CPRegressor, 2, random_state=0, max_iter=30, tol=1.0).fit(
        tc.SparseTensor.from_pandas(frame, ["who", "what"], "value")
    )
    table = model.components("who")
    pd.testing.assert_frame_equal(model.components(0), table)
    assert table["component"].iloc[0] == np.argmax(model.relevance_)
    one, other = ({r: own.reset_index() for r, own in model.components(k).groupby("component")} for k in range(2))
    assert list(one[0]["who"]) == list("abcd")
    product = sum(one[r]["weight"].iloc[0] * np.outer(one[r]["mean"], other[r]["mean"]) for r in range(2))
    np.testing.assert_allclose(product, model.factors_[0] @ model.factors_[1].T)  # signs cancel in products
    ratio = one[1]["sd"] / np.sqrt(model.factor_covs_[0][:, 1, 1])
    np.testing.assert_allclose(ratio, np.abs(one[1]["mean"] / model.factors_[0][:, 1]))


def test_components_leave_out_columns_held_at_one():
    X, y = entries("regressor")
    model = new("regressor", interactions="main+cp", tol=0.5).fit(X, y)
    assert set(model.components(1)["component"]) == {r for r, modes in enumerate(model.column_modes_) if 1 in modes}


def test_n_components_counts_what_ard_leaves():
    s = tc.simulate_cp((30, 30, 30), 2, 4000, noise_precision=100.0, latent_sd=1.0, random_state=1)
    model = paper(tc.CPRegressor, 5, prior="ard", random_state=0, tol=1e-3).fit(s.tensor.coords, s.tensor.values)
    assert model.n_components_ == 2
    assert model.relevance_.sum() == pytest.approx(1.0)


def test_components_refuse_a_mode_that_is_not_there():
    with pytest.raises(ValueError, match="mode must be an integer from 0 to 2; got 3"):
        fitted("regressor").components(3)
