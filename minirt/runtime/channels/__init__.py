"""Between subtasks: frames, credit, queues, and how records are dealt to receivers."""
