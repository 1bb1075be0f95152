"""Data that comes with scikit-learn, standardised."""

import numpy as np
from benchopt import BaseDataset
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale


class Dataset(BaseDataset):
    """breast_cancer (two classes) or diabetes (a number)."""

    name = "Bundled"
    requirements = ["scikit-learn"]
    parameters = {"data": ["breast_cancer", "diabetes"]}

    def get_data(self):
        if self.data == "breast_cancer":
            X, y = load_breast_cancer(return_X_y=True)
            return {"X": scale(X), "y": np.where(y == 1, 1.0, -1.0), "loss": "logistic"}
        X, y = load_diabetes(return_X_y=True)
        return {"X": scale(X), "y": scale(y), "loss": "squared"}
