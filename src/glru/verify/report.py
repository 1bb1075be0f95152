"""``verify``: a sample of proven bounds compared with retraining in arbitrary precision."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, final

import numpy as np

from glru._budget import Budget
from glru._extras import require
from glru._options import check_call
from glru._results import Shown, make_frame
from glru.after import After
from glru.linalg import Array
from glru.problem import Problem
from glru.verify.claims import Claim, list_claims


@final
@dataclass(frozen=True, repr=False)
class Verification(Shown):
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

    def plot(self, ax: Any = None) -> Any:
        """Draw the bounds around the retrained numbers, in half-widths; returns a :class:`glru.display.IntervalsDisplay`.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        """
        half = 0.5 * (self.upper - self.lower)
        with np.errstate(all="ignore"):
            ends = [(end - self.values) / half for end in (self.lower, self.upper)]
        # Pictures are a layer above, and are loaded only for those who draw.
        kind = import_module("glru.display").IntervalsDisplay
        return kind(*ends, self.names, "bounds minus the retrained number, in half-widths of the interval").plot(ax)

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
    telling = [claim for claim in claims if claim.says_something]
    compared: list[tuple[str, float, float, float]] = []
    margins, wrong, unchecked, budget = [], [], 0, Budget(max_seconds)
    groups = _group_by_model(_draw_sample(telling, sample, seed))
    for done, group in enumerate(groups):
        if budget.spent:
            unchecked += sum(map(len, groups[done:]))
            break
        if progress is not None:
            progress("retraining", done, len(groups))
        # Imported late: those who never verify need not wait for it.
        from glru.verify.classes import retrain_classes
        from glru.verify.retraining import retrain

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
    order = sorted(range(len(claims)), key=lambda k: abs(claims[k].clearance))
    near = order[: sample // 2]
    rest = np.random.default_rng(seed).choice(order[sample // 2 :], sample - len(near), replace=False)
    return [claims[k] for k in sorted([*near, *rest.tolist()])]


def _group_by_model(claims: list[Claim]) -> list[list[Claim]]:
    groups: dict[int, list[Claim]] = {}
    for claim in claims:
        groups.setdefault(id(claim.model), []).append(claim)
    return list(groups.values())


def _margin(mp: Any, claim: Claim, value: Any, doubt: Any) -> tuple[Any, Any]:
    """The distance to the nearer end, negative if a number is outside by more than the error of the retrained model; and the half-width."""
    sides = [value - mp.mpf(claim.lower), mp.mpf(claim.upper) - value]
    margin = min(side for side in sides if mp.isfinite(side))
    if -doubt <= margin < 0:
        margin = mp.zero
    half = (mp.mpf(claim.upper) - mp.mpf(claim.lower)) / 2
    return margin, half if mp.isfinite(half) else mp.zero
