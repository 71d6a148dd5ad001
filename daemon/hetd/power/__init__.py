"""Power: meters of the machine, and the book that charges their energy to tasks."""
