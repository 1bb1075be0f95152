"""The preprocessing steps of a pipeline: fitted to all rows, and refitted to the rows of every split."""

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Matrix, is_foreign

Rows = NDArray[np.intp]

OUTPUT = "what the steps of the pipeline make of X"
"""The name of the transformed data in errors."""


@final
@dataclass(frozen=True, eq=False)
class Preprocessing:
    """The steps in front of a model and the data that they are fitted to."""

    steps: Any  # the steps, not fitted
    fitted: Any  # the steps, fitted to all rows
    # The data as the caller gave it: text, categories and missing values are for the steps to deal with.
    X: Any
    y: Any
    matrix: Matrix  # what the fitted steps make of X: numbers
    names: tuple[str, ...] | None  # the names of its columns; None where the steps have none
    # Additional parameters of the steps' ``fit``, named as in scikit-learn; values with one entry per row are split with the rows.
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def described(self) -> str:
        """The steps in words."""
        return ", ".join(step_names(self.steps))

    def transform(self, X: Any) -> Matrix:
        """Transform new rows of the caller's data by the steps fitted to all rows."""
        return _inputs.as_matrix(self.fitted.transform(as_double(X)), OUTPUT)[0]

    def split(self, train: Rows, test: Rows) -> Matrix:
        """The train rows and then the test rows of a split, transformed by steps fitted to the train rows only.

        Each part is transformed as scikit-learn transforms it: the train rows by ``fit_transform``, which in some steps
        (target encoders) is something else than ``fit`` and ``transform``.
        """
        from sklearn.base import clone
        from sklearn.utils.validation import _check_method_params

        steps = clone(self.steps)
        params = _check_method_params(self.X, self.params, train)
        made = steps.fit_transform(rows_of(self.X, train), rows_of(self.y, train), **params)
        known = _inputs.as_matrix(made, OUTPUT)[0]
        try:
            held_out = _inputs.as_matrix(steps.transform(rows_of(self.X, test)), OUTPUT)[0]
        except ValueError as error:
            raise ValueError(
                f"the steps in front of the model ({self.described}), fitted to the train rows of a split, cannot transform its "
                f"test rows, of which the first is row {test[0]}: {error} For categories that the train rows do not have, use "
                "handle_unknown='ignore', or give the encoder all categories."
            ) from error
        return known.concatenate([known, known.convert(held_out)], axis=0)

    def without(self, row: int) -> Matrix:
        """All rows in their order, transformed by steps fitted without one of them."""
        others = np.delete(np.arange(self.matrix.shape[0]), row)
        order = np.insert(np.arange(others.size), row, others.size)
        return self.split(others, np.array([row]))[order]


def fit_steps(steps: Any, X: Any, y: Any, params: dict[str, Any] | None = None) -> Preprocessing:
    """The preprocessing steps, fitted to all rows with additional parameters."""
    from sklearn.base import clone

    if is_foreign(X):
        raise ValueError(f"behind the steps of a pipeline X must be on the host; got {type(X).__module__} data.")
    X, steps = as_double(X), clone(steps)
    in_place = [name for name, value in steps.get_params().items() if name.split("__")[-1] == "copy" and value is False]
    steps.set_params(**dict.fromkeys(in_place, True))  # the data is transformed more than once
    fitted = clone(steps)
    params = params or {}
    matrix, _ = _inputs.as_matrix(fitted.fit_transform(X, y, **params), OUTPUT)
    return Preprocessing(steps, fitted, X, y, matrix, _names(fitted, matrix.shape[1]), params)


def keep_steps(fitted: Any, X: Any, y: Any) -> Preprocessing:
    """The fitted preprocessing steps as they are; an error if fitting them to this data gives other results."""
    again = fit_steps(fitted, X, y)
    matrix, _ = _inputs.as_matrix(fitted.transform(again.X), OUTPUT)
    if matrix.shape != again.matrix.shape or not np.allclose(matrix.dense(), again.matrix.dense(), rtol=1e-6):
        raise ValueError(
            f"the steps in front of the model ({again.described}) give other results when fitted to this data. "
            "Give the data that the pipeline was fitted to, and steps that draw random numbers a random_state."
        )
    return Preprocessing(fitted, fitted, again.X, y, matrix, _names(fitted, matrix.shape[1]))


def steps_of(pipeline: Any) -> tuple[Any, Any]:
    """The steps of a pipeline before the last one (None if they do nothing), and the last one.

    Steps keep their names: those of a pipeline that is itself the last step are behind the name of that step.
    """
    from sklearn.pipeline import Pipeline

    front, (name, last) = pipeline[:-1], pipeline.steps[-1]
    if is_a(last, "Pipeline"):
        more, last = steps_of(last)
        front = front if more is None else Pipeline([*front.steps, (name, more)])
    if all(step is None or (isinstance(step, str) and step == "passthrough") for _, step in front.steps):
        front = None
    return front, last


def name_weight(estimator: Any) -> str:
    """The name of the sample weights in ``fit``: prefixed with the name of a pipeline's last step."""
    name = ""
    while is_a(estimator, "Pipeline"):
        step, estimator = estimator.steps[-1]
        name += f"{step}__"
    return f"{name}sample_weight"


def split_params(estimator: Any, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The weights of the model's rows, None if not given, and the parameters of ``fit`` of the steps in front of the model.

    ``params`` are in scikit-learn's spelling: the name of a step, two underscores, the name of its parameter.
    """
    weights = name_weight(estimator)
    step = weights.removesuffix("sample_weight")
    front = {key: value for key, value in params.items() if key != weights}
    for key in front:
        if "__" not in key or not step or key.startswith(step):
            others = f" and parameters of the steps before {step[:-2]!r}" if step else " only"
            raise ValueError(f"params may hold {weights!r}{others}; got {key!r}, of which nothing can be proven.")
    return params.get(weights), front


def step_names(steps: Any) -> list[str]:
    """The kinds of the steps, those inside pipelines, unions and column transformers included."""
    if is_a(steps, "Pipeline"):
        parts = [step for _, step in steps.steps]
    elif is_a(steps, "ColumnTransformer"):
        parts = [step for _, step, _ in steps.transformers]
    elif is_a(steps, "FeatureUnion"):
        parts = [step for _, step in steps.transformer_list]
    else:
        return [type(steps).__name__]
    return [name for part in parts if part is not None and not isinstance(part, str) for name in step_names(part)]


def is_a(estimator: Any, name: str) -> bool:
    """Whether an estimator is scikit-learn's class of that name; subclasses, which may behave differently, are not."""
    return type(estimator).__name__ == name and type(estimator).__module__.startswith("sklearn.")


def count_rows(X: Any) -> int:
    """The number of rows of an array, a list, a sparse matrix or a frame."""
    try:
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    except (TypeError, IndexError):
        raise TypeError(
            f"X must be an array, a list, a sparse matrix or a data frame; got a {type(X).__name__}. Collect a lazy one."
        ) from None


def rows_of(values: Any, rows: Rows) -> Any:
    """Some rows of an array, a list, a sparse matrix or a frame, as scikit-learn takes them."""
    from sklearn.utils import _safe_indexing

    # Not every format of sparse matrices has rows.
    return _safe_indexing(values.tocsr() if sp.issparse(values) else values, rows)  # type: ignore[attr-defined]


def as_double(X: Any) -> Any:
    """Arrays of float32 as float64, in which everything is proven; anything else as it is."""
    array = isinstance(X, np.ndarray) or sp.issparse(X)
    return X.astype(np.float64) if array and X.dtype.kind == "f" and X.dtype != np.float64 else X


def _names(fitted: Any, n_columns: int) -> tuple[str, ...] | None:
    try:
        names = tuple(map(str, fitted.get_feature_names_out()))
    except (AttributeError, ValueError, NotImplementedError):
        return None
    return names if len(set(names)) == n_columns else None
