"""Export to ONNX by tracing, which the onnx package is needed for."""

import io

import pytest
import torch

from pliant.base import events
from tests.test_tracers import CASES, Around, X, is_compiled_afterwards

pytestmark = pytest.mark.models


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_export(name, warm):
    compiled = CASES[name]()
    if warm:
        compiled(X)
    events.counters.reset()
    module = compiled if isinstance(compiled, torch.nn.Module) else Around(compiled)
    buffer = io.BytesIO()
    torch.onnx.export(module, (X,), buffer, dynamo=False)
    assert b"Relu" in buffer.getvalue()
    is_compiled_afterwards(compiled)
