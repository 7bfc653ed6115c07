"""What runs a job, in rooms: who stands in one knows which process it is in.

program      the user's program: how a job is started, watched, asked and ended
coordinator  a thread of that program: the loop that decides what a job does, and has it done
cluster      where subtasks run: hosts, their templates, and the connections to the workers
worker       a worker process: its loop, its threads, and how the process comes about
subtask      one subtask, wherever it runs: its loop, its chain of operators, its snapshots
input        where a subtask takes its elements from: channels, a source, what was in flight
control      between coordinator, template and workers: connections, and what is said over them
network      between processes: trunks for the frames of many channels, sockets, TLS, packets
channels     between subtasks: frames, credit, queues, and how records are dealt to receivers

A room imports only the rooms below it in this list.

Operators are in `minirt.operators`; what decides is in `minirt.protocol` and `minirt.modes`.
"""
