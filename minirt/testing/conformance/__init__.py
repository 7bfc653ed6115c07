"""The conformance kit for checkpoint modes: random jobs, faults and rescales against one mode."""
