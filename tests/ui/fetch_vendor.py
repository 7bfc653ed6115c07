"""Fetches the npm packages that `minirt/ui/page/vendor` was taken from, and compares every file.

    python -m tests.ui.fetch_vendor

It needs npm and its registry. Ends with 1 if anything differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parents[2] / "minirt" / "ui" / "page" / "vendor"


def main() -> int:
    differing = []
    for package in json.loads((VENDOR / "packages.json").read_text()):
        with tempfile.TemporaryDirectory() as folder:
            wanted = f"{package['name']}@{package['version']}"
            command = ["npm", "pack", "--silent", wanted]
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
            [archive] = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as packed:
                for within, name in package["files"].items():
                    member = packed.extractfile(f"package/{within}")
                    if member is None or member.read() != (VENDOR / name).read_bytes():
                        differing.append(f"{wanted} {within}")
            print(f"{wanted}: {len(package['files'])} files compared")
    for one in differing:
        print(f"differs: {one}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
