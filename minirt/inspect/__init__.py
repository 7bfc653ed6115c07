"""Looking into stored checkpoints: what they hold, value by value, without the job that wrote them.

    import minirt as rt

    checkpoint = rt.open_checkpoints("checkpoints/totals").latest()
    for key, value in checkpoint.operators["total"].state("value"):
        print(key, value)

Nothing is changed on storage, and reading runs no code that is stored there. What is stored is read in
ranges when it is asked for: figures of a large checkpoint cost next to nothing.
"""

from minirt.inspect.checkpoint import StoredCheckpoint, StoredOperator
from minirt.inspect.checkpoints import Checkpoints, open_checkpoints
from minirt.inspect.entries import StoredChannel, StoredEntries
from minirt.inspect.table import StoredTable

__all__ = [
    "Checkpoints",
    "StoredChannel",
    "StoredCheckpoint",
    "StoredEntries",
    "StoredOperator",
    "StoredTable",
    "open_checkpoints",
]
