"""The conformance kit: what a pack must show before it ships."""

from .base import Options
from .pack_tests import PackConformance
from .report import Finding, Report
from .run import run

__all__ = ["Finding", "Options", "PackConformance", "Report", "run"]
