"""Looking inside: attention, rollout, distance, entropy, relevance.

`oracles/analysis.npz` was written by `python tests/test_analysis.py` on JAX
0.10.2 with Keras 3.15.1, on a CPU. The other backends differ from it by the
order of sums, at most 3e-6 of the largest value of an array.
"""

import math
import os
import pathlib
import sys

import keras
import numpy as np
import pytest
from analysis_kinds import KINDS
from analysis_kinds import images_of
from analysis_kinds import made
from random_weights import fill
from random_weights import pictures
from random_weights import predict
from random_weights import tiny
from random_weights import values

import keras_vit
from keras_vit.analysis import attention_stream

ORACLE = pathlib.Path(__file__).parent / "oracles" / "analysis.npz"
# fmt: off
FIGURES = {
    "rollout": keras_vit.attention_rollout,
    "class_attention": keras_vit.class_attention,
    "distance": keras_vit.attention_distance,
    "entropy": keras_vit.attention_entropy,
    "relevance": keras_vit.class_relevance,
    "field": keras_vit.effective_receptive_field,
    "cka": keras_vit.layer_cka,
}
WHOLE = ["registers", "map", "hybrid"]  # of which every figure is compared
ALL = list(FIGURES)
PIECED = ["rollout", "class_attention", "distance", "entropy"]
# fmt: on


def pooled(model, maps):
    """The row that a model pools, `(batch, tokens)`, from its config."""
    prefix, count = model.config.num_prefix, maps.shape[-1]
    kind = model.config.head.pooling
    token = np.eye(count)[0]
    if model.config.tokens.distillation_token:
        token = (np.eye(count)[0] + np.eye(count)[1]) / 2
    patches = np.arange(count) >= prefix
    mean = patches / patches.sum()
    row = {"token": token, "gap": mean, "token_gap": (token + mean) / 2}[kind]
    return np.tile(row, (maps.shape[1], 1))


def rolled_out(maps):
    """The product of all matrices, as the paper writes it."""
    fused = maps.astype("float64").mean(axis=2)
    identity = np.eye(maps.shape[-1])
    flow = np.broadcast_to(identity, fused.shape[1:])
    for matrix in fused:
        flow = (matrix + identity) / 2 @ flow
    return flow


@pytest.fixture(scope="module")
def oracle():
    with np.load(ORACLE) as file:
        return dict(file)


@pytest.mark.parametrize("kind", KINDS)
def test_same_on_every_backend(kind, oracle):
    model, images = made(kind), images_of(kind)
    for name in ALL if kind in WHOLE else PIECED[:2]:
        found, expected = FIGURES[name](model, images), oracle[f"{kind}/{name}"]
        assert found.dtype == np.float32
        assert np.ptp(expected) > 0
        bar = 1e-5 * max(1, np.abs(expected).max())
        np.testing.assert_allclose(
            found, expected, rtol=0, atol=bar, err_msg=name
        )


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "map"])
def test_rollout_is_the_product_of_all_matrices(kind):
    model, images = made(kind), images_of(kind)
    maps = keras_vit.attention_maps(model, images)
    flow = rolled_out(maps)
    np.testing.assert_allclose(flow.sum(-1), 1, atol=1e-6)
    rows = np.einsum("bq,bqk->bk", pooled(model, maps), flow)
    prefix = model.config.num_prefix
    found = keras_vit.attention_rollout(model, images)
    height, width = images.shape[1:3]
    stride = model.config.stride
    assert found.shape == (4, height // stride[0], width // stride[1])
    np.testing.assert_allclose(
        found.reshape(4, -1), rows[:, prefix:], atol=1e-6
    )


def test_rollout_of_every_block():
    """Each map is that of a model that ends after its block."""
    model, images = made("class"), images_of("class")
    found = keras_vit.attention_rollout(model, images, per_block=True)
    maps = keras_vit.attention_maps(model, images)
    for i in range(3):
        expected = rolled_out(maps[: i + 1])[:, 0, 1:]
        np.testing.assert_allclose(found[i].reshape(4, -1), expected, atol=1e-6)
    last = keras_vit.attention_rollout(model, images)
    np.testing.assert_array_equal(found[-1], last)


def test_rollout_reads_what_the_probe_reads():
    model, images = made("map"), images_of("map")
    maps = keras_vit.attention_maps(model, images)
    pooling = model.get_layer("pooling")
    tokens = predict(model.feature_model("norm"), images)["norm"]
    read = keras.ops.convert_to_numpy(pooling.probabilities(tokens))
    rows = read.mean(axis=1) @ rolled_out(maps)
    found = keras_vit.attention_rollout(model, images)
    np.testing.assert_allclose(found.reshape(4, -1), rows[:, 0], atol=1e-6)


@pytest.mark.parametrize("fusion", ["mean", "max", "min"])
def test_rollout_options(fusion):
    model, images = made("class"), images_of("class")
    fuse = {"mean": np.mean, "max": np.max, "min": np.min}[fusion]
    maps = keras_vit.attention_maps(model, images).astype("float64")
    fused = fuse(maps, axis=2, keepdims=True)
    kept = fused >= np.sort(fused, axis=-1)[..., 3:4]  # 3 of 7: 0.5 * 7
    fused = np.where(kept, fused, 0)
    fused = fused / fused.sum(-1, keepdims=True)
    found = keras_vit.attention_rollout(
        model, images, head_fusion=fusion, discard_ratio=0.5
    )
    expected = rolled_out(fused)[:, 0, 1:]
    np.testing.assert_allclose(found.reshape(4, -1), expected, atol=1e-6)
    plain = keras_vit.attention_rollout(model, images)
    assert np.abs(found - plain).max() > 1e-3


def uniform(size, patch):
    """A model that reads all tokens alike: queries of zero."""
    config = tiny(
        image_size=size, patch_size=patch, width=16, mlp_dim=16, depth=1
    )
    model = fill(keras_vit.ViT(config))
    attention = model.blocks()[0].attention
    for weight in attention.qkv.weights:
        weight.assign(np.zeros(weight.shape, "float32"))
    return model


@pytest.mark.parametrize(
    ("size", "patch", "pixels"),
    [(224, 16, 116.4922), (384, 16, 200.0480), (224, 32, 115.5029)],
)
def test_distance_of_uniform_attention(size, patch, pixels):
    """I05: in pixels, prefix left out."""
    model, images = uniform(size, patch), pictures(1, size, size)
    found = keras_vit.attention_distance(model, images)
    np.testing.assert_allclose(found, [[pixels, pixels]], atol=1e-4)
    tokens = model.config.num_tokens
    entropy = keras_vit.attention_entropy(model, images)
    np.testing.assert_allclose(entropy, math.log(tokens), rtol=1e-6)


def identity():
    """A model whose patches read themselves: positions are at right angles."""
    config = tiny(
        image_size=(8, 12), width=16, mlp_dim=16, depth=2, pooling="gap",
        class_token=False,
    )  # fmt: skip
    model = fill(keras_vit.ViT(config))
    # In each head its own six channels.
    grid = 4 * np.tile(np.eye(6, 8), 2).reshape(1, 2, 3, 16)
    model.get_layer("position_embedding").tables["grid"].assign(grid)
    for weight in model.get_layer("patch_embedding").weights:
        weight.assign(np.zeros(weight.shape, "float32"))
    for block in model.blocks():
        for layer in (block.norm_1, block.norm_2):
            layer.gamma.assign(np.ones(16))
            layer.beta.assign(np.zeros(16))
        kernel = np.concatenate([20 * np.eye(16)] * 3, axis=1)
        block.attention.qkv.kernel.assign(kernel)
        block.attention.qkv.bias.assign(np.zeros(48))
        for layer in (block.attention.out, block.mlp.dense_2):
            for weight in layer.weights:
                weight.assign(np.zeros(weight.shape, "float32"))
    return model


def test_attention_to_oneself():
    """I05: identity gives a distance and an entropy of 0, and its rollout."""
    model, images = identity(), pictures(2, 8, 12)
    maps = keras_vit.attention_maps(model, images)
    np.testing.assert_allclose(
        maps, np.broadcast_to(np.eye(6), maps.shape), atol=1e-6
    )
    distance = keras_vit.attention_distance(model, images)
    np.testing.assert_allclose(distance, 0, atol=1e-5)
    entropy = keras_vit.attention_entropy(model, images)
    np.testing.assert_allclose(entropy, 0, atol=1e-5)
    rollout = keras_vit.attention_rollout(model, images)
    np.testing.assert_allclose(rollout, 1 / 6, atol=1e-6)


def test_distance_and_entropy_from_the_maps():
    """Registers and a class token are left out, heads kept apart."""
    model, images = made("registers"), images_of("registers")
    maps = keras_vit.attention_maps(model, images).astype("float64")
    among = maps[..., 4:, 4:]
    among = among / among.sum(-1, keepdims=True)
    places = [(4 * r, 4 * c) for r in range(2) for c in range(3)]
    apart = np.array([[math.dist(a, b) for b in places] for a in places])
    expected = (among * apart).sum(-1).mean(axis=(1, 3))
    found = keras_vit.attention_distance(model, images)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    expected = -(maps * np.log(maps)).sum(-1).mean(axis=(1, 3))
    found = keras_vit.attention_entropy(model, images)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_class_attention_is_a_row_of_the_maps():
    model, images = made("distilled"), images_of("distilled")
    maps = keras_vit.attention_maps(model, images)
    rows = maps[:, :, :, :2, 2:].mean(axis=3)
    found = keras_vit.class_attention(model, images)
    assert found.shape == (2, 4, 2, 2, 3)
    np.testing.assert_allclose(found.reshape(rows.shape), rows, atol=1e-6)


def test_maps_leave_the_model_alone(tmp_path):
    """I01, I02: no rebuild, the same logits, whatever is fused."""
    model, images = made("class"), images_of("class")
    before, logits = values(model), predict(model, images)
    names = [layer.name for layer in model.layers]
    keras.config.enable_flash_attention()
    try:
        maps = keras_vit.attention_maps(model, images)
        for figure in FIGURES.values():
            figure(model, images)
    finally:
        keras.config.disable_flash_attention()
    assert maps.shape == (3, 4, 2, 7, 7)
    np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(predict(model, images), logits)
    assert [layer.name for layer in model.layers] == names
    assert all(np.array_equal(before[p], v) for p, v in values(model).items())
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(predict(again, images), logits)


@pytest.mark.parametrize("kind", ["class", "map"])
def test_pieces_of_any_size(kind, monkeypatch):
    """One query of one image at a time, and everything at once."""
    model, images = made(kind), images_of(kind)
    whole = {name: FIGURES[name](model, images) for name in PIECED}
    maps = keras_vit.attention_maps(model, images)
    some = keras_vit.attention_maps(model, images, blocks=[-1, 0, -1])
    np.testing.assert_array_equal(some, maps[[-1, 0, -1]])
    monkeypatch.setattr(attention_stream, "MAX_VALUES", 1)
    monkeypatch.setattr(attention_stream, "IMAGES_AT_ONCE", 3)
    np.testing.assert_allclose(
        keras_vit.attention_maps(model, images), maps, atol=1e-6
    )
    for name, figure in whole.items():
        again = FIGURES[name](model, images)
        np.testing.assert_allclose(again, figure, rtol=1e-5, atol=1e-6)


def test_an_image_of_1024_pixels():
    """No piece is larger than said, and all of them are the whole."""
    model, images = uniform(1024, 16), pictures(1, 1024, 1024)
    pieces = attention_stream.attention_pieces(model, images)
    sizes = [piece.weights.size for piece in pieces]
    assert max(sizes) <= 2**24  # 64 MB
    assert sum(sizes) == 2 * 4097**2
    found = keras_vit.attention_rollout(model, images)
    np.testing.assert_allclose(found, np.full((1, 64, 64), 0.5 / 4097))


def write_oracle():
    """Writes what this backend gives."""
    arrays = {
        f"{kind}/{name}": figure(made(kind), images_of(kind))
        for kind in KINDS
        for name, figure in FIGURES.items()
    }
    np.savez_compressed(ORACLE, **arrays)


if __name__ == "__main__":
    if os.environ.get("KERAS_BACKEND") != "jax":
        sys.exit("KERAS_BACKEND=jax python tests/test_analysis.py")
    write_oracle()
