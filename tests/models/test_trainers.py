"""Libraries that train a module they are given: the compiled one is called, and trains as eager."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import pliant
from benchmarks.model_zoo import build, tokens
from pliant.base import events

pytestmark = pytest.mark.models

STEPS = 6


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.second(self.first(x).relu())


def data():
    torch.manual_seed(1)
    x = torch.randn(4 * STEPS, 4)
    return x, x.sum(1, keepdim=True)


def both(train, make=Toy):
    """Train a module in eager and compiled: the same parameters, by calls of compiled code in both
    directions."""
    found, programs = [], []
    for wrap in (lambda model: model, lambda model: pliant.compile(model, backend="llvm")):
        torch.manual_seed(0)
        model = make()
        given = wrap(model)
        pliant.counters.reset()
        with warnings.catch_warnings(), events.listening(programs.append):
            warnings.simplefilter("ignore")
            train(given)
        found.append([p.detach().clone() for p in model.parameters()])
        torch.manual_seed(0)
        start = list(make().parameters())
        assert not all(map(torch.equal, found[-1], start))  # it has learned
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs)
    assert pliant.counters["compilations"] >= 1
    assert pliant.counters["fallbacks"] == pliant.counters["uncompiled_methods"] == 0
    generated = [e.function for e in programs if isinstance(e, events.CodeGenerated)]
    assert any(name.endswith(" backward") for name in generated)
    assert pliant.counters["not_generated"] == 0
    hits = sum(entry.hits for entry in given._dispatcher.entries)
    assert hits >= STEPS


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate(precision):
    import accelerate

    def train(model):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(*data()), batch_size=4)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        assert len(accelerator.get_state_dict(model)) == 4

    both(train)


class Sentences(Dataset):
    def __len__(self):
        return 2 * STEPS

    def __getitem__(self, i):
        torch.manual_seed(i)
        ids = tokens(1, 8)[0]
        return {"input_ids": ids, "labels": ids}


def test_trainer_of_transformers(tmp_path):
    import transformers

    def train(model):
        settings = transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=2, max_steps=STEPS, use_cpu=True,
            save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=1e-3, seed=0,
            logging_strategy="no",
        )  # fmt: skip
        trainer = transformers.Trainer(model=model, args=settings, train_dataset=Sentences())
        trainer.train()
        trainer.save_model(str(tmp_path / "saved"))
        transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path / "saved"))

    both(train, lambda: build("gpt2").train())


def test_lora_of_peft():
    import peft

    def make():
        settings = peft.LoraConfig(
            r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=0.1
        )
        return peft.get_peft_model(build("gpt2").train(), settings)

    def train(model):
        trained = [p for p in model.parameters() if p.requires_grad]
        assert 0 < len(trained) < len(list(model.parameters()))
        optimizer = torch.optim.AdamW(trained, lr=0.01)
        for step in range(STEPS + 2):
            torch.manual_seed(step)
            ids = tokens(2, 8)
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    both(train, make)


def test_skorch():
    import skorch

    def train(model):
        x, y = data()
        net = skorch.NeuralNetRegressor(
            model, max_epochs=2, lr=0.01, batch_size=4, train_split=None, verbose=0
        )
        net.fit(x.numpy(), y.numpy())
        net.predict(x.numpy())

    both(train)


def test_lightning(tmp_path):
    import lightning

    class Wrapper(lightning.LightningModule):
        """Holds the module, as most do that compile it."""

        def __init__(self, net):
            super().__init__()
            self.net = net

        def training_step(self, batch, index):
            x, y = batch
            return nn.functional.mse_loss(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def train(model):
        loader = DataLoader(TensorDataset(*data()), batch_size=4)
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(tmp_path),
        )  # fmt: skip
        trainer.fit(Wrapper(model), loader)

    both(train)


def test_lightning_of_a_compiled_lightning_module(tmp_path):
    import lightning

    class Whole(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Toy()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            x, y = batch
            return nn.functional.mse_loss(self(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def fit(model):
        torch.manual_seed(0)
        loader = DataLoader(TensorDataset(*data()), batch_size=4)
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(tmp_path),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(model, loader)

    torch.manual_seed(0)
    fit(expected := Whole())
    for compile in (pliant.compile, pliant.compile_module):
        torch.manual_seed(0)
        model = Whole()
        pliant.counters.reset()
        fit(compile(model))
        for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs)
        assert pliant.counters["compilations"] > 0
        assert pliant.counters["uncompiled_methods"] == 0
