"""What a model becomes when its data changes, without retraining it."""

from glru.after.api import after
from glru.after.bounds import After, has_newton
from glru.after.models import ModelAfter, Retraining, after_models

__all__ = ["After", "ModelAfter", "Retraining", "after", "after_models", "has_newton"]
