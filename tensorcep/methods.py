"""Settings of the engines that fit CP models: ``CPRegressor(method=CEP(damping=0.5))``.

Each is a record of what belongs to one engine alone; a name, ``method="cep"``, stands for its defaults.
"""

from __future__ import annotations

from tensorcep.cp.settings import CEP, PGVB, VMP, WOPT, Gibbs, Laplace, PGGibbs

__all__ = ["CEP", "PGVB", "VMP", "WOPT", "Gibbs", "Laplace", "PGGibbs"]
