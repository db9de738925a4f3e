"""Published data sets: tensors, points with two labels, and what TensorLy ships; `available` lists them."""

from __future__ import annotations

from tensorcep.entries.datasets import ALOG_SHAPE as ALOG_SHAPE
from tensorcep.entries.datasets import CATALOGUE as CATALOGUE
from tensorcep.entries.datasets import DBLP as DBLP
from tensorcep.entries.datasets import DBLP_SHAPE as DBLP_SHAPE
from tensorcep.entries.datasets import ENRON_SHAPE as ENRON_SHAPE
from tensorcep.entries.datasets import ENVIRONMENT as ENVIRONMENT
from tensorcep.entries.datasets import GP_FILES as GP_FILES
from tensorcep.entries.datasets import LINKS as LINKS
from tensorcep.entries.datasets import N_FOLDS as N_FOLDS
from tensorcep.entries.datasets import UCI_NAMES as UCI_NAMES
from tensorcep.entries.datasets import DatasetInfo as DatasetInfo
from tensorcep.entries.datasets import Fold as Fold
from tensorcep.entries.datasets import Points as Points
from tensorcep.entries.datasets import PointsFold as PointsFold
from tensorcep.entries.datasets import Simulation as Simulation
from tensorcep.entries.datasets import available as available
from tensorcep.entries.datasets import fetch as fetch
from tensorcep.entries.datasets import load_alog as load_alog
from tensorcep.entries.datasets import load_coal_mining as load_coal_mining
from tensorcep.entries.datasets import load_covid19_serology as load_covid19_serology
from tensorcep.entries.datasets import load_dblp as load_dblp
from tensorcep.entries.datasets import load_enron as load_enron
from tensorcep.entries.datasets import load_gp as load_gp
from tensorcep.entries.datasets import load_il2 as load_il2
from tensorcep.entries.datasets import load_simulation as load_simulation
from tensorcep.entries.datasets import load_uci as load_uci
from tensorcep.entries.datasets import published_entries as published_entries
from tensorcep.entries.datasets import read_glass as read_glass
from tensorcep.entries.datasets import read_wine as read_wine
from tensorcep.entries.datasets import registry as registry
