"""``verify``: a sample of proven bounds compared with retraining in arbitrary precision."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial, singledispatch
from itertools import groupby, pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru._options import Budget, check_call
from glru._results import Drawable, find_display, make_frame
from glru.after import After
from glru.bounds import ScoreBounds
from glru.linalg import Array
from glru.losses import Logistic, Squared
from glru.model_selection import CrossValResult, LOOCVResult
from glru.model_selection.result import Refitted
from glru.problem import Problem
from glru.selection import StepwiseResult

Value = Callable[..., Any]
"""A number of a trained model, and a bound of its error."""


@final
@dataclass(frozen=True, eq=False)
class Claim:
    """One number with its bounds."""

    name: str
    model: Callable[[], Problem]  # makes the problem whose optimum is meant; claims about one optimum share it
    value: Value  # the number, from that optimum
    # The bounds.
    lower: float
    upper: float


@singledispatch
def list_claims(result: Any, problem: Problem, queries: Any, targets: Any) -> list[Claim]:
    """Every claim of a result."""
    raise TypeError(
        "verify takes what glru.loocv, glru.cross_val_predict, glru.after or glru.stepwise returned; "
        f"got {type(result).__name__}."
    )


@list_claims.register
def _(result: LOOCVResult, problem: Problem, queries: Any, targets: Any) -> list[Claim]:
    if not result.certified:
        raise ValueError(f"only proven bounds can be verified; the method {result.method!r} proves nothing.")
    if len(result.score_lower) != problem.n_rows:
        raise ValueError(f"the result is of {len(result.score_lower)} rows, the problem has {problem.n_rows}.")
    everyone = np.arange(problem.n_rows)

    def model(row: int) -> Callable[[], Problem]:
        return _reweigh(problem, np.where(everyone == row, 0.0, problem.sample_weight))

    return _list_held_out(result, problem, [f"row {row}" for row in everyone], everyone, everyone, model)


def _list_held_out(
    result: LOOCVResult | CrossValResult,
    problem: Problem,
    names: list[str],
    rows: NDArray[np.intp],
    folds: NDArray[np.intp],
    model: Callable[[int], Callable[[], Problem]],
) -> list[Claim]:
    """The claims about held-out rows, fold by fold."""
    _require_own(result, problem)
    found, edges = [], np.searchsorted(folds, np.arange(folds[-1] + 2))
    for fold, (start, stop) in enumerate(pairwise(edges.tolist())):
        mine, bounds = names[start:stop], result.bounds.take(slice(start, stop))
        if result.refitted is not None:
            found += _list_refitted_claims(result.refitted, fold, mine, bounds)
            continue
        own = model(fold)
        for k, (name, row) in enumerate(zip(mine, rows[start:stop], strict=True)):
            features = partial(problem.matrix.__getitem__, slice(row, row + 1))
            found += _list_row_claims(name, own, features, problem.offset[row], bounds.take([k]))
    return found


def _require_own(result: LOOCVResult | CrossValResult, problem: Problem) -> None:
    """Refuse one model per class, and a problem that a result with refitted steps or weights does not belong to."""
    if result.bounds.lower.ndim == 2 and not problem.loss.several:
        raise ValueError(
            f"verify retrains one model; got a result of {result.bounds.lower.shape[1]}, one per class. Verify the result of each class "
            "against the rest (y == label)."
        )
    if result.refitted is not None and problem is not result.problem:
        raise ValueError(
            "the result is of an estimator that is refitted without its held-out rows (a pipeline, balanced weights), which this "
            "problem does not tell. Give result.problem."
        )


def _list_refitted_claims(refitted: Refitted, k: int, names: list[str], bounds: ScoreBounds) -> list[Claim]:
    """The claims about the test rows of a split, in their order, under a problem that is made on demand."""
    made = cache(lambda: refitted(k))

    def model() -> Problem:
        return made()[0]

    def row_at(place: int) -> Any:
        problem, test = made()
        return problem.matrix[test[place] : test[place] + 1]

    return [
        claim
        for place, name in enumerate(names)
        for claim in _list_row_claims(name, model, partial(row_at, place), 0.0, bounds.take([place]))
    ]


@list_claims.register
def _(result: CrossValResult, problem: Problem, queries: Any, targets: Any) -> list[Claim]:
    def model(fold: int) -> Callable[[], Problem]:
        weight, train = np.zeros(problem.n_rows), result.train_rows[fold]
        np.add.at(weight, train, problem.sample_weight[train])
        return _reweigh(problem, weight)

    names = [f"row {row} in fold {fold}" for row, fold in zip(result.rows, result.folds, strict=True)]
    return _list_held_out(result, problem, names, result.rows, result.folds, model)


@list_claims.register
def _(result: After, problem: Problem, queries: Any, targets: Any) -> list[Claim]:
    def model() -> Problem:
        return result.change.apply(problem)

    found = []
    if queries is not None:
        bounds = result.score_bounds(queries)
        for k in range(bounds.n_rows):
            query = partial(queries.__getitem__, slice(k, k + 1))
            found += _list_row_claims(f"query {k}", model, query, 0.0, bounds.take([k]))
    lower, upper = (
        np.concatenate([coef, np.expand_dims(intercept, -1)], axis=-1)
        for coef, intercept in zip(result.coef_bounds(), result.intercept_bounds(), strict=True)
    )
    for at, low in np.ndenumerate(lower):
        name = f"coefficient {at[-1]}" if at[-1] < lower.shape[-1] - 1 else "intercept"
        name += f" of class {at[0]}" if problem.loss.several else ""
        found.append(Claim(name, model, lambda t, at=at: (t.model[at], t.doubts[at]), float(low), float(upper[at])))
    used = np.flatnonzero(model().weights > 0.0)
    lower, upper = (end[used] for end in result.dual_bounds())
    for at, low in np.ndenumerate(lower):
        name = f"dual variable {used[at[0]]}" + (f" of class {at[1]}" if problem.loss.several else "")
        found.append(Claim(name, model, lambda t, at=at: t.dual_at(*at), float(low), float(upper[at])))
    return found


@list_claims.register
def _(result: StepwiseResult, problem: Problem, queries: Any, targets: Any) -> list[Claim]:
    information = result.criterion in ("aic", "bic")
    if information and not isinstance(problem.loss, Logistic | Squared):
        raise ValueError(
            f"the criterion {result.criterion!r} is verified for Logistic() and Squared(); got {problem.loss!r}."
        )
    if not information and (queries is None or targets is None):
        raise ValueError("a stepwise result is verified on its validation rows; give queries=X_val and targets=y_val.")
    if result.method == "naive":
        raise ValueError("only proven bounds can be verified; the method 'naive' proves nothing.")
    y = np.asarray(targets)
    if information:
        y = problem.y
    elif problem.loss.several:
        y = np.searchsorted(problem.labels_of_scores, y)
    elif problem.classes is not None:
        y = np.where(y == problem.classes[1], 1.0, -1.0)
    chosen = set(result.selected.tolist())
    for step in result.path:
        chosen ^= set(step.columns)
    found = []
    for number, step in enumerate(result.path):
        for k, (action, columns) in enumerate(step.candidates):
            after = np.array(sorted(chosen | set(columns) if action == "add" else chosen - set(columns)), dtype=np.intp)
            rule = _class_criterion if problem.loss.several else _criterion
            value = _information(result.criterion, problem, after)
            if not information:
                value = rule(result.criterion, queries[:, after], y)
            ends = float(step.lower[k]), float(step.upper[k])
            found.append(
                Claim(f"step {number}, {action} {columns}", partial(problem.select_columns, after), value, *ends)
            )
        chosen ^= set(step.columns)
    return found


def _list_row_claims(
    name: str, model: Callable[[], Problem], row: Callable[[], Any], offset: float, bounds: ScoreBounds
) -> list[Claim]:
    """The claims about one row, which is made on demand: its score, or those of all classes and that its label's is the largest."""
    if bounds.lower.ndim == 1:
        ends = float(bounds.lower[0]), float(bounds.upper[0])
        return [Claim(f"score of {name}", model, _score(row, float(offset)), *ends)]
    found = []
    for k, (low, up) in enumerate(zip(bounds.lower[0], bounds.upper[0], strict=True)):
        found.append(Claim(f"score {k} of {name}", model, lambda t, k=k: t.scores(row())[0][k], float(low), float(up)))
    if bounds.decided[0] and bounds.winners is not None and bounds.winners[0] >= 0:
        winner = int(bounds.winners[0])
        others = [k for k in range(bounds.lower.shape[1]) if k != winner]
        found += [Claim(f"label of {name} against {k}", model, _lead(row, winner, k), 0.0, np.inf) for k in others]
    return found


def _lead(row: Callable[[], Any], winner: int, k: int) -> Value:
    def value(trained: Any) -> Any:
        scores = trained.scores(row())[0]
        return scores[winner][0] - scores[k][0], scores[winner][1] + scores[k][1]

    return value


def _reweigh(problem: Problem, weight: Any) -> Callable[[], Problem]:
    return lambda: problem.derive(sample_weight=np.array(weight))


def _score(row: Callable[[], Any], offset: float) -> Value:
    def value(trained: Any) -> Any:
        score, doubt = trained.scores(row())[0]
        return score + trained.mp.mpf(offset), doubt

    return value


def _criterion(name: str, X: Any, y: Any) -> Value:
    def value(trained: Any) -> Any:
        mp = trained.mp
        scores = trained.scores(X)
        pairs = [(mp.mpf(float(t)), z) for t, (z, _) in zip(y, scores, strict=True)]
        off = max(doubt for _, doubt in scores)
        if name == "error":
            return mp.mpf(sum(t * z <= 0 for t, z in pairs)), sum(abs(z) <= off for _, z in pairs if z != 0)
        if name == "log_loss":
            return mp.fsum(mp.log1p(mp.exp(-t * z)) for t, z in pairs) / len(pairs), off
        value = mp.fsum((t - z) ** 2 for t, z in pairs) / len(pairs)
        return value, off * (2 * mp.sqrt(value) + off) * len(pairs)

    return value


def _information(name: str, problem: Problem, columns: NDArray[np.intp]) -> Value:
    """AIC or BIC of the model of some columns: a likelihood of the training rows and the trace of the hat matrix."""

    def value(trained: Any) -> Any:
        mp = trained.mp
        used = np.flatnonzero(problem.sample_weight > 0.0)
        X = problem.matrix.dense()[used][:, columns]
        copies, weights, y = (
            [mp.mpf(float(v)) for v in part[used]] for part in (problem.sample_weight, problem.weights, problem.y)
        )
        scores, total = trained.scores(X), mp.fsum(copies)
        off = max(doubt for _, doubt in scores)
        if isinstance(problem.loss, Logistic):
            chances = [1 / (1 + mp.exp(t * z)) for t, (z, _) in zip(y, scores, strict=True)]
            likelihood = -2 * mp.fsum(c * mp.log(1 - p) for c, p in zip(copies, chances, strict=True))
            curvatures, doubt = [p * (1 - p) for p in chances], 2 * off * total
        else:
            residuals = [t - z for t, (z, _) in zip(y, scores, strict=True)]
            squares = mp.fsum(c * r**2 for c, r in zip(copies, residuals, strict=True))
            likelihood = total * (mp.log(2 * mp.pi * squares / total) + 1)
            curvatures = [mp.one] * len(y)
            doubt = (
                total * mp.fsum(c * off * (2 * abs(r) + off) for c, r in zip(copies, residuals, strict=True)) / squares
            )
        price = mp.mpf(2) if name == "aic" else mp.log(total)
        rows = np.column_stack([X, np.ones(len(X))]) if problem.fit_intercept else X
        strengths = np.append(problem.quadratic[columns], [0.0] if problem.fit_intercept else [])
        scaled = [w * h for w, h in zip(weights, curvatures, strict=True)]
        # Curvatures differ by as much as scores do, and float64 has rounded their weights.
        freedom, share = _freedom(mp, rows, scaled, strengths), 2 * off + mp.mpf(2) ** -48
        return likelihood + price * freedom, doubt + price * freedom * share

    return value


def _freedom(mp: Any, rows: Any, weights: list[Any], strengths: Any) -> Any:
    """The trace of the hat matrix of a regression with a penalty of squares; the number of columns where there is none."""
    if not np.any(strengths):
        return mp.mpf(rows.shape[1])
    X = mp.matrix([[mp.mpf(float(v)) for v in row] for row in rows])
    gram = X.T * mp.diag(weights) * X
    inverse = (gram + mp.diag([mp.mpf(float(v)) for v in strengths])) ** -1
    return rows.shape[1] - mp.fsum(mp.mpf(float(v)) * inverse[k, k] for k, v in enumerate(strengths))


def _class_criterion(name: str, X: Any, y: Any) -> Value:
    def value(trained: Any) -> Any:
        mp, lines, off = trained.mp, [], trained.mp.zero
        for place, scores in zip(y, trained.scores(X), strict=True):
            off = max(off, *(doubt for _, doubt in scores))
            lines.append([value - scores[int(place)][0] for k, (value, _) in enumerate(scores) if k != place])
        if name == "error":
            # Of a tie the label is wrong; a difference within the doubt may be one or not.
            return mp.mpf(sum(max(line) >= 0 for line in lines)), sum(0 < abs(max(line)) <= 2 * off for line in lines)
        return mp.fsum(mp.log1p(mp.fsum(mp.exp(v) for v in line)) for line in lines) / len(lines), 2 * off

    return value


@final
@dataclass(frozen=True, repr=False)
class Verification(Drawable):
    """What :func:`glru.verify` found.

    Attributes
    ----------
    checked : int
        Bounds that were compared with a retrained model.
    wrong : tuple of str
        Numbers outside their bounds. If there are any, please report a bug.
    unchecked : int
        Bounds of the sample whose model could not be retrained to that precision or in the time given, or has no optimum.
    undetermined : int
        Numbers of the result without a finite bound.
    tightest : float
        How near a number came to an end of its bounds, as a share of their half-width: 1 in the middle, 0 at an end;
        ``nan`` where no bounds are finite on both sides.
    digits : int
        Digits to which the models were retrained.
    names : tuple of str
        What was compared: one entry per bound, as in the three arrays.
    lower, upper, values : array of shape (checked,)
        The bounds, and the numbers of the retrained models, rounded to float64.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> problem = glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1))
    >>> glru.verify(glru.loocv(problem), problem, sample=2, digits=30).wrong
    ()
    """

    checked: int
    wrong: tuple[str, ...]
    unchecked: int
    undetermined: int
    tightest: float
    digits: int
    names: tuple[str, ...] = field(default=(), compare=False)
    lower: Array = field(default_factory=lambda: np.empty(0), compare=False)
    upper: Array = field(default_factory=lambda: np.empty(0), compare=False)
    values: Array = field(default_factory=lambda: np.empty(0), compare=False)

    @property
    def n_wrong(self) -> int:
        """How many numbers lie outside their bounds."""
        return len(self.wrong)

    def to_frame(self) -> Any:
        """One line per bound that was checked (a pandas or polars frame)."""
        return make_frame({"name": self.names, "lower": self.lower, "upper": self.upper, "retrained": self.values})

    def _display(self) -> Any:
        half = 0.5 * (self.upper - self.lower)
        with np.errstate(all="ignore"):
            ends = [(end - self.values) / half for end in (self.lower, self.upper)]
        label = "bounds minus the retrained number, in half-widths of the interval"
        return find_display("IntervalsDisplay")(*ends, self.names, label)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        counts = {
            "wrong": self.n_wrong,
            "checked": self.checked,
            "unchecked": self.unchecked,
            "unbounded": self.undetermined,
        }
        lines = [(name, str(count)) for name, count in counts.items()]
        return f"Verification({self.digits} digits)", [*lines, ("tightest", f"{self.tightest:.2g} of a half-width")]


@check_call
def verify(
    result: Any,
    problem: Problem | None = None,
    sample: int | None = 20,
    digits: int = 50,
    queries: Any = None,
    targets: Any = None,
    seed: int = 0,
    max_seconds: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Verification:
    """Compare a sample of proven bounds with models retrained in arbitrary precision.

    The checker shares nothing with the proofs: losses, penalties and optimality conditions are written separately, and models
    are trained by Newton's method with ``digits`` digits. That is slow, so it looks at a sample: half of it where the
    bounds come nearest to zero, the rest at random.

    Parameters
    ----------
    result : LOOCVResult, CrossValResult, After or StepwiseResult
        The result to verify.
    problem : Problem, default=None
        The problem it was computed from; the one that the result holds if not given. A stepwise result holds none.
    sample : int, default=20
        How many bounds to check; None: all of them.
    digits : int, default=50
        Digits of the retraining, at least 30.
    queries : array of shape (n_queries, n_columns), default=None
        Rows to ask an ``After`` about (its coefficients are asked for in any case), or the validation rows of a stepwise
        result.
    targets : array of shape (n_queries,), default=None
        The targets of a stepwise result's validation rows.
    seed : int, default=0
        Seed of the random half.
    max_seconds : float, default=None
        Retrain no further model after this many seconds.
    progress : callable, default=None
        Called as ``progress(stage, models_done, models)``.

    Returns
    -------
    Verification
        How many bounds were checked and which are wrong.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> problem = glru.Problem(X[:100, :5], y[:100], penalty=glru.L2(0.1))
    >>> found = glru.verify(glru.loocv(problem), problem, sample=4)
    >>> found.checked, found.n_wrong
    (4, 0)
    """
    if problem is None:
        problem = result.solution.problem if isinstance(result, After) else getattr(result, "problem", None)
    if not isinstance(problem, Problem):
        raise TypeError(
            f"verify needs a result of this library and its glru.Problem; got {type(result).__name__} and, as the problem, {type(problem).__name__}. "
            "Call glru.verify(result, problem)."
        )
    require("mpmath", "verify", "glru.verify")
    claims = list_claims(result, problem, queries, targets)
    telling = [claim for claim in claims if np.isfinite([claim.lower, claim.upper]).any()]
    compared: list[tuple[str, float, float, float]] = []
    margins, wrong, unchecked, budget = [], [], 0, Budget(max_seconds)
    # Claims about one model follow one another.
    chosen = _draw_sample(telling, sample, seed)
    groups = [list(group) for _, group in groupby(chosen, key=lambda claim: id(claim.model))]
    for done, group in enumerate(groups):
        if budget.spent:
            unchecked += sum(map(len, groups[done:]))
            break
        if progress is not None:
            progress("retraining", done, len(groups))
        # Imported late: those who never verify need not wait for it.
        from glru.verify.retraining import retrain, retrain_classes

        train = retrain_classes if problem.loss.several else retrain
        trained: Any = train(group[0].model(), digits)
        if trained is None:
            unchecked += len(group)
            continue
        for claim in group:
            value, doubt = claim.value(trained)
            margin, half = _margin(trained.mp, claim, value, doubt)
            if margin < 0:
                text = f"{trained.mp.nstr(value, 20)} is not between {claim.lower!r} and {claim.upper!r}"
                wrong.append(f"{claim.name}: {text}")
            margins.append(float(margin / half) if half > 0 else np.nan)
            compared.append((claim.name, claim.lower, claim.upper, float(value)))
    finite = [margin for margin in margins if not np.isnan(margin)]
    ends = np.array([line[1:] for line in compared]).reshape(-1, 3)
    return Verification(
        checked=len(margins),
        wrong=tuple(wrong),
        unchecked=unchecked,
        undetermined=len(claims) - len(telling),
        tightest=min(finite, default=float("nan")),
        digits=digits,
        names=tuple(line[0] for line in compared),
        lower=ends[:, 0],
        upper=ends[:, 1],
        values=ends[:, 2],
    )


def _draw_sample(claims: list[Claim], sample: int | None, seed: int) -> list[Claim]:
    """Half the sample where the bounds are nearest to zero, the rest at random."""
    if sample is None or len(claims) <= sample:
        return claims
    # A label changes at zero.
    order = sorted(range(len(claims)), key=lambda k: abs(max(claims[k].lower, -claims[k].upper)))
    near = order[: sample // 2]
    rest = np.random.default_rng(seed).choice(order[sample // 2 :], sample - len(near), replace=False)
    return [claims[k] for k in sorted([*near, *rest.tolist()])]


def _margin(mp: Any, claim: Claim, value: Any, doubt: Any) -> tuple[Any, Any]:
    """The distance to the nearer end, negative if a number is outside by more than the error of the retrained model; and the half-width."""
    sides = [value - mp.mpf(claim.lower), mp.mpf(claim.upper) - value]
    margin = min(side for side in sides if mp.isfinite(side))
    if -doubt <= margin < 0:
        margin = mp.zero
    half = (mp.mpf(claim.upper) - mp.mpf(claim.lower)) / 2
    return margin, half if mp.isfinite(half) else mp.zero
