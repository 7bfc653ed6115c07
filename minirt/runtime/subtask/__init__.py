"""One subtask, wherever it runs: its loop, its chain of operators and its snapshots."""
