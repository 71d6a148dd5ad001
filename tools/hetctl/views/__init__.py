"""Tasks and resources as text, rows and sums, for several commands."""
