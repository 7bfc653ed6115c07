"""The ends of a job: what a source and a sink must offer, and the built-in ones."""
