"""Compiled loops over raw CSR and CSC arrays. Each is compiled on first use and cached on disk."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def csr_weighted_gram(indptr, indices, data, weights, start, stop, total):  # type: ignore[no-untyped-def]
    """Add rows ``start`` to ``stop`` of ``X^T diag(weights) X`` to the upper triangle of ``total``; CSR rows are sorted."""
    for i in range(start, stop):
        weight = weights[i]
        if weight != 0.0:
            for p in range(indptr[i], indptr[i + 1]):
                scaled = weight * data[p]
                row = total[indices[p]]
                for q in range(p, indptr[i + 1]):
                    row[indices[q]] += scaled * data[q]


@njit(cache=True, nogil=True)
def csr_row_gram(indptr, indices, data, col_indptr, col_indices, col_data, column_weights, start, stop, gram):  # type: ignore[no-untyped-def]
    """Rows ``start`` to ``stop`` of ``X diag(column_weights) X^T``, from CSR and CSC arrays of the same X."""
    for i in range(start, stop):
        row = gram[i]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            scaled = column_weights[j] * data[p]
            for q in range(col_indptr[j], col_indptr[j + 1]):
                row[col_indices[q]] += scaled * col_data[q]


@njit(cache=True, nogil=True)
def csr_curvature_product(indptr, indices, data, weights, v, start, stop, forward, total):  # type: ignore[no-untyped-def]
    """Rows ``start`` to ``stop``: write ``X v`` to ``forward`` and add their ``X^T diag(weights) X v`` to ``total``."""
    for i in range(start, stop):
        product = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            product += data[p] * v[indices[p]]
        forward[i] = product
        scaled = weights[i] * product
        if scaled != 0.0:
            for p in range(indptr[i], indptr[i + 1]):
                total[indices[p]] += scaled * data[p]


@njit(cache=True, nogil=True)
def quadratic_descent(Q, linear, absolute, x, max_epochs, tol):  # type: ignore[no-untyped-def]
    """Coordinate descent on ``x^T Q x / 2 + linear^T x + sum_j absolute_j |x_j|``, in place.

    Stops when no coordinate moves the objective by more than ``tol``.
    """
    gradient = Q @ x + linear
    for _ in range(max_epochs):
        largest = 0.0
        for j in range(x.shape[0]):
            bend = Q[j, j]
            if bend <= 0.0:
                continue
            old = x[j]
            target = old - gradient[j] / bend
            shrink = absolute[j] / bend
            new = np.sign(target) * max(abs(target) - shrink, 0.0)
            if new != old:
                x[j] = new
                moved = new - old
                gradient += moved * Q[j]
                largest = max(largest, bend * moved * moved)
        if largest <= tol:
            break
    return x


@njit(cache=True, nogil=True)
def csc_quadratic_descent(
    indptr, indices, data, curvature, diagonal, quadratic, linear, absolute, x, fitted, max_epochs, tol
):  # type: ignore[no-untyped-def]
    """The same for ``Q = X^T diag(curvature) X + diag(quadratic)`` with CSC columns of X, keeping ``fitted = X x``."""
    for _ in range(max_epochs):
        largest = 0.0
        for j in range(x.shape[0]):
            bend = diagonal[j] + quadratic[j]
            if bend <= 0.0:
                continue
            slope = linear[j] + quadratic[j] * x[j]
            for p in range(indptr[j], indptr[j + 1]):
                slope += data[p] * curvature[indices[p]] * fitted[indices[p]]
            old = x[j]
            target = old - slope / bend
            new = np.sign(target) * max(abs(target) - absolute[j] / bend, 0.0)
            if new != old:
                x[j] = new
                moved = new - old
                for p in range(indptr[j], indptr[j + 1]):
                    fitted[indices[p]] += moved * data[p]
                largest = max(largest, bend * moved * moved)
        if largest <= tol:
            break
    return x


@njit(cache=True, nogil=True)
def hinge_epoch_dense(X, y, weights, inverse, bends, order, slopes, w):  # type: ignore[no-untyped-def]
    """One pass of dual coordinate ascent for the hinge with an L2 penalty, rows of a dense matrix; in place."""
    for i in order:
        if bends[i] > 0.0:
            short = 1.0 - y[i] * (X[i] @ w)
            new = min(max(slopes[i] + short / bends[i], 0.0), 1.0)
            moved = weights[i] * y[i] * (new - slopes[i])
            if moved != 0.0:
                slopes[i] = new
                for j in range(w.shape[0]):
                    w[j] += moved * inverse[j] * X[i, j]


@njit(cache=True, nogil=True)
def hinge_epoch_sparse(indptr, indices, data, y, weights, inverse, bends, order, slopes, w):  # type: ignore[no-untyped-def]
    """The same for CSR rows."""
    for i in order:
        if bends[i] > 0.0:
            product = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                product += data[p] * w[indices[p]]
            new = min(max(slopes[i] + (1.0 - y[i] * product) / bends[i], 0.0), 1.0)
            moved = weights[i] * y[i] * (new - slopes[i])
            if moved != 0.0:
                slopes[i] = new
                for p in range(indptr[i], indptr[i + 1]):
                    w[indices[p]] += moved * inverse[indices[p]] * data[p]
