"""Tasks that make no progress are given up, and only those."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tensorcep.core.cluster import ClusterError, Watch


class Tasks:
    """A client of a cluster whose one worker is busy with these keys."""

    status = "running"

    def __init__(self) -> None:
        self.busy: list[str] = []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {"first": n_workers}}

    def processing(self) -> dict[str, list[str]]:
        return {"first": self.busy}


FUTURE = [SimpleNamespace(key="last")]


def watch_of(client: Tasks, patient: bool) -> Watch:
    cluster: Any = SimpleNamespace(client=client, timeout=0.0, address="here")
    return Watch(cluster, "read", patient, ["before"])


def test_a_task_whose_result_is_on_its_way_to_the_client_is_waited_for() -> None:
    client = Tasks()
    watch = watch_of(client, patient=True)
    watch.look(0, FUTURE)
    client.busy = ["before"]
    watch.look(0, FUTURE)
    client.busy = []
    watch.look(0, FUTURE)
    with pytest.raises(ClusterError, match="last waits for a worker"):
        watch.look(0, FUTURE)


def test_without_patience_a_task_in_work_is_given_up_at_the_first_look() -> None:
    client = Tasks()
    client.busy = ["last"]
    with pytest.raises(ClusterError, match="last waits for worker first"):
        watch_of(client, patient=False).look(0, FUTURE)
