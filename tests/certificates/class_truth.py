"""Multinomial models retrained beyond float64: gradients in extended precision, steps with a float64 factor, written apart from the library."""

import numpy as np

LONG = np.longdouble


def retrain_classes(X, y, weights, strengths, n_classes, fit_intercept, start=None):
    """Coefficients with the intercept last, one line per class, in extended precision, and the size of the last step."""
    X = np.column_stack([X, np.ones(len(y))]) if fit_intercept else np.asarray(X, dtype=float)
    lam = np.append(np.broadcast_to(strengths, (X.shape[1] - fit_intercept,)), [0.0] * fit_intercept)
    wide, width = X.astype(LONG), X.shape[1]
    model = np.zeros((n_classes, width), dtype=LONG) if start is None else np.array(start, dtype=LONG)
    own = (np.arange(n_classes) == np.asarray(y)[:, None]).astype(LONG)
    s = np.asarray(weights, dtype=LONG)

    def measure(model):
        z = wide @ model.T
        z = z - z.max(axis=1, keepdims=True)
        likely = np.exp(z)
        total = likely.sum(axis=1, keepdims=True)
        value = s @ (np.log(total[:, 0]) - (own * z).sum(axis=1)) + 0.5 * np.sum(lam * model**2)
        return value, likely / total

    value, likely = measure(model)
    size = np.inf
    for _ in range(200):
        gradient = ((s[:, None] * (likely - own)).T @ wide) + lam * model
        p = likely.astype(float)
        h = p[:, :, None] * np.eye(n_classes) - p[:, :, None] * p[:, None, :]
        hessian = np.einsum("i,iab,ij,ik->ajbk", s.astype(float), h, X, X, optimize=True)
        gauge = np.einsum("ajaj->j", hessian) + lam + 1e-300
        for j in range(width):
            hessian[:, j, :, j] += gauge[j] + lam[j] * np.eye(n_classes)
        hessian = hessian.reshape(n_classes * width, -1)
        scale = 1.0 / np.sqrt(np.diag(hessian))
        step = np.linalg.solve(hessian * scale * scale[:, None], gradient.astype(float).ravel() * scale) * scale
        step = step.reshape(gradient.shape).astype(LONG)
        step = step - step.mean(axis=0)
        length = LONG(1.0)
        for _ in range(60):
            new_value, new_likely = measure(model - length * step)
            if new_value <= value * (1 + LONG(1e-15)):
                break
            length = length / 2
        model, value, likely = model - length * step, new_value, new_likely
        before, size = size, float(np.abs(step / (1.0 + np.abs(model))).max())
        if size < 1e-19 or (size < 1e-16 and size >= 0.5 * before):
            break
    return model - model.mean(axis=0), size


def retrained_without(problem, row, start=None):
    """The model without a row, and that row's scores, in extended precision."""
    weight = np.array(problem.sample_weight)
    weight[row] = 0.0
    weights = weight.astype(LONG) / weight.astype(LONG).sum() if problem.scaling == "mean" else weight
    X = problem.matrix.dense()
    model, size = retrain_classes(
        X, problem.y, weights, problem.quadratic, problem.n_scores, problem.fit_intercept, start
    )
    x = np.append(X[row], [1.0] * problem.fit_intercept).astype(LONG)
    return model, model @ x, size
