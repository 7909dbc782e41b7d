"""The front end: follows a function's bytecode and turns it into a graph, guards and residual
code."""
