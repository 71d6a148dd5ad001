"""The simulator: a second shell around `hetd.core`."""
