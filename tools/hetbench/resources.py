"""What the daemons of measurements own where the processors do not matter."""

CPU_ONLY = """
[[resource]]
name = "cpu"
kind = "cpu"
slots = 2
"""
