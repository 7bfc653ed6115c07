"""Spark at both ends: DataFrames as sources, and Spark as the judge of committed output.

Importing this package does not import pyspark, so that workers can unpickle a `SparkSource` without
it. Only building a source, verifying and `local_session` need pyspark and a JDK.
"""

from minirt_connectors.spark.session import local_session, require_java
from minirt_connectors.spark.source import SparkSource
from minirt_connectors.spark.verify import Verdict, verify

__all__ = ["SparkSource", "Verdict", "local_session", "require_java", "verify"]
