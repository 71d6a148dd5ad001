"""Workers: the pool that binds tasks to them, their commands, and the watchdog."""
