"""One subtask, wherever it runs: its input, its chain of operators and its snapshots."""
