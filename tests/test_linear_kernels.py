"""oneDNN's products on torch against Keras' own, which they replace.

Both are float32 sums in another order: 2e-6 of unit values, 1e-5 in gradients.
"""

import keras
import numpy as np
import pytest
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import values

import keras_vit
from keras_vit.layers import linear_kernels

pytestmark = pytest.mark.skipif(
    keras.config.backend() != "torch", reason="oneDNN is a matter of torch"
)
SMALL = {"image_size": 8, "width": 16, "mlp_dim": 24, "depth": 2}
X, Y = pictures(6, 8, 8), np.arange(6) % 5


@pytest.fixture
def choose(monkeypatch):
    """Takes one way or the other, or what is measured."""
    if linear_kernels.onednn_linear() is None:
        pytest.skip("this torch has no such operator")

    def choose(word):
        monkeypatch.setenv("KERAS_VIT_LINEAR", word)
        linear_kernels._wins.cache_clear()

    yield choose
    linear_kernels._wins.cache_clear()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "gelu_tanh"},
        {"activation": "quick_gelu"},
        {"activation": "swiglu", "qkv_bias": False},
        {"pooling": "map", "class_token": False},
    ],
)
def test_same_logits(changes, choose):
    choose("plain")
    expected = predict(filled(**SMALL, **changes), X)
    choose("onednn")
    model = filled(**SMALL, **changes)
    found = predict(model, X)
    assert linear_kernels._PACKED  # it was taken
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(expected).max() > 0.5


@pytest.mark.parametrize("frozen", [(), ("block_0",), "backbone"])
def test_same_training(frozen, choose):
    """Three steps, with everything training or parts of it frozen."""
    ends = []
    for word in ("plain", "onednn"):
        choose(word)
        model = filled(**SMALL)
        keras_vit.freeze(model, frozen)
        model.compile(keras.optimizers.SGD(0.1), keras_vit.Crossentropy())
        model.fit(X, Y, batch_size=6, epochs=3, shuffle=False, verbose=0)
        ends.append(values(model))
    for path, value in ends[0].items():
        np.testing.assert_allclose(ends[1][path], value, atol=1e-5)


def test_copies_follow_their_kernels(choose):
    """Whatever changes a kernel, the next product is of the new one."""
    choose("onednn")
    model = filled(**SMALL)
    before = predict(model, X)
    other = filled(seed=1, **SMALL)
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        ours.assign(theirs)
    np.testing.assert_allclose(predict(model, X), predict(other, X), atol=1e-5)
    assert np.abs(predict(model, X) - before).max() > 0.1
    kernel = model.blocks()[0].mlp.dense_1.kernel
    kernel.value.data = kernel.value.data * 2
    choose("plain")
    expected = predict(model, X)
    choose("onednn")
    np.testing.assert_allclose(predict(model, X), expected, atol=1e-5)
    model.compile(keras.optimizers.SGD(0.1), keras_vit.Crossentropy())
    model.fit(X, Y, batch_size=6, verbose=0)
    found = predict(model, X)
    choose("plain")
    np.testing.assert_allclose(found, predict(model, X), atol=1e-5)


def test_copies_go_with_their_kernels(choose):
    import gc

    choose("onednn")
    gc.collect()
    before = len(linear_kernels._PACKED)
    model = filled(**SMALL)
    predict(model, X)
    assert len(linear_kernels._PACKED) == before + 2 * 4
    del model
    keras.utils.clear_session()
    gc.collect()
    assert len(linear_kernels._PACKED) <= before


def test_other_ways_to_compute_are_left_alone(choose):
    """int8, LoRA, half precision and traces take Keras' own product."""
    choose("onednn")
    dense = filled(**SMALL).blocks()[0].mlp.dense_1
    x = keras.ops.ones((2, 16))
    assert linear_kernels._applies(dense, x)
    assert not linear_kernels._applies(dense, keras.KerasTensor((2, 16)))
    assert not linear_kernels._applies(dense, keras.ops.cast(x, "bfloat16"))
    half = filled(**SMALL, dtype="mixed_bfloat16").blocks()[0].mlp.dense_1
    assert not linear_kernels._applies(half, x)
    model = filled(**SMALL)
    model.enable_lora(2)
    assert not linear_kernels._applies(model.blocks()[0].mlp.dense_1, x)
    model = filled(**SMALL)
    model.quantize("int8")
    assert not linear_kernels._applies(model.blocks()[0].mlp.dense_1, x)


def test_compiled_models_are_the_same(choose):
    """H03: the compiler chooses its own kernels."""
    import torch

    choose("onednn")
    model = filled(**SMALL)
    expected = predict(model, X)
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager")
        found = compiled(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_choice(choose, monkeypatch):
    choose("plain")
    assert not linear_kernels._wins()
    choose("auto")
    # In turn, plain first; one slow round of a busy machine decides nothing.
    rounds = [3.0, 2.0] * (linear_kernels.ROUNDS - 1) + [9.0, 9.0]
    times = iter(rounds)
    monkeypatch.setattr(linear_kernels, "_seconds", lambda f: next(times))
    assert linear_kernels._wins()
    choose("auto")
    times = iter([2.0, 1.95] * linear_kernels.ROUNDS)
    assert not linear_kernels._wins()
    monkeypatch.setattr(linear_kernels, "onednn_linear", lambda: None)
    choose("onednn")
    assert not linear_kernels._wins()
