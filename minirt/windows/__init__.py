"""Windows: which records of a keyed stream count together. One file for each kind, or for those that are alike.

What runs for a kind of window is in `minirt.operators.windows`.
"""

from minirt.windows.base import WINDOW_END, WINDOW_START, Clock, Emission, Window
from minirt.windows.count import CountWindow
from minirt.windows.everything import AfterCount, AfterTime, GlobalWindow
from minirt.windows.panes import PanedWindow, Sliding, Tumbling
from minirt.windows.session import Session

__all__ = [
    "WINDOW_END",
    "WINDOW_START",
    "AfterCount",
    "AfterTime",
    "Clock",
    "CountWindow",
    "Emission",
    "GlobalWindow",
    "PanedWindow",
    "Session",
    "Sliding",
    "Tumbling",
    "Window",
]
