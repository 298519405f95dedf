"""Attention gets no mask where none is needed, and takes one from a graph."""

import importlib

import keras
import numpy as np
import pytest
from keras import ops
from random_weights import filled
from random_weights import pictures
from random_weights import predict

from keras_vit.layers.attention_kernels import attend

SHAPE = (2, 3, 7, 4)  # batch, heads, tokens, dim
# Heads first, as a strided view of what a table of positions holds.
RNG = np.random.default_rng(0)
BIAS = RNG.normal(size=(7, 7, 3)).astype("float32")


def softmax_attention(x, bias):
    scores = x @ x.swapaxes(-1, -2) / np.sqrt(x.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ x


def test_no_mask_by_default(monkeypatch):
    """H04: a kernel that cannot take a mask is not asked to."""
    if keras.config.backend() != "torch":
        pytest.skip("sees what torch's kernel is called with")
    functional = importlib.import_module("torch").nn.functional
    real, masks = functional.scaled_dot_product_attention, []

    def spy(*args, attn_mask=None, **kwargs):
        masks.append(attn_mask)
        return real(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    predict(filled(), pictures())
    assert masks == [None] * 2
    predict(filled(position="relative", class_token=False, pooling="gap"),
            pictures())  # fmt: skip
    assert [mask is None for mask in masks[2:]] == [False] * 2


def test_strided_mask():
    """H04: on the device that the tests run on, a GPU where there is one."""
    x = RNG.normal(size=SHAPE).astype("float32")
    bias = ops.transpose(ops.array(BIAS), (2, 0, 1))
    # A head's tokens interleaved with those of the others, as qkv gives them.
    strided = ops.transpose(ops.array(x.transpose(0, 2, 1, 3)), (0, 2, 1, 3))
    found = attend(strided, strided, strided, bias)
    expected = softmax_attention(x, BIAS.transpose(2, 0, 1))
    np.testing.assert_allclose(
        ops.convert_to_numpy(found), expected, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("fused", [False, True])
def test_mask_of_a_scan(fused, monkeypatch):
    """H05: three blocks in one loop, each with a mask that is a tracer."""
    if fused and keras.config.backend() != "jax":
        pytest.skip("elsewhere there is one path")
    if fused:
        jax = importlib.import_module("jax")
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    x = RNG.normal(size=SHAPE).astype("float32")
    biases = RNG.normal(size=(3, 1, 1, 7, 7)).astype("float32")

    def block(carried, bias):
        carried = attend(carried, carried, carried, bias)
        return carried, carried

    found, each = ops.scan(block, ops.array(x), ops.array(biases))
    for bias in biases:
        x = softmax_attention(x, bias)
    np.testing.assert_allclose(
        ops.convert_to_numpy(found), x, rtol=0, atol=1e-5
    )
    assert tuple(each.shape) == (3, *SHAPE)
