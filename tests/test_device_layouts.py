"""Which axis of which weight is split among devices."""

import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.devices.layout import RULES
from keras_vit.devices.layout import check_divisible


@pytest.mark.once
def test_every_rule_splits_something():
    """G08: of B/16, L/16 or a hybrid, and each of their large kernels."""
    fields = {"depth": 1, "image_size": 64, "num_classes": 8}
    configs = [
        keras_vit.vit_config("b/16", **fields, pre_logits=16),
        keras_vit.vit_config("l/16", **fields),
        keras_vit.vit_config("r50+b/16", **fields, distillation_token=True),
        keras_vit.vit_config("b/16", **fields, pooling="map"),
    ]
    shapes = {
        v.path: v.shape for c in configs for v in keras_vit.ViT(c).weights
    }
    for pattern, axes in RULES:
        fits = [p for p in shapes if re.fullmatch(pattern, p)]
        assert fits, pattern
        for path in fits:
            assert len(axes) == len(shapes[path]), path
            check_divisible(path, shapes[path], axes, 4)
    whole = [
        path
        for path, shape in shapes.items()
        if np.prod(shape) > 100_000
        and not any(re.fullmatch(pattern, path) for pattern, _ in RULES)
    ]
    assert not whole
    with pytest.raises(ValueError, match="model=5.*768 in head/kernel"):
        check_divisible("head/kernel", (768, 8), ("model", None), 5)


def test_layouts_need_an_axis(backend):
    if backend != "jax":
        pytest.skip("there are meshes on JAX alone")
    devices = keras.distribution.list_devices("cpu")[:1]
    mesh = keras.distribution.DeviceMesh((1,), ["batch"], devices)
    with pytest.raises(ValueError, match="axis 'model'.*'batch'"):
        keras_vit.layout_map(mesh)
