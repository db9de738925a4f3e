"""
Where entries are missing
=========================

A matrix of ligands against times, shaded by how many of their cells were measured: two ligands lack one time.
"""

from tensorcep import datasets, plots

plots.plot_gaps(datasets.load_il2(), modes=("ligand", "time"))
