"""The job as data: what the user wrote (job graph) and what is run (execution graph)."""
