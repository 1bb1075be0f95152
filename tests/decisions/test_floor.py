"""No run costs much more than training its rows: steps that cost more than they decide end, by counted work."""

import numpy as np
import pytest

import glru
from tests.cases import make
from tests.core import add_work, cascade, counted, single, unbounded


class Wasteful(single.OneScore):
    """Removals whose first step spends half a training on each row and decides only every eighth."""

    def __init__(self, run):
        super().__init__(run)
        self.tried, self.n_trained = [], 0

    def refine(self, rows):
        add_work(0.5 * self.solution.work * rows.size)
        self.tried.extend(rows)
        lower, upper = unbounded(rows.size)
        lower[rows % 8 == 0], upper[rows % 8 == 0] = 1.0, 2.0
        return lower, upper

    def train(self, rows):
        self.n_trained += rows.size
        add_work(self.solution.work)
        return np.ones(rows.size), np.full(rows.size, 2.0)

    @property
    def steps(self):
        step = cascade.Step
        return {
            "certified": (
                step("refine", "", cascade.always, self.batches, Wasteful.refine),
                step("refine", "", cascade.always, cascade.each, Wasteful.refine),
                step("training", "", cascade.always, cascade.each, Wasteful.train),
            )
        }

    @staticmethod
    def batches(removals):
        return cascade.in_parts([removals.run.open_rows()])


def test_steps_that_lose_end():
    """The rest goes to training, and all steps together lose at most the allowed share and a batch each."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.01), 400, 5))
    run, before = cascade.Cascade(Wasteful, solution), counted()
    run.follow("certified")
    assert run.n_open == 0 and run.n_trainings == run.removals.n_trained > 300
    assert 0 < len(run.removals.tried) < 300
    # A part of each of two steps, half a training for each of its rows, and two trainings of a step.
    most = (1.0 + cascade.LOSSES) * 400 + 2 * (0.5 * cascade.MANY_ROWS + 2)
    assert counted() - before <= most * 1.1 * solution.work


def test_steps_that_pay_go_on(monkeypatch):
    """A step that decides what it costs takes all rows."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.01), 100, 5))
    monkeypatch.setattr(Wasteful, "refine", lambda self, rows: Wasteful.train(self, rows))
    run = cascade.Cascade(Wasteful, solution)
    run.follow("certified")
    assert run.n_trainings == 0 and run.removals.n_trained == 100


@pytest.mark.parametrize(
    "loss", [glru.Logistic(), glru.SquaredHinge(), glru.Hinge()], ids=lambda loss: type(loss).__name__
)
def test_work_is_the_same_in_every_run(loss):
    """Counts do not depend on what earlier questions have left behind, so that every run takes the same steps."""
    solution = glru.solve(make(loss, glru.L2(0.01), 20, 60, fit_intercept=True))
    spent = []
    for _ in range(2):
        before = counted()
        again = glru.solve(solution.problem)
        assert again.work == solution.work > 0
        found = glru.loocv(again, width="labels")
        spent.append((counted() - before, found.decided_by))
    assert spent[0] == spent[1]
