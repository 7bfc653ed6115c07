"""What is said about the splits of a source before anybody reads them."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from minirt.errors import ConfigurationError
from minirt.graph.job_graph import OperatorNode
from minirt.io.base import Split
from minirt.monitoring.logs import logger_of

logger = logger_of("coordinator")


def check_splits(splits: Sequence[Split], node: OperatorNode) -> None:
    """Warn of subtasks without any; raise ConfigurationError for splits that no checkpoint can hold."""
    for split in splits:
        try:
            msgpack.packb([split.id, dict(split.info)])
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"source {node.label}: split {split.id!a} cannot be stored in checkpoints ({error!a}); id "
                "and info of a split hold only values that msgpack carries"
            ) from error
    if 0 < len(splits) < node.parallelism:
        without = node.parallelism - len(splits)
        logger.warning(
            "source %s has %s for %d subtasks: %d of them %s nothing to read. Where that matters, give "
            "the source parallelism=%d, and let rebalance() follow it",
            node.label,
            "1 split" if len(splits) == 1 else f"{len(splits)} splits",
            node.parallelism,
            without,
            "has" if without == 1 else "have",
            len(splits),
        )
