"""Convex losses of a score, each with its conjugate and its Fenchel-Young value."""

from glru.losses.base import Loss
from glru.losses.hinges import Hinge, ProximalHinge, SmoothedHinge, SquaredHinge
from glru.losses.logistic import Logistic
from glru.losses.multinomial import Multinomial
from glru.losses.regression import Huber, Squared

__all__ = [
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "ProximalHinge",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
]
