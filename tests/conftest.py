"""The folder of compiled kernels, real data, and the fixtures that several test files share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("fuzz", max_examples=5000, deadline=None)

# Before anything imports numba: kernels that tests compile stay with the checkout.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".numba_cache"))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, fresh for every test."""
    return np.random.default_rng(20240613)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the published data files; the test is skipped where there is none."""
    value = os.environ.get("TENSORCEP_DATA")
    if not value:
        pytest.skip("needs published data: set TENSORCEP_DATA to a folder that holds them (data/README.md)")
    folder = Path(value)
    if not folder.is_dir():
        pytest.fail(f"TENSORCEP_DATA names {value}, which is not a folder")
    return folder
