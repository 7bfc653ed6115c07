"""What users need to test their own jobs, sources and sinks."""
