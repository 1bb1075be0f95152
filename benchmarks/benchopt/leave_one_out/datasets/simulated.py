"""Generated rows: tall or wide, two classes or a number to predict."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Normal columns, of which the first ten matter."""

    name = "Simulated"
    parameters = {"n_rows, n_columns": [(300, 20), (100, 1000)], "loss": ["logistic", "squared"], "random_state": [0]}

    def get_data(self):
        random = np.random.default_rng(self.random_state)
        X = random.normal(size=(self.n_rows, self.n_columns))
        target = X[:, :10].sum(axis=1) + 2.0 * random.normal(size=self.n_rows)
        y = np.where(target > 0.0, 1.0, -1.0) if self.loss == "logistic" else target
        return {"X": X, "y": y, "loss": self.loss}
