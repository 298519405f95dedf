"""Standardised convolutions, group norms and residual units, on their own."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers
from keras_vit.layers.conv import standardize

RNG = np.random.default_rng(0)
FLAVOURS = ["std_plus_eps", "sqrt_var_plus_eps"]
NUMERICS = {
    "v1": {},
    "v2": {
        "unit": "pre_activation",
        "standardization": "sqrt_var_plus_eps",
        "conv_epsilon": 1e-10,
        "group_norm_epsilon": 1e-5,
        "conv_padding": "fixed",
    },
}
# fmt: off
LAYERS = {
    # layer, number of weights
    "conv": (lambda **k: layers.StdConv2D(32, 3, 2, padding="fixed", **k), 1),
    "norm": (lambda **k: layers.GroupNormalization(1e-5, "zeros", **k), 2),
    "root-v1": (lambda **k: layers.Root(32, **k), 3),
    "root-v2": (lambda **k: layers.Root(
        32, "zero", **NUMERICS["v2"], **k), 1),
    "unit-v1": (lambda **k: layers.ResidualUnit(32, 2, **k), 12),
    "unit-v2": (lambda **k: layers.ResidualUnit(
        32, 2, **NUMERICS["v2"], **k), 10),
    "unit-plain": (lambda **k: layers.ResidualUnit(32, **k), 9),
    "stage": (lambda **k: layers.ResidualStage(2, 32, 2, **k), 21),
}
# fmt: on


def noise(*shape):
    return RNG.normal(size=shape).astype("float32")


def reference_conv(x, kernel, stride, pads):
    """A convolution of one image size, term by term, in float64."""
    x = np.pad(x.astype("float64"), ((0, 0), pads, pads, (0, 0)))
    k = kernel.shape[0]
    rows, columns = ((n - k) // stride + 1 for n in x.shape[1:3])
    out = np.zeros((len(x), rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            a, b = i * stride, j * stride
            patch = x[:, a : a + k, b : b + k]
            out[:, i, j] = np.tensordot(patch, kernel, ((1, 2, 3), (0, 1, 2)))
    return out


# Side, kernel, stride, padding -> pixels before and after.
# fmt: off
PADS = [
    (8, 7, 2, "same",  (2, 3)), (9, 7, 2, "same",  (3, 3)),
    (8, 7, 2, "fixed", (3, 3)), (9, 7, 2, "fixed", (3, 3)),
    (8, 3, 2, "same",  (0, 1)), (9, 3, 2, "same",  (1, 1)),
    (8, 3, 2, "fixed", (1, 1)), (8, 3, 1, "same",  (1, 1)),
    (8, 3, 1, "fixed", (1, 1)), (8, 1, 2, "same",  (0, 0)),
    (9, 1, 2, "fixed", (0, 0)), (8, 1, 1, "fixed", (0, 0)),
]
# fmt: on


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("side", "size", "stride", "padding", "pads"), PADS)
def test_convolution(flavour, side, size, stride, padding, pads):
    """A09: where the odd pixel goes, on three backends."""
    layer = layers.StdConv2D(4, size, stride, flavour, 0.3, padding)
    x, kernel = noise(2, side, side, 5), noise(size, size, 5, 4)
    layer.build(x.shape)
    layer.kernel.assign(kernel)
    axes = (0, 1, 2)
    std, mean = kernel.std(axes), kernel.mean(axes)
    root = np.sqrt(std**2 + 0.3)
    divisor = std + 0.3 if flavour == "std_plus_eps" else root
    expected = reference_conv(x, (kernel - mean) / divisor, stride, pads)
    out = ops.convert_to_numpy(layer(x))
    assert out.shape == layer.compute_output_shape(x.shape)
    np.testing.assert_allclose(out, expected, atol=1e-4)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_kernels_are_standard(flavour):
    """A shift of the kernel changes nothing, a scale next to nothing."""
    kernel = ops.convert_to_tensor(noise(3, 3, 8, 4))
    one = ops.convert_to_numpy(standardize(kernel, flavour, 1e-10))
    np.testing.assert_allclose(one.mean((0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(one.std((0, 1, 2)), 1, atol=1e-5)
    two = ops.convert_to_numpy(standardize(7 * kernel + 5, flavour, 1e-10))
    np.testing.assert_allclose(two, one, atol=1e-4)
    assert standardize(kernel, "stored", 1e-10) is kernel


@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_group_normalization(offset):
    """Keras' own layer, and float64, with a scale and an offset."""
    ours, stock = (
        layers.GroupNormalization(1e-5),
        keras.layers.GroupNormalization(32, epsilon=1e-5),
    )
    x = noise(2, 5, 6, 64) * np.linspace(0.1, 3, 64) + offset
    x = x.astype("float32")
    weights = [noise(64), noise(64)]
    for layer in (ours, stock):
        layer.build(x.shape)
        layer.set_weights(weights)
    out = ops.convert_to_numpy(ours(x))
    groups = x.astype("float64").reshape(2, 5, 6, 32, 2)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    unit = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    exact = unit * weights[0] + weights[1]
    bar = 1e-5 if offset == 0 else 5e-3  # a hundred deviations off zero
    np.testing.assert_allclose(out, exact, atol=bar)
    np.testing.assert_allclose(out, ops.convert_to_numpy(stock(x)), atol=bar)


@pytest.mark.parametrize(
    ("pool", "expected"), [("zero", 0), ("minus_infinity", -1), ("same", -1)]
)
def test_borders_of_the_maximum(pool, expected):
    """A09: among negative values zeros win, minus infinity does not."""
    layer = layers.Root(
        32, pool, unit="pre_activation", standardization="stored"
    )
    x = np.ones((1, 16, 16, 3), "float32")
    layer.build(x.shape)
    kernel = np.zeros((7, 7, 3, 32), "float32")
    kernel[3, 3] = -1 / 3  # minus the mean of one pixel
    layer.conv.kernel.assign(kernel)
    out = ops.convert_to_numpy(layer(x))
    assert out.shape == (1, 4, 4, 32)
    np.testing.assert_allclose(out[0, 0, 0], expected)
    np.testing.assert_allclose(out[0, -1, -1], -1)


@pytest.mark.parametrize("name", LAYERS)
def test_contract(name):
    """Shapes, number of weights, and the round trip of the config."""
    make, count = LAYERS[name]
    layer = make(dtype="mixed_bfloat16")
    x = noise(2, 7, 8, 128 if name == "unit-plain" else 64)
    out = layer(x)
    assert tuple(out.shape) == layer.compute_output_shape(x.shape)
    assert keras.backend.standardize_dtype(out.dtype) == "bfloat16"
    assert len(layer.weights) == count
    assert {v.dtype for v in layer.weights} == {"float32"}
    again = type(layer).from_config(layer.get_config())
    again.build(x.shape)
    assert again.get_config() == layer.get_config()
    again.set_weights(layer.get_weights())
    for a, b in zip(layer.weights, again.weights, strict=True):
        assert a.shape == b.shape
        assert a.path.split("/")[1:] == b.path.split("/")[1:]
    np.testing.assert_array_equal(
        *(
            ops.convert_to_numpy(ops.cast(f(x), "float32"))
            for f in (layer, again)
        )
    )


def test_new_unit_is_its_shortcut():
    """The last scale of a post-activation branch starts at zero."""
    unit, x = layers.ResidualUnit(32), noise(1, 4, 4, 128)
    np.testing.assert_allclose(
        ops.convert_to_numpy(unit(x)), np.maximum(x, 0), atol=1e-6
    )


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: layers.StdConv2D(4, 3, padding="fixd"), "mean 'fixed'"),
        (lambda: layers.StdConv2D(4, 3, 1, "std"), "std_plus_eps"),
        (lambda: layers.Root(32, "zeros"), "mean 'zero'"),
        (lambda: layers.ResidualUnit(32, unit="v2"), "pre_activation"),
        (lambda: layers.GroupNormalization()(noise(1, 2, 2, 48)), "32.*48"),
    ],
    ids=["padding", "flavour", "pool", "unit", "groups"],
)
def test_errors(make, match):
    with pytest.raises(ValueError, match=match):
        make()
