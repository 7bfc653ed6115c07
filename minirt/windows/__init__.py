"""Windows: which records of a stream count together. One file for each kind, or for several alike.

What runs for a kind of window is in `minirt.operators.windows`.
"""

from minirt.windows.base import AT_THE_END, WINDOW_END, WINDOW_START, Clock, Emission, Window
from minirt.windows.count import CountWindow
from minirt.windows.everything import AfterCount, AfterTime, GlobalWindow
from minirt.windows.panes import PanedWindow, Sliding, Tumbling
from minirt.windows.session import Session

__all__ = [
    "AT_THE_END",
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
