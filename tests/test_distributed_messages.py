"""Methods that pass messages, on the workers of a Dask cluster: the same bits as in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.clusters import local_client
from helpers.kinds import check_bits, kinds_of, of_kind

import tensorcep as tc
from tensorcep import distributed

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
# So many entries for so few rows that there are two chunks.
TENSOR = tc.simulate_cp((20, 16, 12), 2, 2200, noise_precision=16.0, latent_sd=1.0, random_state=3).tensor
KINDS = kinds_of(TENSOR)
AVERAGED, FULL, LAPLACE = (
    tc.CEP(messages="averaged", anneal=2, n_starts=2, n_ensemble=1),
    tc.CEP(anneal=2, n_starts=2, n_ensemble=1),
    tc.Laplace(anneal=2, n_starts=2),
)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_client() as found:
        yield found


def check_kind(client: Any, kind: str, method: Any, **params: Any) -> None:
    """A fit on workers and here."""
    model, tensor = of_kind(KINDS, kind, method, **params)
    here = model.fit(tensor)
    there = distributed.fit(of_kind(KINDS, kind, method, **params)[0], tensor, client=client)
    if kind == "counts":  # their kernels round differently in a process that compiles them
        for a, b in zip(here.factors_, there.factors_, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
        return
    check_bits(here, there, TENSOR.coords[:20])


@pytest.mark.parametrize(
    ("kind", "method"),
    [("labels", AVERAGED), ("values", FULL), ("labels", LAPLACE)],
    ids=["averaged", "full", "laplace"],
)
def test_messages_on_workers_have_the_bits_of_one_process(client: Any, kind: str, method: Any) -> None:
    check_kind(client, kind, method)


def cep(**params: Any) -> tc.CEP:
    return tc.CEP(**{"anneal": 1, "n_starts": 1, "n_ensemble": 1, **params})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "params"),
    [
        ("values", AVERAGED, {}),
        ("labels", FULL, {}),
        ("values", LAPLACE, {}),
        ("values", cep(messages="averaged", moments="posterior"), {"interactions": "main+cp"}),
        ("probit", cep(messages="averaged", order=2, warm_up=2), {}),
        ("values", cep(schedule="parallel", dtype="float32"), {"prior": "ard"}),
        ("labels", cep(order=2, warm_up=2, positive=False, damping="adaptive"), {"interactions": "auto"}),
        ("probit", cep(moments="posterior", message_precision=1e-6), {}),
        ("labels", cep(projection="w2"), {}),
        ("limits", cep(n_ensemble=2), {}),
        ("counts", cep(), {}),
        ("levels", cep(), {}),
        ("counts", tc.Laplace(schedule="parallel", anneal=1, n_starts=1), {}),
        ("levels", tc.Laplace(anneal=1, n_starts=1), {"interactions": "main+cp"}),
    ],
)
def test_other_messages_on_workers(client: Any, kind: str, method: Any, params: dict[str, Any]) -> None:
    check_kind(client, kind, method, **params)


@pytest.mark.slow
def test_default_fit_by_cep_on_workers(client: Any) -> None:
    check_kind(client, "values", "cep", init="auto", interactions="auto", max_iter=8)


class EndedError(Exception):
    """What ends a fit in a test."""


def files_of(folder: Path) -> set[Path]:
    """The files of messages in a folder."""
    return set(folder.glob("messages/**/*.npy"))


@pytest.mark.parametrize(("kind", "method"), [("values", FULL), ("labels", AVERAGED)], ids=["full", "averaged"])
def test_messages_that_were_ended_go_on_to_the_same_bits(client: Any, tmp_path: Path, kind: str, method: Any) -> None:
    calls: list[int] = []

    def end(n: int, *_: Any) -> None:
        calls.append(n)
        if len(calls) == 6:
            raise EndedError

    folder = tmp_path / "fit"
    how: dict[str, Any] = {"client": client, "checkpoint": folder, "every": 2}
    model, tensor = of_kind(KINDS, kind, method)
    here = model.fit(tensor)
    with pytest.raises(EndedError):
        distributed.fit(of_kind(KINDS, kind, method, callbacks=end)[0], tensor, **how)
    assert calls == [1, 2, 1, 2, 3, 4]  # two starts, of which the better one goes on
    # of each start the versions at its end, two for the last sweep that was stored, and those after it
    assert len(files_of(folder)) <= 2 * 4 * 4
    check_bits(here, distributed.fit(of_kind(KINDS, kind, method)[0], tensor, **how), TENSOR.coords[:20])
    assert not files_of(folder)
    check_bits(here, distributed.fit(of_kind(KINDS, kind, method)[0], tensor, **how), TENSOR.coords[:20])


def test_damaged_messages_end_with_a_sentence(client: Any, tmp_path: Path) -> None:
    def end(n: int, *_: Any) -> None:
        if n == 3:
            raise EndedError

    how: dict[str, Any] = {"client": client, "checkpoint": tmp_path / "fit", "every": 1}
    with pytest.raises(EndedError):
        distributed.fit(of_kind(KINDS, "values", cep(), callbacks=end)[0], TENSOR, **how)
    for path in files_of(tmp_path / "fit"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"messages in '.*npy' are damaged \(another checksum\); remove the folder"):
        distributed.fit(of_kind(KINDS, "values", cep())[0], TENSOR, **how)
    for path in files_of(tmp_path / "fit"):
        path.unlink()
    with pytest.raises(ValueError, match=r"messages in '.*npy' cannot be read \(.*No such file.*\); remove the folder"):
        distributed.fit(of_kind(KINDS, "values", cep())[0], TENSOR, **how)


def test_messages_that_are_to_be_kept_are_refused(client: Any) -> None:
    with pytest.raises(ValueError, match="workers do not hand over the messages that keep_messages=True keeps"):
        distributed.fit(of_kind(KINDS, "values", cep(keep_messages=True))[0], TENSOR, client=client)
