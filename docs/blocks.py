"""What scripts write into docs/: files, and blocks from `<!-- generated: NAME -->` to `<!-- end -->`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """The text with the content of each named block replaced. Raises KeyError for one that is missing."""
    for name, content in blocks.items():
        begin = f"<!-- generated: {name} -->"
        pattern = re.compile(rf"({re.escape(begin)}\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise KeyError(f"no block {name!r}")
        text = pattern.sub(lambda found, new=content: f"{found[1]}\n{new}\n\n{found[2]}", text)
    return text


def update(path: Path, blocks: Mapping[str, str]) -> int:
    """Rewrite the file, or with `--check` on the command line only look; the exit status."""
    text = path.read_text()
    current = with_blocks(text, blocks)
    if "--check" in sys.argv[1:]:
        if current != text:
            print(f"{path.name} is not current: run python {sys.argv[0]}", file=sys.stderr)
        return int(current != text)
    path.write_text(current)
    return 0


def update_files(files: Mapping[Path, str]) -> int:
    """Write files as a whole, or with `--check` on the command line only look; the exit status."""
    stale = [path for path, new in files.items() if not path.exists() or path.read_text() != new]
    if "--check" not in sys.argv[1:]:
        for path, new in files.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(new)
    elif stale:
        names = ", ".join(path.name for path in stale)
        print(f"not current: {names}; run python {sys.argv[0]}", file=sys.stderr)
        return 1
    return 0
