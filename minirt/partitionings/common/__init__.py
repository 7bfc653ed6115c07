"""What partitionings are written with."""
