"""Setting up: `pool.toml`, certificates, addresses, and the processes of a machine."""
