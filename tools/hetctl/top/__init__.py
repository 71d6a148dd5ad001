"""`hetctl top`: the node, live on a terminal."""
