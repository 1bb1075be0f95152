"""glru"""

from glru.losses import *
from glru.penalties import L2, ElasticNet, L1
from glru.problem import Problem
from glru.solution import Point, Solution
from glru.solvers import solve
