"""The version of this minirt, for the package, the command line and the reports of problems."""

from __future__ import annotations

__version__ = "0.1.0"
