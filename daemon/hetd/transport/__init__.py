"""ZeroMQ: one ROUTER on an ipc path, with the kernel's word on who the peers are."""
