"""Training, and the table that says which solver trains what.

==================  =====================================================  =========================
solver              trains                                                 ``"auto"`` takes it for
==================  =====================================================  =========================
"newton"            smooth losses, L2                                      small min(n, d)
"newton-cg"         smooth losses, L2                                      the rest of them
"prox-newton"       smooth losses, any penalty                             elastic net and L1
"dual-cd"           hinge, L2 on every column, no intercept                never
"proximal-point"    hinge, any penalty                                     hinge
==================  =====================================================  =========================
"""

from glru.solvers.api import solve
from glru.solvers.common import State

__all__ = ["State", "solve"]
