"""Convex losses of a score, each with its conjugate and its Fenchel-Young value."""

from glru.losses.base import Loss, WithOffset, join_targets
from glru.losses.log_link import CUT_OFF, Gamma, NegativeBinomial, Poisson, Tweedie
from glru.losses.logistic import Binomial, Logistic, Multinomial
from glru.losses.quadratic import Hinge, Huber, ProximalHinge, SmoothedHinge, Squared, SquaredHinge

LOSSES: dict[str, type[Loss]] = {
    "logistic": Logistic,
    "multinomial": Multinomial,
    "squared_hinge": SquaredHinge,
    "smoothed_hinge": SmoothedHinge,
    "hinge": Hinge,
    "squared": Squared,
    "huber": Huber,
    "poisson": Poisson,
    "gamma": Gamma,
    "tweedie": Tweedie,
}
"""The losses of estimators by name: for the estimators of this library, the command line, and stored models."""

__all__ = [
    "CUT_OFF",
    "LOSSES",
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
