"""The demonstration: the main job, end to end, on this machine."""
