"""Reports: one self-contained HTML file that explains a result, with plots and tables to explore."""

from glru.report.frame import Provenance
from glru.report.loocv import loocv_page
from glru.report.pages import after_page, path_page, stepwise_page

__all__ = ["Provenance", "after_page", "loocv_page", "path_page", "stepwise_page"]
