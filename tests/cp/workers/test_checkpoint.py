"""States as trees that files hold, and back; checkpoints of another format are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import problem, settings_of

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.persist.archive import write_archive
from tensorcep.core.persist.records import merge, split
from tensorcep.cp.gibbs.method import KeptDraws
from tensorcep.cp.methods import METHODS
from tensorcep.cp.workers.checkpoint import KIND, ClusterHost, state_of, tree_of_state
from tensorcep.cp.workers.files import SiteFiles


def same(one: Any, other: Any) -> bool:
    """Whether two records, or what they hold, are equal."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=True))
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one is other or bool(one == other)


@each("name", ["vmp", "gibbs", "cep", "laplace"])
def test_state_comes_back_from_its_tree(rng: np.random.Generator, tmp_path: Path, name: str) -> None:
    p, method, executor, sites = problem(rng)[2], METHODS[name], ThreadExecutor(1), SiteFiles(tmp_path)
    options = settings_of(name)
    first = method.init(p, options, executor)
    state = first
    for _ in range(3):
        state, _ = method.step(state, p, options, executor)
    found: list[Any] = []
    tree, arrays = split(tree_of_state(state, sites, found))
    draws = [{k: own[d] for k, own in one._asdict().items() if own} for one in found for d in range(len(one.rows))]
    assert all(isinstance(one, KeptDraws) for one in found)
    fresh = method.init(p, options, executor)
    arrays = {path: array.copy() for path, array in arrays.items()}
    back = state_of(merge(json.loads(json.dumps(tree)), arrays), fresh, draws, sites)
    back = method.resume(back, p, executor)
    for field in ("rows", "hyper", "parameters", "sweeps"):
        assert same(getattr(back, field), getattr(state, field)), field
    (ahead, told), (again, other) = (method.step(one, p, options, executor) for one in (state, back))
    assert same(ahead.rows, again.rows)
    assert same(np.array(told), np.array(other))


def test_checkpoint_of_an_older_format_is_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "fit.npz", KIND, 1, {"fit": "print"}, {})
    cluster: Any = None
    host = ClusterHost(cluster, tmp_path, tmp_path)
    with pytest.raises(ValueError, match="a fit in format version 1, and this tensorcep reads version 2 only; name"):
        host._check_folder(tmp_path, "print")
