"""Compiled loops over raw CSR and CSC arrays. Each is compiled on first use and cached on disk."""

import numpy as np
from numba import njit

EXTRAPOLATED = 6
"""Iterates of coordinate descent that are extrapolated."""


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
def csr_quadratic_forms(indptr, indices, data, matrix, start, stop, out):  # type: ignore[no-untyped-def]
    """``x_i^T matrix x_i`` for rows ``start`` to ``stop`` and a symmetric dense matrix."""
    for i in range(start, stop):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            row = matrix[indices[p]]
            inner = 0.5 * data[p] * row[indices[p]]
            for q in range(p + 1, indptr[i + 1]):
                inner += data[q] * row[indices[q]]
            total += data[p] * inner
        out[i] = 2.0 * total


@njit(cache=True, nogil=True)
def quadratic_descent(Q, linear, absolute, x, max_epochs, tol):  # type: ignore[no-untyped-def]
    """Coordinate descent on ``x^T Q x / 2 + linear^T x + sum_j absolute_j |x_j|``, in place.

    Stops when no coordinate moves the objective by more than ``tol``.
    """
    gradient = Q @ x + linear
    for _ in range(max_epochs):
        largest = 0.0
        for j in range(x.shape[0]):
            curvature = Q[j, j]
            if curvature <= 0.0:
                continue
            old = x[j]
            target = old - gradient[j] / curvature
            shrink = absolute[j] / curvature
            new = np.sign(target) * max(abs(target) - shrink, 0.0)
            if new != old:
                x[j] = new
                moved = new - old
                gradient += moved * Q[j]
                largest = max(largest, curvature * moved * moved)
        if largest <= tol:
            break
    return x


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def column_descent(columns, linear, quadratic, absolute, x, scores, constant, share):  # type: ignore[no-untyped-def]
    """Coordinate descent on ``constant + |scores|^2 / 2 + linear^T x + sum_j (quadratic_j x_j^2 / 2 + absolute_j |x_j|)``, in place.

    A move of ``x_j`` moves ``scores`` by ``columns[j]``. Between sweeps over all coordinates only those in use are visited, and every few sweeps are followed
    by Anderson's extrapolation of them. Stops when the duality gap is about a share of the objective, by what the slopes were off when they
    were visited, or after about what Newton steps with a Gram matrix of the coordinates in use cost. Returns the visits, negative where it gave up.
    """
    n_columns, n_rows = columns.shape
    norms = np.zeros(n_columns)
    for j in range(n_columns):
        for i in range(n_rows):
            norms[j] += columns[j, i] * columns[j, i]
    whole, visits, gap, n_kept = True, 0, np.inf, 0
    kept_x, kept_scores = np.empty((EXTRAPOLATED, n_columns)), np.empty((EXTRAPOLATED, n_rows))
    while True:
        before, worst, squares, length, value, n_used = gap, 0.0, 0.0, 0.0, constant, 0
        for j in range(n_columns):
            second, old, column, slope = norms[j] + quadratic[j], x[j], columns[j], 0.0
            if second <= 0.0 or not (whole or old != 0.0):
                continue
            for i in range(n_rows):
                slope += column[i] * scores[i]
            aim = old - (linear[j] + quadratic[j] * old + slope) / second
            new = np.sign(aim) * max(abs(aim) - absolute[j] / second, 0.0)
            if new != old:
                x[j] = new
                moved = new - old
                for i in range(n_rows):
                    scores[i] += moved * column[i]
                violation = abs(moved) * norms[j]
                if quadratic[j] > 0.0:
                    squares += violation * violation / quadratic[j]
                else:
                    worst = max(worst, violation)
            if quadratic[j] == 0.0:
                length += abs(new)
            value += (linear[j] + 0.5 * quadratic[j] * new) * new + absolute[j] * abs(new)
            visits += 1
            n_used += new != 0.0
        for i in range(n_rows):
            value += 0.5 * scores[i] * scores[i]
        # What the slopes were off before the sweep; afterwards it is smaller by about the rate at which it has been falling.
        gap = 0.5 * squares + worst * length
        target = share * max(value, 0.0) * max(1.0, np.sqrt(before / gap) if gap > 0.0 and before < np.inf else 1.0)
        if gap <= target and whole:
            return visits
        # Nanoseconds of the visits so far, and of Newton steps on little more than the coordinates in use.
        size = min(100.0 + n_used, n_columns)
        spent, newton = visits * (25.0 + 0.25 * n_rows), size * (250.0 * size + n_rows * (6.0 + 0.07 * size))
        if not (gap < np.inf and spent < newton):
            return -visits
        if gap <= 0.3 * target:
            whole, n_kept, gap = True, 0, np.inf
            continue
        if whole:
            whole, n_kept = n_used > 0.8 * n_columns, 0
            gap = gap if whole else np.inf
        for j in range(n_columns):
            kept_x[n_kept, j] = x[j]
        for i in range(n_rows):
            kept_scores[n_kept, i] = scores[i]
        n_kept += 1
        if n_kept == EXTRAPOLATED:
            n_kept, gap = 0, np.inf
            _extrapolate(kept_x, kept_scores, linear, quadratic, absolute, x, scores, value - constant)


@njit(cache=True, nogil=True)
def _extrapolate(kept_x, kept_scores, linear, quadratic, absolute, x, scores, value):  # type: ignore[no-untyped-def]
    """Replace the last of some iterates by Anderson's combination of them where the objective of :func:`column_descent` is lower there."""
    size = len(kept_x) - 1
    gram, shares = np.zeros((size, size)), np.ones(size)
    for k in range(size):
        for m in range(k + 1):
            for j in range(x.size):
                gram[k, m] += (kept_x[k + 1, j] - kept_x[k, j]) * (kept_x[m + 1, j] - kept_x[m, j])
    trace = np.trace(gram)
    # Cholesky's factor in place, and two triangular systems.
    for k in range(size):
        gram[k, k] += 1e-12 * trace + 1e-300
        for m in range(k + 1):
            for i in range(m):
                gram[k, m] -= gram[k, i] * gram[m, i]
            gram[k, m] = gram[k, m] / gram[m, m] if m < k else np.sqrt(max(gram[k, k], 1e-300))
        for i in range(k):
            shares[k] -= gram[k, i] * shares[i]
        shares[k] /= gram[k, k]
    for k in range(size - 1, -1, -1):
        for i in range(k + 1, size):
            shares[k] -= gram[i, k] * shares[i]
        shares[k] /= gram[k, k]
    shares /= shares.sum()
    ahead, there, found = np.zeros(x.size), np.zeros(scores.size), 0.0
    for k in range(size):
        for j in range(x.size):
            ahead[j] += shares[k] * kept_x[k + 1, j]
        for i in range(scores.size):
            there[i] += shares[k] * kept_scores[k + 1, i]
    for i in range(scores.size):
        found += 0.5 * there[i] * there[i]
    for j in range(x.size):
        found += (linear[j] + 0.5 * quadratic[j] * ahead[j]) * ahead[j] + absolute[j] * abs(ahead[j])
    if found < value:
        x[:] = ahead
        scores[:] = there


@njit(cache=True, nogil=True)
def csc_quadratic_descent(
    indptr, indices, data, curvature, diagonal, quadratic, linear, absolute, x, fitted, max_epochs, tol
):  # type: ignore[no-untyped-def]
    """Coordinate descent for ``Q = X^T diag(curvature) X + diag(quadratic)`` with CSC columns of X, keeping ``fitted = X x``."""
    for _ in range(max_epochs):
        largest = 0.0
        for j in range(x.shape[0]):
            second = diagonal[j] + quadratic[j]
            if second <= 0.0:
                continue
            slope = linear[j] + quadratic[j] * x[j]
            for p in range(indptr[j], indptr[j + 1]):
                slope += data[p] * curvature[indices[p]] * fitted[indices[p]]
            old = x[j]
            target = old - slope / second
            new = np.sign(target) * max(abs(target) - absolute[j] / second, 0.0)
            if new != old:
                x[j] = new
                moved = new - old
                for p in range(indptr[j], indptr[j + 1]):
                    fitted[indices[p]] += moved * data[p]
                largest = max(largest, second * moved * moved)
        if largest <= tol:
            break
    return x


@njit(cache=True, nogil=True)
def _hinge_slope(slope, curvature, margin):  # type: ignore[no-untyped-def]
    return min(max(slope + (1.0 - margin) / curvature, 0.0), 1.0)


@njit(cache=True, nogil=True)
def _logistic_slope(slope, curvature, margin):  # type: ignore[no-untyped-def]
    """The root ``q`` of ``logit(q) + curvature (q - slope) + margin``, by Newton's method on ``u = logit(q)``."""
    target = curvature * slope - margin
    mirrored = target > 0.5 * curvature
    if mirrored:
        target = curvature - target
    # Now u + curvature sigmoid(u) = target has its root at u <= 0, where the left side is convex:
    # after at most one step Newton comes from the right and never leaves.
    if target > 1e-300 * curvature:
        u = np.log(target / curvature) - np.log1p(-target / curvature)
    else:
        u = min(target, -np.log(curvature)) if curvature > 1.0 else target
    for _ in range(100):
        tail = np.exp(u)
        q = tail / (1.0 + tail)
        ahead = min(u - (u + curvature * q - target) / (1.0 + curvature * q / (1.0 + tail)), 0.0)
        close = abs(ahead - u) <= 1e-12 * (1.0 + abs(u))
        u = ahead
        if close:
            break
    tail = np.exp(u)
    return 1.0 / (1.0 + tail) if mirrored else tail / (1.0 + tail)


@njit(cache=True, nogil=True)
def find_best_slope(slope, curvature, margin, logistic):  # type: ignore[no-untyped-def]
    """The maximiser of the dual in one signed dual variable ``q = y_i a_i``, all else fixed."""
    return _logistic_slope(slope, curvature, margin) if logistic else _hinge_slope(slope, curvature, margin)


@njit(cache=True, nogil=True)
def _gap_share(slope, margin, logistic):  # type: ignore[no-untyped-def]
    """What a row adds to the duality gap, divided by its weight; to leading order, and 1 where a dual variable is on the edge."""
    if not logistic:
        return max(1.0 - margin, 0.0) - slope * (1.0 - margin)
    if not 0.0 < slope < 1.0:
        return 1.0
    distance = np.log(slope / (1.0 - slope)) + margin
    return 0.5 * slope * (1.0 - slope) * distance * distance


@njit(cache=True, nogil=True)
def _improve_slope(slope, curvature, margin, logistic):  # type: ignore[no-untyped-def]
    """A signed dual variable near the maximiser of the dual in it."""
    if logistic and 0.0 < slope < 1.0:
        # A Newton step on u = logit(q) from where the last pass left it nearly always takes nine tenths of the slope away.
        u = np.log(slope / (1.0 - slope))
        first = u + margin
        u -= first / (1.0 + curvature * slope * (1.0 - slope))
        q = 1.0 / (1.0 + np.exp(-u))
        if abs(u + curvature * (q - slope) + margin) <= 0.1 * abs(first):
            return q
    return find_best_slope(slope, curvature, margin, logistic)


@njit(cache=True, nogil=True)
def dual_pass_dense(X, y, weights, scale, curvatures, order, logistic, skip, slopes, v, shift, shares):  # type: ignore[no-untyped-def]
    """One pass of dual coordinate ascent over some rows of a dense matrix, in place; the coefficients are ``scale v``.

    Parameters
    ----------
    shift : array of shape (3,)
        The intercept is ``shift[0] + shift[1] shift[2]``, where ``shift[2]`` is kept as the sum of the weighted dual variables.
    skip : float
        Rows whose share of the gap is at most this stay as they are.
    shares : array of shape (n_rows,)
        The rows' shares of the duality gap, each as it was when its row was met.
    """
    start, slope_of_shift, total = shift[0], shift[1], shift[2]
    for i in order:
        if curvatures[i] > 0.0:
            product = 0.0
            for j in range(v.shape[0]):
                product += X[i, j] * v[j]
            margin = y[i] * (scale * product + (start + slope_of_shift * total))
            shares[i] = weights[i] * _gap_share(slopes[i], margin, logistic)
            if shares[i] > skip:
                new = _improve_slope(slopes[i], curvatures[i], margin, logistic)
                moved = weights[i] * y[i] * (new - slopes[i])
                slopes[i] = new
                total += moved
                for j in range(v.shape[0]):
                    v[j] += moved * X[i, j]
    shift[2] = total


@njit(cache=True, nogil=True)
def _sparse_dot(start, stop, indices, data, v):  # type: ignore[no-untyped-def]
    """A row's product with a vector, in four sums that need not wait for each other."""
    a = b = c = d = 0.0
    p = start
    while p + 3 < stop:
        a += data[p] * v[indices[p]]
        b += data[p + 1] * v[indices[p + 1]]
        c += data[p + 2] * v[indices[p + 2]]
        d += data[p + 3] * v[indices[p + 3]]
        p += 4
    while p < stop:
        a += data[p] * v[indices[p]]
        p += 1
    return (a + b) + (c + d)


@njit(cache=True, nogil=True)
def dual_pass_sparse(
    indptr, indices, data, y, weights, scale, curvatures, order, logistic, skip, slopes, v, shift, shares
):  # type: ignore[no-untyped-def]
    """:func:`dual_pass_dense` for CSR rows; column numbers without a sign spare a test of it for every entry."""
    start, slope_of_shift, total = shift[0], shift[1], shift[2]
    for i in order:
        if curvatures[i] > 0.0:
            product = _sparse_dot(indptr[i], indptr[i + 1], indices, data, v)
            margin = y[i] * (scale * product + (start + slope_of_shift * total))
            shares[i] = weights[i] * _gap_share(slopes[i], margin, logistic)
            if shares[i] > skip:
                new = _improve_slope(slopes[i], curvatures[i], margin, logistic)
                moved = weights[i] * y[i] * (new - slopes[i])
                slopes[i] = new
                total += moved
                for p in range(indptr[i], indptr[i + 1]):
                    v[indices[p]] += moved * data[p]
    shift[2] = total


@njit(cache=True, nogil=True)
def add_ranges(moves, weights, ranges):  # type: ignore[no-untyped-def]
    """Raise ``ranges`` to the largest range over the classes of a row with a weight; ``moves``: rows, classes, models."""
    n_rows, n_classes, n_models = moves.shape
    low, high = np.empty(n_models), np.empty(n_models)
    for i in range(n_rows):
        if weights[i] > 0.0:
            low[:] = moves[i, 0]
            high[:] = moves[i, 0]
            for a in range(1, n_classes):
                for j in range(n_models):
                    move = moves[i, a, j]
                    low[j] = move if move < low[j] else low[j]
                    high[j] = move if move > high[j] else high[j]
            for j in range(n_models):
                between = high[j] - low[j]
                ranges[j] = between if between > ranges[j] else ranges[j]


@njit(cache=True, nogil=True, error_model="numpy")  # where every factor underflows, slopes are not numbers
def class_slopes(factors, likely, y, weights, left_out, squares):  # type: ignore[no-untyped-def]
    """Turn factors of unnormalised probabilities (rows, classes, models) into weighted slopes ``s (p - e_y)``, zeros for a row that a model leaves out.

    A row's own slope is minus the sum of the others; the squares of these sums, weighted, are added to ``squares``.
    """
    n_rows, n_classes, n_models = factors.shape
    others, scale = np.empty(n_models), np.empty(n_models)
    for i in range(n_rows):
        own, weight = y[i], weights[i]
        others[:] = 0.0
        for a in range(n_classes):
            share = likely[i, a]
            if a != own:
                for j in range(n_models):
                    factors[i, a, j] *= share
                    others[j] += factors[i, a, j]
        for j in range(n_models):
            kept = factors[i, own, j] * likely[i, own] + others[j]
            counted = 0.0 if left_out[j] == i else weight
            others[j] /= kept
            scale[j] = counted / kept
            factors[i, own, j] = -counted * others[j]
            squares[j] += counted * (others[j] * others[j])
        for a in range(n_classes):
            if a != own:
                for j in range(n_models):
                    factors[i, a, j] *= scale[j]


@njit(cache=True, nogil=True)
def mix_words(words):  # type: ignore[no-untyped-def]
    """Four numbers that depend on every bit of an array of uint64 and on its place.

    Every step can be undone, so that a change of one word always shows; the rotation lets the highest bits, signs among them,
    reach the others. Four chains keep the multiplier busy: the speed is that of reading the memory.
    """
    factor, left, right = np.uint64(0x9E3779B97F4A7C15), np.uint64(31), np.uint64(33)
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    whole = words.size - words.size % 4
    for k in range(0, whole, 4):
        a ^= words[k]
        b ^= words[k + 1]
        c ^= words[k + 2]
        d ^= words[k + 3]
        a = ((a << left) | (a >> right)) * factor
        b = ((b << left) | (b >> right)) * factor
        c = ((c << left) | (c >> right)) * factor
        d = ((d << left) | (d >> right)) * factor
    for k in range(whole, words.size):
        a ^= words[k]
        a = ((a << left) | (a >> right)) * factor
    return a, b, c, d


@njit(cache=True, nogil=True)
def solve_in_place(matrix, right):  # type: ignore[no-untyped-def]
    """Solve a small system by elimination with partial pivoting; whether it is regular. The solution is left in ``right``."""
    size = right.shape[0]
    largest = 0.0
    for i in range(size):
        for j in range(size):
            largest = max(largest, abs(matrix[i, j]))
    for k in range(size):
        pivot = k
        for i in range(k + 1, size):
            if abs(matrix[i, k]) > abs(matrix[pivot, k]):
                pivot = i
        if not abs(matrix[pivot, k]) > 1e-14 * largest:
            return False
        if pivot != k:
            for j in range(k, size):
                matrix[k, j], matrix[pivot, j] = matrix[pivot, j], matrix[k, j]
            right[k], right[pivot] = right[pivot], right[k]
        for i in range(k + 1, size):
            share = matrix[i, k] / matrix[k, k]
            if share != 0.0:
                for j in range(k + 1, size):
                    matrix[i, j] -= share * matrix[k, j]
                right[i] -= share * right[k]
    for k in range(size - 1, -1, -1):
        for j in range(k + 1, size):
            right[k] -= matrix[k, j] * right[j]
        right[k] /= matrix[k, k]
    return True


@njit(cache=True, nogil=True)
def _kink_system(X, kinks, n_kinks, fit_intercept):  # type: ignore[no-untyped-def]
    """The Gram matrix of the rows at a kink, bordered by ones for an intercept."""
    size = n_kinks + 1 if fit_intercept else n_kinks
    system = np.zeros((size, size))
    for i in range(n_kinks):
        for j in range(i + 1):
            value = 0.0
            for p in range(X.shape[1]):
                value += X[kinks[i], p] * X[kinks[j], p]
            system[i, j] = system[j, i] = value
        if fit_intercept:
            system[i, n_kinks] = system[n_kinks, i] = 1.0
    return system


@njit(cache=True, nogil=True)
def find_hinge_point(X, y, alpha, states, fit_intercept, coef):  # type: ignore[no-untyped-def]
    """The model whose rows at a kink (state 1) have the margin 1, with the dual variables of the others; whether there is one, and its intercept.

    ``alpha`` has the weighted dual variables; those at kinks and ``coef`` are written.
    """
    n, d = X.shape
    kinks = np.empty(min(n, d + 2), dtype=np.int64)
    n_kinks, total = 0, 0.0
    coef[:] = 0.0
    for k in range(n):
        if states[k] == 1:
            if n_kinks == kinks.shape[0]:
                return False, 0.0
            kinks[n_kinks] = k
            n_kinks += 1
        elif alpha[k] != 0.0:
            total += y[k] * alpha[k]
            for p in range(d):
                coef[p] += y[k] * alpha[k] * X[k, p]
    if fit_intercept and n_kinks == 0:
        return False, 0.0
    right = np.empty(n_kinks + 1 if fit_intercept else n_kinks)
    for j in range(n_kinks):
        score = 0.0
        for p in range(d):
            score += X[kinks[j], p] * coef[p]
        right[j] = y[kinks[j]] - score
    if fit_intercept:
        right[n_kinks] = -total
    if not solve_in_place(_kink_system(X, kinks, n_kinks, fit_intercept), right):
        return False, 0.0
    for j in range(n_kinks):
        alpha[kinks[j]] = y[kinks[j]] * right[j]
        for p in range(d):
            coef[p] += right[j] * X[kinks[j], p]
    return True, right[n_kinks] if fit_intercept else 0.0


@njit(cache=True, nogil=True)
def follow_hinge_path(X, y, limits, growth, row, most, fit_intercept, alpha, states, scores, coef, work):  # type: ignore[no-untyped-def]
    """Follow the optimum of a hinge loss while the dual variable of a row goes to zero; whether the end was reached, and the intercept there.

    ``work``: gets the number of multiplications.

    The optimum moves on straight lines between the points at which a row comes to its kink or leaves it. ``states``: 0 beyond the kink, 1 at it, 2 before it,
    3 for rows that do not count; ``limits`` the largest weighted dual variables, which grow by the share ``growth`` on the way. ``alpha``, ``states``,
    ``scores`` (intercept included) and ``coef`` are those of the start and are changed.
    """
    n, d = X.shape
    leaving = alpha[row]
    states[row] = 3
    force, total = np.zeros(d), -y[row] * leaving
    for p in range(d):
        force[p] = -y[row] * leaving * X[row, p]
    if growth != 0.0:
        for k in range(n):
            if states[k] == 2:
                total += growth * limits[k] * y[k]
                for p in range(d):
                    force[p] += growth * limits[k] * y[k] * X[k, p]
    kinks, moves, step = np.empty(min(n, d + 2), dtype=np.int64), np.empty(n), np.empty(d)
    t = 0.0
    for _ in range(most):
        n_kinks = 0
        for k in range(n):
            if states[k] == 1:
                if n_kinks == kinks.shape[0]:
                    return False, 0.0
                kinks[n_kinks] = k
                n_kinks += 1
        if fit_intercept and n_kinks == 0:
            return False, 0.0
        work[0] += n * d + n_kinks * n_kinks * (d + n_kinks) // 2
        right = np.empty(n_kinks + 1 if fit_intercept else n_kinks)
        for j in range(n_kinks):
            value = 0.0
            for p in range(d):
                value -= X[kinks[j], p] * force[p]
            right[j] = value
        if fit_intercept:
            right[n_kinks] = -total
        if not solve_in_place(_kink_system(X, kinks, n_kinks, fit_intercept), right):
            return False, 0.0
        for p in range(d):
            step[p] = force[p]
        for j in range(n_kinks):
            for p in range(d):
                step[p] += right[j] * X[kinks[j], p]
        shift = right[n_kinks] if fit_intercept else 0.0
        length, event, becomes = 1.0 - t, -1, 0
        for j in range(n_kinks):
            k = kinks[j]
            rate = right[j] * y[k]
            if rate < 0.0 and alpha[k] < -rate * length:
                length, event, becomes = max(alpha[k] / -rate, 0.0), k, 0
            rate -= growth * limits[k]
            slack = limits[k] * (1.0 + growth * t) - alpha[k]
            if rate > 0.0 and slack < rate * length:
                length, event, becomes = max(slack / rate, 0.0), k, 2
        for k in range(n):
            move = shift
            for p in range(d):
                move += X[k, p] * step[p]
            moves[k] = move
            if states[k] == 0 or states[k] == 2:
                rate = y[k] * move
                short = 1.0 - y[k] * scores[k]
                if states[k] == 0:
                    rate, short = -rate, -short
                if rate > 0.0 and short < rate * length:
                    length, event, becomes = max(short / rate, 0.0), k, 1
        t += length
        for j in range(n_kinks):
            alpha[kinks[j]] += length * right[j] * y[kinks[j]]
        for k in range(n):
            scores[k] += length * moves[k]
        if event < 0:
            break
        before = states[event]
        states[event] = becomes
        if becomes == 0:
            alpha[event] = 0.0
        if growth != 0.0 and (before == 2 or becomes == 2):
            sign = 1.0 if becomes == 2 else -1.0
            total += sign * growth * limits[event] * y[event]
            for p in range(d):
                force[p] += sign * growth * limits[event] * y[event] * X[event, p]
        if before == 2:
            alpha[event] = limits[event] * (1.0 + growth * t)
    else:
        return False, 0.0
    alpha[row] = 0.0
    for k in range(n):
        if states[k] == 2:
            alpha[k] = limits[k] * (1.0 + growth)
    return find_hinge_point(X, y, alpha, states, fit_intercept, coef)
