"""The same numbers on every backend, before and after training.

`oracles/backends.npz` was written by `python tests/test_backends.py` on JAX
0.10.2 with Keras 3.15.1, on a CPU in float32. The other two differ from it by
at most 2.4e-6 in logits of unit scale and 3.6e-7 in weights after five steps
of SGD or AdamW: the order of a sum. AdamW divides by the root of the squared
gradient, which blows such differences up wherever a gradient is next to zero:
a bar of its own, and the bias of the keys left out. That has a gradient of
exactly zero in theory, for softmax takes no notice of it, and of rounding noise
in fact.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from random_weights import fill
from random_weights import pictures
from random_weights import predict
from random_weights import tiny
from random_weights import values

import keras_vit

ROOT = pathlib.Path(__file__).parent.parent
ORACLE = pathlib.Path(__file__).parent / "oracles" / "backends.npz"
SMALL = {"image_size": (8, 12), "width": 16, "mlp_dim": 24, "depth": 1}
# fmt: off
KINDS = {
    "plain": {**SMALL, "depth": 2},
    "rich": {
        **SMALL, "position": "learned_2d", "num_registers": 2,
        "activation": "swiglu", "layer_scale": 0.5, "qkv_bias": False,
        "norm_pre": True, "pooling": "gap", "pre_logits": 6},
    "map": {
        **SMALL, "class_token": False, "position": "relative",
        "pooling": "map", "activation": "gelu_tanh"},
    "root": {
        **SMALL, "patch_size": 1, "image_size": (16, 24), "stages": (),
        "trunk_width": 32},
    "resized": {**SMALL, "image_size": None},
}
# fmt: on
TRAINED = ["plain", "rich", "map"]
OPTIMIZERS = {
    "sgd": (lambda: keras.optimizers.SGD(0.05, momentum=0.9), 1e-5),
    "adamw": (lambda: keras.optimizers.AdamW(1e-3, weight_decay=0.01), 1e-4),
}


def made(kind):
    return fill(keras_vit.ViT(tiny(**KINDS[kind])))


def images_of(kind, count=4):
    height, width = KINDS[kind]["image_size"] or (16, 20)
    return pictures(count, height, width)


def trained(kind, optimizer):
    """Path to array after five steps on one batch."""
    model = made(kind)
    model.compile(
        OPTIMIZERS[optimizer][0](),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = images_of(kind, 8), np.arange(8) % 5
    model.fit(x, y, batch_size=8, epochs=5, verbose=0)
    return values(model)


def without_keys(path, value):
    """A bias without its part for the keys."""
    if path.endswith("/qkv/bias"):
        return np.delete(value.reshape(3, -1), 1, axis=0)
    if path.endswith("/key_value/bias"):
        return value.reshape(2, -1)[1]
    return value


@pytest.fixture(scope="module")
def oracle():
    with np.load(ORACLE) as file:
        return dict(file)


@pytest.mark.parametrize("kind", KINDS)
def test_logits(kind, oracle):
    logits = predict(made(kind), images_of(kind))
    assert np.ptp(oracle[f"{kind}/logits"]) > 0.5
    np.testing.assert_allclose(
        logits, oracle[f"{kind}/logits"], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", TRAINED)
def test_five_steps(kind, optimizer, oracle):
    start, end = values(made(kind)), trained(kind, optimizer)
    bar = OPTIMIZERS[optimizer][1]
    for path, value in end.items():
        expected = oracle[f"{kind}/{optimizer}/{path}"]
        if optimizer == "adamw":
            value, expected = (without_keys(path, v) for v in (value, expected))
        moved = np.abs(without_keys(path, end[path] - start[path])).max()
        assert moved > 10 * bar, f"{path} has not been trained"
        np.testing.assert_allclose(
            value, expected, rtol=0, atol=bar, err_msg=path
        )


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import test_backends as t
model = t.made("plain")
model.save_to_preset("preset")
np.save("logits.npy", t.predict(model, t.images_of("plain")))
"""


@pytest.mark.parametrize("other", ["jax", "tensorflow", "torch"])
def test_preset_of_another_backend(other, tmp_path):
    """C11: a file knows nothing of the backend that wrote it."""
    if other == keras.config.backend():
        pytest.skip("this is the active backend")
    if importlib.util.find_spec(other) is None:
        pytest.skip(f"{other} is not installed")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRITER, str(ROOT / "tests")],
        check=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "KERAS_BACKEND": other,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    model = keras_vit.ViT.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(
        predict(model, images_of("plain")),
        np.load(tmp_path / "logits.npy"),
        rtol=0,
        atol=1e-5,
    )


def write_oracle():
    """What the active backend computes becomes what all have to."""
    arrays = {}
    for kind in KINDS:
        arrays[f"{kind}/logits"] = predict(made(kind), images_of(kind))
    for kind in TRAINED:
        for optimizer in OPTIMIZERS:
            for path, value in trained(kind, optimizer).items():
                arrays[f"{kind}/{optimizer}/{path}"] = value
    np.savez_compressed(ORACLE, **arrays)


if __name__ == "__main__":
    write_oracle()
