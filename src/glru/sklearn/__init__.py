"""Estimators of scikit-learn as problems of this library: the one place that knows their objectives."""

from glru.sklearn.adapt import Adapted, adapt
from glru.sklearn.questions import translate_change

__all__ = ["Adapted", "adapt", "translate_change"]
