"""`hetctl web`: the node as a page on loopback."""
