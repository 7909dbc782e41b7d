"""The cheapest nodes between a source and a sink, against trying every set of nodes."""

import itertools
import random

import pytest

from pliant.graph.min_cut import SINK, SOURCE, UNLIMITED, FlowNetwork


def separates(removed, edges) -> bool:
    reached, waiting = {SOURCE}, [SOURCE]
    while waiting:
        node = waiting.pop()
        for start, end in edges:
            if start == node and end not in reached and end not in removed:
                reached.add(end)
                waiting.append(end)
    return SINK not in reached


def cheapest(costs, edges) -> float:
    sets = itertools.chain.from_iterable(
        itertools.combinations(costs, count) for count in range(len(costs) + 1)
    )
    return min((sum(costs[n] for n in s) for s in sets if separates(s, edges)), default=UNLIMITED)


@pytest.mark.parametrize("seed", range(60))
def test_random_networks(seed: int) -> None:
    rng = random.Random(seed)
    costs = {n: rng.choice([1.0, 2.0, 3.5, 10.0]) for n in range(rng.randint(1, 9))}
    pairs = [(a, b) for a in costs for b in costs if a < b]
    edges = [pair for pair in pairs if rng.random() < 0.4]
    edges += [(SOURCE, n) for n in costs if rng.random() < 0.4]
    edges += [(n, SINK) for n in costs if rng.random() < 0.4]
    network = FlowNetwork()
    for node, cost in costs.items():
        network.add(node, cost)
    for start, end in edges:
        network.edge(start, end)
    cut = network.cut()
    assert separates(set(cut), edges)
    assert sum(costs[n] for n in cut) == cheapest(costs, edges)


def test_the_last_of_equal_cuts() -> None:
    network = FlowNetwork()
    for node in range(3):
        network.add(node, 1.0)
        network.edge(node - 1 if node else SOURCE, node)
    network.edge(2, SINK)
    assert network.cut() == [2]


def test_edges_with_a_cost() -> None:
    """What lies behind the cut and has a price is paid for."""
    for price, expected in ((0.5, ["input"]), (4.0, ["result"])):
        network = FlowNetwork()
        network.add("input", 1.0)
        network.add("result", 2.0)
        network.edge(SOURCE, "input")
        network.edge(SOURCE, "result", price)
        network.edge("input", "result")
        network.edge("result", SINK)
        assert network.cut() == expected


def test_no_cut() -> None:
    network = FlowNetwork()
    network.add("only", UNLIMITED)
    network.edge(SOURCE, "only")
    network.edge("only", SINK)
    with pytest.raises(ValueError, match="nothing can be removed"):
        network.cut()


def test_long_chains() -> None:
    """Paths of any length, without recursion."""
    network = FlowNetwork()
    for node in range(20_000):
        network.add(node, 2.0 if node != 7_000 else 1.0)
        network.edge(node - 1 if node else SOURCE, node)
    network.edge(19_999, SINK)
    assert network.cut() == [7_000]
