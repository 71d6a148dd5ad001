"""Banerjee et al.: jobs as graphs of kernels, among tenants that nobody reports."""
