"""PyTorch's own tests of Dynamo, run against pliant: the parts of `tools/conformance.py`."""
