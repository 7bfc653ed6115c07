"""Stream processing in Python with exactly-once checkpoints and pluggable checkpoint modes.

    import minirt as rt

    env = rt.Environment(parallelism=2)

Layout:

    api         environments and streams: what users write, and what is refused before anything runs
    graph       the job as data: job graph, planner, execution graph, plan printer
    protocol    decides everything and does nothing: barriers, watermarks, checkpoints, restarts
    modes       the checkpoint modes, one file each
    operators   what runs in subtasks, one file for each kind
    partitionings   how records reach the subtasks of the next operator, one file each
    runtime     does everything and decides nothing: workers, channels, coordinator
    data        batches, their wire form, hashing of keys
    kernels     the loops over keys in columns, with numpy or compiled
    state       keyed state and timers
    storage     checkpoints on any fsspec file system
    io          sources and sinks for files, collections and the console

What users hand over or set:

    functions   process functions, for users to subclass
    watermarks  how event time is told
    aggregates  what keyed streams compute, for users to name and to subclass
    windows     which records of a stream count together
    config      every option and limit
    settings    options from TOML files, environment variables and assignments
    run_settings   what a single run is given besides the job
    clusters    hosts that a job runs on, if not on this machine alone
    units       "10s", "64KiB"
    keywords    keyword arguments that nothing takes, refused with the nearest one
    wording     settings as messages name them, in Python or in flags
    secret_texts   passwords and signatures of URLs, which no message may hold
    errors      one root, one child for each party that can err
    annotations   what signatures and annotations of users say, on every Python
    generics    what a Stream, a process function or a state can be said to hold
    version     which minirt this is

To watch, ask, look into and compare jobs:

    cli         the command line
    operations  running jobs as other processes of their user find and ask them
    monitoring  what a running job reports about itself
    ui          a job on a page in the browser
    bootstrap   savepoints from data, for jobs that start with a history
    inspect     looks into stored checkpoints: what they hold, value by value
    pictures    pictures of checkpoints
    advice      which option would change what holds a job up
    laboratory  one job under several settings, measured and compared
    testing     simulator, explorer, contracts and the conformance kit, for users too
    pytest_plugin   a fixture that runs a stream on lists, and simulates it

What many of these need:

    clock, threads, filesystems, standard_streams   each opened or started in one place
    by_value    pickles what travels to other processes, with the program's own functions
    script_classes  finds the classes of the program again when a value is read
    process_names   by which a dead process can be told from any other
    notebook    how values show themselves in notebooks
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minirt.aggregates import (
        Aggregate,
        ArgMax,
        ArgMin,
        Collect,
        Count,
        CountDistinct,
        First,
        Fold,
        Last,
        Max,
        Mean,
        Min,
        Quantile,
        StdDev,
        Sum,
        TopN,
        Variance,
    )
    from minirt.api.connected import ConnectedKeyedStreams, ConnectedStreams
    from minirt.api.environment import Environment
    from minirt.api.keyed_stream import KeyedStream
    from minirt.api.keywords import OperatorOptions, RunOptions
    from minirt.api.stream import Stream
    from minirt.api.windowed_stream import WindowedStream
    from minirt.bootstrap import SavepointWriter
    from minirt.clusters import HostCluster, Invitation, Launched, Reactive
    from minirt.config import Checkpointing, Limits, Options, Queues
    from minirt.errors import (
        BadRecordError,
        ConfigurationError,
        CorruptCheckpointError,
        JobFailedError,
        MinirtError,
        ProtocolError,
        SavepointFailedError,
        SinkDataError,
        SourceChangedError,
        SourceDataError,
        StorageError,
        SupersededError,
        UnsupportedValueError,
        UserCodeError,
        WorkerLostError,
    )
    from minirt.functions import (
        AsyncFunction,
        BroadcastProcess,
        KeyedContext,
        KeyedCoProcess,
        KeyedProcess,
        Process,
        ProcessContext,
        Retry,
        WindowContext,
        WindowProcess,
    )
    from minirt.inspect import Checkpoints, StoredCheckpoint, open_checkpoints
    from minirt.io import (
        BadRecord,
        CollectionSource,
        CollectSink,
        CsvSource,
        DiscardSink,
        JsonlSink,
        JsonlSource,
        ParquetSink,
        ParquetSource,
        Prepared,
        PrintSink,
        SequenceSource,
        Sink,
        SinkContext,
        SinkIdentity,
        SinkWriter,
        Source,
        Split,
        SplitReader,
    )
    from minirt.modes.aligned_with_timeout import AlignedWithTimeout
    from minirt.modes.epoch import Epoch
    from minirt.modes.uncoordinated import Uncoordinated
    from minirt.monitoring.figures import JobFigures
    from minirt.protocol.job_events import JobStatus
    from minirt.protocol.reasons import (
        CheckpointFailure,
        CheckpointFailureReason,
        GenerationFailureReason,
        SavepointFailureReason,
    )
    from minirt.protocol.reports import (
        ChannelReport,
        CheckpointReport,
        CheckpointStatus,
        CheckpointUnderWay,
        SubtaskReport,
    )
    from minirt.protocol.restarts import Restart
    from minirt.protocol.savepoint_requests import Savepoint
    from minirt.runtime.coordinator.observer import JobObserver, JobProgress
    from minirt.runtime.program.job import Job, JobResult
    from minirt.settings import JobSettings, load_settings
    from minirt.state.broadcast import BroadcastState
    from minirt.state.handles import ListState, MapState, ValueState
    from minirt.version import __version__
    from minirt.watermarks import WatermarkGenerator, Watermarks
    from minirt.windows import (
        AfterCount,
        AfterTime,
        CountWindow,
        GlobalWindow,
        Session,
        Sliding,
        Tumbling,
        Window,
    )

__all__ = [
    # writing a job
    "Environment",
    "Stream",
    "KeyedStream",
    "ConnectedStreams",
    "ConnectedKeyedStreams",
    "OperatorOptions",
    "WatermarkGenerator",
    "Watermarks",
    "Process",
    "KeyedProcess",
    "KeyedCoProcess",
    "BroadcastProcess",
    "BroadcastState",
    "ProcessContext",
    "KeyedContext",
    "AsyncFunction",
    "Retry",
    "Aggregate",
    "Sum",
    "Count",
    "Min",
    "Max",
    "Mean",
    "First",
    "Last",
    "Fold",
    "ArgMin",
    "ArgMax",
    "Collect",
    "CountDistinct",
    "Quantile",
    "StdDev",
    "TopN",
    "Variance",
    "WindowContext",
    "WindowProcess",
    "WindowedStream",
    "Window",
    "Tumbling",
    "Sliding",
    "Session",
    "CountWindow",
    "GlobalWindow",
    "AfterCount",
    "AfterTime",
    "ValueState",
    "ListState",
    "MapState",
    # running it
    "RunOptions",
    "Checkpointing",
    "AlignedWithTimeout",
    "Epoch",
    "Uncoordinated",
    "Options",
    "Limits",
    "Queues",
    "Reactive",
    "Restart",
    "HostCluster",
    "Invitation",
    "Launched",
    "Job",
    "JobResult",
    "JobStatus",
    "JobFigures",
    "JobObserver",
    "JobProgress",
    "CheckpointReport",
    "CheckpointStatus",
    "SubtaskReport",
    "ChannelReport",
    "CheckpointUnderWay",
    "Savepoint",
    "JobSettings",
    "load_settings",
    # built-in sources and sinks
    "ParquetSource",
    "JsonlSource",
    "CsvSource",
    "CollectionSource",
    "SequenceSource",
    "ParquetSink",
    "JsonlSink",
    "PrintSink",
    "CollectSink",
    "DiscardSink",
    # sources and sinks of one's own
    "Source",
    "Split",
    "SplitReader",
    "BadRecord",
    "Sink",
    "SinkContext",
    "SinkIdentity",
    "SinkWriter",
    "Prepared",
    # looking into stored checkpoints
    "open_checkpoints",
    "Checkpoints",
    "StoredCheckpoint",
    "SavepointWriter",
    # which minirt this is
    "__version__",
    # what goes wrong
    "MinirtError",
    "ConfigurationError",
    "UserCodeError",
    "UnsupportedValueError",
    "SourceDataError",
    "BadRecordError",
    "SinkDataError",
    "SourceChangedError",
    "StorageError",
    "CorruptCheckpointError",
    "SavepointFailedError",
    "WorkerLostError",
    "JobFailedError",
    "SupersededError",
    "ProtocolError",
    "CheckpointFailure",
    "CheckpointFailureReason",
    "GenerationFailureReason",
    "SavepointFailureReason",
]

_NAMES_OF = {
    "minirt.aggregates": (
        "Aggregate ArgMax ArgMin Collect Count CountDistinct First Fold Last Max Mean Min "
        "Quantile StdDev Sum TopN Variance"
    ),
    "minirt.api.connected": "ConnectedKeyedStreams ConnectedStreams",
    "minirt.api.environment": "Environment",
    "minirt.api.keyed_stream": "KeyedStream",
    "minirt.api.keywords": "OperatorOptions RunOptions",
    "minirt.api.stream": "Stream",
    "minirt.api.windowed_stream": "WindowedStream",
    "minirt.bootstrap": "SavepointWriter",
    "minirt.clusters": "HostCluster Invitation Launched Reactive",
    "minirt.config": "Checkpointing Limits Options Queues",
    "minirt.errors": (
        "BadRecordError ConfigurationError CorruptCheckpointError JobFailedError MinirtError ProtocolError "
        "SavepointFailedError SinkDataError SourceChangedError SourceDataError StorageError "
        "SupersededError UnsupportedValueError UserCodeError WorkerLostError"
    ),
    "minirt.functions": (
        "AsyncFunction BroadcastProcess KeyedContext KeyedCoProcess KeyedProcess Process "
        "ProcessContext Retry WindowContext WindowProcess"
    ),
    "minirt.inspect": "Checkpoints StoredCheckpoint open_checkpoints",
    "minirt.io": (
        "BadRecord CollectionSource CollectSink CsvSource DiscardSink JsonlSink JsonlSource "
        "ParquetSink ParquetSource Prepared PrintSink SequenceSource Sink SinkContext "
        "SinkIdentity SinkWriter Source Split SplitReader"
    ),
    "minirt.modes.aligned_with_timeout": "AlignedWithTimeout",
    "minirt.modes.epoch": "Epoch",
    "minirt.modes.uncoordinated": "Uncoordinated",
    "minirt.monitoring.figures": "JobFigures",
    "minirt.protocol.job_events": "JobStatus",
    "minirt.protocol.reasons": (
        "CheckpointFailure CheckpointFailureReason GenerationFailureReason SavepointFailureReason"
    ),
    "minirt.protocol.reports": (
        "ChannelReport CheckpointReport CheckpointStatus CheckpointUnderWay SubtaskReport"
    ),
    "minirt.protocol.restarts": "Restart",
    "minirt.protocol.savepoint_requests": "Savepoint",
    "minirt.runtime.coordinator.observer": "JobObserver JobProgress",
    "minirt.runtime.program.job": "Job JobResult",
    "minirt.settings": "JobSettings load_settings",
    "minirt.state.broadcast": "BroadcastState",
    "minirt.state.handles": "ListState MapState ValueState",
    "minirt.version": "__version__",
    "minirt.watermarks": "WatermarkGenerator Watermarks",
    "minirt.windows": (
        "AfterCount AfterTime CountWindow GlobalWindow Session Sliding Tumbling Window"
    ),
}
"""The public names, by the module that defines them. It is imported when one of them is first asked for."""

_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # Else type checkers would take any name for one of ours.

    def __getattr__(name: str) -> Any:
        """Import what was asked for: a command or a job needs little of all that there is."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        except RuntimeError:
            from minirt.threads import naming_the_end_of_the_program

            with naming_the_end_of_the_program():
                raise
        return found
