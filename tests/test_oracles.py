"""The numbers of two reference implementations, and what would spoil them.

`oracles/timm_vit.npz`: timm 1.0.31 on torch 2.14.1, `VisionTransformer` of
three blocks. `oracles/google_vit_augreg.npz`: google-research's
vision_transformer at commit c6de1e5 on flax 0.12.8. Both with random weights
of seed 0 and unit-scale norm gains, on a CPU in float32; inputs are normalised
images. What enters the residual stream is scaled by 0.01, so that each norm
sees a variance near 1e-4 and a wrong epsilon shows. Two correct float32
implementations differ by 2.5e-6 in tokens, 1.1e-6 in logits, 5e-8 in block
outputs and 8e-7 in attention maps.
"""

import pathlib

import numpy as np
import pytest
from random_weights import predict

import keras_vit

FOLDER = pathlib.Path(__file__).parent / "oracles"
CONFIG = keras_vit.ViTConfig().replace(
    image_size=(24, 30),
    patch_size=6,
    depth=3,
    width=32,
    mlp_dim=44,
    num_heads=4,
    num_classes=7,
    preprocessing=False,
)
DEPTH, WIDTH = CONFIG.depth, CONFIG.width
TIMM = {
    "norm_1/gamma": "norm1.weight",
    "norm_1/beta": "norm1.bias",
    "attention/qkv/kernel": "attn.qkv.weight",
    "attention/qkv/bias": "attn.qkv.bias",
    "attention/out/kernel": "attn.proj.weight",
    "attention/out/bias": "attn.proj.bias",
    "norm_2/gamma": "norm2.weight",
    "norm_2/beta": "norm2.bias",
    "mlp/dense_1/kernel": "mlp.fc1.weight",
    "mlp/dense_1/bias": "mlp.fc1.bias",
    "mlp/dense_2/kernel": "mlp.fc2.weight",
    "mlp/dense_2/bias": "mlp.fc2.bias",
}


def timm_weights(their):
    """Our path to array: torch keeps `(out, in)`."""

    def turned(name):
        value = their[name]
        return value.T if name.endswith("weight") else value

    ours = {
        "patch_embedding/kernel": their["patch_embed.proj.weight"].transpose(
            2, 3, 1, 0
        ),
        "patch_embedding/bias": their["patch_embed.proj.bias"],
        "class_token/token": their["cls_token"],
        "norm/gamma": their["norm.weight"],
        "norm/beta": their["norm.bias"],
        "head/kernel": turned("head.weight"),
        "head/bias": their["head.bias"],
        **positions(their["pos_embed"]),
    }
    for i in range(DEPTH):
        for path, name in TIMM.items():
            ours[f"block_{i}/{path}"] = turned(f"blocks.{i}.{name}")
    return ours


def google_weights(their):
    """Our path to array: Flax splits the heads off and keeps q, k, v apart."""
    ours = {
        "patch_embedding/kernel": their["embedding/kernel"],
        "patch_embedding/bias": their["embedding/bias"],
        "class_token/token": their["cls"],
        "norm/gamma": their["Transformer/encoder_norm/scale"],
        "norm/beta": their["Transformer/encoder_norm/bias"],
        "head/kernel": their["head/kernel"],
        "head/bias": their["head/bias"],
        **positions(their["Transformer/posembed_input/pos_embedding"]),
    }
    for i in range(DEPTH):
        block = f"Transformer/encoderblock_{i}/"
        ours |= google_block(f"block_{i}/", block, their)
    return ours


def google_block(prefix, block, their):
    attention = block + "MultiHeadDotProductAttention_1/"
    result = {}
    for norm, name in (("norm_1", "LayerNorm_0"), ("norm_2", "LayerNorm_2")):
        result[f"{norm}/gamma"] = their[f"{block}{name}/scale"]
        result[f"{norm}/beta"] = their[f"{block}{name}/bias"]
    for part, rows in (("kernel", (WIDTH, WIDTH)), ("bias", (WIDTH,))):
        qkv = [
            their[f"{attention}{name}/{part}"].reshape(rows)
            for name in ("query", "key", "value")
        ]
        result[f"attention/qkv/{part}"] = np.concatenate(qkv, axis=-1)
        out = their[f"{attention}out/{part}"]
        result[f"attention/out/{part}"] = out.reshape(rows)
        for i in range(2):
            dense = their[f"{block}MlpBlock_3/Dense_{i}/{part}"]
            result[f"mlp/dense_{i + 1}/{part}"] = dense
    return {prefix + path: value for path, value in result.items()}


def positions(table):
    """One position for the class token, then the grid."""
    grid = table[:, 1:].reshape(1, *CONFIG.grid, WIDTH)
    return {
        "position_embedding/prefix": table[:, :1],
        "position_embedding/grid": grid,
    }


ORACLES = {
    "timm_vit": (timm_weights, "gelu"),
    "google_vit_augreg": (google_weights, "gelu_tanh"),
}


def build(oracle, **changes):
    """The model of an oracle with every weight set, and the file."""
    weights, activation = ORACLES[oracle]
    with np.load(FOLDER / f"{oracle}.npz") as file:
        data = {name: file[name] for name in file.files}
    prefix = "weights/"
    their = {
        name.removeprefix(prefix): value
        for name, value in data.items()
        if name.startswith(prefix)
    }
    fields = {"activation": activation, **changes}
    model = keras_vit.ViT(CONFIG.replace(**fields))
    ours = weights(their)
    assert set(ours) == {v.path for v in model.weights}
    for variable in model.weights:
        variable.assign(ours[variable.path])
    return model, data


@pytest.mark.parametrize("oracle", ORACLES)
def test_oracle(oracle):
    """A01, A02, A22: from images to logits, and everything on the way."""
    model, data = build(oracle)
    blocks = [f"block_{i}" for i in range(DEPTH)]
    names = [*blocks, "norm", "pre_logits", "logits"]
    ours = predict(model.feature_model(names), data["images"])
    bars = {"logits": 2e-5, "norm": 2e-5, "pre_logits": 2e-5}
    for name, bar in bars.items():
        theirs = data["tokens" if name == "norm" else name]
        np.testing.assert_allclose(ours[name], theirs, atol=bar, rtol=0)
    stream = np.stack([ours[name] for name in blocks])
    np.testing.assert_allclose(stream, data["block_outputs"], atol=2e-7, rtol=0)
    maps = keras_vit.attention_maps(model, data["images"])
    assert maps.shape == data["attentions"].shape
    np.testing.assert_allclose(maps, data["attentions"], atol=2e-6, rtol=0)
    # The softmax hides the key bias: it is compared with the file itself.


@pytest.mark.parametrize(
    ("oracle", "changes"),
    [
        ("timm_vit", {"activation": "gelu_tanh"}),
        ("timm_vit", {"epsilon": 1e-5}),
        ("timm_vit", {"epsilon": 1e-12}),
        ("google_vit_augreg", {"activation": "gelu"}),
        ("google_vit_augreg", {"epsilon": 1e-5}),
    ],
)
def test_oracle_catches_what_is_wrong(oracle, changes):
    """A01, A02: the other GELU or epsilon is ten times over the bar."""
    model, data = build(oracle, **changes)
    wrong = np.abs(predict(model, data["images"]) - data["logits"])
    assert wrong.max() > 2e-4
