"""What travels between operators: batches of records, their wire form, and how keys are hashed."""
