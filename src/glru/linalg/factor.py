"""Cholesky factors and solves, in whatever namespace a matrix is.

On the host LAPACK is called directly: the checks of SciPy's functions take ten times as long as a solve with a few columns.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs

from glru.linalg.arrays import UNIT, Array, add_work, get_arrays, is_foreign, move_like, namespace, to_host
from glru.linalg.matrix import Matrix


def factor_core(gram: Matrix, root: Array) -> Any:
    """The Cholesky factor of ``I + D^(1/2) K D^(1/2)``, ``root`` the diagonal of ``D^(1/2)``, where ``K`` lives."""
    scale = gram.arrays.put(root)
    core = gram.data * scale
    core *= scale[:, None]
    return robust_cholesky(gram.arrays.add_diagonal(core, np.ones(1)))


def invert_factor(factor: Any) -> Any:
    """``(R^T R)^-1`` of an upper Cholesky factor, where it lives."""
    if is_foreign(factor):
        return solve_cholesky(factor, get_arrays(factor).units(factor.shape[0], np.arange(factor.shape[0])))
    # Below the diagonal a factor is zero, and so is what dpotri leaves there.
    inverse, failed = dpotri(factor)
    if failed != 0:
        return np.full_like(factor, np.nan)
    diagonal = inverse.diagonal().copy()
    inverse = inverse + inverse.T
    np.fill_diagonal(inverse, diagonal)
    return inverse


def solve_shifted(matrix: Any, right: Any) -> Any:
    """Solve with a positive semidefinite matrix given by its upper triangle; a singular one is shifted until it is not."""
    return solve_cholesky(robust_cholesky(matrix), right)


def robust_cholesky(matrix: Any) -> Any:
    """Upper Cholesky factor of a positive semidefinite matrix given by its upper triangle.

    A matrix that is singular to rounding is shifted until it is not. One that overflowed has a factor without numbers: what
    is solved with it is not a number either, which no solver takes for a step and no certificate for a proof.
    """
    arrays, factorise = get_arrays(matrix), cholesky if is_foreign(matrix) else factor_on_host
    try:
        return factorise(matrix)
    except LinAlgError:
        diagonal = to_host(arrays.xp.linalg.diagonal(matrix)).copy()
    for shift in _shifts(diagonal):
        try:
            return factorise(arrays.add_diagonal(arrays.xp.asarray(matrix, copy=True), shift))
        except LinAlgError:
            continue
    return arrays.xp.full_like(matrix, np.nan)


def _shifts(diagonal: Array) -> Iterator[Array]:
    """What to add to the diagonal of a matrix that is singular to rounding; nothing where it overflowed.

    It is a share of each entry, so that the units of the columns do not matter. Once that is the number of columns, no
    semidefinite matrix is singular.
    """
    share = 8.0 * UNIT * diagonal.size
    while 0.0 < share <= 10.0 * diagonal.size and np.all(np.isfinite(diagonal)):
        yield share * np.where(diagonal > 0.0, diagonal, 1.0)
        share *= 10.0


def factor_on_host(matrix: Array) -> Array:
    """Upper Cholesky factor of a host matrix given by its upper triangle; ``LinAlgError`` where it is not positive definite."""
    add_work(0.02 * float(matrix.shape[0]) ** 3)
    factor, failed = dpotrf(matrix)
    if failed != 0:
        raise LinAlgError("the matrix is not positive definite")
    return factor


def solve_triangular(factor: Array, right: Array, transposed: bool = False) -> Array:
    """``R^-1``, or ``R^-T``, times a host vector or matrix, ``R`` upper triangular."""
    if right.size == 0:
        return np.zeros_like(right)
    add_work(0.1 * factor.shape[0] * right.size)
    # A factor in C order is a lower one in Fortran's, which is not copied.
    flat = factor.flags.f_contiguous
    solved, failed = dtrtrs(factor if flat else factor.T, right, lower=not flat, trans=transposed == flat)
    if failed != 0:
        raise LinAlgError("the triangular factor is singular")
    return solved


def invert_triangular(factor: Array) -> Array:
    """``R^-1`` of an upper triangular host matrix, every column by a substitution of its own that leaves out the zeros below it."""
    size = factor.shape[0]
    found, step = np.zeros((size, size), order="F"), max(64, -(-size // 5))
    for start in range(0, size, step):
        stop = min(start + step, size)
        right = np.zeros((stop, stop - start), order="F")
        np.fill_diagonal(right[start:], 1.0)
        solved = solve_triangular(np.asfortranarray(factor[:stop, :stop]), right)
        solved[start:] = np.triu(solved[start:])
        found[:stop, start:stop] = solved
    return found


def cholesky(matrix: Any) -> Any:
    """Upper Cholesky factor of a foreign matrix; ``LinAlgError`` where it is not positive definite."""
    xp = namespace(matrix)
    try:
        # Libraries form the lower factor without a copy; the upper one is its transpose.
        lower = xp.linalg.cholesky(matrix)
    except (LinAlgError, RuntimeError) as error:
        raise LinAlgError(str(error)) from None
    if not bool(xp.isfinite(xp.sum(lower))):
        raise LinAlgError("the matrix is not positive definite")
    return xp.matrix_transpose(lower)


def solve_upper(factor: Any, right: Any) -> Any:
    """``R^-1`` times a foreign matrix, ``R`` upper triangular."""
    return _solve_triangular(factor, right, False)


def solve_cholesky(factor: Any, right: Any) -> Any:
    """``(R^T R)^-1`` times a vector or a matrix; a host array comes back to the host."""
    if not is_foreign(factor):
        add_work(0.2 * factor.shape[0] * right.size)
        return dpotrs(factor, right)[0] if right.size else np.zeros_like(right)
    arrays = get_arrays(factor)
    matrix = arrays.put(right)
    columns = matrix if matrix.ndim == 2 else matrix[:, None]
    half = _solve_triangular(arrays.xp.matrix_transpose(factor), columns, True)
    solved = _solve_triangular(factor, half, False)
    return move_like(solved if matrix.ndim == 2 else solved[:, 0], right)


def _solve_triangular(factor: Any, right: Any, lower: bool) -> Any:
    library = type(factor).__module__.partition(".")[0]
    if 0 in right.shape:
        return right
    if library == "torch":
        import torch

        return torch.linalg.solve_triangular(factor, right, upper=not lower)
    if library == "cupy":
        from cupyx.scipy.linalg import solve_triangular

        return solve_triangular(factor, right, lower=lower)
    return _substitute(factor, right, lower)


def _substitute(factor: Any, right: Any, lower: bool) -> Any:
    """Substitution row by row, for namespaces without a triangular solve."""
    xp, size = namespace(factor), factor.shape[0]
    solved = xp.zeros_like(right)
    for k in range(size) if lower else range(size - 1, -1, -1):
        known = factor[k : k + 1, :] @ solved
        solved[k, :] = (right[k, :] - known[0, :]) / factor[k, k]
    return solved
