"""Newton's steps to a root that lies inside a bracket."""

from __future__ import annotations

from tensorcep.core.jit import kernel

# A step longer than this share of the last one may be one of steps that go back and forth for ever.
SHORTER = 0.6


@kernel
def newton_or_middle(x, step, low, high, before, close):
    """Return the next guess of a root between `low` and `high`, and how far that goes, which is the next `before`.

    It is x + step where the step is no longer than `close`, or ends inside and goes much less far than the last guess
    did; else the middle. Begin with twice the length of the bracket for `before`.
    """
    length = abs(step)
    if length <= close or (low <= x + step <= high and length < SHORTER * before):
        return x + step, length
    return 0.5 * (low + high), high - low
