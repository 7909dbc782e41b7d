"""A backend of your own: a function from a graph to something that can be called.

    python examples/backend.py

A backend gets a `torch.fx.GraphModule` and the inputs of the call that made it necessary, and
returns what is to run instead. One written for torch.compile has the same form and works as it is.
"""

import operator

import torch

import pliant


@pliant.register_backend
def merge_scaling(graph_module, example_inputs):
    """Replace `x * a * b`, with numbers a and b, by `x * (a * b)`."""
    graph = graph_module.graph
    for node in graph.nodes:
        if node.target is not operator.mul or not isinstance(node.args[1], int | float):
            continue
        inner = node.args[0]
        if inner.target is operator.mul and isinstance(inner.args[1], int | float):
            node.args = (inner.args[0], inner.args[1] * node.args[1])
    graph.eliminate_dead_code()
    graph_module.recompile()
    shapes = [tuple(tensor.shape) for tensor in example_inputs]
    print(f"compiling a graph for inputs of {shapes}:\n{graph_module.code.strip()}")
    return graph_module.forward


@pliant.compile(backend="merge_scaling")
def f(x, y):
    z = x * 2 * 3 * 4
    return z + y


def main():
    x, y = torch.ones(2), torch.arange(2.0)
    print("backends:", ", ".join(pliant.list_backends()))
    print("result:", f(x, y))
    print("again, nothing to compile:", f(y, x))


if __name__ == "__main__":
    main()
