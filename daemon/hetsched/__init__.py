"""The scheduler's core: events in, actions out. Pure: no I/O, no clock, no randomness.

`Scheduler.handle(event, now)` is the only mutator. The daemon's loop and the
simulator are two shells around it.
"""
