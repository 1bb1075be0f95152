"""What ``make package`` runs with an installed sdist or wheel and nothing else: import, train, validate, ask for an extra."""

import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

import glru

if __name__ == "__main__":
    place = Path(glru.__file__).parent
    assert Path(sys.prefix) in place.parents, place
    assert (place / "py.typed").exists()
    X, y = load_breast_cancer(return_X_y=True)
    result = glru.loocv(LogisticRegression(), scale(X), y)
    assert (result.n_errors, result.n_undetermined) == (12, 0), result
    message = ""
    try:
        result.plot()
    except ImportError as error:
        message = str(error)
    assert "glru[plot]" in message, message
    print(f"glru {glru.__version__} works in {place}: {result.n_errors} errors, {result.n_trainings} trainings")
