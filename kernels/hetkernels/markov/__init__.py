"""Steady state of a Markov chain by power iteration, dense or sparse."""
