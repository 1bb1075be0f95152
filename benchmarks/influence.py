"""Exact influence of every row: its price in fits, its intervals against models refitted in extended precision, and how far one-step values are off.

Refits are Newton's method with sums in NumPy's long double (64 bits of mantissa on x86) and norms in 40 digits. Every quantity of some random rows
(seed 0) is compared; statsmodels' data sets come with it, those called ``reg_`` are files. Times are processor time, the shortest of three, in units of one fit.

``get_influence()`` of statsmodels makes one Newton step per row. Its DFBETAS and Cook's distances of all rows of statsmodels' own data are compared with the exact ones.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np

import glru
from benchmarks.data import folder, load
from benchmarks.timing import print_table

ROWS = 12
"""Rows whose refits are compared, of large data three."""

NAMES = ("leverage", "cooks_distance", "score_change", "dffits", "held_out_score", "deletion_residual")

Long = np.longdouble


def _standardised(X: Any) -> Any:
    X = np.asarray(X, dtype=np.float64)
    X = X[:, X.std(axis=0) > 0.0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def _problem(X: Any, y: Any, loss: Any, lam: float = 0.0, **options: Any) -> glru.Problem:
    penalty = glru.L2(np.full(X.shape[1], lam))
    return glru.Problem(X, y, loss, penalty, fit_intercept=True, scaling="sum", **options)


def cases() -> Iterator[tuple[str, glru.Problem]]:
    """Names and problems."""
    try:
        from statsmodels import api as sm
    except ImportError:
        print("\nspector, star98, scotland, cpunish and fair: skipped; install statsmodels.")
    else:
        for name, loss in (("spector", glru.Logistic()), ("scotland", glru.Gamma()), ("cpunish", glru.Poisson())):
            found = getattr(sm.datasets, name).load()
            yield name, _problem(_standardised(found.exog), np.asarray(found.endog, dtype=np.float64), loss)
        star = sm.datasets.star98.load()
        yield (
            "star98",
            _problem(_standardised(star.exog), np.asarray(star.endog)[:, 0].astype(np.float64), glru.Poisson()),
        )
        fair = sm.datasets.fair.load()
        yield "fair", _problem(_standardised(fair.exog), np.asarray(fair.endog) > 0, glru.Logistic())
    if folder() is not None:
        for name in ("reg_diabetes_sklearn", "reg_housing_scale", "reg_airfoil", "reg_mg_scale", "reg_cpusmall"):
            X, y = load(name, "none")
            yield name, _problem(_standardised(X), np.asarray(y, dtype=np.float64), glru.Squared(), 1.0)
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(100_000, 20)), rng.uniform(0.5, 2.0, 100_000)
    y = rng.poisson(exposure * np.exp(X @ (0.2 * rng.normal(size=20)) + 0.3)).astype(np.float64)
    yield "Poisson with exposure", _problem(X, y, glru.Poisson(), offset=np.log(exposure))


def slopes_and_curvatures(problem: glru.Problem, scores: Any) -> tuple[Any, Any]:
    """Of the losses, in long double."""
    y, z = problem.targets.astype(Long), scores + problem.offset.astype(Long)
    name = type(getattr(problem.loss, "loss", problem.loss)).__name__
    if name == "Squared":
        return z - y, np.ones_like(z)
    if name == "Logistic":
        p = 1 / (1 + np.exp(-z))
        return p - (y > 0), p * (1 - p)
    mean = np.exp(z)
    return (mean - y, mean) if name == "Poisson" else (1 - y / mean, y / mean)


def refit(problem: glru.Problem, start: Any, weights: Any) -> tuple[Any, Any]:
    """The optimum with some weights, the intercept last, and the weighted curvatures there."""
    X = np.column_stack([problem.X, np.ones(problem.n_rows)])
    strengths, model = np.append(problem.quadratic, 0.0), start.astype(Long)
    wide = X.astype(Long)
    for _ in range(40):
        slopes, curvatures = slopes_and_curvatures(problem, wide @ model)
        gradient = wide.T @ (weights * slopes) + strengths * model
        curved = (weights * curvatures).astype(np.float64)
        step = np.linalg.solve((X.T * curved) @ X + np.diag(strengths), gradient.astype(np.float64))
        model = model - step
        if np.abs(step).max() <= 1e-17 * np.abs(model).max():
            break
    return model, weights * slopes_and_curvatures(problem, wide @ model)[1]


def _inverse(problem: glru.Problem, curvatures: Any) -> tuple[Any, Any]:
    """The inverse of the Hessian, found in 40 digits, and the Hessian, sums in long double."""
    X = np.column_stack([problem.X, np.ones(problem.n_rows)]).astype(Long)
    hessian = (X.T * curvatures) @ X + np.diag(np.append(problem.quadratic, 0.0)).astype(Long)
    mpmath.mp.dps = 40
    high = hessian.astype(np.float64)
    low = (hessian - high).astype(np.float64)
    inverse = mpmath.inverse(mpmath.matrix(high.tolist()) + mpmath.matrix(low.tolist()))
    return np.array(inverse.tolist(), dtype=object).astype(np.float64), hessian


def truths(problem: glru.Problem, result: Any, rows: Any) -> Iterator[tuple[str, int, Any]]:
    """Every quantity of some rows by refits: its name, the row and its value."""
    weights = np.ones(problem.n_rows, dtype=Long)
    full, curvatures = refit(problem, result.coef, weights)
    inverse, hessian = _inverse(problem, curvatures)
    X = np.column_stack([problem.X, np.ones(problem.n_rows)]).astype(Long)
    freedom = np.einsum("ij,jk,ik->i", X, inverse, X) @ curvatures
    slopes, _ = slopes_and_curvatures(problem, X @ full)
    name, n = type(getattr(problem.loss, "loss", problem.loss)).__name__, problem.n_rows
    free = len(full) if not problem.quadratic.any() else freedom
    dispersion = Long(1)
    if name == "Squared":
        dispersion = (slopes @ slopes) / (n - free)
    elif name == "Gamma":
        mean = np.exp(X @ full + problem.offset)
        dispersion = np.sum(np.square((problem.targets - mean) / mean)) / (n - free)
    for row in rows:
        without = weights.copy()
        without[row] = 0
        model, _ = refit(problem, full.astype(np.float64), without)
        change, x = full - model, X[row]
        norm = np.sqrt(x @ inverse @ x)
        residual = -slopes_and_curvatures(problem, X @ model)[0][row]
        known = {
            "leverage": curvatures[row] * norm**2,
            "cooks_distance": change @ hessian @ change / (free * dispersion),
            "score_change": x @ change,
            "dffits": x @ change / (np.sqrt(dispersion) * norm),
            "held_out_score": x @ model,
            "deletion_residual": residual,
        }
        yield from ((key, row, value) for key, value in known.items())
        yield "dfbeta", row, change
        yield "dfbetas", row, change / np.sqrt(dispersion * np.diag(inverse))


def _seconds(work: Callable[[], object]) -> float:
    best = np.inf
    for _ in range(3):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def _line(name: str, problem: glru.Problem) -> list[str]:
    solution = glru.solve(problem)
    fit = _seconds(lambda: glru.solve(problem))
    call = _seconds(lambda: glru.influence(solution))

    def read() -> None:
        result = glru.influence(solution)
        for key in (*NAMES, "deviance_residual"):
            result.measure_bounds(key)
        result.dfbetas()

    everything, result = _seconds(read), glru.influence(solution)
    count = 3 if problem.n_rows > 20_000 else min(ROWS, problem.n_rows)
    rows = np.random.default_rng(0).choice(problem.n_rows, count, replace=False)
    checked, outside, widest = 0, 0, 0.0
    for key, row, value in truths(problem, result, rows):
        lower, upper = (
            (part[0] for part in getattr(result, key)(rows=[int(row)]))
            if key.startswith("dfbeta")
            else (part[row] for part in result.measure_bounds(key))
        )
        # The refits themselves err by about this.
        slack = 1e-15 * np.abs(np.asarray(value, dtype=Long))
        outside += int(np.count_nonzero((value < lower - slack) | (value > upper + slack)))
        checked += np.size(value)
        with np.errstate(all="ignore"):
            widest = max(
                widest, float(np.max((np.asarray(upper) - lower) / np.abs(np.asarray(value, np.float64)).max()))
            )
    return [
        name,
        f"{problem.n_rows} x {problem.n_columns}",
        f"{call / fit:.1f}",
        f"{everything / fit:.1f}",
        str(result.n_trainings),
        str(result.decided_by.get("open", 0)),
        str(checked),
        str(outside),
        f"{widest:.0e}",
    ]


def one_step_fits() -> Iterator[tuple[str, Any]]:
    """Names and fits of statsmodels' data sets."""
    from statsmodels import api as sm

    def load_set(name: str) -> tuple[Any, Any]:
        found = getattr(sm.datasets, name).load()
        return np.asarray(found.endog, dtype=np.float64), sm.add_constant(np.asarray(found.exog, dtype=np.float64))

    logit, families = {"disp": 0, "method": "newton", "tol": 1e-12, "maxiter": 200}, sm.families
    glm = {"tol": 1e-14, "maxiter": 500}
    y, X = load_set("spector")
    yield "spector (logit)", sm.Logit(y, X).fit(**logit)
    y, X = load_set("anes96")
    yield "anes96 (logit, vote)", sm.Logit(sm.datasets.anes96.load().data["vote"].to_numpy(dtype=float), X).fit(**logit)
    y, X = load_set("scotland")
    yield "scotland (Gamma)", sm.GLM(y, X, families.Gamma(families.links.Log())).fit(**glm)
    y, X = load_set("cpunish")
    yield "cpunish (Poisson)", sm.GLM(y, X, families.Poisson()).fit(**glm)
    y, X = load_set("star98")
    yield "star98 (binomial counts)", sm.GLM(y, X, families.Binomial()).fit(**glm)
    yield "star98 (Poisson, of the first count)", sm.GLM(y[:, 0], X, families.Poisson()).fit(**glm)
    y, X = load_set("fair")
    yield "fair (logit, any affair)", sm.Logit((y > 0).astype(float), X).fit(**logit)
    yield "fair (Poisson)", sm.GLM(y, X, families.Poisson()).fit(**glm)


def one_step_line(name: str, fit: Any) -> list[str]:
    """How far the one-step values of a fit of statsmodels are from the exact ones."""
    result, steps = glru.influence(fit, width=1e-6), fit.get_influence()
    lower, upper = result.dfbeta()
    exact = 0.5 * (lower + upper) / np.asarray(fit.bse)
    one = np.asarray(steps.d_params) / np.asarray(fit.bse)
    n, k = exact.shape
    known = np.isfinite(exact).all(axis=1)
    row, column = np.unravel_index(np.argmax(np.where(known[:, None], np.abs(one - exact), 0.0)), exact.shape)
    large = known[:, None] & (np.abs(exact) > 2.0 / np.sqrt(n))
    worst = (np.abs(one - exact) / np.abs(exact))[large].max(initial=0.0)
    # One step in the metric that the exact distances are measured in: what differs is the step alone.
    information = -np.asarray(fit.model.hessian(fit.params, **({"scale": 1.0} if hasattr(fit, "family") else {})))
    scale = 0.5 * sum(result.dispersion)
    cooks = np.einsum("ij,jk,ik->i", steps.d_params, information, steps.d_params) / (k * scale)
    cook, bar = result.cooks_distance, 4.0 / n
    off = (np.abs(cooks - cook) / cook)[known & (cook > bar)].max(initial=0.0)
    # Rows without which there is no optimum are before all others.
    first = np.argsort(-np.where(known, cook, np.inf), kind="stable")[:10]
    theirs = np.argsort(-cooks, kind="stable")[:10]
    return [
        name,
        f"{n} x {k}",
        f"{exact[row, column]:.3f}",
        f"{one[row, column]:.3f}",
        f"{worst:.1%}",
        f"{np.nanmax(cook):.4g}",
        f"{cooks[np.nanargmax(cook)]:.4g}",
        f"{off:.1%}",
        str(10 - len(set(first) & set(theirs))),
        str(int(np.count_nonzero(first != theirs))),
        str(result.n_trainings),
    ]


def run() -> None:
    """Print both tables."""
    header = ["data", "size", "call", "all read", "trainings", "open", "checked", "outside", "widest"]
    lines = []
    for name, problem in cases():
        lines.append(_line(name, problem))
        print(" | ".join(lines[-1]), flush=True)
    print_table("Influence of every row: price in fits, and quantities outside their intervals", header, lines)
    try:
        lines = [one_step_line(name, fit) for name, fit in one_step_fits()]
    except ImportError:
        return
    header = [
        "data",
        "size",
        "DFBETAS",
        "one step",
        "relative",
        "Cook",
        "one step",
        "relative",
        "rows",
        "places",
        "trainings",
    ]
    title = "One step against the exact values: the DFBETAS farthest off, the largest Cook's distance; relative errors above the usual cut-offs; changes among the first ten"
    print_table(title, header, lines)
