"""What holds in tests of GPUs: there is one, and its memory is free again afterwards."""

import pytest
import torch


def pytest_collection_modifyitems(items) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if "tests/gpu/" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="there is no GPU"))


@pytest.fixture(autouse=True)
def free_memory():
    yield
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
