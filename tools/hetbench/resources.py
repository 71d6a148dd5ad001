"""The resources of benchmark daemons where the processors do not matter."""


def cpu_with(slots: int) -> str:
    """Return a configuration with a CPU of so many slots, and nothing else."""
    return f"""
[[resource]]
name = "cpu"
kind = "cpu"
slots = {slots}
"""


CPU_ONLY = cpu_with(2)
