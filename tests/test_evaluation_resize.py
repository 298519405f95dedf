"""The layer that does in `tf.data` what `load_images` does with files."""

import json

import keras
import numpy as np
import pytest
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from skimage import data

import keras_vit
from keras_vit.config_parts import PixelConfig
from keras_vit.layers import EvaluationResize
from keras_vit.pixels import resize_image

PHOTOS = ["astronaut", "chelsea", "rocket"]  # square, wide, wide
# fmt: off
RECIPES = [
    PixelConfig(resize="crop", crop_fraction=0.9),
    PixelConfig(resize="squash"),
    PixelConfig(resize="crop", crop_fraction=0.875, interpolation="bilinear"),
    PixelConfig(resize="crop", interpolation="bilinear", antialias=False),
]
# fmt: on


def layer_of(pixels, size):
    config = keras_vit.ViTConfig().replace(image_size=size)
    return EvaluationResize.of(config.replace(**vars(pixels)))


@pytest.mark.parametrize("size", [224, (96, 160)], ids=str)
@pytest.mark.parametrize("pixels", RECIPES, ids=range(4))
def test_photos_as_from_files(pixels, size):
    """F01, F10: mean absolute difference under 1 of 255 levels.

    0.2 is what the rounding of Pillow between its two passes makes; a crop
    that is one pixel off makes 3.
    """
    layer = layer_of(pixels, size)
    for name in PHOTOS:
        photo = getattr(data, name)()
        ours = keras.ops.convert_to_numpy(layer(photo))
        exact = resize_image(photo, pixels, size).astype("float32")
        assert ours.shape == exact.shape
        assert np.abs(ours - exact).mean() < 0.25, name


def test_in_a_pipeline():
    """F10, H11: in `tf.data`, for sizes known only there, on every backend."""
    tf = pytest.importorskip("tensorflow")
    layer = layer_of(RECIPES[0], 64)
    photos = [getattr(data, name)() for name in PHOTOS]
    signature = tf.TensorSpec((None, None, 3), "uint8")
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(photos), output_signature=signature
    )
    for photo, out in zip(photos, dataset.map(layer), strict=True):
        exact = resize_image(photo, RECIPES[0], 64).astype("float32")
        assert np.abs(out.numpy() - exact).mean() < 0.25
        assert "CPU" in out.device


@pytest.mark.parametrize("image_size", [16, None])
def test_no_image_is_resized_in_a_model(image_size, monkeypatch):
    """H11: a device without a kernel for it is not asked to resize."""
    asked = []
    for name in ("resize", "affine_transform", "scale_and_translate"):
        if hasattr(keras.ops.image, name):
            monkeypatch.setattr(
                keras.ops.image, name, lambda *_, **__: asked.append(1)
            )
    model = filled(image_size=image_size)
    # Positions are resampled by products of matrices.
    logits = predict(model, pictures(1, 16, 16 if image_size else 24))
    assert np.isfinite(logits).all()
    assert not asked


def test_contract():
    layer = layer_of(RECIPES[0], (32, 48))
    batch = np.zeros((2, 40, 50, 3), "uint8")
    out = layer(batch)
    assert tuple(out.shape) == layer.compute_output_shape(batch.shape)
    text = json.dumps(keras.saving.serialize_keras_object(layer))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    assert again.get_config() == layer.get_config()
    with pytest.raises(ValueError, match="'squash'"):
        EvaluationResize(8, "squish")
