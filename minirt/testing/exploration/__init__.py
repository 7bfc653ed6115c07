"""Every interleaving of a small job, in every state of which something could go wrong.

Theory of operation. The parts of a job, its subtasks and its coordinator, meet only in queues and in what
is durable. The state of the whole is therefore a tuple of the states of its parts, and of queues. What
an event does to a part is found out by the real objects (subtask, operators, channels, barrier handler,
mode; protocol, shell, storage tasks, checkpoint storage), once for each state of that part, and is
remembered. The search itself runs over tuples of numbers, and visits each state of the whole job once.

What is left to chance in a run is a choice here: which subtask works one record or one other element,
which channel sends a frame, which wire delivers one, when a trigger is heard, a snapshot is stored, a
timer of the mode fires, the coordinator hears a message or does one storage command, and when a worker
crashes, which ends the generation at once. Not explored are failing storage, hangs, lost coordinators,
workers that linger, and crashes inside a storage command: the simulator plays these at random.
"""

from __future__ import annotations

from minirt.testing.exploration.explore import ExplorationResult, Violation, explore

__all__ = ["ExplorationResult", "Violation", "explore"]
