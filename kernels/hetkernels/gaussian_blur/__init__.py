"""Gaussian blur of images: separable, edges reflected, any radius."""
