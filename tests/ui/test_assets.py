"""What the page takes from npm is unchanged, and it names no other host."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import minirt.ui

PAGE = Path(minirt.ui.__file__).parent / "page"
VENDOR = PAGE / "vendor"


def test_vendored_files_are_those_of_their_packages() -> None:
    """`python -m tests.ui.fetch_vendor` compares the same sums with the packages on npm."""
    listed = json.loads((VENDOR / "packages.json").read_text())
    files = {path.name for path in VENDOR.iterdir()} - {"packages.json"}
    assert files == {name for package in listed for name in package["files"].values()}
    for package in listed:
        for name in package["files"].values():
            found = hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()
            assert found == package["sha256"][name], name
        assert any("LICENSE" in name for name in package["files"])


def test_own_files_ask_no_other_host_and_set_no_raw_html() -> None:
    own = [*PAGE.glob("*.js"), *PAGE.glob("*.css"), *PAGE.glob("*.html")]
    assert len(own) > 5
    for path in own:
        text = path.read_text()
        assert not re.search(r"https?://|dangerouslySetInnerHTML|innerHTML|\beval\b", text), path
        assert len(text.splitlines()) < 400


def test_modules_import_only_what_is_there() -> None:
    for path in PAGE.glob("*.js"):
        for target in re.findall(r'from "([^"]+)"', path.read_text()):
            assert (path.parent / target).is_file(), (path, target)
