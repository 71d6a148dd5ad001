"""The learned policy's network: its weights, what it sees of a decision, and its scores.

NumPy is imported by these modules only; a policy imports them when it is first used.
"""
