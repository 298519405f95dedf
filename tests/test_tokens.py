"""From pixels to tokens, and from tokens to one vector."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


# Pixel statistics -> what pixels of 0, 127.5 and 255 become.
STATISTICS = {
    "half": ({}, [[-1, -1, -1], [0, 0, 0], [1, 1, 1]]),
    "imagenet": (
        {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
        [
            [-2.117904, -2.035714, -1.804444],
            [0.065502, 0.196429, 0.417778],
            [2.248908, 2.428571, 2.64],
        ],
    ),
}


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("statistics", STATISTICS)
def test_pixels(statistics, policy):
    """F01: exact at both ends and in the middle, under every policy."""
    options, expected = STATISTICS[statistics]
    levels = np.array([0, 127.5, 255], "float32")[None, :, None, None]
    images = np.broadcast_to(levels, (1, 3, 1, 3)).copy()
    layer = layers.Pixels(**options, dtype=keras.DTypePolicy(policy))
    y = layer(ops.array(images))
    assert keras.backend.standardize_dtype(y.dtype) == "float32"
    np.testing.assert_allclose(numpy(y)[0, :, 0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_pixels_keep_what_lies_between_levels(policy):
    """A resized pixel of 100.3 is not 100.5, its neighbour in bfloat16."""
    layer = layers.Pixels(dtype=policy)
    y = numpy(layer(ops.full((1, 1, 1, 3), 100.3)))
    np.testing.assert_allclose(y, (100.3 / 255 - 0.5) / 0.5, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float32"])
def test_pixels_of_any_dtype_and_layout(dtype):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 4, 5, 3))
    expected = (images / 255 - 0.5) / 0.5
    last = layers.Pixels()(ops.array(images, dtype))
    first = layers.Pixels(data_format="channels_first")(
        ops.array(images.transpose(0, 3, 1, 2).copy(), dtype)
    )
    for y in (last, first):
        np.testing.assert_allclose(numpy(y), expected, rtol=0, atol=1e-6)


def test_pixels_as_they_are():
    x = normal(1, 2, 3, 3)
    layer = layers.Pixels((0.1, 0.2, 0.3), rescale=False)
    assert np.array_equal(numpy(layer(ops.array(x))), x)


@pytest.mark.parametrize(
    "image_data_format", ["channels_last", "channels_first"]
)
@pytest.mark.parametrize("use_bias", [True, False])
def test_patch_embedding_is_a_product_per_patch(use_bias, image_data_format):
    """B05: patches and images that are not square, rows first."""
    x = normal(2, 4, 9, 3)
    layer = layers.PatchEmbedding(5, (2, 3), use_bias=use_bias)
    layer.build(x.shape)
    weights = [normal(*w.shape, seed=i) for i, w in enumerate(layer.weights)]
    layer.set_weights(weights)
    patches = x.reshape(2, 2, 2, 3, 3, 3).swapaxes(2, 3).reshape(2, 2, 3, 18)
    expected = patches @ weights[0].reshape(18, 5).astype("float64")
    if use_bias:
        expected = expected + weights[1]
    before = keras.config.image_data_format()
    keras.config.set_image_data_format(image_data_format)
    try:
        y = numpy(layer(ops.array(x)))
    finally:
        keras.config.set_image_data_format(before)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


def test_prefix_tokens_stand_in_front():
    x = normal(2, 3, 4)
    layer = layers.PrefixTokens(2)
    layer.build(x.shape)
    start = layer.get_weights()[0]
    assert np.abs(start[0, 0] - start[0, 1]).max() > 0  # several differ
    token = normal(1, 2, 4, seed=1)
    layer.set_weights([token])
    y = numpy(layer(ops.array(x)))
    expected = np.concatenate([np.repeat(token, 2, axis=0), x], axis=1)
    assert np.array_equal(y, expected)


def test_a_single_token_starts_at_zero():
    layer = layers.PrefixTokens()
    layer.build((None, 3, 4))
    assert np.array_equal(layer.get_weights()[0], np.zeros((1, 1, 4)))


@pytest.mark.parametrize("num_prefix", [0, 1, 2])
def test_mean_leaves_the_prefix_out(num_prefix):
    """A21: the mean of the patches only."""
    x = normal(2, 7, 4)
    layer = layers.TokenPooling("gap", num_prefix=num_prefix)
    y = numpy(layer(ops.array(x)))
    expected = x[:, num_prefix:].mean(1)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6)
    x[:, :num_prefix] += 100
    again = numpy(layer(ops.array(x)))
    np.testing.assert_allclose(again, y, rtol=0, atol=1e-6)


@pytest.mark.parametrize("index", [0, 1])
def test_token_pooling_takes_one(index):
    """A07: the class token, or the distillation token behind it."""
    x = normal(2, 7, 4)
    y = layers.TokenPooling("token", index)(ops.array(x))
    assert np.array_equal(numpy(y), x[:, index])


def image(height, width):
    return lambda layer: layer(ops.zeros((1, height, width, 3)))


# What is wrong, how it is called, and what the error says.
ERRORS = {
    "B08-height": (
        lambda: image(225, 224)(layers.PatchEmbedding(4, 16)),
        "height.*16.*225.*224 and 240",
    ),
    "B08-width": (
        lambda: image(32, 30)(layers.PatchEmbedding(4, (16, 8))),
        "width.*8.*30.*24 and 32",
    ),
    "patch_size": (lambda: layers.PatchEmbedding(4, (16, 0)), r"\(16, 0\)"),
    "layout": (
        lambda: layers.Pixels(data_format="channel_first"),
        "'channel_first'.*'channels_first'",
    ),
    "pooling": (lambda: layers.TokenPooling("mean"), "token, gap.*'mean'"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors(error):
    call, match = ERRORS[error]
    with pytest.raises(ValueError, match=match):
        call()
