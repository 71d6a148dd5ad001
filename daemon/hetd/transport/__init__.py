"""ZeroMQ sockets, and the step from message to event."""
