"""One file a command, or a few that differ in a word; `hetctl.__main__` has the table."""
