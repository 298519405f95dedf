"""One model, images of other sizes: at call time and rebuilt."""

import logging

import keras
import numpy as np
import pytest
from keras import ops
from random_weights import changed
from random_weights import fill
from random_weights import filled
from random_weights import pictures
from random_weights import predict
from random_weights import tiny
from random_weights import values

import keras_vit
from keras_vit.resampling import resize_matrix

POSITIONS = ["none", "learned", "learned_2d", "relative", "sincos_2d"]
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SIZES = [(12, 12), (16, 8)]
SMALL = {"image_size": 12, "depth": 1}


@pytest.mark.parametrize("position", POSITIONS)
def test_any_image_size(position):
    """B09: at its own size the fixed model; elsewhere the resampled one."""
    fixed = filled(position=position, **SMALL)
    free = fixed.with_image_size(None)
    assert free.input.shape == (None, None, None, 3)
    for height, width in SIZES:
        images = pictures(2, height, width)
        expected = predict(fixed.with_image_size((height, width)), images)
        np.testing.assert_allclose(predict(free, images), expected, atol=1e-5)
    eager = ops.convert_to_numpy(free(images))
    np.testing.assert_allclose(eager, expected, atol=1e-5)


@pytest.mark.parametrize("position", ["learned", "relative"])
def test_any_image_size_in_fit(position):
    """B09: two sizes in turn, compiled as the backend does it."""
    model = filled(position=position, **SMALL).with_image_size(None)
    model.compile(keras.optimizers.Adam(1e-3), SPARSE)
    losses = []
    for _ in range(3):
        for height, width in SIZES:
            images = pictures(4, height, width)
            fit = model.fit(images, np.arange(4), verbose=0)
            losses += fit.history["loss"]
    assert np.isfinite(losses).all()
    assert losses[4] < losses[0]
    assert losses[5] < losses[1]


def test_any_image_size_under_xla(backend):
    """B09, H03: every size is a trace of its own."""
    if backend == "torch":
        pytest.skip("torch has no XLA")
    model = filled(**SMALL).with_image_size(None)
    expected = [predict(model, pictures(2, h, w)) for h, w in SIZES]
    model.compile(jit_compile=True)
    for (height, width), logits in zip(SIZES, expected, strict=True):
        images = pictures(2, height, width)
        np.testing.assert_allclose(predict(model, images), logits, atol=1e-5)


def test_any_image_size_is_whole_patches():
    """B08."""
    model = keras_vit.ViT(tiny(image_size=None, depth=1))
    with pytest.raises(ValueError, match=r"height.*4.*30.*28 and 32"):
        model.predict(np.zeros((1, 30, 28, 3), "uint8"), verbose=0)


@pytest.mark.parametrize("position", ["none", "learned", "relative"])
def test_transposed_images(position):
    """B05: image, kernel and table transposed, so are the patch features."""
    wide = filled(image_size=(20, 28), position=position)
    tall = fill(keras_vit.ViT(tiny(image_size=(28, 20), position=position)))
    axes = {"patch_embedding/kernel": 0, "position_embedding/grid": 1}
    source = values(wide)
    for variable in tall.weights:
        value = source[variable.path]
        axis = 0 if variable.path.endswith("table") else axes.get(variable.path)
        if axis is not None:
            value = value.swapaxes(axis, axis + 1)
        variable.assign(value)
    images = pictures(2, 20, 28)
    expected = patch_features(wide, images, (5, 7))
    features = patch_features(tall, images.swapaxes(1, 2), (7, 5))
    np.testing.assert_allclose(features.swapaxes(1, 2), expected, atol=5e-5)


def patch_features(model, images, grid):
    tokens = predict(model.feature_model("norm"), images)["norm"]
    return tokens[:, 1:].reshape(len(images), *grid, -1)


RESIZED = {
    "none": set(),
    "learned": {"position_embedding/grid"},
    "learned_2d": {"position_embedding/rows", "position_embedding/columns"},
    "relative": {f"relative_position_{i}/table" for i in range(2)},
    "sincos_2d": set(),
}


@pytest.mark.parametrize("position", POSITIONS)
def test_with_image_size(position):
    """B12, B14: positions are resampled, every other bit stays."""
    model = filled(position=position)
    other = model.with_image_size((36, 20))
    assert other.config.image_size == (36, 20)
    assert changed(values(model), values(other)) == RESIZED[position]
    if position == "learned":
        grid = values(model)["position_embedding/grid"]
        expected = keras_vit.resample(grid, (9, 5), "bicubic_antialias")
        np.testing.assert_array_equal(
            values(other)["position_embedding/grid"], expected
        )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"image_size": 56}, "positions 7x7 -> 14x14 (bicubic_antialias)"),
        ({"image_size": 56, "patch_size": 8}, "patch kernel 4x4 -> 8x8"),
    ],
    ids=["positions", "B10-patch"],
)
def test_one_line_for_what_is_resampled(caplog, changes, line):
    """B13: level INFO, so nothing is seen unless it is asked for."""
    model = filled()
    with caplog.at_level(logging.INFO, "keras_vit"):
        model.with_config(**changes)
    assert [r.getMessage() for r in caplog.records] == [line]
    assert {r.levelno for r in caplog.records} == {logging.INFO}
    caplog.clear()
    model.with_config(stochastic_depth_rate=0.1)
    assert not caplog.records


def test_larger_patches_keep_the_tokens():
    """B10: a picture enlarged as the kernel is keeps its tokens to 1e-3."""
    model = filled(position="none", depth=1)
    larger = model.with_config(image_size=56, patch_size=8)
    enlarge = resize_matrix(4, 8, "bilinear")
    small = pictures(2).astype("float32")
    patches = small.reshape(2, 7, 4, 7, 4, 3)
    large = np.einsum("ia,nrasbc,jb->nrisjc", enlarge, patches, enlarge)
    a = predict(model.feature_model("patch_embedding"), small)
    b = predict(
        larger.feature_model("patch_embedding"), large.reshape(2, 56, 56, 3)
    )
    np.testing.assert_allclose(
        b["patch_embedding"], a["patch_embedding"], atol=1e-3
    )
