"""Heat transfer on a 2-D grid: an explicit five-point stencil, several steps a pass."""
