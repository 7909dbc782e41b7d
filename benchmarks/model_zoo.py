"""Networks of the transformers library at toy sizes, with random weights; nothing is downloaded.

One table for the model tests and the benchmarks: what a model is called, which class and options
make it, and what it is called with.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch

SHAPES = ((2, 9), (3, 12), (1, 12))  # batch, length
TEXT = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
ENCODER = {**TEXT, "intermediate_size": 64}
DECODER = {**ENCODER, "num_key_value_heads": 2}
IMAGE = {**ENCODER, "image_size": 32, "patch_size": 8}
IMAGE.pop("vocab_size")
BOTH_SIDES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
T5 = {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
WHISPER = {
    **BOTH_SIDES, "vocab_size": 100, "num_mel_bins": 8, "max_source_positions": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
WAV2VEC2 = {
    **ENCODER, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
QWEN2_MOE = {
    **DECODER, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    "num_experts": 4,
}  # fmt: skip
REFORMER = {
    "vocab_size": 100, "hidden_size": 32, "attention_head_size": 8, "num_attention_heads": 4,
    "feed_forward_size": 64, "attn_layers": ["local", "lsh"], "axial_pos_embds": False,
    "max_position_embeddings": 64, "num_buckets": 4, "local_attn_chunk_length": 4,
    "lsh_attn_chunk_length": 4,
}  # fmt: skip
# The class, which its configuration is named after, and the options of that.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", ENCODER),
    "roberta": ("RobertaModel", ENCODER),
    "distilbert": (
        "DistilBertModel",
        {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    ),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "gpt_neox": ("GPTNeoXModel", ENCODER),
    "llama": ("LlamaForCausalLM", DECODER),
    "mistral": ("MistralModel", DECODER),
    "qwen2": ("Qwen2Model", DECODER),
    "gemma": ("GemmaModel", {**DECODER, "head_dim": 8}),
    "phi": ("PhiModel", ENCODER),
    "mixtral": ("MixtralModel", {**DECODER, "num_local_experts": 4}),
    "qwen2_moe": ("Qwen2MoeModel", QWEN2_MOE),
    "mamba": (
        "MambaModel",
        {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    ),
    "longformer": ("LongformerModel", {**ENCODER, "attention_window": 4}),
    "reformer": ("ReformerModel", REFORMER),
    "t5": ("T5Model", T5),
    "switch": ("SwitchTransformersModel", {**T5, "num_experts": 4}),
    "bart": ("BartModel", {**BOTH_SIDES, "vocab_size": 100}),
    "whisper": ("WhisperModel", WHISPER),
    "wav2vec2": ("Wav2Vec2Model", WAV2VEC2),
    "vit": ("ViTModel", IMAGE),
    "clip": (
        "CLIPModel",
        {"text_config": ENCODER, "vision_config": IMAGE, "projection_dim": 16},
    ),
    "detr": (
        "DetrModel",
        {
            **BOTH_SIDES, "use_timm_backbone": False, "use_pretrained_backbone": False,
            "num_queries": 5,
        },
    ),
}  # fmt: skip
RESNET = {
    "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "out_features": ["stage2"],
}  # fmt: skip


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 100, (batch, length))


def padding(batch: int, length: int) -> torch.Tensor:
    """An attention mask in which the first row is shorter than the others."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[0, -2:] = 0
    return mask


def text(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(batch, length)}


def two_texts(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens(batch, length), "decoder_input_ids": tokens(batch, length)}


def two_masked_texts(batch: int, length: int) -> dict[str, torch.Tensor]:
    ones = torch.ones(batch, length, dtype=torch.long)
    masks = {"attention_mask": ones, "decoder_attention_mask": ones.clone()}
    return {**two_texts(batch, length), **masks}


def image(batch: int, length: int, size: int = 32) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, size, size)}


INPUTS: dict[str, Callable[[int, int], dict[str, torch.Tensor]]] = {
    "t5": two_texts,
    "switch": two_masked_texts,
    "reformer": lambda batch, length: text(batch, 8 if length < 10 else 16),
    "whisper": lambda batch, length: {
        "input_features": torch.randn(batch, 8, 32),
        "decoder_input_ids": tokens(batch, length),
    },
    "wav2vec2": lambda batch, length: {"input_values": torch.randn(batch, 400 + 20 * length)},
    "vit": image,
    "clip": lambda batch, length: {**text(batch, length), **image(batch, length)},
    "detr": lambda batch, length: image(batch, length, 32 + 2 * length),
}

# Those that are measured with more layers, and how people call them.
LAYERED = {"bert": "BERT", "gpt2": "GPT-2", "llama": "Llama"}
# How many layers a model has, as its options call it.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
INSTALL = "pip install --no-deps --requirement tests/models/requirements.txt"


def transformers() -> Any:
    """The library, which is not needed for anything else."""
    if importlib.util.find_spec("transformers") is None:
        raise SystemExit(
            "This needs the transformers library. `make test-models` installs it, with what it "
            f"needs,\ninto .venv; or, which leaves torch as it is:\n    {INSTALL}"
        )
    library = importlib.import_module("transformers")
    library.logging.set_verbosity_error()
    return library


def build(name: str, layers: int | None = None, **changes: Any) -> torch.nn.Module:
    """The model of that name, in eval mode; with another number of layers than the table says, and
    other options."""
    library = transformers()
    class_name, options = MODELS[name]
    options = options | changes
    if layers is not None:
        options |= {option: layers for option in LAYERS if option in options}
    if name == "detr":
        options["backbone_config"] = library.ResNetConfig(**RESNET)
    cls = getattr(library, class_name)
    return cls(cls.config_class(**options)).eval()


def tensors(output: Any) -> list[torch.Tensor]:
    """All tensors of an output, in order: of containers, model outputs and key-value caches."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        return tensors(list(output.values()))
    if isinstance(output, list | tuple):
        return [tensor for item in output for tensor in tensors(item)]
    return tensors(list(vars(output).values())) if hasattr(output, "__dict__") else []
