"""How values show themselves in notebooks: small pieces of HTML that go with light and dark pages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape


def facts(title: str, named: Mapping[str, object]) -> str:
    """A title, and a row for each thing that is known."""
    return table(title, (), named.items())


def table(title: str, head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A title, the names of columns if there are any, and rows; None is an empty cell.

    Without rows it is the title alone.
    """
    cells = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    named = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head)
    above = f"<thead><tr>{named}</tr></thead>" if head else ""
    shown = f"<table>{above}{cells}</table>" if cells else ""
    return f"<div><b>{escape(title)}</b>{shown}</div>"


def live_text() -> Callable[[str], None] | None:
    """Shows a text below the cell that runs, in place of the one before; None outside a notebook."""
    # A notebook has imported IPython; nobody else pays for it.
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    html = ipython.display.HTML
    handle = ipython.display.display(html(""), display_id=True)
    return lambda text: handle.update(html(f"<small>{escape(text)}</small>"))


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"<td style='text-align:left'>{escape(text)}</td>"
