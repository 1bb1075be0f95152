r"""The objective of each estimator as a :class:`glru.Problem`.

========================  ==========================================================================================
LogisticRegression        :math:`C \sum_i s_i \log(1 + e^{-y_i z_i}) + r \|w\|_1 + \tfrac{1 - r}{2} \|w\|^2`
... of three classes      :math:`C \sum_i s_i (\log \sum_k e^{z_{ik}} - z_{i y_i}) + \tfrac12 \|w\|^2`, multinomial
LinearSVC                 :math:`C \sum_i s_i \ell(y_i, z_i) + \tfrac12 \|(w, b / c)\|^2`, or the 1-norm
Ridge, RidgeClassifier    :math:`\sum_i s_i (y_i - z_i)^2 + \alpha \|w\|^2`
LinearRegression          the same with :math:`\alpha = 0`
ElasticNet, Lasso         :math:`\tfrac{1}{2 \sum s} \sum_i s_i (y_i - z_i)^2 + \alpha r \|w\|_1 + \alpha \tfrac{1 - r}{2} \|w\|^2`
PoissonRegressor          :math:`\tfrac{1}{\sum s} \sum_i s_i \ell(y_i, z_i) + \tfrac{\alpha}{2} \|w\|^2` with half the deviance of a log link; likewise
                          GammaRegressor and TweedieRegressor (power 0: of the squared loss)
GLRUClassifier and -CV    the first one with any loss, or ``lam`` and ``kappa`` under the mean of the losses
========================  ==========================================================================================

Estimators that choose a strength (``RidgeCV``, ...) have the objective of the strength that they chose, once they are fitted; what
they would choose from other rows is not known here.

``c`` is ``intercept_scaling``: LIBLINEAR penalises the intercept as the coefficient of a column that is ``c`` everywhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru import _inputs
from glru.linalg import Array
from glru.losses import LOSSES, Gamma, Hinge, Logistic, Loss, Poisson, Squared, SquaredHinge, Tweedie
from glru.penalties import L1, L2, ElasticNet, Penalty, Strength
from glru.problem import Problem, Scaling

TargetKind = Literal["labels", "signs", "numbers"]


@final
@dataclass(frozen=True)
class EstimatorObjective:
    """What an estimator minimises."""

    loss: Loss  # the loss of one row
    intercept: bool  # whether there is an unpenalised intercept
    # Strengths of the squares and of the absolute values of the coefficients.
    quadratic: float = 0.0
    absolute: float = 0.0
    scaling: Scaling = "sum"  # as in :class:`glru.Problem`
    # What the loss sees of y: two classes, the numbers -1 and +1 for two classes, or y itself.
    targets: TargetKind = "numbers"
    # Value of the extra column whose coefficient is a penalised intercept; None without one.
    constant: float | None = None
    class_weight: Any = None  # factors of the sample weights by class
    several: bool = False  # whether more than two classes are one problem per class
    probabilities: bool = False  # whether scores are log-odds
    multinomial: bool = False  # whether more than two classes are one multinomial problem

    def penalty(self, n_columns: int) -> Penalty:
        """The penalty for this number of columns."""
        if self.quadratic == 0.0 == self.absolute:
            return L2(np.zeros(n_columns))
        return penalty_of(self.quadratic, self.absolute)

    def problem(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        """The problem of minimising the objective on data in the problem's columns."""
        return Problem(
            X,
            y,
            loss=self.loss,
            penalty=self.penalty(X.shape[1]),
            fit_intercept=self.intercept,
            scaling=self.scaling,
            sample_weight=sample_weight,
        )


def penalty_of(quadratic: Strength, absolute: Strength) -> Penalty:
    """The penalty with these strengths, at least one of which is not zero."""
    if not np.any(absolute):
        return L2(quadratic)
    return ElasticNet(quadratic, absolute) if np.any(quadratic) else L1(absolute)


def objective_of(model: Any) -> EstimatorObjective:
    """The objective of an estimator; if it is not known, an error that names a remedy."""
    kind = type(model)
    package, name = kind.__module__.partition(".")[0], kind.__name__
    known = OBJECTIVES.get(name) if package in ("sklearn", "glru") else None
    if package == "sklearn" and name in CHOOSING:
        raise _make_choosing_error(model)
    if package == "sklearn" and name == "HuberRegressor":
        raise _make_huber_error(model)
    if known is None:
        raise TypeError(
            f"the estimator must be one of {', '.join(OBJECTIVES)}, or one of them at the end of a Pipeline "
            f"or in a OneVsRestClassifier; got {kind.__module__}.{name}, whose objective is not known. "
            "Write the objective as a glru.Problem instead."
        )
    return known(model)


def _logistic_regression(model: Any) -> EstimatorObjective:
    strategy = getattr(model, "multi_class", "auto")
    ratio = _l1_ratio(model)
    strength = 0.0 if model.penalty in (None, "none") else 1.0 / _read_number("C", model.C, True)
    liblinear = model.solver == "liblinear"
    return EstimatorObjective(
        loss=Logistic(),
        quadratic=(1.0 - ratio) * strength,
        absolute=ratio * strength,
        intercept=model.fit_intercept and not liblinear,
        constant=_read_number("intercept_scaling", model.intercept_scaling, True)
        if model.fit_intercept and liblinear
        else None,
        targets="labels",
        class_weight=model.class_weight,
        several=strategy == "ovr",
        probabilities=True,
        multinomial=strategy != "ovr" and not liblinear,
    )


def _l1_ratio(model: Any) -> float:
    """The share of the 1-norm in a LogisticRegression's penalty, by its old or its new parameters."""
    if model.penalty in ("l1", "l2"):
        return 1.0 if model.penalty == "l1" else 0.0
    ratio = 0.0 if model.l1_ratio is None else float(model.l1_ratio)
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"l1_ratio must be between 0 and 1; got {ratio!r}.")
    return ratio


def _linear_svc(model: Any) -> EstimatorObjective:
    if model.multi_class != "ovr":
        raise ValueError(
            f"multi_class={model.multi_class!r} couples the classes in one objective, which is not a glru.Problem. "
            "Use multi_class='ovr'."
        )
    losses: dict[str, Loss] = {"squared_hinge": SquaredHinge(), "hinge": Hinge()}
    if model.loss not in losses:
        raise ValueError(f"loss must be 'squared_hinge' or 'hinge'; got {model.loss!r}.")
    strength = 1.0 / _read_number("C", model.C, True)
    return EstimatorObjective(
        loss=losses[model.loss],
        quadratic=0.0 if model.penalty == "l1" else strength,
        absolute=strength if model.penalty == "l1" else 0.0,
        intercept=False,
        constant=_read_number("intercept_scaling", model.intercept_scaling, True) if model.fit_intercept else None,
        targets="labels",
        class_weight=model.class_weight,
        several=True,
    )


def _ridge(model: Any) -> EstimatorObjective:
    if np.ndim(model.alpha):
        raise ValueError(
            "alpha must be one number: a strength for each target is not supported. Fit one target at a time."
        )
    return EstimatorObjective(Squared(), model.fit_intercept, quadratic=_read_number("alpha", model.alpha))


def _elastic_net(model: Any) -> EstimatorObjective:
    alpha, ratio = _read_number("alpha", model.alpha), float(model.l1_ratio)
    return EstimatorObjective(Squared(), model.fit_intercept, alpha * (1.0 - ratio), alpha * ratio, scaling="mean")


NAMED_LOSSES: dict[str, dict[str, Callable[[], Loss]]] = {
    task: {name: kind for name, kind in LOSSES.items() if kind.task == task and kind().link != "log"}
    for task in ("classification", "regression")
}
"""The losses of :class:`glru.GLRUClassifier` and :class:`glru.GLRURegressor`, whose predictions are scores: by task and name."""


def _glru_classifier(model: Any) -> EstimatorObjective:
    loss = _find_loss(model.loss, "classification")
    # Two classes of the multinomial loss are scikit-learn's case of one score.
    multinomial = loss.several
    return EstimatorObjective(
        loss=Logistic() if multinomial else loss,
        **_read_strengths(model),
        intercept=model.fit_intercept,
        targets="labels",
        class_weight=model.class_weight,
        several=not multinomial,
        probabilities=loss.probabilities,
        multinomial=multinomial,
    )


def _make_generalised(loss_of: Callable[[Any], Loss]) -> Callable[[Any], EstimatorObjective]:
    """The objective of a generalised linear model with a loss."""

    def objective(model: Any) -> EstimatorObjective:
        return EstimatorObjective(
            loss_of(model), model.fit_intercept, quadratic=_read_number("alpha", model.alpha), scaling="mean"
        )

    return objective


def _tweedie_loss(model: Any) -> Loss:
    power = float(model.power)
    link = ("identity" if power <= 0.0 else "log") if model.link == "auto" else model.link
    if power == 0.0 and link == "identity":
        return Squared()
    if link != "log" or not 1.0 <= power <= 2.0:
        raise ValueError(
            f"TweedieRegressor is supported with power 0 and the identity link, and with a power from 1 to 2 and the log link; got power={model.power!r} "
            f"and link={model.link!r}. Use one of these: nothing is proven for other powers and links."
        )
    return Poisson() if power == 1.0 else Gamma() if power == 2.0 else Tweedie(power)


def _find_loss(loss: Any, task: str) -> Loss:
    if isinstance(loss, str) and loss in LOSSES:
        loss = LOSSES[loss]()
    if isinstance(loss, Loss):
        if loss.task != task:
            raise ValueError(f"loss must be one for a {task}: {', '.join(NAMED_LOSSES[task])}; got {loss!r}.")
        if loss.link == "log":
            raise ValueError(
                f"{loss!r} has a log link, and predictions here are scores. Use scikit-learn's PoissonRegressor, GammaRegressor or TweedieRegressor, or a "
                "glru.Problem."
            )
        return loss
    raise ValueError(f"loss must be one of {', '.join(map(repr, NAMED_LOSSES[task]))}; got {loss!r}.")


def _read_strengths(model: Any) -> dict[str, Any]:
    kappa = _read_number("kappa", model.kappa)
    if model.lam is None:
        C = _read_number("C", model.C, True)
        return {"quadratic": 1.0 / C, "absolute": kappa / C, "scaling": "sum"}
    if model.C != 1.0:
        raise ValueError(f"give C or lam, not both; got C={model.C!r} and lam={model.lam!r}.")
    return {"quadratic": _read_number("lam", model.lam), "absolute": kappa, "scaling": "mean"}


def _read_number(name: str, value: Any, positive: bool = False) -> float:
    """A finite number of at least 0; where ``positive``, one above 0, which may be infinite."""
    if value is None or isinstance(value, str) or np.ndim(value):
        raise TypeError(f"{name} must be one number; got {value!r}. Use {name}=1.0.")
    number = float(value)
    if not (number > 0.0 if positive else 0.0 <= number < np.inf):
        raise ValueError(f"{name} must be {'above 0' if positive else 'a finite number >= 0'}; got {value!r}.")
    return number


def _refuse_positive(known: Callable[[Any], EstimatorObjective]) -> Callable[[Any], EstimatorObjective]:
    def objective(model: Any) -> EstimatorObjective:
        if model.positive:
            raise ValueError(
                "positive=True constrains the coefficients, which a glru.Problem does not. Use positive=False."
            )
        return known(model)

    return objective


CHOOSING = {
    "LogisticRegressionCV": ("LogisticRegression", {"C": "C_"}, "GLRUClassifierCV"),
    "RidgeCV": ("Ridge", {"alpha": "alpha_"}, "GLRURegressorCV"),
    "RidgeClassifierCV": ("RidgeClassifier", {"alpha": "alpha_"}, "GLRUClassifierCV"),
    "LassoCV": ("Lasso", {"alpha": "alpha_"}, "GLRURegressorCV"),
    "ElasticNetCV": ("ElasticNet", {"alpha": "alpha_", "l1_ratio": "l1_ratio_"}, "GLRURegressorCV"),
}
"""Estimators that choose a strength: the model they fit with it, the attributes that hold it, and our estimator that chooses with proof."""


def find_chosen_model(model: Any) -> Any:
    """The model with the strength that a fitted ``RidgeCV`` or similar chose; any other estimator unchanged."""
    if type(model).__name__ not in CHOOSING or not type(model).__module__.startswith("sklearn."):
        return model
    if getattr(model, "refit", True) is False:
        raise ValueError(
            f"{type(model).__name__}(refit=False) averages the coefficients of its folds, which minimise no objective. "
            "Use refit=True."
        )
    from sklearn import linear_model

    name, _, _ = CHOOSING[type(model).__name__]
    kind = getattr(linear_model, name)
    shared = {key: value for key, value in model.get_params(deep=False).items() if key in kind().get_params(deep=False)}
    return kind(**(shared | _read_chosen(model)))


def _read_chosen(model: Any) -> dict[str, Any]:
    """The parameters that a fitted estimator chose; none before the fit."""
    _, places, _ = CHOOSING[type(model).__name__]
    found = {name: getattr(model, place) for name, place in places.items() if hasattr(model, place)}
    return {name: float(np.ravel(value)[0]) for name, value in found.items() if value is not None}


def _make_choosing_error(model: Any) -> TypeError:
    name, places, ours = CHOOSING[type(model).__name__]
    chosen = _read_chosen(model)
    shown = ", ".join(f"{key}={chosen.get(key, '...')}" for key in places)
    return TypeError(
        f"{type(model).__name__} chooses {' and '.join(places)} again whenever its rows change, and what it would choose is not "
        f"proven here. Use {name}({shown}) with the strength that it chose, or glru.{ours}, which chooses with proof."
    )


def _make_huber_error(model: Any) -> TypeError:
    delta, C = "model.epsilon * model.scale_", "1 / (model.alpha * model.scale_)"
    if hasattr(model, "scale_") and model.alpha > 0.0:
        delta, C = f"{model.epsilon * model.scale_:.6g}", f"{1.0 / (model.alpha * model.scale_):.6g}"
    return TypeError(
        "HuberRegressor minimises over the scale of the residuals together with the coefficients, which is not a glru.Problem. "
        f"With the scale of a fit, use glru.GLRURegressor(glru.Huber({delta}), C={C}){'' if model.alpha > 0.0 else ' and an alpha above 0'}."
    )


OBJECTIVES: dict[str, Callable[[Any], EstimatorObjective]] = {
    "LogisticRegression": _logistic_regression,
    "LinearSVC": _linear_svc,
    "LinearRegression": _refuse_positive(lambda model: EstimatorObjective(Squared(), model.fit_intercept)),
    "Ridge": _refuse_positive(_ridge),
    "RidgeClassifier": _refuse_positive(
        lambda model: replace(_ridge(model), targets="signs", class_weight=model.class_weight, several=True)
    ),
    "ElasticNet": _refuse_positive(_elastic_net),
    "Lasso": _refuse_positive(_elastic_net),
    "PoissonRegressor": _make_generalised(lambda model: Poisson()),
    "GammaRegressor": _make_generalised(lambda model: Gamma()),
    "TweedieRegressor": _make_generalised(_tweedie_loss),
    "GLRUClassifier": _glru_classifier,
    "GLRURegressor": lambda model: EstimatorObjective(
        _find_loss(model.loss, "regression"), model.fit_intercept, **_read_strengths(model)
    ),
}
"""The objective of each supported estimator by its class name; subclasses may minimise something else and are not accepted."""


Seen = Literal["class", "side", "positive"]
"""What class weights depend on: the row's class; the two sides of a one-vs-rest wrapper (0 and 1); the class of the
positive side only, as in LIBLINEAR with more than two classes."""


@final
@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of an estimator, and their form in each of its problems."""

    y: NDArray[Any]  # shape (n_rows,): as the caller gave them
    sample_weight: Array  # shape (n_rows,): likewise; ones if not given
    classes: NDArray[Any] | None  # the classes in sorted order; None for a regression
    class_weight: Any  # factors of the weights
    seen: Seen  # by what they go
    numeric: bool = False  # whether the loss takes signs as numbers rather than two classes
    joint: bool = False  # whether more than two classes are one problem

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
        labels = _inputs.as_column(np.atleast_1d(_inputs.as_array(y, "y")), count, "y")
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


def targets_of(y: Any, n_rows: int, sample_weight: Any, objective: EstimatorObjective, seen: Seen) -> Targets:
    """Checked targets and weights."""
    weight = _inputs.as_weights(sample_weight, n_rows)
    class_weight = objective.class_weight
    if objective.targets == "numbers":
        return Targets(_inputs.as_vector(y, n_rows, "y"), weight, None, None, seen)
    raw = _inputs.as_column(y, n_rows, "y")
    classes = _inputs.find_classes(raw)
    if classes.size < 2:
        raise ValueError(f"y must have at least two classes; got {classes.size}: {classes.tolist()}.")
    missing = classes[:0] if weight.all() else np.setdiff1d(classes, raw[weight > 0.0])
    if missing.size:
        raise ValueError(
            f"every class needs a row of weight above 0; class {missing.tolist()[0]!r} has none. Leave its rows out of the data."
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
    if not isinstance(class_weight, Mapping) or not all(
        isinstance(w, Real) and 0.0 <= float(w) < np.inf for w in class_weight.values()
    ):
        raise ValueError(
            f"class_weight must be a dict of finite numbers >= 0, 'balanced' or None; got {class_weight!r}. Use {{class: 2.0}}."
        )
    unknown = [label for label in class_weight if label not in classes.tolist()]
    if unknown:
        raise ValueError(f"class_weight must name classes of y ({classes.tolist()}); got {unknown}.")
