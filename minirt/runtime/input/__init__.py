"""Where a subtask takes its elements from: channels, a source, and what was in flight."""
