"""Loops become Triton kernels for GPUs, printed as source that can be read."""
