from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip("duckdb", reason="duckdb, which the tests read with, is not installed")
pytest.importorskip(
    "duckdb_extension_delta", reason="the extension delta of duckdb is not installed"
)
