"""In a thread of the user's program: the loop that decides what a job does, and has it done."""
