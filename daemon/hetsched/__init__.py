"""The scheduler's core: events in, actions out. Pure: no I/O, no clock, no randomness.

`Scheduler.handle(event, now)` is the only mutator. The daemon's loop and the
simulator are two shells around it. `build` says where its modules come from.
"""

from hetsched.build import COMPILED

if COMPILED is not None:
    __path__.insert(0, str(COMPILED))
