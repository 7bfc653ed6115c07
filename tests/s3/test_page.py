"""docs/storage.md does what it says, on the server of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, promised_output, run_python
from tests.s3.endpoint import Endpoint


@pytest.mark.processes
def test_the_program_of_the_page_prints_what_it_says(
    endpoint: Endpoint, prefix: str, tmp_path: Path
) -> None:
    [program] = blocks(ROOT / "docs/storage.md", "python")
    elsewhere = program.replace("s3://minirt/totals", prefix)
    assert elsewhere != program
    assert run_python(elsewhere, tmp_path) == promised_output(program)
