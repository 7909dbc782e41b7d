"""Measurements, always side by side with eager PyTorch and stock torch.compile, in one run.

`python -m benchmarks NAME` runs one; `python -m benchmarks` lists them. Numbers are medians of many
repetitions; what counts is the ratio, because machines differ.
"""
