"""Libraries that call torch.compile themselves run pliant's code where it is installed."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pliant
from benchmarks.model_zoo import build, tokens
from pliant.base import events

pytestmark = [pytest.mark.models, pytest.mark.own_default]


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.second(self.first(x).relu())


@pytest.fixture
def generated():
    """The names of what became code, with pliant installed."""
    names = []

    def listener(event):
        if isinstance(event, events.CodeGenerated):
            names.append(event.function)

    with pliant.install(), events.listening(listener), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pliant.errors.PliantWarning)
        yield names


def test_generate_of_transformers_with_a_static_cache(generated):
    from transformers import CompileConfig

    model = build("llama")
    prompt = tokens(2, 5)
    greedy = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **greedy)
    assert generated == []
    config = CompileConfig()
    config._compile_all_devices = True  # transformers compiles on GPUs alone, unless told to
    actual = model.generate(prompt, cache_implementation="static", compile_config=config, **greedy)
    assert torch.equal(actual, expected)
    assert generated
    assert pliant.counters["fallbacks"] == pliant.counters["graph_breaks"] == 0


def test_pipeline_of_diffusers(generated):
    import diffusers

    torch.manual_seed(0)
    blocks = {
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "norm_num_groups": 8,
    }
    unet = diffusers.UNet2DModel(sample_size=8, in_channels=3, out_channels=3, **blocks)
    pipeline = diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler(num_train_timesteps=20))
    pipeline.set_progress_bar_config(disable=True)

    def images(count):
        generator = torch.Generator().manual_seed(0)
        steps = {"num_inference_steps": 4, "output_type": "np"}
        return torch.from_numpy(pipeline(batch_size=count, generator=generator, **steps).images)

    expected = [images(count) for count in (2, 3)]
    assert generated == []
    pipeline.unet.compile()
    actual = [images(count) for count in (2, 3)]
    torch.testing.assert_close(actual, expected)
    assert generated
    assert pliant.counters["fallbacks"] == pliant.counters["graph_breaks"] == 0
    assert pliant.counters["compilations"] <= 2


def test_compiled_by_accelerate(generated):
    import accelerate

    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True, dynamo_backend="inductor")
    torch.manual_seed(0)
    model = Toy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(16, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(3):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert any(name.endswith(" backward") for name in generated)
    assert sorted(accelerator.get_state_dict(model)) == sorted(Toy().state_dict())


def test_compiled_by_transformers_trainer(generated, tmp_path):
    from transformers import Trainer, TrainingArguments

    model = build("gpt2")
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2, report_to=[],
        torch_compile=True, use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    data = [{"input_ids": row, "labels": row} for row in tokens(6, 8)]
    Trainer(model, arguments, train_dataset=data).train()
    assert any(name.endswith(" backward") for name in generated)


def test_compiled_by_fabric(generated):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    torch.manual_seed(0)
    compiled = torch.compile(Toy())
    model, optimizer = fabric.setup(compiled, torch.optim.SGD(compiled.parameters(), lr=0.01))
    loss = model(torch.randn(4, 4)).square().mean()
    fabric.backward(loss)
    optimizer.step()
    assert any(name.endswith(" backward") for name in generated)


def test_a_compiled_module_of_lightning(generated):
    import lightning

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Toy()

        def _loss(self, batch):
            inputs, targets = batch
            return nn.functional.mse_loss(self.model(inputs), targets)

        def training_step(self, batch):
            loss = self._loss(batch)
            self.log("loss", loss)  # outside of the graph
            return loss

        def validation_step(self, batch):
            return self._loss(batch)

        def predict_step(self, batch):
            return self.model(batch[0]) * 2

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    x = torch.randn(16, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    tasks = [Task(), Task()]
    tasks[1].load_state_dict(tasks[0].state_dict())
    predicted = []
    for task in (tasks[0], torch.compile(tasks[1])):
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        assert task is not tasks[1] or not generated
        trainer.fit(task, loader, loader)
        predicted.append(torch.cat(trainer.predict(task, loader)))
    torch.testing.assert_close(*predicted)
    for name in ("training_step", "training_step backward", "validation_step", "predict_step"):
        assert any(other.startswith(name) for other in generated), generated
    assert pliant.counters["uncompiled_methods"] == 0


def test_compiled_in_a_module_of_lightning(generated):
    import lightning

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch.compile(Toy())

        def training_step(self, batch):
            inputs, targets = batch
            return nn.functional.mse_loss(self.model(inputs), targets)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    x = torch.randn(16, 4)
    task = Task()
    before = [p.detach().clone() for p in task.parameters()]
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4))
    assert not any(map(torch.equal, before, task.parameters()))
    assert any(name.endswith(" backward") for name in generated)
