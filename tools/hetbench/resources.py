"""The resources of benchmark daemons where the processors do not matter."""


def cpu_with(slots: int) -> str:
    """Return a configuration with one resource, a CPU of `slots` slots."""
    return f"""
[[resource]]
name = "cpu"
kind = "cpu"
slots = {slots}
"""


CPU_ONLY = cpu_with(2)
