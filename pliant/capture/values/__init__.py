"""The kinds of value, one module for each family of Python types."""
