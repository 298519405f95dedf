"""Attention in pieces equals attention at once, and keeps no full matrix."""

import importlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers
from keras_vit.layers import attention_kernels
from keras_vit.layers.attention_kernels import attend

SHAPE = (3, 2, 37, 8)  # (batch, heads, tokens, dim); 37 is prime


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def bound(monkeypatch, size, piece=None):
    monkeypatch.setattr(attention_kernels, "SCORES_BOUND", size)
    monkeypatch.setattr(attention_kernels, "PIECE", piece or size)


def value_and_gradients(args, how="compiled"):
    """Attention times a fixed array, and its gradient by each argument."""
    weights = ops.array(normal(*SHAPE, seed=9))
    args = [ops.array(x) for x in args]

    def result(*args):
        return ops.sum(attend(*args) * weights)

    if keras.config.backend() == "jax":
        jax = importlib.import_module("jax")
        both = jax.value_and_grad(result, argnums=tuple(range(len(args))))
        value, gradients = jax.jit(both)(*args)
        return [value, *gradients]
    if keras.config.backend() == "torch":
        args = [x.detach().requires_grad_() for x in args]
        value = result(*args)
        value.backward()
        return [value.detach(), *(x.grad for x in args)]
    tensorflow = importlib.import_module("tensorflow")

    def both(*args):
        with tensorflow.GradientTape() as tape:
            tape.watch(args)
            value = result(*args)
        return [value, *tape.gradient(value, args)]

    signature = [
        tensorflow.TensorSpec(
            (None, *x.shape[1:]) if how == "no batch" else x.shape, x.dtype
        )
        for x in args
    ]
    compiled = tensorflow.function(
        both, input_signature=signature, jit_compile=how != "graph"
    )
    return compiled(*args)


BIASES = {
    "none": None,
    "full": (3, 2, 37, 37),
    "heads": (2, 37, 37),
    "keys": (3, 1, 1, 37),
    "one_row": (1, 1, 1, 37),
}


@pytest.mark.parametrize(
    ("bias", "bytes_", "rows"),
    [
        ("none", 2**12, 13),  # 3 pieces of 13: two rows are padding
        ("full", 2**12, 13),
        ("heads", 2**12, 13),
        ("keys", 2**12, 13),
        ("one_row", 2**14, 37),  # image by image
    ],
)
def test_pieces_equal_the_whole(bias, bytes_, rows, monkeypatch):
    """With gradients, also by the bias; torch takes its fused kernel."""
    args = [normal(*SHAPE, seed=i) for i in range(3)]
    if BIASES[bias]:
        args.append(normal(*BIASES[bias], seed=3))
    monkeypatch.setenv("KERAS_VIT_ATTENTION", "explicit")
    expected = value_and_gradients(args)
    monkeypatch.setenv("KERAS_VIT_ATTENTION", "auto")
    bound(monkeypatch, bytes_)
    assert attention_kernels._rows_at_once(SHAPE, 37) == rows
    for a, b in zip(value_and_gradients(args), expected, strict=True):
        a, b = ops.convert_to_numpy(a), ops.convert_to_numpy(b)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["graph", "no batch"])
def test_pieces_of_a_graph(how, monkeypatch):
    """Without XLA; and with XLA where the batch is not known to the trace."""
    if keras.config.backend() != "tensorflow":
        pytest.skip("the others know every shape when they compute")
    args = [normal(*SHAPE, seed=i) for i in range(3)]
    expected = value_and_gradients(args, how)
    bound(monkeypatch, 2**14)
    for a, b in zip(value_and_gradients(args, how), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.once
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((1, 12, 1025, 64), 0),  # B/16 at 512 pixels
        ((6, 12, 1025, 64), 513),  # 289 MiB
        ((1, 12, 4097, 64), 164),  # at 1024
        ((144, 12, 197, 64), 0),
        ((145, 12, 197, 64), 197),  # image by image
        ((None, 12, 197, 64), 0),
        ((None, 12, 577, 64), 577),
        ((None, 12, None, 64), 0),
        ((1024, 12, 1, 64), 0),  # attention pooling
    ],
)
def test_when_attention_is_cut(shape, rows):
    """By the bound as it is, in float32 scores of all heads and images."""
    assert attention_kernels._rows_at_once(shape, shape[2] or None) == rows


def test_half_precision_in_pieces(monkeypatch):
    args = [ops.cast(normal(*SHAPE, seed=i), "bfloat16") for i in range(3)]
    monkeypatch.setenv("KERAS_VIT_ATTENTION", "explicit")
    expected = ops.cast(attend(*args), "float32")
    monkeypatch.setenv("KERAS_VIT_ATTENTION", "auto")
    bound(monkeypatch, 2**12)
    y = attend(*args)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(y, "float32")),
        ops.convert_to_numpy(expected),
        rtol=0,
        atol=2e-2,
    )


@pytest.mark.parametrize("training", [False, True])
def test_no_full_matrix_is_planned(training, monkeypatch):
    """What XLA sets aside for a long sequence, in inference and training."""
    if keras.config.backend() != "jax":
        pytest.skip("JAX says what a program will take")
    jax = importlib.import_module("jax")
    tokens = 1024
    bound(monkeypatch, 2**20, piece=2**18)
    layer = layers.Attention(2)
    layer.build((1, tokens, 8))

    def loss(x):
        return ops.sum(ops.square(layer(x, training=training)))

    function = jax.grad(loss) if training else loss
    x = ops.zeros((1, tokens, 8))
    plan = jax.jit(function).lower(x).compile().memory_analysis()
    whole = 4 * 2 * tokens**2
    assert plan.temp_size_in_bytes < whole / 3
    monkeypatch.setenv("KERAS_VIT_ATTENTION", "explicit")
    if training:  # what is measured is there
        plain = jax.grad(lambda x: loss(x))
        plan = jax.jit(plain).lower(x).compile().memory_analysis()
        assert plan.temp_size_in_bytes > whole
