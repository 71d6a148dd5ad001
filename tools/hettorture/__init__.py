"""Tortures hetd with kills, faults and seeded bugs, and judges it from outside."""
