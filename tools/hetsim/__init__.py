"""The simulator: a second shell around `hetsched`, compiled where that is (`hetsched.build`)."""

from pathlib import Path

from hetsched import build

if build.COMPILED is not None:
    _compiled, _ = build.find_compiled(Path(__file__).parent)
    if _compiled is not None:
        __path__.insert(0, str(_compiled))
