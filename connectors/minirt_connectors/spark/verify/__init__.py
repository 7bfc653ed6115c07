"""Spark, which shares no code with minirt, judges the committed output of a job.

On the command line: `minirt verify OUTPUT EXPECTED`.
"""

from minirt_connectors.spark.verify.command import main, run
from minirt_connectors.spark.verify.comparison import verify
from minirt_connectors.spark.verify.verdict import Verdict

__all__ = ["Verdict", "main", "run", "verify"]
