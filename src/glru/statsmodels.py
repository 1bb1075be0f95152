"""Fitted models of statsmodels as problems: the likelihood that they maximise, on the rows that they were fitted to.

====================================  ============================================================================================
model                                 loss
====================================  ============================================================================================
``OLS``, ``WLS``                      :class:`~glru.Squared`, with the weights
``Logit``                             :class:`~glru.Logistic`, of shares and with an offset :class:`~glru.losses.Binomial`
``Poisson``                           :class:`~glru.Poisson`
``GLM`` with a Gaussian family        :class:`~glru.Squared`; identity link
``GLM`` with a binomial family        :class:`~glru.Logistic` of labels 0 and 1, :class:`~glru.losses.Binomial` of shares and counts; logit link
``GLM`` with other families           :class:`~glru.Poisson`, :class:`~glru.Gamma`, :class:`~glru.Tweedie` of powers from 1 to 2,
                                      :class:`~glru.NegativeBinomial` of ``theta = 1 / alpha``; log link
====================================  ============================================================================================

A row of the problem is a row of ``model.exog``. Successes and failures of a row are one share with the number of trials as its weight, and leaving
it out leaves out all its trials, as leaving out a row of a frequency weight leaves out all its copies. Nothing is imported from statsmodels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru.linalg import Array
from glru.losses import Binomial, Gamma, Logistic, Loss, NegativeBinomial, Poisson, Squared, Tweedie
from glru.penalties import L2, Penalty
from glru.problem import Point, Problem, Scaling

KNOWN = (
    "results of OLS, WLS, Logit, Poisson, or of GLM with the families Gaussian (identity link), Binomial (logit link), Poisson, Gamma, Tweedie and "
    "NegativeBinomial (log link)"
)


def is_statsmodels(value: object) -> bool:
    """Whether a value is a model of statsmodels or the results of one."""
    return type(value).__module__.partition(".")[0] == "statsmodels"


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """Results of statsmodels, as a problem and a point near its optimum."""

    problem: Problem  # what was fitted
    point: Point  # the fitted parameters
    n_observations: float  # how many rows the degrees of freedom are counted from: the sum of the frequency weights
    copies: bool  # whether the weights of the problem are those: numbers of copies of rows
    # The power of the mean that the variance is proportional to, where its dispersion is estimated though that of the loss is known.
    variance_power: float | None

    def refuse_information(self, criterion: str | None) -> None:
        """Refuse AIC and BIC unless weights count copies of rows, as these criteria assume."""
        # The likelihood of a share is that of its trials, but to BIC their number is not that of the observations.
        trials = isinstance(self.problem.loss, Binomial) and self.n_observations == self.problem.n_rows
        if criterion in ("aic", "bic") and not self.copies and not (trials and criterion == "aic"):
            raise ValueError(
                f"the criterion {criterion!r} counts weights as repeated rows, which those of this fit are not: values and choices would differ from those "
                "of statsmodels. Use cv, with the criterion 'deviance' of a GLM with a log or logit link, else 'squared_error'."
            )


def adapt_results(results: Any) -> Fit:
    """The problem that a fit has solved, and the fit."""
    results = getattr(results, "_results", results)
    model = getattr(results, "model", None)
    if model is None:
        raise TypeError(f"a fit is needed; got {type(results).__name__}, a model. Call its fit() first.")
    problem = to_problem(model)
    _refuse_other_fits(results, model)
    params = np.array(results.params, dtype=np.float64)
    frequencies = getattr(model, "freq_weights", None)
    frequencies = np.ones(problem.n_rows) if frequencies is None else np.asarray(frequencies, dtype=np.float64)
    copies = np.array_equal(problem.sample_weight, frequencies)
    # The Tweedie family of power 1 is quasi-Poisson.
    quasi = type(getattr(model, "family", None)).__name__ == "Tweedie" and model.family.var_power == 1.0
    return Fit(problem, Point(params), float(np.sum(frequencies)), copies, 1.0 if quasi else None)


def to_problem(model: Any, penalty: Penalty | None = None, scaling: Scaling = "sum") -> Problem:
    """The problem of a model of statsmodels: minus its log-likelihood, up to a constant and the dispersion, and a penalty.

    Parameters
    ----------
    model : model or results of statsmodels
        What was, or is to be, fitted. A constant is a column like any other.
    penalty : Penalty, default=None
        A penalty of the coefficients; none if not given. ``fit_regularized(alpha, L1_wt=0)`` of a ``GLM`` or ``OLS`` is ``glru.L2(alpha)`` with
        ``scaling="mean"``.
    scaling : {"sum", "mean"}, default="sum"
        Whether the losses are summed, or averaged, as in :class:`glru.Problem`.

    Returns
    -------
    Problem
        With the names of the columns, and without an intercept of its own.

    Examples
    --------
    >>> import numpy as np, glru
    >>> import statsmodels.api as sm
    >>> from glru.statsmodels import to_problem
    >>> X = sm.add_constant(np.arange(6.0))
    >>> fit = sm.GLM([1, 0, 2, 3, 3, 6], X, family=sm.families.Poisson()).fit()
    >>> to_problem(fit)
    Problem(6 rows x 2 columns, Poisson(), L2(lam=array([0., 0.])), scaling='sum')
    >>> result = glru.influence(fit)
    >>> result.coef_names, bool(np.allclose(result.coef, fit.params))
    (['const', 'x1'], True)
    """
    model = getattr(getattr(model, "_results", model), "model", model)
    kind = type(model).__name__
    if not is_statsmodels(model) or kind not in MODELS:
        raise TypeError(f"the model must be {KNOWN}; got {type(model).__module__}.{kind}.{REMEDIES.get(kind, '')}")
    loss, weights = MODELS[kind](model)
    X, y, offset = (
        np.asarray(model.exog, dtype=np.float64),
        np.asarray(model.endog, dtype=np.float64),
        _read_offset(model),
    )
    if offset is not None and isinstance(loss, Squared):
        y, offset = y - offset, None
    elif offset is not None and isinstance(loss, Logistic):
        loss = Binomial()
    problem = Problem(
        X,
        y,
        loss=loss,
        penalty=L2(np.zeros(X.shape[1])) if penalty is None else penalty,
        scaling=scaling,
        sample_weight=weights,
        offset=offset,
    )
    return problem.derive(column_names=tuple(map(str, model.exog_names)))


def _adapt_generalised(model: Any) -> tuple[Loss, Array | None]:
    family, link = type(model.family).__name__, type(model.family.link).__name__
    if family not in FAMILIES:
        raise TypeError(f"the model must be {KNOWN}; got a GLM of the family {family}.")
    expected, make_loss = FAMILIES[family]
    if link.lower() != expected.lower():
        raise ValueError(
            f"the family {family} is supported with the {expected} link; got {link}. Fit it with "
            f"sm.families.{family}(link=sm.families.links.{expected}()) if that will do."
        )
    weights = np.asarray(model.iweights, dtype=np.float64) * np.asarray(model.n_trials, dtype=np.float64)
    return make_loss(model), weights


def _adapt_binomial(model: Any) -> Loss:
    y = np.asarray(model.endog)
    labels = bool(np.all((y == 0.0) | (y == 1.0)) and np.any(y == 0.0) and np.any(y == 1.0))
    return Logistic() if labels and np.all(np.asarray(getattr(model, "n_trials", 1.0)) == 1.0) else Binomial()


def _adapt_tweedie(model: Any) -> Loss:
    power = float(model.family.var_power)
    if not 1.0 <= power <= 2.0:
        raise ValueError(f"the Tweedie family is supported with a power from 1 to 2; got var_power={power!r}.")
    return Poisson() if power == 1.0 else Gamma() if power == 2.0 else Tweedie(power)


def _read_offset(model: Any) -> Array | None:
    """The offset and the logarithm of the exposure, which statsmodels stores together; None if the model has neither."""
    parts = [getattr(model, name, None) for name in ("offset", "exposure")]
    known = [np.asarray(part, dtype=np.float64) for part in parts if part is not None and np.any(part)]
    return None if not known else np.asarray(np.broadcast_to(sum(known), np.shape(model.endog)))


def _refuse_other_fits(results: Any, model: Any) -> None:
    """Refuse results that are not those of the likelihood alone."""
    what = f"{type(model).__name__} results"
    if (
        "Regularized" in type(results).__name__
        or "L1" in type(results).__name__
        or getattr(results, "regularized", False)
    ):
        raise ValueError(
            f"{what} must be those of fit(); got those of fit_regularized(), which do not keep their strengths. Give "
            "glru.statsmodels.to_problem(results, penalty=glru.L2(alpha), scaling='mean'), or another penalty of glru."
        )
    constraints = getattr(results, "constraints", None)
    if constraints is not None or bool(getattr(results, "k_constr", False)):
        raise ValueError(
            f"{what} must be those of fit(); got those of fit_constrained(). Put the constraints into the columns: fit what is left free."
        )
    if np.shape(results.params) != (model.exog.shape[1],):
        raise ValueError(
            f"{what} must have one parameter per column; got parameters of shape {np.shape(results.params)} for {model.exog.shape[1]} columns."
        )


MODELS: dict[str, Callable[[Any], tuple[Loss, Array | None]]] = {
    "OLS": lambda model: (Squared(), None),
    "WLS": lambda model: (Squared(), np.asarray(model.weights, dtype=np.float64)),
    "Logit": lambda model: (_adapt_binomial(model), None),
    "Poisson": lambda model: (Poisson(), None),
    "GLM": _adapt_generalised,
}

FAMILIES: dict[str, tuple[str, Callable[[Any], Loss]]] = {
    "Gaussian": ("Identity", lambda model: Squared()),
    "Binomial": ("Logit", _adapt_binomial),
    "Poisson": ("Log", lambda model: Poisson()),
    "Gamma": ("Log", lambda model: Gamma()),
    "Tweedie": ("Log", _adapt_tweedie),
    "NegativeBinomial": ("Log", lambda model: NegativeBinomial(1.0 / float(model.family.alpha))),
}
"""The link that each family of a GLM is known with, and its loss."""

REMEDIES = {
    "GLS": " Whiten the data: sm.OLS(model.wendog, model.wexog) is the same fit.",
    "GLSAR": " Whiten the data: sm.OLS(model.wendog, model.wexog) is the same fit.",
    "NegativeBinomial": " It estimates alpha with the coefficients; with alpha as it was found, fit "
    "sm.GLM(y, X, sm.families.NegativeBinomial(alpha=alpha)).",
    "MNLogit": " Write it as glru.Problem(X, y, loss=glru.Multinomial(), penalty=glru.L2(...)).",
    "Probit": " Its loss has no proof here; Logit has one.",
}
"""What to do instead, for models that people ask about."""
