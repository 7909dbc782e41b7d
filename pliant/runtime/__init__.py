"""What happens at run time around native code: residual functions, resume functions, tracebacks."""
