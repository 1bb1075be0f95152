"""What leaving out single rows, or groups of rows, does to a model: influence and the jackknife."""

from glru.deletion.jackknife import Jackknife, compute_jackknife
from glru.deletion.result import Influence, Ranking, compute_influence

__all__ = ["Influence", "Jackknife", "Ranking", "compute_influence", "compute_jackknife"]
