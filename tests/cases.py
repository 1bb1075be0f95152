"""The one table of losses, penalties, solvers and small problems; what is added here is tested everywhere."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn

import glru
from glru.datasets import Dataset
from glru.datasets.catalogue import find_data_folder
from tests.core import STAGES, Loss, Penalty, Problem, ProximalHinge, ScoreBounds, Solution

LOSSES: dict[str, Loss] = {
    "squared": glru.Squared(),
    "huber": glru.Huber(gamma=0.5),
    "logistic": glru.Logistic(),
    "squared-hinge": glru.SquaredHinge(),
    "smoothed-hinge": glru.SmoothedHinge(gamma=0.25),
    "hinge": glru.Hinge(),
}

OTHER_LOSSES: dict[str, Loss] = {
    "huber-wide": glru.Huber(gamma=2.0),
    "smoothed-hinge-wide": glru.SmoothedHinge(gamma=2.0),
    "proximal-hinge": ProximalHinge(0.5, np.asarray(0.25)),
    "poisson": glru.Poisson(),
    "gamma": glru.Gamma(),
    "tweedie": glru.Tweedie(1.5),
    "tweedie-low": glru.Tweedie(1.1),
    "tweedie-high": glru.Tweedie(1.9),
    "negative-binomial": glru.NegativeBinomial(1.0),
    "negative-binomial-small": glru.NegativeBinomial(0.25),
    "binomial": glru.losses.Binomial(),
}
"""Further parameters, for the contracts only."""

PENALTIES: dict[str, Penalty] = {
    "l2": glru.L2(0.05),
    "elastic-net": glru.ElasticNet(0.05, 0.02),
    "l1": glru.L1(0.03),
}
"""Strengths that suit the problems below with ``scaling="mean"``; others are scaled to match."""

COLUMN_PENALTIES: dict[str, Penalty] = {
    "l2-columns": glru.L2([0.5, 0.0, 2.0]),
    "elastic-net-columns": glru.ElasticNet([0.5, 0.0, 2.0], [0.25, 0.75, 0.0]),
    "elastic-net-free": glru.ElasticNet([0.5, 0.0, 2.0], [0.25, 0.0, 0.0]),
    "l1-columns": glru.L1([0.25, 0.0, 1.0]),
}
"""One strength a column, for three columns."""

SOLVERS = ("newton", "newton-cg", "prox-newton", "dual-cd", "interior-point", "proximal-point")


def supports(solver: str, problem: Problem) -> bool:
    """The table of ``glru.solvers``, written a second time."""
    hinge, l2 = isinstance(problem.loss, glru.Hinge), isinstance(problem.penalty, glru.L2)
    free = bool(problem.unpenalised.size) or (problem.fit_intercept and hinge)
    return {
        "newton": not hinge and l2,
        "newton-cg": not hinge and l2,
        "prox-newton": not hinge,
        "dual-cd": isinstance(problem.loss, glru.Hinge | glru.Logistic) and l2 and not free,
        "interior-point": isinstance(problem.loss, glru.Hinge | glru.SquaredHinge | glru.SmoothedHinge) and l2,
        "proximal-point": hinge,
    }[solver]


def each(table: dict[str, Any], name: str) -> pytest.MarkDecorator:
    """Parametrise a test by every entry of a table."""
    return pytest.mark.parametrize(name, table.values(), ids=table.keys())


def dense(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Random normal data with a shift, so that an intercept matters."""
    return np.random.default_rng(seed).normal(0.2, 1.0, (n, d))


def targets(X: Any, loss: Loss, seed: int = 0) -> np.ndarray:
    """Noisy targets of a linear model: labels -1/+1, or real numbers with a few outliers."""
    random = np.random.default_rng(seed + 1)
    n, d = X.shape
    z = X @ random.normal(0.0, 1.0, d) + random.normal(0.5, 1.0, n)
    if loss.link == "log":
        # Counts, a few of them zero; of a Gamma distribution what is above zero.
        return np.where(np.arange(n) % 5 == 0, 0.0, np.round(np.exp(np.clip(z, -3.0, 3.0)))) + 0.5 * isinstance(
            loss, glru.Gamma
        )
    if loss.link == "logit":
        return np.round(8.0 / (1.0 + np.exp(-z))) / 8.0
    if loss.task == "regression":
        return np.where(np.arange(n) % 7 == 0, 3.0 * z, z)
    y = np.where(z > np.median(z), 1.0, -1.0)
    y[:2] = -1.0, 1.0
    return y


def make(loss: Loss, penalty: Penalty, n: int = 40, d: int = 8, *, seed: int = 0, density: float = 1.0, **options: Any):
    """A random problem; with ``scaling="sum"`` the penalty is scaled so that the optimum is that of ``"mean"``."""
    X = dense(n, d, seed)
    if density < 1.0:
        X = sp.random_array((n, d), density=density, rng=np.random.default_rng(seed), format="csr") * 3.0
    if options.get("scaling") == "sum":
        penalty = penalty.scale(float(np.sum(options.get("sample_weight", np.ones(n)))))
    return Problem(X, targets(X, loss, seed), loss=loss, penalty=penalty, **options)


def with_bounds(result: glru.results.LOOCVResult, lower: np.ndarray, upper: np.ndarray) -> glru.results.LOOCVResult:
    """A leave-one-out result with other bounds."""
    return replace(result, results=replace(result.rows, bounds=ScoreBounds(lower, upper)))


def with_open_rows(result: glru.results.LOOCVResult, rows: list[int]) -> glru.results.LOOCVResult:
    """A leave-one-out result in which nothing decided the labels of some rows."""
    (lower, upper), codes = (end.copy() for end in result.bounds), result.stage_codes.copy()
    lower[rows], upper[rows], codes[rows] = -1.0, 1.0, STAGES.index("undetermined")
    return replace(result, results=replace(result.rows, bounds=ScoreBounds(lower, upper), stage_codes=codes))


def uneven(n: int) -> np.ndarray:
    """Sample weights from 0 to 3."""
    return np.arange(n) % 7 * 0.5


PROBLEMS: dict[str, Callable[[Loss, Penalty], Problem]] = {
    "tall": lambda loss, penalty: make(loss, penalty),
    "wide": lambda loss, penalty: make(loss, penalty, 15, 40, scaling="sum"),
    "sparse": lambda loss, penalty: make(loss, penalty, 60, 12, density=0.3),
    "sparse-wide": lambda loss, penalty: make(loss, penalty, 20, 50, density=0.2, fit_intercept=True),
    "weighted": lambda loss, penalty: make(loss, penalty, scaling="sum", sample_weight=uneven(40)),
    "intercept": lambda loss, penalty: make(loss, penalty, fit_intercept=True),
    "wide-intercept": lambda loss, penalty: make(
        loss, penalty, 15, 40, fit_intercept=True, sample_weight=uneven(15) + 0.5
    ),
}


def assert_same_model(first: Solution, second: Solution) -> None:
    """Two solutions of one problem are as close as their gaps promise, in value and (Theorem 1) in coefficients."""
    rounding = 1e-13 * first.primal_value
    assert first.primal_value <= second.primal_value + first.gap + rounding
    assert second.primal_value <= first.primal_value + second.gap + rounding
    lam = first.problem.penalty.strong_convexity
    if lam > 0.0:
        radius = np.sqrt(2.0 * first.gap / lam) + np.sqrt(2.0 * second.gap / lam)
        assert np.linalg.norm(first.coef - second.coef) <= radius + 1e-9 * np.linalg.norm(first.coef)


SINCE_1_8 = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)
"""Whether ``l1_ratio`` alone gives the penalty of scikit-learn's LogisticRegression; before, ``penalty`` had to name it."""


def l1(ratio: float) -> dict[str, Any]:
    """Options of scikit-learn's LogisticRegression with a share of the 1-norm in its penalty."""
    if SINCE_1_8:
        return {"l1_ratio": ratio}
    return {"penalty": "l1"} if ratio == 1.0 else {"penalty": "elasticnet", "l1_ratio": ratio}


def stored(name: str) -> Dataset:
    """A dataset of the folder ``GLRU_DATA``; the test is skipped where it is absent."""
    folder = find_data_folder()
    if folder is None or not (folder / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not in the folder GLRU_DATA")
    return glru.datasets.load(name)
