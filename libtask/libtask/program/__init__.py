"""Stand-alone programs: `libtask.main`, with a daemon and without one."""
