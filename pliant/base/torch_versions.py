"""What the installed PyTorch does, where the versions that pliant supports differ."""

from __future__ import annotations

from typing import Final

import torch

_VERSION: Final = torch.torch_version.TorchVersion(torch.__version__)

SCANS_STACK_ALONG_DIM: Final = _VERSION >= "2.12"
"""Whether `scan` stacks its results along the dimension that it goes along; in front before."""

MSE_GRADIENT_PROMOTES: Final = _VERSION >= "2.12"
"""Whether the backward of `mse_loss` takes a target of another dtype; an error before."""
