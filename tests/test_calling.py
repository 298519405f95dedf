"""What a model costs when it is called again, and what it says of itself."""

import gc
import pathlib

import keras
import numpy as np
import pytest
from random_weights import filled
from random_weights import pictures
from random_weights import predict

PAGE = 4096
STATM = pathlib.Path("/proc/self/statm")


def count_traces(model, name):
    """Counts how often Python runs the call of a layer."""
    layer, calls = model.get_layer(name), []
    inner = layer.call

    def call(*args, **kwargs):
        calls.append(1)
        return inner(*args, **kwargs)

    layer.call = call
    return calls


@pytest.mark.skipif(
    keras.config.backend() == "torch", reason="torch runs Python in each call"
)
@pytest.mark.parametrize("image_size", [28, None], ids=["fixed", "any"])
def test_one_trace_per_shape(image_size):
    """J01: the same shape again costs no tracing, another one its own."""
    model = filled(image_size=image_size, depth=1)
    calls = count_traces(model, "block_0")
    predict(model, pictures(2))
    first = len(calls)
    for _ in range(3):
        predict(model, pictures(2))
    assert len(calls) == first
    assert first <= 2  # Keras looks at the shapes once more on TensorFlow


@pytest.mark.skipif(
    keras.config.backend() != "torch", reason="torch.compile is torch's"
)
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_torch_compile(mode):
    """H03: inference as users of torch write it, whole graph and all.

    Without the code generator, which takes many times as long and is not ours.
    """
    import torch

    model, images = filled(depth=1), pictures(2)
    expected = predict(model, images)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    with getattr(torch, mode)():
        logits = compiled(torch.tensor(images))
    np.testing.assert_allclose(logits.numpy(), expected, atol=1e-5)


@pytest.mark.skipif(not STATM.exists(), reason="resident memory is Linux's")
def test_memory_stays_flat():
    """H10: 40 eager calls grow the process by less than 5 %."""
    model, images = filled(depth=1), pictures(8)

    def resident():
        gc.collect()
        return int(STATM.read_text().split()[1]) * PAGE

    for _ in range(5):
        model(images)
    before = resident()
    for _ in range(40):
        model(images)
    assert resident() < 1.05 * before


def test_preprocessing_is_seen(capsys):
    """L07: scaling inside the model is in its config and its summary."""
    model = filled(depth=1)
    assert model.get_config()["config"]["preprocessing"] is True
    model.summary()
    assert "pixels" in capsys.readouterr().out
    plain = filled(depth=1, preprocessing=False)
    assert plain.get_config()["config"]["preprocessing"] is False
    scaled = (pictures(2).astype("float32") / 255 - 0.5) / 0.5
    np.testing.assert_allclose(
        predict(plain, scaled), predict(model, pictures(2)), atol=1e-5
    )
