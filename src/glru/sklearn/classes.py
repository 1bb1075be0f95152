"""Leave-one-out results of a classifier made of several models, or of a regression on -1 and +1."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import ScoreBounds, exact_count
from glru.linalg import Array
from glru.model_selection.result import LOOCVResult
from glru.sklearn.adapted import Adapted


@final
@dataclass(frozen=True, eq=False, repr=False)
class ClassesLOOCVResult:
    """Every row's scores, one a class, under the models trained without it.

    A label is proven only where its class beats every other one.

    Attributes
    ----------
    adapted : Adapted
        The estimator's problems and classes.
    results : tuple of LOOCVResult
        One result a problem.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> result = glru.loocv(glru.GLRUClassifier(), X, y)
    >>> type(result).__name__
    'ClassesLOOCVResult'
    """

    adapted: Adapted
    results: tuple[LOOCVResult, ...]

    @property
    def classes(self) -> NDArray[np.generic]:
        """The classes, in the order of the scores' columns."""
        assert self.adapted.classes is not None
        return self.adapted.classes

    @cached_property
    def bounds(self) -> ScoreBounds:
        """Bounds of the held-out scores, shaped as ``decision_function``."""
        return self.adapted.bounds([result.bounds for result in self.results])

    @property
    def score_lower(self) -> Array:
        """Lower bounds of the held-out scores, shaped as ``decision_function``."""
        return self.bounds.lower

    @property
    def score_upper(self) -> Array:
        """Upper bounds of the held-out scores."""
        return self.bounds.upper

    @property
    def scores(self) -> Array:
        """The middle of every interval, NaN where that has no end."""
        return self.bounds.middle

    @property
    def labels(self) -> NDArray[np.generic]:
        """The held-out labels; a masked array where some are not proven, masked there."""
        return self.bounds.labels(self.classes)

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Where the label is proven."""
        return self.bounds.decided

    @property
    def errors_lower(self) -> int:
        """The least number of held-out errors."""
        return self._errors[0]

    @property
    def errors_upper(self) -> int:
        """The largest number of held-out errors."""
        return self._errors[1]

    @property
    def n_errors(self) -> int:
        """The number of held-out errors; an error where some labels are undetermined."""
        return exact_count(*self._errors, remedy=", or a smaller width")

    @property
    def n_trainings(self) -> int:
        """Trainings beyond the first ones."""
        return sum(result.n_trainings for result in self.results)

    @property
    def certified(self) -> bool:
        """Whether the bounds are proven."""
        return all(result.certified for result in self.results)

    @property
    def _errors(self) -> tuple[int, int]:
        return self.bounds.errors(self.adapted.targets_of(self.adapted.targets.y))

    def __repr__(self) -> str:
        low, high = self._errors
        errors = f"{low}" if low == high else f"{low} to {high}"
        return (
            f"ClassesLOOCVResult({self.results[0].problem.n_rows} rows, {self.classes.size} classes, {errors} errors, "
            f"{self.n_trainings} trainings)"
        )
