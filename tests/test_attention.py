"""Attention: its formula, half precision, and every path against one."""

import importlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers
from keras_vit.layers import attention_kernels
from keras_vit.layers.attention_kernels import attend
from keras_vit.layers.attention_kernels import attention_probabilities

SHAPE = (2, 3, 7, 4)  # (batch, heads, tokens, dim)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def dtype_of(x):
    return keras.backend.standardize_dtype(x.dtype)


def reference(query, key, value, bias=0.0):
    """Scaled dot-product attention in float64, with its weights."""
    query, key, value = (np.asarray(a, "float64") for a in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ value, weights


def randomize(layer, scale=1.0):
    """Random weights whose outputs are of unit scale."""
    rng = np.random.default_rng(1)
    layer.set_weights(
        [
            scale * rng.normal(size=w.shape) / np.sqrt(max(w.shape[:-1] or [1]))
            for w in layer.get_weights()
        ]
    )
    return {v.path: numpy(v).astype("float64") for v in layer.weights}


def dense(x, weights, name):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def split(x, heads):
    """`(batch, tokens, width)` to `(batch, heads, tokens, dim)`."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def join(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


@pytest.mark.parametrize("heads", [1, 3, 12])
def test_attention_equals_the_formula(heads):
    """L02: the `qkv` columns are q, k, v; in each, heads are contiguous."""
    layer = layers.Attention(heads, name="attention")
    x, bias = normal(2, 7, 12), normal(2, heads, 7, 7, seed=2)
    layer.build(x.shape)
    weights = randomize(layer)
    qkv = dense(x, weights, "attention/qkv")
    parts = [split(part, heads) for part in np.split(qkv, 3, axis=-1)]
    y, maps = reference(*parts, bias)
    expected = dense(join(y), weights, "attention/out")
    result = numpy(layer(ops.array(x), bias=ops.array(bias)))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)
    shown = numpy(layer.probabilities(ops.array(x), ops.array(bias)))
    np.testing.assert_allclose(shown, maps, rtol=0, atol=1e-6)


def test_attention_pooling_equals_the_formula():
    """`y + mlp(norm(y))`: the probe itself is not added."""
    layer = layers.AttentionPooling(
        3, 5, activation="quick_gelu", epsilon=0.1, name="map"
    )
    x = normal(2, 7, 12)
    layer.build(x.shape)
    w = randomize(layer)
    key, value = np.split(dense(x, w, "map/key_value"), 2, axis=-1)
    query = dense(np.repeat(w["map/probe"], 2, axis=0), w, "map/query")
    y, _ = reference(*(split(a, 3) for a in (query, key, value)))
    y = dense(join(y), w, "map/out")[:, 0]
    z = y - y.mean(-1, keepdims=True)
    z = z / np.sqrt((z**2).mean(-1, keepdims=True) + 0.1)
    z = z * w["map/norm/gamma"] + w["map/norm/beta"]
    z = dense(z, w, "map/mlp/dense_1")
    z = dense(z / (1 + np.exp(-1.702 * z)), w, "map/mlp/dense_2")
    result = numpy(layer(ops.array(x)))
    np.testing.assert_allclose(result, y + z, rtol=0, atol=1e-5)
    swapped = numpy(layer(ops.array(x[:, ::-1].copy())))
    np.testing.assert_allclose(swapped, result, rtol=0, atol=1e-5)


def test_attention_dropout_keeps_the_mean():
    layer = layers.Attention(1, dropout_rate=0.5, name="attention")
    x = np.repeat(normal(1, 7, 4), 4000, axis=0)
    layer.build(x.shape)
    randomize(layer)
    x = ops.array(x)
    at_rest, trained = numpy(layer(x)), numpy(layer(x, training=True))
    assert np.abs(trained - at_rest).max() > 0.1
    error = np.abs(trained.mean(0) - at_rest[0])
    assert (error < 5 * trained.std(0) / np.sqrt(4000) + 1e-6).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("path", ["auto", "explicit"])
def test_raw_scores_beyond_float16(path, dtype, monkeypatch):
    """D01: the query is scaled before the product."""
    monkeypatch.setenv("KERAS_VIT_ATTENTION", path)
    signs = np.where(np.arange(7) % 2, -40.0, 40.0).astype("float32")
    query = np.broadcast_to(signs[:, None], (1, 1, 7, 64))
    raw = query @ query.swapaxes(-1, -2)
    assert np.abs(raw).min() > 65504  # infinite in float16
    value = normal(1, 1, 7, 64)
    args = [ops.cast(ops.array(a), dtype) for a in (query, query, value)]
    y, _ = reference(query, query, numpy(args[2]))
    result = attend(*args)
    assert dtype_of(result) == dtype
    np.testing.assert_allclose(numpy(result), y, rtol=0, atol=2e-2)
    weights = numpy(attention_probabilities(*args[:2]))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_layer_with_raw_scores_beyond_float16(training):
    """D01: through the layer, and where attention weights are dropped."""
    layer = layers.Attention(1, dropout_rate=0.1, dtype="mixed_float16")
    x = normal(1, 7, 64)
    layer.build(x.shape)
    randomize(layer)
    kernel, *others = layer.get_weights()
    kernel[:, :128] *= 100  # query and key
    layer.set_weights([kernel, *others])
    query, key = np.split(x @ kernel[:, :128], 2, axis=-1)
    assert np.abs(query @ key.swapaxes(-1, -2)).max() > 65504
    y = layer(ops.array(x), training=training)
    assert dtype_of(y) == "float16"
    assert np.isfinite(numpy(y)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_softmax_is_float32(dtype):
    """D06: weights of half-precision inputs, to float32's own precision."""
    query, key = (
        ops.cast(ops.array(normal(*SHAPE, seed=i)), dtype) for i in (0, 1)
    )
    weights = attention_probabilities(query, key)
    assert dtype_of(weights) == "float32"
    np.testing.assert_allclose(numpy(weights).sum(-1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("path", ["auto", "explicit"])
@pytest.mark.parametrize(
    "dtypes",
    [
        ("float16", "float32", "float32"),
        ("float32", "float16", "bfloat16"),
        ("bfloat16", "bfloat16", "float32"),
    ],
    ids="-".join,
)
def test_mixed_dtypes_are_cast(dtypes, path, monkeypatch):
    """D04: to the type of the query."""
    monkeypatch.setenv("KERAS_VIT_ATTENTION", path)
    arrays = [normal(*SHAPE, seed=i) for i in range(3)]
    mixed = [
        ops.cast(ops.array(a), dtype)
        for a, dtype in zip(arrays, dtypes, strict=True)
    ]
    result = attend(*mixed)
    assert dtype_of(result) == dtypes[0]
    y, _ = reference(*arrays)
    np.testing.assert_allclose(numpy(result), y, rtol=0, atol=2e-2)


BIASES = {
    "none": None,
    "heads": (3, 7, 7),
    "one": (1, 1, 7, 7),
    "full": (2, 3, 7, 7),
    "keys": (7,),
}


@pytest.mark.parametrize("bias", BIASES)
def test_fused_equals_explicit(bias, monkeypatch):
    """D10, I02: the environment takes the written-out path, with one result."""
    args = [ops.array(normal(*SHAPE, seed=i)) for i in range(3)]
    if BIASES[bias]:
        args.append(ops.array(normal(*BIASES[bias], seed=3)))
    fused = [attend(*args)]
    if keras.config.backend() == "jax":
        fused.append(
            attention_kernels._attend_fused(*args[:3], *(args[3:] or [None]))
        )
    monkeypatch.setenv("KERAS_VIT_ATTENTION", "explicit")
    explicit = numpy(attend(*args))
    expected, _ = reference(*map(numpy, args))
    for y in (*map(numpy, fused), explicit):
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


def test_bfloat16_on_a_card_without_the_fused_kernel(monkeypatch):
    """D03: as on a T4, which has none; Keras takes the plain path."""
    if keras.config.backend() != "jax":
        pytest.skip("chooses a path for JAX")
    monkeypatch.setattr(attention_kernels, "_jax_has_gpu", lambda: True)
    args = [ops.array(normal(*SHAPE, seed=i)) for i in range(3)]
    y = attend(*(ops.cast(x, "bfloat16") for x in args))
    assert y.dtype == "bfloat16"
    expected, _ = reference(*map(numpy, args))
    y = numpy(ops.cast(y, "float32"))
    np.testing.assert_allclose(y, expected, rtol=0, atol=0.05)


# What JAX runs on -> whether the op of Keras is used. On a TPU that of Keras
# 3.15 masks later keys and leaves out bias and scale.
@pytest.mark.parametrize(
    ("device", "path", "fused"),
    [
        ("gpu", "auto", True),
        ("gpu", "explicit", False),
        ("cpu", "auto", False),
        ("tpu", "auto", False),
    ],
)
def test_fused_only_on_a_gpu(device, path, fused, monkeypatch):
    """D10: the explicit path where a fused one would be wrong."""
    if keras.config.backend() != "jax":
        pytest.skip("chooses a path for JAX")
    calls = []
    real = ops.dot_product_attention
    monkeypatch.setattr(
        ops,
        "dot_product_attention",
        lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs),
    )
    monkeypatch.setenv("KERAS_VIT_ATTENTION", path)
    jax = importlib.import_module("jax")
    args = [ops.array(normal(*SHAPE, seed=i)) for i in range(3)]
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    y = numpy(attend(*args))
    assert bool(calls) == fused
    expected, _ = reference(*map(numpy, args))
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


def test_torch_calls_the_fused_kernel(monkeypatch):
    if keras.config.backend() != "torch":
        pytest.skip("chooses a path for torch")
    functional = importlib.import_module("torch").nn.functional
    calls = []
    real = functional.scaled_dot_product_attention
    monkeypatch.setattr(
        functional,
        "scaled_dot_product_attention",
        lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs),
    )
    args = [ops.array(normal(*SHAPE, seed=i)) for i in range(3)]
    attend(*args)
    assert calls == [1]
    monkeypatch.setenv("KERAS_VIT_ATTENTION", "explicit")
    attend(*args)
    assert calls == [1]


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda: layers.Attention(5), ["num_heads=5", "width=12", "2"]),
        (
            lambda: layers.AttentionPooling(8, 4),
            ["num_heads=8", "width=12", "4"],
        ),
        (
            lambda: layers.TransformerBlock(7, 4),
            ["num_heads=7", "width=12", "5"],
        ),
        (lambda: layers.Attention(0), ["num_heads=0", "at least 1"]),
    ],
    ids=["attention", "pooling", "block", "zero"],
)
def test_heads_split_the_width(make, numbers):
    """L02: heads times head size is the width, or an error says why not."""
    with pytest.raises(ValueError, match="Expected: ") as error:
        make().build((None, 7, 12))
    assert all(number in str(error.value) for number in numbers)
