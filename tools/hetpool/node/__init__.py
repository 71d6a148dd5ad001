"""The side of a node: its agent, which runs jobs through the node's hetd."""
