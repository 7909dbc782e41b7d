"""Modules of the standard library."""
