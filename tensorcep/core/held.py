"""What tasks on workers need and give: kept here and sent as futures, so that it can be sent again."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tensorcep import __version__
from tensorcep.core.watch import ClusterError

Call = tuple[Any, ...]


class LackingError(Exception):
    """What a task raises that was not given something, because its worker should have it; it is given all then."""


class UnknownError(KeyError):
    """Something that was lost on workers is not known here, yet."""


class Held:
    """Something that tasks need: here, and, as a future, or a list of those of its pieces, on the workers.

    With a `make`, which gives the future, it is made there.
    """

    def __init__(self, value: Any, name: str, make: Callable[[], Any] | None = None):
        self._value, self.name, self.make = value, name, make
        self.future: Any = None

    @property
    def value(self) -> Any:
        """What is sent.

        Raises
        ------
        UnknownError
            If it is the result of tasks that are not done.
        """
        return self._value

    @property
    def is_there(self) -> bool:
        """Whether workers have it, or will."""
        futures = self.future if isinstance(self.future, list) else [self.future]
        return all(one is not None and one.status not in ("cancelled", "lost", "error") for one in futures)


class Told(NamedTuple):
    """What a task gave, the warnings that it gave (text and category), its seconds, and whether it lacked something."""

    value: Any
    warnings: list[tuple[str, type[Warning]]]
    seconds: float
    lacks: bool = False


def held_by(calls: Sequence[Call]) -> Iterator[Held]:
    """What these calls need of what is kept here."""
    for item in itertools.chain(*calls):
        for held in item if isinstance(item, (list, tuple)) else (item,):
            if isinstance(held, Held):
                yield held


def futures_of(item: Any) -> Any:
    """What a task is given for an argument: futures for what is held."""
    if isinstance(item, (list, tuple)) and any(isinstance(part, Held) for part in item):
        return [futures_of(part) for part in item]
    return item.future if isinstance(item, Held) else item


def told_by(version: str, function: Callable[..., Any], *args: Any) -> Told:
    """Do a task on a worker."""
    if version != __version__:
        raise ClusterError(f"a worker has tensorcep {__version__}, the client has {version}; install the same.")
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = function(*args)
        except LackingError:
            return Told(None, [], time.perf_counter() - begin, True)
    return Told(value, [(str(one.message), one.category) for one in caught], time.perf_counter() - begin)
