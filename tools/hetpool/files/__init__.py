"""Files of a node: their names by content, and the transfers into it."""
