"""The targets and weights of each problem: classes, signs, numbers; factors by class."""

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Array
from glru.sklearn.objectives import Objective

Seen = Literal["class", "side", "positive"]
"""What class weights depend on: the row's class; the two sides of a one-vs-rest wrapper (0 and 1); the class of the
positive side only, as in LIBLINEAR with more than two classes."""


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of an estimator, and their form in each of its problems.

    Attributes
    ----------
    y : array of shape (n_rows,)
        As the caller gave them.
    sample_weight : array of shape (n_rows,)
        Likewise; ones if not given.
    classes : array or None
        The classes in sorted order; None for a regression.
    class_weight : dict, "balanced" or None
        Factors of the weights.
    seen : {"class", "side", "positive"}
        By what they go.
    numeric : bool
        Whether the loss takes signs as numbers rather than two classes.
    joint : bool
        Whether more than two classes are one problem.
    """

    y: NDArray[Any]
    sample_weight: Array
    classes: NDArray[Any] | None
    class_weight: Any
    seen: Seen
    numeric: bool = False
    joint: bool = False

    @property
    def n_problems(self) -> int:
        """One problem, or one per class where there are more than two and each is a problem."""
        return 1 if self.classes is None or self.classes.size == 2 or self.joint else int(self.classes.size)

    @property
    def balanced(self) -> bool:
        """Whether the class weights follow from the number of rows of each class."""
        return isinstance(self.class_weight, str)

    def check(self, y: Any, count: int) -> NDArray[Any]:
        """Check the targets of new rows; an error if a label is not one of the classes."""
        if self.classes is None:
            return _inputs.as_vector(y, count, "y")
        labels = np.atleast_1d(_inputs.as_array(y, "y"))
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.shape != (count,):
            raise ValueError(f"y must have one label per row, shape ({count},); got shape {labels.shape}.")
        # Compared in Python: NumPy would take the number 1 for the text "1".
        known = self.classes.tolist()
        unknown = sorted({str(label) for label in labels.tolist() if label not in known})
        if unknown:
            raise ValueError(f"labels must be among {self.classes.tolist()}; got {', '.join(unknown[:5])}.")
        return labels

    def signs(self, k: int, y: NDArray[Any]) -> Array:
        """+1 for the positive class of the ``k``-th problem, -1 for the others."""
        return np.where(y == self.positive(k), 1.0, -1.0)

    def values(self, k: int, y: NDArray[Any]) -> NDArray[Any]:
        """Targets in the form of the ``k``-th problem."""
        two = self.n_problems == 1 and not self.numeric
        return y if self.classes is None or two else self.signs(k, y)

    def positive(self, k: int) -> Any:
        """The class that counts as +1 in the ``k``-th problem."""
        assert self.classes is not None
        return self.classes[1 if self.n_problems == 1 else k]

    def weights(self, k: int, train: NDArray[np.intp]) -> Array:
        """The weights of some rows in the ``k``-th problem of an estimator fitted to these rows."""
        return self.apply_class_weights(k, self.y[train], self.sample_weight[train])

    def apply_class_weights(self, k: int, y: NDArray[Any], sample_weight: Array) -> Array:
        """Sample weights of rows with targets ``y``, times the factors of their classes in the ``k``-th problem."""
        if self.class_weight is None:
            return sample_weight
        if self.seen == "side":
            return sample_weight * _factors(self.class_weight, (self.signs(k, y) > 0.0).astype(np.intp))
        factors = _factors(self.class_weight, y)
        if self.seen == "positive" and self.n_problems > 1:
            factors = np.where(self.signs(k, y) > 0.0, factors, 1.0)
        return sample_weight * factors

    def compute_factors_without(self, k: int) -> tuple[Array, NDArray[np.intp]]:
        """The factors of balanced weights in the ``k``-th problem when a row is left out, and the group of every row.

        One line of factors per row that leaves, one column per group of rows: the two sides of the problem, or the classes.
        """
        assert self.classes is not None
        groups: NDArray[np.intp] = (self.signs(k, self.y) > 0.0).astype(np.intp)
        if self.joint or (self.seen == "class" and self.n_problems > 1):
            groups = np.searchsorted(self.classes, self.y)
        counts = np.bincount(groups)
        leaves = groups[:, None] == np.arange(counts.size)
        factors: Array = (groups.size - 1) / groups.size * (counts / np.maximum(counts - leaves, 1))
        if self.seen == "positive" and self.n_problems > 1:
            factors[:, 0] = 1.0
        return factors, groups


def _factors(class_weight: Any, y: NDArray[Any]) -> Array:
    """One factor per row; ``"balanced"`` is ``n / (number of classes * rows of the class)``."""
    if not isinstance(class_weight, str):
        return np.array([float(class_weight.get(label, 1.0)) for label in y.tolist()])
    _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    return y.size / (counts.size * counts[place])


def targets_of(y: Any, n_rows: int, sample_weight: Any, objective: Objective, seen: Seen) -> Targets:
    """Checked targets and weights."""
    weight = _inputs.as_weights(sample_weight, n_rows)
    class_weight = objective.class_weight
    if objective.targets == "numbers":
        return Targets(_inputs.as_vector(y, n_rows, "y"), weight, None, None, seen)
    raw = _inputs.as_array(y, "y")
    raw = raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if raw.shape != (n_rows,):
        raise ValueError(f"y must have one label per row of X, shape ({n_rows},); got shape {raw.shape}.")
    classes = _inputs.find_classes(raw)
    if classes.size < 2:
        raise ValueError(f"y must have at least two classes; got {classes.size}: {classes.tolist()}.")
    missing = classes[:0] if weight.all() else np.setdiff1d(classes, raw[weight > 0.0])
    if missing.size:
        raise ValueError(
            f"every class needs a row of weight above 0; class {missing[0]!r} has none. Leave its rows out of the data."
        )
    _check_class_weight(class_weight, classes if seen != "side" else np.arange(2), sample_weight is not None)
    return Targets(raw, weight, classes, class_weight, seen, objective.targets == "signs")


def _check_class_weight(class_weight: Any, classes: NDArray[Any], weighted: bool) -> None:
    if class_weight is None:
        return
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight must be a dict, 'balanced' or None; got {class_weight!r}.")
        if weighted:
            raise ValueError(
                "class_weight='balanced' with sample_weight means different things in different versions of scikit-learn. "
                "Multiply the sample weights by the factors yourself."
            )
        return
    unknown = [label for label in class_weight if label not in classes.tolist()]
    if unknown:
        raise ValueError(f"class_weight must name classes of y ({classes.tolist()}); got {unknown}.")
