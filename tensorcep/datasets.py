"""Published data sets: tensors, points with two labels, and what TensorLy ships; `available` lists them."""

from __future__ import annotations

from tensorcep.entries.datasets import ALOG_SHAPE as ALOG_SHAPE
from tensorcep.entries.datasets import CATALOGUE as CATALOGUE
from tensorcep.entries.datasets import DBLP as DBLP
from tensorcep.entries.datasets import DBLP_SHAPE as DBLP_SHAPE
from tensorcep.entries.datasets import ENRON_SHAPE as ENRON_SHAPE
from tensorcep.entries.datasets import ENVIRONMENT as ENVIRONMENT
from tensorcep.entries.datasets import N_FOLDS as N_FOLDS
from tensorcep.entries.datasets import DatasetInfo as DatasetInfo
from tensorcep.entries.datasets import Fold as Fold
from tensorcep.entries.datasets import available as available
from tensorcep.entries.datasets import fetch as fetch
from tensorcep.entries.datasets import load_alog as load_alog
from tensorcep.entries.datasets import load_covid19_serology as load_covid19_serology
from tensorcep.entries.datasets import load_dblp as load_dblp
from tensorcep.entries.datasets import load_enron as load_enron
from tensorcep.entries.datasets import load_il2 as load_il2
from tensorcep.entries.datasets import published_entries as published_entries
from tensorcep.entries.datasets import registry as registry
from tensorcep.entries.points import GP_FILES as GP_FILES
from tensorcep.entries.points import LINKS as LINKS
from tensorcep.entries.points import UCI_NAMES as UCI_NAMES
from tensorcep.entries.points import Points as Points
from tensorcep.entries.points import PointsFold as PointsFold
from tensorcep.entries.points import Simulation as Simulation
from tensorcep.entries.points import load_coal_mining as load_coal_mining
from tensorcep.entries.points import load_gp as load_gp
from tensorcep.entries.points import load_simulation as load_simulation
from tensorcep.entries.points import load_uci as load_uci
from tensorcep.entries.points import read_glass as read_glass
from tensorcep.entries.points import read_wine as read_wine
