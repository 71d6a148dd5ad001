"""The simulator: a second shell around `hetsched`."""
