"""Fits whose entries have auxiliary variables, on the workers of a Dask cluster: the same bits as in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.clusters import local_client
from helpers.ended_fit import TENSOR
from helpers.kinds import check_bits, kinds_of, of_kind

import tensorcep as tc
from tensorcep import distributed

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_client() as found:
        yield found


GIBBS = tc.Gibbs(n_chains=2)
PG = tc.PGGibbs(n_chains=2)
KINDS = kinds_of(TENSOR)


def check_kind(client: Any, kind: str, method: Any, **params: Any) -> None:
    """A fit on workers and here."""
    model, tensor = of_kind(KINDS, kind, method, **params)
    here = model.fit(tensor)
    there = distributed.fit(of_kind(KINDS, kind, method, **params)[0], tensor, client=client, n_parts=2)
    check_bits(here, there, TENSOR.coords[:20])


# Weights and targets that workers draw, and those that follow from squares that they compute.
@pytest.mark.parametrize(("kind", "method"), [("labels", PG), ("labels", "pg-vb")])
def test_fit_with_auxiliary_variables_on_workers_has_the_bits_of_one_process(
    client: Any, kind: str, method: Any
) -> None:
    check_kind(client, kind, method)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "params"),
    [
        ("labels", "pg-vb", {"interactions": "main+cp"}),
        ("labels", PG, {"interactions": "auto"}),
        ("probit", GIBBS, {}),
        ("probit", "vmp", {}),
        ("limits", GIBBS, {}),
        ("limits", "vmp", {}),
        ("counts", "pg-vb", {}),
        ("poisson", "vmp", {}),
        ("levels", GIBBS, {}),
        ("levels", "vmp", {}),
    ],
)
def test_other_fits_with_auxiliary_variables_on_workers(
    client: Any, kind: str, method: Any, params: dict[str, Any]
) -> None:
    check_kind(client, kind, method, **params)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "poisson", "limits", "levels"])
def test_default_fits_of_other_data_on_workers(client: Any, kind: str) -> None:
    check_kind(client, kind, "auto", init="auto", interactions="auto", max_iter=9)


class EndedError(Exception):
    """What ends a fit in a test."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method"), [("labels", PG), ("labels", "pg-vb"), ("limits", "vmp"), ("levels", "vmp")]
)
def test_fit_with_auxiliary_variables_goes_on_to_the_same_bits(
    client: Any, tmp_path: Path, kind: str, method: Any
) -> None:
    def end(n: int, *_: Any) -> None:
        if n == 4:
            raise EndedError

    how: dict[str, Any] = {"client": client, "checkpoint": tmp_path / "fit", "n_parts": 2, "every": 1}
    model, tensor = of_kind(KINDS, kind, method)
    here = model.fit(tensor)
    with pytest.raises(EndedError):
        distributed.fit(of_kind(KINDS, kind, method, callbacks=end)[0], tensor, **how)
    seen: list[int] = []
    ended = of_kind(KINDS, kind, method, callbacks=lambda n, *_: seen.append(n))[0]
    there = distributed.fit(ended, tensor, **how)
    check_bits(here, there, TENSOR.coords[:20])
    assert seen == [4, 5]
