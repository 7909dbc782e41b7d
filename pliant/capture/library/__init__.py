"""Knowledge of code that can't be followed, by subject: the language (`python`), the standard
library (`stdlib`), PyTorch (`torch`) and NumPy (`numpy`).

Importing this package fills the tables of `native`. A module that registers handlers stands in the
list below, and nowhere else.
"""

from importlib import import_module

# In this order: a later module may replace or extend a handler of an earlier one.
MODULES = (
    "python.builtins",
    "python.buffers",
    "python.class_bodies",
    "python.classes",
    "python.dict_views",
    "python.evaluation",
    "python.exception_groups",
    "python.exceptions",
    "python.frames",
    "python.functions",
    "python.identities",
    "python.iteration",
    "python.mappings",
    "python.numbers",
    "python.objects",
    "python.pattern_matching",
    "python.printing",
    "python.sequences",
    "python.sets",
    "python.strings",
    "python.symbolic_numbers",
    "stdlib.context_variables",
    "stdlib.copying",
    "stdlib.dates",
    "stdlib.decimals",
    "stdlib.deques",
    "stdlib.functional",
    "stdlib.hashes",
    "stdlib.heapq_bisect",
    "stdlib.interpreter",
    "stdlib.logs",
    "stdlib.lru_caches",
    "stdlib.pure_functions",
    "stdlib.random_numbers",
    "stdlib.regular_expressions",
    "stdlib.serialization",
    "stdlib.structs",
    "stdlib.threads",
    "stdlib.type_variables",
    "stdlib.warnings",
    "stdlib.weak_references",
    "torch.backward",
    "torch.compiled_modules",
    "torch.control_flow",
    "torch.custom_functions",
    "torch.devices",
    "torch.directives",
    "torch.forward_ad",
    "torch.graph_objects",
    "torch.lazy_modules",
    "torch.module_hooks",
    "torch.parameters",
    "torch.random_state",
    "torch.shortcuts",
    "torch.symbolic_functions",
    "torch.tensor_data",
    "torch.tensor_hooks",
    "torch.tensor_subclasses",
    "torch.torch_function",
    "torch.subgraph_operators",
    "torch.transforms",
    "numpy.arrays",
    "numpy.generators",
    "numpy.scalars",
)

for _module in MODULES:
    import_module(f"pliant.capture.library.{_module}")
