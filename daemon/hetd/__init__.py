"""The runtime daemon: an arbiter that decides which task uses which resource."""

__version__ = "0.1.0"
