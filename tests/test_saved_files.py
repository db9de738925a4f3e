"""Files of tensors that version 0.1 wrote, whose format is that of today: they hold the same entries.

`expected.npz` has what they held, by "<file>/<what>". Files of models lie with the golden record.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorcep import read_tensor

SAVED = Path(__file__).parent / "saved"
TENSORS = sorted(path.stem for path in SAVED.glob("*.npz") if path.stem != "expected")


@pytest.mark.parametrize("name", TENSORS)
def test_saved_tensor_holds_the_same_entries(name: str) -> None:
    tensor = read_tensor(SAVED / f"{name}.npz")
    labels = [str(label) for found in tensor.labels if found is not None for label in [found.name, *found]]
    found = {"coords": tensor.coords, "values": tensor.values, "shape": tensor.shape, "zero_rate": tensor.zero_rate}
    with np.load(SAVED / "expected.npz", allow_pickle=False) as expected:
        for what, held in {**found, "labels": labels}.items():
            np.testing.assert_array_equal(held, expected[f"{name}/{what}"], err_msg=what, strict=False)
