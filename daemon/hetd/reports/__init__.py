"""Reports of workers and launchers, turned into events of the scheduler."""
