"""
Claims per year: a Poisson model with exposure
==============================================

Insured cars are on the road for different parts of the year, so the number of claims is modelled with the logarithm of that time as an offset. Leave-one-out says how well the
rates of unseen cars are predicted, and which penalty does it best.
"""

import matplotlib.pyplot as plt
import numpy as np

import glru

plt.style.use("tableau-colorblind10")

# %%
# 2000 cars, twelve columns of which four matter, and an exposure of a few days to a year.
random = np.random.default_rng(0)
X = random.normal(size=(2000, 12))
exposure = random.uniform(0.02, 1.0, 2000)
rate = 0.15 * np.exp(X[:, :4] @ [0.5, -0.4, 0.3, 0.2])
claims = random.poisson(rate * exposure)
print(f"{claims.sum()} claims in {exposure.sum():.0f} car-years")

# %%
# The offset is part of the problem; every held-out score has that of its own row.
strengths = 2.0 ** np.arange(-14.0, 1.0, 2.0)
deviances = []
for strength in strengths:
    problem = glru.Problem(
        X, claims, loss=glru.Poisson(), penalty=glru.L2(strength), fit_intercept=True, offset=np.log(exposure)
    )
    result = glru.loocv(problem)
    mean = np.exp(result.scores)
    terms = np.where(claims > 0, claims * np.log(np.maximum(claims, 1) / mean), 0.0) - (claims - mean)
    deviances.append(2.0 * terms.mean())
    print(f"strength {strength:.1e}: held-out deviance {deviances[-1]:.5f}, {result.n_trainings} trainings")

# %%
# Without the offset the model thinks that a car of a few days is a safe car.
constant = np.exp(
    glru.loocv(glru.Problem(X, claims, loss=glru.Poisson(), penalty=glru.L2(2.0**-10), fit_intercept=True)).scores
)
best = glru.Problem(
    X, claims, loss=glru.Poisson(), penalty=glru.L2(2.0**-10), fit_intercept=True, offset=np.log(exposure)
)
expected = np.exp(glru.loocv(best).scores)

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].semilogx(strengths, deviances, "o-")
axes[0].set(xlabel="strength of the penalty", ylabel="held-out deviance")
edges = np.quantile(exposure, np.linspace(0, 1, 9))
place = np.digitize(exposure, edges[1:-1])
middle = np.array([exposure[place == k].mean() for k in range(8)])
for values, name, mark in (
    (claims, "claims", "ko"),
    (expected, "held-out, with exposure", "C0s-"),
    (constant, "held-out, without", "C1^--"),
):
    axes[1].plot(middle, [values[place == k].mean() for k in range(8)], mark, label=name)
axes[1].set(xlabel="exposure, years", ylabel="mean per car")
axes[1].legend()
plt.show()
