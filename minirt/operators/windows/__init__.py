"""What runs for each kind of window: `FRAMES` has a line for each."""

from minirt.operators.windows.count import CountFrame
from minirt.operators.windows.everything import EverythingFrame
from minirt.operators.windows.frame import WindowFrame
from minirt.operators.windows.session import SessionFrame
from minirt.operators.windows.sliding import SlidingFrame
from minirt.operators.windows.tumbling import TumblingFrame
from minirt.windows import AfterCount, CountWindow, GlobalWindow, Session, Sliding, Tumbling, Window

FRAMES: dict[type[Window], type[WindowFrame]] = {
    Tumbling: TumblingFrame,
    Sliding: SlidingFrame,
    Session: SessionFrame,
    CountWindow: CountFrame,
    GlobalWindow: EverythingFrame,
}


def frame_of(window: Window) -> type[WindowFrame]:
    """What runs for a window."""
    if isinstance(window, GlobalWindow) and isinstance(window.trigger, AfterCount):
        return CountFrame
    return FRAMES[type(window)]
