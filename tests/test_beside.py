"""Memory: TensorFlow beside another backend, and many steps on torch."""

import gc
import pathlib
import sys
import types

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.devices.beside import tensorflow_beside

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize("begun", [False, True])
def test_tensorflow_leaves_the_gpu(begun, backend, monkeypatch):
    """H01: hidden where it only reads data, wherever it comes in."""
    hidden = []

    def hide(devices, kind):
        hidden.append((devices, kind))
        if begun:
            raise RuntimeError("Visible devices cannot be modified")

    config = types.SimpleNamespace(set_visible_devices=hide)
    fake = types.SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    assert tensorflow_beside() is fake
    assert hidden == ([] if backend == "tensorflow" else [([], "GPU")])
    if backend == "jax":
        keras_vit.use_devices("cpu:1")
        assert len(hidden) == 2


@pytest.mark.once
def test_nothing_sets_a_share_of_the_gpu():
    """H01: JAX gets its default share, never all."""
    for folder in ("keras_vit", "recipes", "colab"):
        for path in (ROOT / folder).rglob("*.*"):
            text = path.read_bytes()
            assert b"MEM_FRACTION" not in text, path
            assert b"set_memory_growth" not in text, path


def test_torch_keeps_no_tensors_from_step_to_step(backend):
    """H02: after the first steps as many are alive after 10 as after 40."""
    if backend != "torch":
        pytest.skip("memory of torch")
    import torch

    counts = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch in (9, 39):
                gc.collect()
                alive = [o for o in gc.get_objects() if type(o) is torch.Tensor]
                counts.append((len(alive), sum(t.nbytes for t in alive)))

    config = keras_vit.vit_config(
        "nano/4", image_size=8, depth=2, width=8, mlp_dim=8, num_classes=3
    )
    model = keras_vit.ViT(config)
    optimizer = keras.optimizers.AdamW(1e-3, use_ema=True)
    optimizer = keras_vit.layer_decay(optimizer, model)
    model.compile(optimizer, keras_vit.Crossentropy())
    x = np.zeros((80, 8, 8, 3), "uint8")
    model.fit(
        x, np.arange(80) % 3, 2, verbose=0, callbacks=[Count()], shuffle=False
    )
    assert counts[0] == counts[1]
