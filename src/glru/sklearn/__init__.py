"""Estimators of scikit-learn as problems of this library: the one place that knows their objectives."""

from glru.sklearn.adapt import adapt
from glru.sklearn.adapted import Adapted
from glru.sklearn.after import translate_change

__all__ = ["Adapted", "adapt", "translate_change"]
