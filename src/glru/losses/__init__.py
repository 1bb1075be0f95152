"""Convex losses of a score, each with its conjugate and its Fenchel-Young value."""

from glru.losses.base import Loss
from glru.losses.hinges import Hinge, ProximalHinge, SmoothedHinge, SquaredHinge
from glru.losses.log_link import CUT_OFF, Gamma, NegativeBinomial, Poisson, Tweedie
from glru.losses.logistic import Binomial, Logistic
from glru.losses.multinomial import Multinomial
from glru.losses.offset import WithOffset, join_targets
from glru.losses.regression import Huber, Squared

__all__ = [
    "CUT_OFF",
    "Binomial",
    "Gamma",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "ProximalHinge",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "Tweedie",
    "WithOffset",
    "join_targets",
]
