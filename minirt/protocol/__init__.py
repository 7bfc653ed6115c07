"""Decides everything and does nothing: events in, commands out; time and ids are arguments.

Nothing here reaches the world or a library: it is plain Python on plain data, and can be read in an
afternoon, in this order.

What names things, and what is stored:

    ids                 subtasks and channels
    key_groups          the unit in which keyed state is dealt to subtasks
    topology            a job as the protocol knows it: its shape, without functions
    manifest            what a checkpoint consists of, which one counts and why
    checkpoint_paths    where everything of a checkpoint storage lies
    part_paths          how parts are named that share a file
    plain               dataclasses as plain values and back, for storage

One checkpoint, in a subtask:

    barriers            what barriers, alignments and commands are, and what a mode may answer
    ended               which checkpoints are over, in a few numbers
    barrier_handler     what one subtask does about barriers, whatever the mode
    watermarks          event time, of a subtask from those of its channels
    drift               how far sources may be ahead of the slowest one

One checkpoint, at the coordinator:

    job_events          what happens to a job (events), what its coordinator orders (commands)
    subtask_commands    what the coordinator orders subtasks to do: the message itself
    pending             the parts of a checkpoint that have come so far
    under_way           the checkpoints that are pending, and how many there may be
    commits             what sinks have handed over and nobody has committed yet
    source_offsets, telling   how far sources are stored, and when they hear of it
    pauses              how long to wait before something that failed is tried again
    leftovers           what comes of checkpoints that were given up
    reasons, reports    why something failed, and what became of a checkpoint, as values
    trace               what a checkpoint did in each subtask, event by event
    checkpoint_settings   what all of them go by
    trigger_times       when the next one is due
    failures            how many checkpoints have failed in a row, and whether a job bears more
    checkpoints         when a checkpoint is taken, completed, committed, given up
    cleanup             which files nobody needs any more

Checkpoints without barriers:

    local_pace          when subtasks take local snapshots
    families            how the snapshots of single subtasks become checkpoints
    lines               which snapshots fit together that subtasks take by their own clocks
    uncoordinated       how these become checkpoints, and which output is committed with each

A job, over all its generations:

    job                 the life of a job: `JobProtocol.handle`
    workers             whether the workers of a generation come up, and are still there
    slots, reactive     how many slots the hosts offer, and which parallelism follows from that
    comebacks           how a worker that is gone comes back alone, while all others go on
    service_order       what a subtask that comes back does again, and in which order
    restart_commands    what is ordered when workers are started again
    lease               by what others see that the job runs, and what a standby makes of it
    restarts, dates     when to begin again, and how people read time
    savepoint_requests, savepoints   what users ask for, and what becomes of it

What a generation starts from:

    restore_options     what the user wants
    giving_up           which output a restore drops, where it can never be committed
    damage              what the user is told of a checkpoint that cannot be restored
    stored_edges        what a checkpoint remembers of edges, to tell them after an edit
    restore             who reads which snapshots
    redistribution      who consumes which in-flight records
    stored_watermarks   how far event time had come
    starting_point      all of that together
    preparing_events    what a preparation orders, and hears of it
    choosing            which checkpoint, and which one if it is damaged
    preparing           all steps of a preparation, in order: `Preparation.handle`
"""
