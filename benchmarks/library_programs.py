"""Real programs, for `python -m benchmarks breaks`: those of other packages, and our own.

A program is made for a compiler: `make(compile)` builds the model and gives what to call. That lets
a program compile a part of itself, as `generate` does. Packages are imported when a program is
made, because most of them are not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.model_zoo import INPUTS, MODELS, build, text, tokens
from benchmarks.own_programs import OWN

Compile = Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True, slots=True)
class Program:
    """`inputs` gives, for a batch and a length, the arguments: a dict of named ones, or a tuple."""

    name: str
    package: str
    make: Callable[[Compile], Callable[..., Any]]
    inputs: Callable[[int, int], Any]
    grad: bool = False


def forward(name: str, compile: Compile) -> Callable[..., Any]:
    return compile(build(name))


def generate(name: str, compile: Compile) -> Callable[..., Any]:
    """20 tokens, greedily, with a compiled `forward`."""
    model: Any = build(name)
    model.forward = compile(model.forward)
    return partial(model.generate, max_new_tokens=20, do_sample=False, pad_token_id=0)


def einops_functions(compile: Compile) -> Callable[..., Any]:
    from einops import einsum, rearrange, reduce, repeat

    def function(x: torch.Tensor) -> torch.Tensor:
        heads = rearrange(x, "b t (h d) -> b h t d", h=4)
        weights = einsum(heads, heads, "b h i d, b h j d -> b h i j").softmax(-1)
        mixed = rearrange(weights @ heads, "b h t d -> b t (h d)")
        return mixed + repeat(reduce(x, "b t d -> b d", "mean"), "b d -> b t d", t=x.shape[1])

    return compile(function)


def einops_layers(compile: Compile) -> Callable[..., Any]:
    from einops.layers.torch import Rearrange, Reduce

    return compile(
        nn.Sequential(
            Rearrange("b t (g d) -> b t g d", g=4),
            nn.Linear(8, 8),
            Reduce("b t g d -> b g d", "max"),
            Rearrange("b g d -> b (g d)"),
        )
    )


def x_transformer(compile: Compile) -> Callable[..., Any]:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True)
    return compile(TransformerWrapper(num_tokens=100, max_seq_len=64, attn_layers=layers).eval())


def x_transformer_generate(compile: Compile) -> Callable[..., Any]:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4)
    model: Any = TransformerWrapper(num_tokens=100, max_seq_len=64, attn_layers=layers).eval()
    model.forward = compile(model.forward)
    wrapper = AutoregressiveWrapper(model)
    return lambda ids: wrapper.generate(ids, 10, temperature=0.0)


def vector_quantize(compile: Compile) -> Callable[..., Any]:
    from vector_quantize_pytorch import VectorQuantize

    return compile(VectorQuantize(dim=32, codebook_size=16).eval())


def residual_quantize(compile: Compile) -> Callable[..., Any]:
    from vector_quantize_pytorch import ResidualVQ

    return compile(ResidualVQ(dim=32, codebook_size=16, num_quantizers=3).eval())


def torchmetrics_functions(compile: Compile) -> Callable[..., Any]:
    from torchmetrics.functional import mean_squared_error, pairwise_cosine_similarity

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return mean_squared_error(x, x * 0.9), pairwise_cosine_similarity(x.flatten(0, 1))

    return compile(function)


def torchmetrics_accuracy(compile: Compile) -> Callable[..., Any]:
    from torchmetrics.functional.classification import multiclass_accuracy

    def function(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return multiclass_accuracy(logits, target, num_classes=5, validate_args=False)

    return compile(function)


def torchmetrics_module(compile: Compile) -> Callable[..., Any]:
    from torchmetrics import MeanSquaredError

    metric = MeanSquaredError()

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        metric.update(x, y)
        return metric.compute()

    return compile(step)


def ode(compile: Compile) -> Callable[..., Any]:
    from torchdiffeq import odeint

    net = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 32))

    def solve(x: torch.Tensor) -> torch.Tensor:
        return odeint(lambda t, y: net(y), x, torch.linspace(0, 1, 5), method="dopri5")

    return compile(solve)


def canny(compile: Compile) -> Callable[..., Any]:
    from kornia.filters import canny

    return compile(lambda image: canny(image))


def augment(compile: Compile) -> Callable[..., Any]:
    from kornia.filters import gaussian_blur2d, sobel

    return compile(lambda image: sobel(gaussian_blur2d(image, (3, 3), (1.5, 1.5))))


def unet(compile: Compile) -> Callable[..., Any]:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return compile(model.eval())


def spherical_harmonics(compile: Compile) -> Callable[..., Any]:
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("4x0e + 4x1o", "1x0e + 1x1o", "4x0e + 4x1o")

    def function(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        sphere = o3.spherical_harmonics("1x0e + 1x1o", positions, normalize=True)
        return product(x, sphere)

    return compile(function)


def graph_network(layer: str, compile: Compile) -> Callable[..., Any]:
    import torch_geometric.nn as geometric

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            cls = getattr(geometric, layer)
            self.first, self.second = cls(32, 16), cls(16, 8)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x, edges).relu(), edges)

    return compile(Net().eval())


def graph_pooling(compile: Compile) -> Callable[..., Any]:
    from torch_geometric.nn import GCNConv, TopKPooling, global_mean_pool

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool = GCNConv(32, 16), TopKPooling(16, ratio=0.5)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            x, edges, _, batch, *_ = self.pool(self.conv(x, edges).relu(), edges)
            return global_mean_pool(x, batch)

    return compile(Net().eval())


def kernel(compile: Compile) -> Callable[..., Any]:
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    return compile(lambda x: kernel(x).to_dense())


def elbo(compile: Compile) -> Callable[..., Any]:
    import pyro
    from pyro import distributions
    from pyro.infer import Trace_ELBO

    def model(data: torch.Tensor) -> None:
        mean = pyro.sample("mean", distributions.Normal(torch.zeros(()), torch.ones(())))
        with pyro.plate("data", data.shape[0]):
            pyro.sample("seen", distributions.Normal(mean, 1.0), obs=data)

    def guide(data: torch.Tensor) -> None:
        where = pyro.param("where", lambda: torch.tensor(0.5))
        pyro.sample("mean", distributions.Normal(where, torch.tensor(0.2)))

    pyro.clear_param_store()
    loss = Trace_ELBO()
    return compile(lambda data: loss.differentiable_loss(model, guide, data))


def wavelets(compile: Compile) -> Callable[..., Any]:
    from pytorch_wavelets import DWTForward

    return compile(DWTForward(J=2, wave="db2", mode="zero"))


def yolo(compile: Compile) -> Callable[..., Any]:
    from ultralytics.nn.tasks import DetectionModel

    return compile(DetectionModel("yolov8n.yaml", ch=3, nc=4, verbose=False).eval())


def own(name: str, compile: Compile) -> Callable[..., Any]:
    return compile(OWN[name][0]())


def ids(batch: int, length: int) -> Any:
    return (tokens(batch, length),)


def features(batch: int, length: int) -> Any:
    return (torch.randn(batch, length, 32),)


def pair(batch: int, length: int) -> Any:
    return torch.randn(batch, length), torch.randn(batch, length)


def classes(batch: int, length: int) -> Any:
    return torch.randn(batch * length, 5), torch.randint(0, 5, (batch * length,))


def picture(batch: int, length: int, size: int = 4) -> Any:
    return (torch.rand(batch, 3, size * 4, size * 4),)


def graph(batch: int, length: int) -> Any:
    return torch.randn(length, 32), torch.randint(0, length, (2, batch * length))


def noisy(batch: int, length: int) -> Any:
    return torch.randn(batch, 3, 16, 16), torch.randint(0, 100, (batch,))


def points(batch: int, length: int) -> Any:
    return torch.randn(batch * length, 16), torch.randn(batch * length, 3)


TRANSFORMERS = [
    *(
        Program(name, "transformers", partial(forward, name), INPUTS.get(name, text))
        for name in MODELS
    ),
    *(
        Program(f"{name}, generate", "transformers", partial(generate, name), text)
        for name in ("gpt2", "llama")
    ),
]
OTHERS = [
    Program("einops functions", "einops", einops_functions, features),
    Program("einops layers", "einops", einops_layers, features),
    Program("x-transformers", "x_transformers", x_transformer, ids),
    Program("x-transformers, generate", "x_transformers", x_transformer_generate, ids),
    Program("vector quantization", "vector_quantize_pytorch", vector_quantize, features),
    Program("residual quantization", "vector_quantize_pytorch", residual_quantize, features),
    Program("torchmetrics functions", "torchmetrics", torchmetrics_functions, features),
    Program("torchmetrics accuracy", "torchmetrics", torchmetrics_accuracy, classes),
    Program("torchmetrics module", "torchmetrics", torchmetrics_module, pair),
    Program("torchdiffeq dopri5", "torchdiffeq", ode, features),
    Program("kornia canny", "kornia", canny, picture),
    Program("kornia blur, sobel", "kornia", augment, picture),
    Program("diffusers UNet2D", "diffusers", unet, noisy),
    Program("e3nn tensor product", "e3nn", spherical_harmonics, points),
    Program("geometric GCN", "torch_geometric", partial(graph_network, "GCNConv"), graph),
    Program("geometric GAT", "torch_geometric", partial(graph_network, "GATConv"), graph),
    Program("geometric SAGE", "torch_geometric", partial(graph_network, "SAGEConv"), graph),
    Program("geometric TopKPooling", "torch_geometric", graph_pooling, graph),
    Program("gpytorch kernel", "gpytorch", kernel, features),
    Program("pyro ELBO", "pyro", elbo, lambda batch, length: (torch.randn(batch * length),), True),
    Program("wavelets", "pytorch_wavelets", wavelets, picture),
    Program("YOLOv8", "ultralytics", yolo, partial(picture, size=16)),
]
OURS = [
    Program(name, "torch", partial(own, name), inputs, grad)
    for name, (_, inputs, grad) in OWN.items()
]
PROGRAMS: list[Program] = [*TRANSFORMERS, *OTHERS, *OURS]
