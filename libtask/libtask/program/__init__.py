"""Stand-alone programs: `libtask.main`, with and without a daemon."""
