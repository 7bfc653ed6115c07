"""One small Spark session for all tests of the connectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import call  # noqa: F401 - a fixture here, too.

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from minirt_connectors.spark import local_session

    session = local_session("minirt-tests")
    yield session
    session.stop()
