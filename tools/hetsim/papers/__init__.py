"""The papers whose tables and figures `hetsim paper` re-makes."""
