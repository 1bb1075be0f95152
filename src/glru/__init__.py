"""glru: what a linear model becomes when its training data changes, without retraining it, and with proof."""

from glru.losses import Hinge, Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge
from glru.penalties import L1, L2, ElasticNet, Penalty
from glru.problem import Problem
from glru.solution import Point, Solution
from glru.solvers import State, solve

__version__ = "0.1.0"

__all__ = [
    "L1",
    "L2",
    "ElasticNet",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Penalty",
    "Point",
    "Problem",
    "SmoothedHinge",
    "Solution",
    "Squared",
    "SquaredHinge",
    "State",
    "solve",
]
