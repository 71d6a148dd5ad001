"""Kernels, one folder each: CPU, OpenCL GPU, OpenCL FPGA and a reference."""
