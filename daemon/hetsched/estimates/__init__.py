"""Expected execution times and how live strips correct them. Pure."""

from hetsched.build import COMPILED

if COMPILED is not None:
    __path__.insert(0, str(COMPILED / "estimates"))
