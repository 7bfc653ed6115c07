"""One implementation for each operator of the job graph."""
