"""Candidates of many changed models, improved together, step by step, until their bounds decide the question.

The members of a batch are models of similar problems (one row or one column less). All of them are certified at once; those that
are decided, or that rounding allows no narrower bounds of, leave; the others take a Newton step, first with a Hessian that all
members share (a chord step), then, where that converges slowly, with their own. The bounds of a member are the intersection of all
that were proven on the way, so that no step ever widens them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import intersect
from glru.linalg import Array, get_arrays, to_host

Mask = NDArray[np.bool_]
Decided = Callable[[Any, Any], Mask]
"""Which members' bounds are good enough, or that the time is up for all of them."""

SLOW = 0.6
"""Contraction of chord steps: if a step leaves more than this share of the gradient, an exact step is cheaper."""

PATIENCE, PROGRESS = 4, 0.9
"""The number of consecutive steps that may leave more than this share of the smallest norm so far: quasi-Newton steps are not monotone."""

FLOOR_FACTOR = 8.0
"""A gradient's norm within this factor of its rounding error is at its floor, unless a step still halves it."""


class Certified(NamedTuple):
    """What is proven about every member of a batch."""

    # Shape (n_members,) or (n_queries, n_members): bounds of scores, where the candidates live
    lower: Any
    upper: Any
    # Shape (n_members,): at least the norms of the gradients at the candidates: the distance that is left, to first order
    norms: Array
    # Shape (n_members,): what rounding adds to them; 0 where that is not known, or where exact steps may reach a narrower bound
    floors: Array


class Candidates(Protocol):
    """Candidates for the members of a batch, one each. A step makes new ones."""

    @property
    def contraction(self) -> float:
        """Steps end where one leaves more than this share of the gradient's norm; infinite for steps with a line search."""
        ...

    @property
    def cost(self) -> float:
        """What a step and its certificate cost per member, in units of training the member."""
        ...

    def certify(self) -> Certified:
        """Bounds at the candidates."""
        ...

    def step(self, members: Mask) -> Self:
        """The candidates of some members after one more Newton step."""
        ...


C = TypeVar("C", bound=Candidates)


@final
@dataclass(frozen=True, eq=False)
class Tightened:
    """Bounds of some members (numbers in the batch), which of them rounding allows no narrower ones of, and what each has cost."""

    members: NDArray[np.intp]
    lower: Any
    upper: Any
    exhausted: Mask
    costs: Array

    def take(self, members: Mask) -> "Tightened":
        """Some of them."""
        lower, upper = (_take(ends, members) for ends in (self.lower, self.upper))
        return Tightened(self.members[members], lower, upper, self.exhausted[members], self.costs[members])


def tighten(
    candidates: C,
    decided: Decided,
    n_steps: int,
    left: Callable[[C, Mask], None] | None = None,
    exact: Callable[[Mask], Candidates | None] | None = None,
    n_exact: int | None = None,
) -> Tightened:
    """Bounds of the members of a batch on the host, as tight as was asked for or as steps get them.

    A member leaves when it is decided, when it is exhausted (its gradient is rounding), when its steps no longer contract or
    would together cost more than training it, or after ``n_steps`` certificates.

    Parameters
    ----------
    candidates : Candidates
        The first candidates.
    decided : callable
        ``decided(lower, upper)``: which members' bounds are good enough.
    n_steps : int
        Most certificates per member with chord steps.
    left : callable, default=None
        ``left(batch, members)`` is told which members of a batch chord steps leave open, with their candidates as they are then.
    exact : callable, default=None
        ``exact(members)``: the first candidates of some members, for steps with Hessians of their own; None where there are none. Where chord
        steps did not contract, there is no telling that the later candidates are better.
    n_exact : int, default=None
        Most certificates per member with exact steps; ``n_steps`` if not given.
    """
    done, slow = _run(candidates, None, decided, n_steps, left)
    chosen = np.zeros(slow.members.size + done.members.size, dtype=bool)
    chosen[slow.members] = True
    again = exact(chosen) if exact is not None and slow.members.size else None
    if again is not None:
        # A first exact step is taken whatever the chord steps have cost.
        more, slow = _run(again, slow, decided, n_steps if n_exact is None else n_exact)
        done = _concatenate([done, more])
    done = _concatenate([done, slow])
    return Tightened(done.members, to_host(done.lower), to_host(done.upper), done.exhausted, done.costs)


def _run(
    batch: C, known: Tightened | None, decided: Decided, n_steps: int, left: Callable[[C, Mask], None] | None = None
) -> tuple[Tightened, Tightened]:
    """The members that one kind of steps finishes, and those that it leaves open."""
    finished, slow, before = [], [], np.full(1, np.inf)
    best, waited = before, np.zeros(1, dtype=np.intp)
    for step in range(n_steps):
        now = batch.certify()
        waited = np.where(now.norms < PROGRESS * best, 0, waited + 1)
        best = np.fmin(best, now.norms)
        # A norm is at least its floor: below two of them no step halves it.
        halving = (now.norms < 0.5 * before) & (now.norms > 2.0 * now.floors)
        exhausted = (now.norms <= FLOOR_FACTOR * now.floors) & ~halving
        if known is None:
            known = Tightened(
                np.arange(now.norms.size), now.lower, now.upper, exhausted, np.full(now.norms.size, batch.cost)
            )
        else:
            lower, upper = intersect((known.lower, known.upper), (now.lower, now.upper))
            known = Tightened(known.members, lower, upper, exhausted, known.costs + batch.cost)
        open_ = ~to_host(decided(known.lower, known.upper))
        useful = open_ & ~exhausted
        contracts = np.isinf(batch.contraction) | (now.norms < batch.contraction * before)
        going = useful & contracts & (waited < PATIENCE) & (known.costs + batch.cost <= 1.0)
        if step + 1 == n_steps:
            going[:] = False
        finished.append(known.take(~useful))
        slow.append(known.take(useful & ~going))
        if left is not None and (open_ & ~going).any():
            left(batch, open_ & ~going)
        if not going.any():
            break
        known, before, batch = known.take(going), now.norms[going], batch.step(going)
        best, waited = best[going], waited[going]
    return _concatenate(finished), _concatenate(slow)


def _concatenate(parts: list[Tightened]) -> Tightened:
    """Bounds of several groups of members, in the order of these."""
    parts = [part for part in parts if part.members.size] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([part.members for part in parts]))
    arrays = get_arrays(parts[0].lower)
    lower, upper = (
        _take(arrays.concatenate(ends, axis=ends[0].ndim - 1), order)
        for ends in ([part.lower for part in parts], [part.upper for part in parts])
    )
    members, exhausted, costs = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("members", "exhausted", "costs")
    )
    return Tightened(members, lower, upper, exhausted, costs)


def _take(ends: Any, members: NDArray[Any]) -> Any:
    return ends[members] if ends.ndim == 1 else get_arrays(ends).take(ends, members)
