"""One small Spark session for all tests of the connectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import call  # noqa: F401 - a fixture here, too.

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FOR_SMALL_DATA = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Else Spark compiles each query and plans it anew while it runs: that takes longer than so few rows do."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from minirt_connectors.spark import local_session

    session = local_session("minirt-tests")
    for name, value in _FOR_SMALL_DATA.items():
        session.conf.set(name, value)
    yield session
    session.stop()
