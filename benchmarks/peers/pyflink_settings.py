"""How PyFlink runs the jobs of benchmarks: Python functions in threads of the JVM, no restarts."""

from __future__ import annotations

import os
import sys

from pyflink.common import Configuration


def configuration(storage: str) -> Configuration:
    """`storage` is the folder for checkpoints."""
    # The JVM embeds an interpreter of its own, which does not know of the virtual environment.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    configuration = Configuration()
    configuration.set_string("python.execution-mode", "thread")
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("restart-strategy.type", "none")
    configuration.set_string("state.backend.type", "hashmap")
    configuration.set_string("execution.checkpointing.dir", f"file://{storage}")
    return configuration
