"""The commands of `hetsim`, one file each."""
