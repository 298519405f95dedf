"""Blocks computed again in the backward pass: the same numbers, less kept."""

import importlib

import keras
import numpy as np
import pytest
from keras import ops

import keras_vit

# All that draws at random, or that has a bias: what a second pass could miss.
RANDOM = {
    "dropout_rate": 0.1,
    "attention_dropout_rate": 0.1,
    "stochastic_depth_rate": 0.3,
    "layer_scale": 0.1,
    "position": "relative",
}


def train(enabled, dtype=None, jit=False):
    """The mean loss of two steps, and the weights after them."""
    keras.utils.set_random_seed(0)
    config = keras_vit.vit_config(
        "nano/4", image_size=16, num_classes=4, depth=2, **RANDOM
    )
    model = keras_vit.ViT(config, dtype=dtype)
    # A head of zeros would send no gradient back.
    head = model.get_layer("head").kernel
    head.assign(keras.random.normal(head.shape, seed=1))
    model.enable_rematerialization(enabled)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=jit)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 16, 16, 3), "uint8")
    history = model.fit(
        images, np.arange(4), 2, shuffle=False, verbose=0
    ).history["loss"]
    return history, [ops.convert_to_numpy(w) for w in model.weights]


def test_same_training():
    """E15: the loss, and every weight; drop rates draw the same twice."""
    jit = keras.config.backend() == "jax"  # by XLA on TensorFlow: 20 seconds
    losses, weights = train(False, jit=jit)
    again, found = train(True, jit=jit)
    np.testing.assert_allclose(again, losses, rtol=0, atol=1e-5)
    for a, b in zip(found, weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_same_training_in_half_precision():
    if keras.config.backend() == "jax":
        pytest.skip("the same program there, and slow to compile")
    losses, _ = train(False, "mixed_bfloat16")
    again, _ = train(True, "mixed_bfloat16")
    np.testing.assert_allclose(again, losses, rtol=2e-2)


def test_less_is_kept():
    """E15: of four blocks; what is kept is counted where that can be done."""
    config = keras_vit.vit_config("nano/4", image_size=64, num_classes=4)
    model = keras_vit.ViT(config.replace(depth=4))
    images = np.zeros((8, 64, 64, 3), "uint8")
    measure = {"jax": _planned, "torch": _saved}.get(keras.config.backend())
    if measure is None:
        pytest.skip("TensorFlow tells neither")
    whole = measure(model, images)
    model.enable_rematerialization()
    assert measure(model, images) < whole / 2
    model.enable_rematerialization(False)
    assert not any(block.rematerialized for block in model.blocks())


def _planned(model, images):
    """Bytes that XLA sets aside for a gradient."""
    jax = importlib.import_module("jax")
    others = [v.value for v in model.non_trainable_variables]

    def loss(weights):
        y, _ = model.stateless_call(weights, others, images, training=True)
        return ops.sum(y)

    weights = [v.value for v in model.trainable_variables]
    plan = jax.jit(jax.grad(loss)).lower(weights).compile().memory_analysis()
    return plan.temp_size_in_bytes


def _saved(model, images):
    """Bytes of tensors that autograd keeps, weights and views counted once."""
    torch = importlib.import_module("torch")
    kept = {}

    def note(x):
        kept[x.data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        model(images, training=True)
    return sum(kept.values())


def test_inference_is_as_before():
    config = keras_vit.vit_config("nano/4", image_size=16, depth=2, **RANDOM)
    model = keras_vit.ViT(config)
    images = np.full((2, 16, 16, 3), 7, "uint8")
    before = ops.convert_to_numpy(model(images))
    model.enable_rematerialization()
    np.testing.assert_array_equal(ops.convert_to_numpy(model(images)), before)
