"""Who wins a step: the first candidate, in a fixed order, whose value is least, decided from intervals."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._options import UNLIMITED, Budget
from glru.linalg import Array


@final
class Contest:
    """Intervals of the candidates' values, the one that changes nothing first.

    The winner is the first candidate whose value is within ``resolution`` of the least one. That is also what a
    method that knows every value exactly would choose, so all methods agree.
    """

    def __init__(self, lower: Array, upper: Array, resolution: float) -> None:
        self.lower, self.upper, self.resolution = lower.copy(), upper.copy(), resolution

    @property
    def winner(self) -> int | None:
        """The place of the winner, or None while that is open.

        Certain is a candidate that no later one undercuts by more than the resolution and that every earlier one misses
        by more than that.
        """
        before = np.minimum.accumulate(np.concatenate([[np.inf], self.lower[:-1]]))
        behind = np.minimum.accumulate(np.concatenate([self.lower[1:], [np.inf]])[::-1])[::-1]
        sure = (before > self.upper + self.resolution) & (behind >= self.upper - self.resolution)
        return int(np.argmax(sure)) if sure.any() else None

    def is_decided_by(self, place: int, lower: float, upper: float) -> bool:
        """Whether such bounds of one candidate would make it the winner, or rule it out."""
        if self.is_out(place, lower):
            return True
        trial = Contest(self.lower, self.upper, self.resolution)
        trial.settle(place, lower, upper)
        return trial.winner == place

    @property
    def may_win(self) -> NDArray[np.bool_]:
        """The candidates that may still win and whose values are not known exactly; all of these, if the resolution is infinite."""
        if np.isinf(self.resolution):
            return self.upper > self.lower
        may_win: NDArray[np.bool_] = (self.upper > self.lower) & (self.lower <= self.upper.min() + self.resolution)
        # Behind a candidate that is within the resolution of the least value whatever that is, none wins; nor behind one that is
        # no worse.
        before = np.minimum.accumulate(np.concatenate([[np.inf], self.upper[:-1]]))
        may_win &= (before > self.lower.min() + self.resolution) & (before > self.lower)
        return may_win

    def choose_next(self, seen: Collection[int] = ()) -> int | None:
        """The candidate to look at next: of those that may still win and were not ``seen``, the one that may be best."""
        may_win = self.may_win
        may_win[list(seen)] = False
        open_ones = np.flatnonzero(may_win)
        if not open_ones.size:
            return None
        return int(open_ones[np.argmin(self.lower[open_ones])])

    def is_out(self, place: int, lower: float) -> bool:
        """Whether a candidate whose value is at least ``lower`` cannot win any more."""
        others = np.delete(self.upper, place)
        if others.size and lower > others.min() + self.resolution:
            return True
        before = self.upper[:place]
        return bool(
            before.size and before.min() <= min(lower, float(np.delete(self.lower, place).min())) + self.resolution
        )

    def settle(self, places: Any, lower: Any, upper: Any) -> None:
        """Take in what is known about a candidate, or of several."""
        self.lower[places] = np.maximum(self.lower[places], lower)
        self.upper[places] = np.maximum(np.minimum(self.upper[places], upper), self.lower[places])

    def without_ties(self, labels: Sequence[int]) -> "Contest":
        """The contest in which candidates of the same label, whose values are equal, come after the first of them."""
        lower, upper = self.lower.copy(), self.upper.copy()
        found, counts = np.unique(labels, return_counts=True)
        for label in found[counts > 1]:
            first, *others = np.flatnonzero(np.asarray(labels) == label)
            lower[first], upper[first] = max(lower[[first, *others]]), min(upper[[first, *others]])
            lower[others] = upper[others] = np.inf
        return Contest(lower, upper, self.resolution)

    def fix(self, place: int, value: float) -> None:
        """Take a value for a candidate whose bounds stay open."""
        self.lower[place] = self.upper[place] = value


@final
@dataclass(frozen=True, eq=False)
class Goal:
    """How well the value of a candidate has to be known: until it has won the contest or lost it."""

    contest: Contest | None = None  # the contest; None: the value is wanted as exactly as it can be known
    place: int = 0  # the candidate
    budget: Budget = UNLIMITED  # asked each time, so that a search ends in the midst of a refinement
    # Whether a value that is known to a few digits is enough: where the contest then needs more, it is asked again.
    rough: bool = False
    # Bounds of the value from those of the fold that is worked on; None: these are the value's.
    combine: Callable[[float, float], tuple[float, float]] | None = None

    def is_reached(self, lower: float, upper: float) -> bool:
        """Whether such bounds of the candidate's value are enough."""
        self.budget.check()
        if self.contest is None:
            return False
        lower, upper = (lower, upper) if self.combine is None else self.combine(lower, upper)
        return self.contest.is_decided_by(self.place, lower, upper)


def decide(
    contest: Contest,
    look: Callable[[int], tuple[float, float, float]],
    ties: Callable[[], Sequence[int]] | None = None,
) -> tuple[int, int]:
    """Look at open candidates (lower and upper bound, and a guess) until the winner is certain, at each at most twice.

    ``ties`` is asked where bounds do not decide: a label for each candidate, the same for values that are known to be equal.

    Returns the winner's place, and how many candidates stayed open when looked at, so that the choice rests on their
    guesses. The bounds of the contest stay proven: guesses are taken in a copy of it.
    """
    guesses: dict[int, float] = {}
    again: set[int] = set()
    trial = contest
    while (winner := trial.winner) is None:
        place = trial.choose_next(guesses)
        if place is None:
            place = trial.choose_next(again)
            again.update(() if place is None else (place,))
        if place is not None:
            lower, upper, guesses[place] = look(place)
            for one in {id(contest): contest, id(trial): trial}.values():
                one.settle(place, lower, upper)
        elif ties is not None:
            trial, ties = contest.without_ties(ties()), None
        else:
            return _guess(trial, guesses)
    return winner, 0


def _guess(contest: Contest, guesses: dict[int, float]) -> tuple[int, int]:
    """The winner where every candidate that may win was looked at, and the number of guesses it took."""
    trial, n_guessed = Contest(contest.lower, contest.upper, contest.resolution), 0
    while (winner := trial.winner) is None:
        place = trial.choose_next()
        if place is None:
            # All that may win are known; of those within the resolution of the least, the first. Where the least may be
            # that of a candidate that cannot win itself and is not known, its place is a guess too.
            least = trial.lower.min()
            known = bool(np.any((trial.lower == least) & (trial.upper == least)))
            return int(np.flatnonzero(trial.lower <= least + trial.resolution)[0]), n_guessed + (not known)
        trial.fix(place, float(np.clip(guesses[place], trial.lower[place], trial.upper[place])))
        n_guessed += 1
    return winner, n_guessed
