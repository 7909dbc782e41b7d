"""Packages beside the standard library and PyTorch."""
