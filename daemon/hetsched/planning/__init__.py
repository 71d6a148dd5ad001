"""The mathematics that several policies share. Pure."""

from hetsched.build import COMPILED

if COMPILED is not None:
    __path__.insert(0, str(COMPILED / "planning"))
