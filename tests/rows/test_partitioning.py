"""Results do not depend on how rows are cut into blocks, up to their certified slack."""

import numpy as np
import pytest

import glru
from tests.cases import LOSSES, each, make
from tests.rows.data import dask_blocks

pytest.importorskip("dask.array")

CHUNKINGS = ((60,), (20, 20, 20), (1, 58, 1), (7,) * 8 + (4,), (30, 0, 30), (1,) * 60)

PROBLEMS = {
    "dense": {},
    "intercept": {"fit_intercept": True},
    "sparse": {"density": 0.4},
    "sparse-intercept": {"density": 0.4, "fit_intercept": True},
    "weighted": {"sample_weight": np.arange(60) % 4 * 1.0},
    "sum": {"scaling": "sum", "sample_weight": np.arange(60) % 4 * 1.0},
}


@each(PROBLEMS, "options")
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber"])
def test_chunkings_agree(loss, options):
    if loss == "huber" and options.get("fit_intercept"):
        pytest.skip("no leave-one-out of this loss with an intercept")
    problem = make(LOSSES[loss], glru.L2(0.05), 60, 4, seed=6, **options)
    memory = glru.loocv(problem, width=1e-4)
    values, labels = [], []
    for chunks in CHUNKINGS:
        solution = glru.solve(dask_blocks(problem, chunks), tol=1e-10)
        result = glru.loocv(solution)
        assert np.all(result.score_lower <= memory.score_upper)
        assert np.all(memory.score_lower <= result.score_upper)
        values.append((solution.primal_value, solution.gap))
        labels.append(result.labels)
        if result.labels is not None:
            known = result.bounds.signs != 0
            assert np.array_equal(result.bounds.signs[known], memory.bounds.signs[known])
    for value, gap in values:
        assert value <= min(v + gap for v, _ in values) + 1e-12 * abs(value)
    if labels[0] is not None:
        assert all(np.array_equal(labels[0], other) for other in labels)


def test_schedulers_agree():
    dask = pytest.importorskip("dask")
    problem = make(glru.Logistic(), glru.L2(0.05), 60, 4, seed=6)
    found = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(glru.loocv(dask_blocks(problem, (25, 25, 10))))
    assert np.array_equal(found[0].bounds.signs, found[1].bounds.signs)
    np.testing.assert_allclose(found[0].score_lower, found[1].score_lower, rtol=1e-9)


def test_blocks_are_read_again_for_every_pass_and_not_kept():
    """Without a cluster nothing is held: the third pass computes the blocks a third time."""
    import dask.array as da

    problem = make(glru.Logistic(), glru.L2(0.05), 60, 4, seed=6)
    reads = []

    def read(block):
        reads.append(block.shape)
        return block

    X = da.from_array(problem.X, chunks=(20, 4)).map_blocks(read, meta=np.empty((0, 0)))
    blocks = glru.Problem(X, problem.y, penalty=problem.penalty)
    assert len(reads) == 3
    solution = glru.solve(blocks)
    assert len(reads) == 3 + 3 * solution.n_passes
