"""The runtime daemon: an arbiter that decides which task uses which resource."""
