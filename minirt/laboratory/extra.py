"""What the report needs beyond the core."""

from __future__ import annotations

import importlib

from minirt.errors import ConfigurationError


def need_drawing() -> None:
    """Raise ConfigurationError unless the libraries for plots and pages are installed."""
    for module in ("matplotlib", "jinja2"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigurationError(
                f"--html and --svg need {module}: pip install 'minirt[lab]'"
            ) from error
