"""Training, and the table that says which solver trains what.

=================  ==========================================  ==============================================
solver             trains                                      ``"auto"`` takes it for
=================  ==========================================  ==============================================
"newton"           smooth losses, L2                           dense data with min(n, d) <= 6000; sparse data
                                                               whose Gram matrix is cheap to form
"newton-cg"        smooth losses, L2                           the rest of them
"dual-cd"          hinge and logistic, L2 on every column,     the first 8 passes over sparse wide data with
                   no intercept                                the logistic loss; "newton-cg" goes on from there
"prox-newton"      smooth losses, any penalty                  elastic net and L1
"interior-point"   hinge losses, L2                            hinge; squared and smoothed hinge where 15 iterations of
                                                               "newton" do not reach the target
"proximal-point"   hinge, any penalty                          hinge with elastic net and L1, on data too large for a
                                                               direct system, and where the one above stalls
=================  ==========================================  ==============================================

Rows in blocks are trained by "newton" (up to 3000 columns) and "newton-cg", in passes over the data.
"""

from glru.solvers.api import solve, train, warn_if_short
from glru.solvers.newton import State

__all__ = ["State", "solve", "train", "warn_if_short"]
