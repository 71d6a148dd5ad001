"""Devices: which there are, whether they work, and the energy that tasks are charged."""
