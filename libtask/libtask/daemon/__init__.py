"""Daemons that are started from here: as processes, by their command line.

Nothing of `hetd` is imported. `process` starts one and ends it; `private` adds what makes
one private to a test or a program: it comes and goes with a block, and all its tasks too.
"""
