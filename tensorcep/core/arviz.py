"""Posterior draws in the container of ArviZ: InferenceData of 0.x, or xarray's DataTree, which 1.x takes instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorcep import __version__
from tensorcep.entries.interop import optional_module

APPROXIMATE = "independent draws from an approximate posterior; not a Markov chain, so R-hat and ESS say nothing"
SAMPLED = "draws of Markov chains"

# Per group, per variable: names of the dimensions, and the array.
Groups = Mapping[str, Mapping[str, tuple[tuple[str, ...], np.ndarray]]]


def arviz_container(groups: Groups, coords: Mapping[str, Any], method: str, approximate: bool) -> Any:
    """Return the groups in the container of the ArviZ that is installed.

    Parameters
    ----------
    groups : dict of dict of (dims, array)
        Per group, for instance "posterior", its variables.
    coords : dict
        Labels of dimensions; a dimension without counts from 0.
    method : str
        Name of the inference method.
    approximate : bool
        Whether the draws come from an approximation instead of Markov chains; every group says so in its attributes
        (netCDF has no truth values: 1 or 0).

    Raises
    ------
    ImportError
        If ArviZ is not installed.
    """
    arviz = optional_module("arviz", "to_arviz", "'tensorcep[arviz]'")
    xarray = optional_module("xarray", "to_arviz", "'tensorcep[arviz]'")
    attributes = {
        "inference_library": "tensorcep",
        "inference_library_version": __version__,
        "method": method,
        "approximate": int(approximate),
        "draws": APPROXIMATE if approximate else SAMPLED,
    }
    datasets = {}
    for group, variables in groups.items():
        sizes = {name: n for dims, array in variables.values() for name, n in zip(dims, array.shape, strict=True)}
        found = {name: coords.get(name, np.arange(n)) for name, n in sizes.items()}
        datasets[group] = xarray.Dataset(dict(variables), coords=found, attrs=attributes)
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(**datasets)
    return xarray.DataTree.from_dict(datasets)
