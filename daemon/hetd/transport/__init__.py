"""ZeroMQ: one ROUTER on an ipc path; the kernel authenticates its peers."""
