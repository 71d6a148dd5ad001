"""Pearson correlation of a table's columns: the upper triangle of Z^T Z."""
