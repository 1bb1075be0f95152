"""What leaving out single rows, or groups of rows, does to a model: influence and the jackknife."""

from glru.deletion.jackknife import Jackknife, jackknife_deletions
from glru.deletion.result import Influence, Ranking, influence_of_rows

__all__ = ["Influence", "Jackknife", "Ranking", "influence_of_rows", "jackknife_deletions"]
