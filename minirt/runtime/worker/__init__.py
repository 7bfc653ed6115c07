"""In a worker process: the loop, its threads, and how the process comes about."""
