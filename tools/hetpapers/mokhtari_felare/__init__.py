"""mokhtari-felare: mapping with deadlines, energy and fairness on an edge node."""
