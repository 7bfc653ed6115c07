"""How a job is written: environments, streams and what is refused before anything runs."""
