"""Users whom the daemon believes."""

from __future__ import annotations

import os

TRUSTED = frozenset({0, os.getuid()})
"""Root and the daemon's own user: they can do more than what their workers report or send."""
