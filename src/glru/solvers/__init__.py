"""Training, and the table that says which solver trains what.

=================  ==========================================  ==============================================
solver             trains                                      ``"auto"`` takes it for
=================  ==========================================  ==============================================
"newton"           smooth losses, L2                           data whose factorisations cost less than the
                                                               products of "newton-cg"; and where that took more
                                                               products than they would have cost
"newton-cg"        smooth losses, L2                           the rest of them; and, for a while, before "newton" on
                                                               dense data of many rows and columns
"dual-cd"          logistic, L2 on every column; hinge, also   what "newton-cg" is for under the logistic loss, as long
                   without an intercept                        as its gap falls fast enough
"prox-newton"      smooth losses, any penalty                  elastic net and L1
"interior-point"   hinge losses, L2                            hinge; squared and smoothed hinge where 15 iterations of
                                                               "newton" do not reach the target
"proximal-point"   hinge, any penalty                          hinge with elastic net and L1, on data too large for a
                                                               direct system, and where the one above stalls
=================  ==========================================  ==============================================

Costs are predicted from the numbers of rows, columns and stored entries (``product_cost`` and ``gram_cost`` of a matrix).
Rows in blocks are trained by "newton" (up to 3000 columns) and "newton-cg", in passes over the data.
"""

from glru.solvers.api import solve, train, warn_if_short
from glru.solvers.newton import State

__all__ = ["State", "solve", "train", "warn_if_short"]
