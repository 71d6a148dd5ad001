"""Pages of the documentation that are made of the code; used by `make docs`."""
