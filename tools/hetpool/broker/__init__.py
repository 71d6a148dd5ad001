"""The side of the scheduler: where jobs go, and what happens when nodes are lost."""
