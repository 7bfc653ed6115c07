"""What users write jobs with: environments, streams, and checks before anything runs."""
