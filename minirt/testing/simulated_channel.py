"""A channel between two simulated workers: every frame and every credit travels by itself."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from minirt.clock import Clock
from minirt.runtime.channels.channels import InputChannel, OutputChannel
from minirt.runtime.channels.frames import Frame
from minirt.runtime.network.transit import Transit, departing
from minirt.testing.schedule import Actor, Schedule

_LAGS = (0, 0, 5, 40)
"""How many steps a channel rests at most after each thing it did; each channel draws one of them."""


class Host(Protocol):
    """A process that holds one end of a channel."""

    @property
    def clock(self) -> Clock: ...

    @property
    def gone(self) -> bool: ...

    @property
    def turning(self) -> bool:
        """Whether its loop runs: neither gone nor hanging."""

    def send(self, output: OutputChannel) -> list[Frame]:
        """Put on the wire what credit allows."""

    def receive(self, end: ReceivingEnd, frame: Frame) -> None:
        """Take a frame off the wire."""


class ReceivingEnd(Protocol):
    """Where frames arrive."""

    def on_frame(self, frame: Frame) -> None: ...

    @property
    def actor(self) -> Actor:
        """Who has something to do once a frame has arrived."""


class SimulatedChannel(Actor):
    """Delivers in order, each way; when is up to the schedule. It ends with either of its hosts.

    `feeder` is who may go on once the output queue has room.
    """

    def __init__(
        self,
        schedule: Schedule,
        output: OutputChannel,
        sender: Host,
        feeder: Actor,
        input: InputChannel,
        receiver: Host,
        end: ReceivingEnd,
    ) -> None:
        self._schedule = schedule
        self._random = schedule.random
        self._output = output
        self._feeder = feeder
        self._sender = sender
        self._receiver = receiver
        self._end = end
        self._frames: deque[Frame] = deque()
        self._transit = Transit()
        self._credits: deque[tuple[int, int]] = deque()
        self._lag_s = self._random.choice(_LAGS) * schedule.clock.step_s
        self._resting_until = 0.0
        input.grant = self._grant
        output.wake = lambda: schedule.wake(self)

    @property
    def gone(self) -> bool:
        return self._sender.gone or self._receiver.gone

    @property
    def wake_at(self) -> float | None:
        return self._resting_until

    def act(self) -> bool:
        if self.gone or self._resting_until > self._schedule.clock.monotonic():
            return False
        choices = []
        if self._sender.turning:
            if self._output.sendable:
                choices.append(self._send)
            if self._credits:
                choices.append(self._deliver_credit)
        if self._frames and self._receiver.turning:
            choices.append(self._deliver_frame)
        if not choices:
            return False
        choices[int(self._random.random() * len(choices))]()
        if self._lag_s:
            self._resting_until = (
                self._schedule.clock.monotonic() + self._random.random() * self._lag_s
            )
        return True

    def _grant(self, consumed_bytes: int, window_bytes: int) -> None:
        self._credits.append((consumed_bytes, window_bytes))
        self._schedule.wake(self)

    def _send(self) -> None:
        now = self._sender.clock.monotonic()
        self._frames.extend(departing(frame, now) for frame in self._sender.send(self._output))
        self._schedule.wake(self._feeder)

    def _deliver_frame(self) -> None:
        frame = self._transit.frame(self._frames.popleft(), self._receiver.clock.monotonic())
        self._receiver.receive(self._end, frame)
        self._schedule.wake(self._end.actor)

    def _deliver_credit(self) -> None:
        self._output.on_credit(*self._credits.popleft())
