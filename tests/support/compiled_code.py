"""What pliant's own backend makes of a graph, stage by stage."""

from pliant.backends.compile_graph import GraphCompiler
from pliant.base.options import config
from pliant.sym.frozen import shapes_of


def compiled_code(gm, examples):
    return GraphCompiler(gm, shapes_of(gm.meta), config.snapshot()).compile(examples)
