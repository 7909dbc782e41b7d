"""Why was it compiled again? Why is there a graph break? Ask the logs and the counters.

    python examples/debugging.py

The same logs without a change of the program: PLIANT_LOGS=recompiles,graph_breaks python program.py
"""

import sys

import torch

import pliant


@pliant.compile
def normalize(x, eps):
    largest = x.abs().max()
    if largest.item() > 3:
        print("large:", largest.item())
    return x / (largest + eps)


@pliant.compile(fullgraph=True)
def normalize_quietly(x, eps):
    return x / (x.abs().max() + eps)


def title(text):
    print(f"\n# {text}", flush=True)


def main():
    sys.stderr = sys.stdout  # logs go to stderr; here they are to appear in their place
    x = torch.tensor([1.0, -4.0])

    title("The first call: where are the graph breaks?")
    pliant.set_logs(graph_breaks=True)
    normalize(x, 0.0)
    print("graph breaks by cause:", pliant.counters.breaks)

    title("The same as an error: the first obstacle to a single graph")
    try:
        pliant.compile(normalize, fullgraph=True)(x, 0.0)
    except pliant.errors.PliantError as error:
        print(f"{error.code}, line {error.position.line}: {error.remedy}")

    title("Without them, one graph. But why is it compiled twice?")
    pliant.counters.reset()
    pliant.set_logs(recompiles=True)
    for eps in (0.0, 0.0, 0.5):
        normalize_quietly(x, eps)
    print(f"compilations: {pliant.counters['compilations']}")

    title("A tensor's contents are not assumed: one compilation for every value")
    pliant.reset()
    for eps in (0.0, 0.5, 1.0):
        normalize_quietly(x, torch.tensor(eps))
    print(f"compilations: {pliant.counters['compilations']}")


if __name__ == "__main__":
    main()
