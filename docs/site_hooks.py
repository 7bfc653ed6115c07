"""What mkdocs does for the site besides rendering: navigation, pages made from the code, links to files.

The folder of the pages is the one source: the navigation is the list of docs/README.md, and titles are
those of the pages. Pages on the API and on the command line are made of docstrings when the site is built.
architecture.md, one file to search and to print, becomes a page for each decision.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

import minirt
from minirt.cli import app

ROOT = Path(__file__).resolve().parents[1]
_SECTION = re.compile(r"^## (.+)$|^\* \[(\S+\.md)\]\(\2\)", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_FILE_NAMED = re.compile(r"\[([\w-]+\.md)\]\(\1")
_LOADED = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]*)"
)
_HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
_ARCHITECTURE, _LAST_OF_OVERVIEW = "architecture.md", "What an addition touches"
_LABEL = re.compile(
    r"\s*<small class=\"doc doc-label doc-label-"
    r"(?:class-attribute|instance-attribute|cached|writable|dataclass)\">.*?</small>"
)
_ELSEWHERE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)\)")

_BOOSTS = {
    "questions.md": 2.5,
    "Tutorials": 1.5,
    "How to build a job": 1.5,
    "How to run a job": 1.5,
    "Architecture": 0.5,
    "changes.md": 0.3,
}
"""Of sections, and of single pages, which come before their section."""

API = {
    "Jobs and streams": (
        "Environment Stream KeyedStream ConnectedStreams ConnectedKeyedStreams WindowedStream "
        "OperatorOptions WatermarkGenerator Watermarks"
    ),
    "Functions and state": (
        "Process KeyedProcess KeyedCoProcess ProcessContext KeyedContext AsyncFunction Retry ValueState "
        "ListState MapState BroadcastState BroadcastProcess WindowProcess WindowContext"
    ),
    "Windows": ("Window Tumbling Sliding Session CountWindow GlobalWindow AfterCount AfterTime"),
    "Aggregates": (
        "Aggregate Sum Count Min Max Mean First Last Fold ArgMin ArgMax Collect CountDistinct Quantile "
        "StdDev TopN Variance"
    ),
    "Sources and sinks": (
        "ParquetSource JsonlSource CsvSource CollectionSource SequenceSource ParquetSink JsonlSink "
        "PrintSink CollectSink DiscardSink Source Split SplitReader BadRecord Sink SinkContext "
        "SinkIdentity SinkWriter Prepared"
    ),
    "Running jobs": (
        "RunOptions Checkpointing AlignedWithTimeout Epoch Uncoordinated Options Limits Queues Restart "
        "JobSettings load_settings Job JobResult JobStatus JobObserver JobProgress JobFigures HostCluster "
        "Invitation Launched Reactive"
    ),
    "Checkpoints": (
        "CheckpointReport CheckpointStatus SubtaskReport ChannelReport CheckpointUnderWay Savepoint "
        "open_checkpoints Checkpoints StoredCheckpoint SavepointWriter"
    ),
    "Errors": (
        "MinirtError ConfigurationError UserCodeError SourceChangedError SourceDataError "
        "BadRecordError SinkDataError StorageError CorruptCheckpointError SavepointFailedError "
        "WorkerLostError JobFailedError SupersededError UnsupportedValueError ProtocolError "
        "CheckpointFailure CheckpointFailureReason GenerationFailureReason "
        "SavepointFailureReason"
    ),
}
"""The pages of the API reference, and the public names on each."""

_NEVER_CALLED = {
    *("Stream", "KeyedStream", "ConnectedStreams", "ConnectedKeyedStreams", "WindowedStream"),
    *("Job", "Checkpoints", "StoredCheckpoint"),
}
"""Classes whose objects users only get: how to make one is nothing to them."""

_PROCESS = ["open", "close", "on_timer"]
INHERITED = {
    "Stream": ["join", "join_as_of"],
    "KeyedProcess": _PROCESS,
    "KeyedCoProcess": _PROCESS,
    "BroadcastProcess": _PROCESS,
    "ValueState": ["clear"],
    "ListState": ["clear"],
    "MapState": ["clear"],
}
"""What classes have from bases that are on no page."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = navigation(Path(config.docs_dir))
    return config


def navigation(docs: Path) -> list[Any]:
    """The sections of docs/README.md with the pages that they list, and the pages made from the code."""
    sections: dict[str, list[Any]] = {}
    current = ""
    for section, page in _SECTION.findall((docs / "README.md").read_text()):
        if section:
            sections[current := section] = []
        else:
            sections[current].append({title_of(docs / page): page})
    overview = {title_of(docs / _ARCHITECTURE): _ARCHITECTURE}
    sections["Explanation"].remove(overview)
    sections["Architecture"] = [overview]
    for title, path, _ in decisions((docs / _ARCHITECTURE).read_text()):
        sections["Architecture"].append({title: path})
    pages = [{title: path} for title, path in api_pages()]
    sections["API"] = [*pages, {"Commands": "api/commands.md"}]
    return [{"Start": "README.md"}, *({name: found} for name, found in sections.items())]


def title_of(page: Path) -> str:
    found = _TITLE.search(page.read_text())
    assert found is not None, page
    return found[1].replace("`", "")


def api_pages() -> list[tuple[str, str]]:
    return [(title, f"api/{title.lower().replace(' ', '-')}.md") for title in API]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code, and the files outside of docs/ that pages link to."""
    for (title, path), names in zip(api_pages(), API.values(), strict=True):
        files.append(File.generated(config, path, content=api_page(title, names.split())))
    files.append(File.generated(config, "api/commands.md", content=commands_page()))
    docs = Path(config.docs_dir)
    for title, path, text in decisions((docs / _ARCHITECTURE).read_text()):
        page = f"# {title}\n{_HEADING.sub(lambda found: found[0][1:], text)}"
        files.append(File.generated(config, path, content=_linked(_titled(page, docs), path, docs)))
    for page in docs.glob("*.md"):
        for _, target in _ELSEWHERE.findall(page.read_text()):
            if (ROOT / target).is_file() and files.get_file_from_path(f"files/{target}") is None:
                source = str(ROOT / target)
                files.append(File.generated(config, f"files/{target}", abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Call pages by their titles; lead links out of docs/ to the copies. Folders become text."""
    path = page.file.src_uri
    docs = Path(config.docs_dir)
    page.meta["search"] = {"boost": boost(path, docs)}
    if path.startswith(("api/", "architecture/")):
        return markdown
    if path == _ARCHITECTURE:
        found = decisions(markdown)
        rows = "\n".join(f"* [{title}]({its_path})" for title, its_path, _ in found)
        markdown = f"{markdown[: markdown.index(f'## {found[0][0]}')]}## Decisions\n\n{rows}\n"
    return _linked(_ELSEWHERE.sub(_led, _titled(markdown, docs)), path, docs)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave out what says how a name is made and not how it is used; the search would show it, too."""
    return _LABEL.sub("", html) if page.file.src_uri.startswith("api/") else html


def boost(path: str, docs: Path) -> float:
    """By how much the search prefers a page: those that say what to do, and which page says it."""
    sections = {
        path: name
        for part in navigation(docs)[1:]
        for name, pages in part.items()
        for entry in pages
        for path in entry.values()
    }
    return _BOOSTS.get(path, _BOOSTS.get(sections.get(path, ""), 1.0))


def decisions(architecture: str) -> list[tuple[str, str, str]]:
    """The sections behind the overview: the title, the page and the text of each."""
    parts = re.split(r"^## (.+)$", architecture, flags=re.MULTILINE)
    sections = list(zip(parts[1::2], parts[2::2], strict=True))
    first = 1 + [title for title, _ in sections].index(_LAST_OF_OVERVIEW)
    return [(title, f"architecture/{_slug(title)}.md", text) for title, text in sections[first:]]


def _linked(markdown: str, path: str, docs: Path) -> str:
    """Lead links into architecture.md to the pages that its sections are on, as seen from a page."""
    homes = {
        _slug(heading): home
        for title, home, text in decisions((docs / _ARCHITECTURE).read_text())
        for heading in (title, *_HEADING.findall(text))
    }
    inside = path.startswith("architecture/")

    def led(found: re.Match[str]) -> str:
        target, heading = found.groups()
        if target in ("", _ARCHITECTURE) and (inside or path == _ARCHITECTURE or target):
            target = homes.get(heading, _ARCHITECTURE)
        target = "" if target == path else f"../{target}" if inside else target
        return f"]({target}#{heading})" if heading else f"]({target})"

    return _LINK.sub(led, markdown)


def _titled(markdown: str, docs: Path) -> str:
    return _FILE_NAMED.sub(lambda found: f"[{title_of(docs / found[1])}]({found[1]}", markdown)


def _slug(heading: str) -> str:
    return str(slugify(case="lower")(heading.replace("`", ""), "-"))


def on_post_build(config: MkDocsConfig) -> None:
    """Raise PluginError if a page would load anything from elsewhere."""
    for page in Path(config.site_dir).rglob("*.html"):
        found = _LOADED.search(page.read_text())
        if found:
            raise PluginError(f"{page.name} would load {found[1]}")


def _led(found: re.Match[str]) -> str:
    text, target = found.groups()
    return f"[{text}](files/{target})" if (ROOT / target).is_file() else f"`{target}`"


def api_page(title: str, names: list[str]) -> str:
    """A heading and what the docstrings say, for each public name."""
    parts = [f"# {title}"]
    for name in names:
        value = getattr(minirt, name)
        where = f"{value.__module__}.{value.__qualname__}"
        parts.append(_told(where, f"rt.{name}", name))
        if value is minirt.Stream:
            parts.append(_told("minirt.api.trying.Trying", "rt.Stream, to try things", "trying"))
    return "\n\n".join(parts) + "\n"


def _told(where: str, heading: str, label: str) -> str:
    lines = [
        f"::: {where}",
        "    options:",
        f"      heading: {heading}",
        f"      toc_label: {label}",
    ]
    if label in INHERITED:
        lines.append(f"      inherited_members: {INHERITED[label]}")
    if label in _NEVER_CALLED:
        lines.append("      merge_init_into_class: false")
    if _has_known_base(label):
        lines.append("      show_bases: true")
    return "\n".join(lines)


def _has_known_base(name: str) -> bool:
    value = getattr(minirt, name, None)
    known = {getattr(minirt, public) for public in minirt.__all__ if public != "__version__"}
    return isinstance(value, type) and any(base in known for base in value.__bases__)


def commands_page() -> str:
    """Every command with its options, as `--help` says it."""
    parts = ["# Commands", "What `minirt COMMAND --help` prints. [Run jobs from the command line]"]
    parts[1] += "(../command-line.md) shows them at work."
    for name, command in commands_of(typer.main.get_command(app), ("minirt",)):
        parts.append(f"## {name}")
        parts.append(inspect.cleandoc(command.help or ""))
        rows = [row for row in map(_row, command.params) if row is not None]
        if rows:
            parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def commands_of(group: Any, above: tuple[str, ...]) -> list[tuple[str, Any]]:
    found = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found += commands_of(command, (*above, name))
        else:
            found.append((" ".join((*above, name)), command))
    return found


def _row(param: Any) -> str | None:
    names = (
        ", ".join(param.opts) if param.param_type_name == "option" else param.metavar or param.name
    )
    meaning = " ".join((getattr(param, "help", None) or "").split()).replace("|", "\\|")
    names = names.replace("|", "\\|")
    return None if names == "--help" else f"| `{names}` | {meaning} |"
