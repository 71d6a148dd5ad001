"""The worker: the process that executes tasks for hetd."""
