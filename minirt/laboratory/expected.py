"""Has Spark judge what a run of the user's own job has put out, where a file says what must come out."""

from __future__ import annotations

from pathlib import Path

from minirt.errors import ConfigurationError, MinirtError
from minirt.laboratory.measured import Verification


def check_expected(expected: str) -> None:
    """Raises ConfigurationError if nobody can verify against it here."""
    if not Path(expected).exists():
        raise ConfigurationError(f"--expect: there is nothing at {expected}")
    from minirt_connectors.spark.session import require_java, require_pyspark

    require_java()
    require_pyspark()


def verify_expected(output: Path, expected: str) -> Verification:
    """Whether the visible rows in `output` are those of `expected`, both as multisets."""
    from minirt_connectors.spark import local_session
    from minirt_connectors.spark.verify.committed import read_committed
    from minirt_connectors.spark.verify.comparison import compare, reading

    try:
        spark = local_session("minirt-compare")
        with reading():
            wanted = read_committed(spark, expected)
            found = compare(spark, str(output), wanted, keys=None, examples=0)
    except MinirtError as error:
        return Verification("not verified", f"Spark cannot compare: {error}")
    words = (
        f"Spark: of {found.rows_expected:,} rows of {expected} {found.lost:,} are missing, "
        f"{found.duplicated:,} came twice, {found.unexpected:,} are not expected"
    )
    return Verification(
        "passed" if found.ok else "failed",
        words,
        found.rows_expected,
        found.lost,
        found.duplicated,
    )
