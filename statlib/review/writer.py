"""Where the writer of screening decisions used to be."""

from statlib.review.namespaces import SCREENING_NAMESPACE
from statlib.review.screening_writer import ScreeningChange, ScreeningWriter

__all__ = ["SCREENING_NAMESPACE", "ScreeningChange", "ScreeningWriter"]
