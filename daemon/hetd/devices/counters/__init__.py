"""Counters of what the node's resources share: where they are read, and by whom."""
