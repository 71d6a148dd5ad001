"""Expected execution times and how live strips correct them. Pure."""
