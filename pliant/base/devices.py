"""Devices that are named in many places. Made once: modes of the program would see each call."""

from __future__ import annotations

from typing import Final

import torch

CPU: Final = torch.device("cpu")
META: Final = torch.device("meta")
