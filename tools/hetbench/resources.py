"""The resources of benchmark daemons where the processors do not matter."""

CPU_ONLY = """
[[resource]]
name = "cpu"
kind = "cpu"
slots = 2
"""
