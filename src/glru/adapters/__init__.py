"""Estimators of scikit-learn as problems of this library: the one place that knows their objectives."""

from glru.adapters.adapt import adapt, is_estimator
from glru.adapters.adapted import Adapted
from glru.adapters.translate import translated

__all__ = ["Adapted", "adapt", "is_estimator", "translated"]
