"""The published runs of CEP on Alog and Enron, sweep by sweep, to the four digits that are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, fit
from helpers.published import RANKS, SHAPES, published_score

from tensorcep.core.packing import offsets
from tensorcep.datasets import published_entries
from tensorcep.priors.fixed import Prior

STORED = json.loads((Path(__file__).parents[2] / "oracles" / "tensor_trajectories.json").read_text())
PUBLISHED = {
    "schedule": "parallel",
    "damping": 0.5,
    "positive": False,
    "noise_moments": "cavity",
    "message_precision": 1e-6,
    "message_noise": (1e-3, 1e-3),
}


def published_means(shape, rank):
    """Prior means of fold 1: MATLAB's default stream, filled by columns, one draw after the other for every rank."""
    stream = np.random.RandomState(5489)
    for at_rank in RANKS:
        draws = [stream.random_sample((n, at_rank)) for n in shape]
        if at_rank == rank:
            return draws
    raise AssertionError(rank)


@each("rank", RANKS)
@pytest.mark.parametrize("name", ["alog", "enron"])
def test_cep_follows_the_published_trajectory(real_data, name, rank):
    shape = SHAPES[name]
    coords, y = published_entries(f"{name}/train-fold-1.txt")
    test_coords, test_y = published_entries(f"{name}/test-fold-1.txt")
    likelihood = {"alog": "gaussian", "enron": "probit"}[name]
    prior = Prior(published_means(shape, rank), [1.0] * 3)
    p = build(coords, y if name == "alog" else 2 * y - 1, shape, rank, likelihood, prior)
    rows, found = test_coords + offsets(shape)[:-1], {}

    def keep(sweep, info, state):
        found[str(sweep)] = round(float(published_score(name, rows, test_y, state)), 4)

    run = fit(p, 20, callbacks=[keep], **PUBLISHED)
    stored = STORED[{"alog": "alog_cep_rmse", "enron": "enron_cep_auc"}[name]][f"rank{rank}_fold1"]
    assert {sweep: found[sweep] for sweep in stored} == stored
    assert run.trace["skipped"].sum() == run.trace["shrunk"].sum() == 0
