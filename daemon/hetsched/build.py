"""Which build of this package runs: its sources, or modules compiled from them.

The optional wheel hetd-compiled (`make wheels`, `daemon/compiled`) holds most modules of this
package, and the simulator's that pass events to it, compiled by mypyc. The packages look for
their modules there first, but only if they were made from exactly these sources. Both builds
make the same decisions (`python -m torture builds`). The environment variable
`HETD_COMPILED=0` selects the sources.
"""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path(__file__).parent
WHEEL = "hetd_compiled"
DIGEST = "digest.txt"
"""The file beside a package's compiled modules with the digest of their sources."""


def digest_of(sources: Path) -> str:
    """Return a digest of all modules in a folder and of their places there."""
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*.py")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(sources)} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()


def find_compiled(sources: Path) -> tuple[Path | None, str]:
    """Find the compiled modules of a package.

    Args:
        sources: the package's folder.

    Returns:
        their folder, None if the sources run; and why an installed wheel is not used.

    """
    if os.environ.get("HETD_COMPILED") == "0":
        return None, ""
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return None, ""
    folder = Path(spec.origin).parent / sources.name
    try:
        made_from = (folder / DIGEST).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        return None, f"the wheel in {folder} is not used: {error}"
    if made_from != digest_of(sources):
        return None, (
            f"the wheel in {folder} is not used: it was compiled from other sources than "
            f"those in {sources}; make it again (make wheels)"
        )
    return folder, ""


COMPILED, FAULT = find_compiled(SOURCES)
NAME = "pure" if COMPILED is None else "compiled"
"""The build that runs."""
