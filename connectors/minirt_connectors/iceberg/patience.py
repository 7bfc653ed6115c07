"""A REST catalog that is not waited for without end: the library sets its requests no limit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config, merge_config

_CONNECT_S = 5.0


def catalog_of(name: str, properties: Mapping[str, str], answer_s: float) -> Any:
    """The catalog of that name, as `load_catalog` gives it.

    One over HTTP has `answer_s` seconds for each answer.
    """
    told = Config().get_catalog_config(name) or {}
    all_of_it: dict[str, Any] = merge_config(told, dict(properties))
    if not _is_rest(all_of_it):
        return load_catalog(name, **all_of_it)

    class Patient(RestCatalog):  # type: ignore[misc]
        def _create_session(self) -> Any:
            session = super()._create_session()
            limits = (min(_CONNECT_S, answer_s), answer_s)
            session.request = partial(session.request, timeout=limits)
            return session

    return Patient(name, **all_of_it)


def _is_rest(properties: Mapping[str, Any]) -> bool:
    if "py-catalog-impl" in properties:
        return False
    kind, uri = properties.get("type"), properties.get("uri")
    if kind is not None:
        return str(kind).lower() == "rest"
    return str(uri).startswith("http")
