"""Where the subtasks of a job run: the hosts, their templates, and the connections to the workers."""
