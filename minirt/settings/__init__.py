"""The options of a job from outside its code: a TOML file, environment variables, assignments.

catalogue   every key, with type and default, read off the classes that define the options
sources     what a file, the environment or assignments give, checked key by key
build       what was given, laid over what the code says
"""

from __future__ import annotations

from minirt.settings.build import JobSettings, load_settings

__all__ = ["JobSettings", "load_settings"]
