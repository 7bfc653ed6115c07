"""In the process of the user's program: how a job is started, watched, asked and ended."""
