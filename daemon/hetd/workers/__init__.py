"""Workers: the pool that binds tasks to them, the commands they get, and the watchdog."""
