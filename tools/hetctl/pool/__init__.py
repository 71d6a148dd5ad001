"""The verbs of `hetctl pool`, by subject; `hetctl.commands.pool` has the table."""
