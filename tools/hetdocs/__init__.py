"""Pages of the documentation that are generated from the code; used by `make docs`."""
