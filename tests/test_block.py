"""Activations and what an encoder block is made of."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers
from keras_vit.layers.activations import ACTIVATIONS

X = np.linspace(-6, 6, 120_001)


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def tensor(x):
    return ops.array(x, "float32")


# The definitions, in float64.
def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def quick_gelu(x):
    return x / (1 + np.exp(-1.702 * x))


def swiglu(x):
    gate, value = np.split(x, 2, axis=-1)
    return gate / (1 + np.exp(-gate)) * value


FORMULAS = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "swiglu": swiglu,
}


def test_every_activation_has_a_formula():
    assert FORMULAS.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("name", FORMULAS)
def test_activation_equals_the_formula(name):
    """A01: each flavour is itself, to float32."""
    function, parts = ACTIVATIONS[name]
    x = X[:-1].reshape(-1, 4 * parts)
    y = numpy(function(tensor(x)))
    assert y.shape == (len(x), 4)
    if parts == 1:
        y = y.reshape(x.shape)
    np.testing.assert_allclose(y, FORMULAS[name](x), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("other", "gap", "place"),
    [("gelu_tanh", 4.73e-4, 2.699), ("quick_gelu", 2.03e-2, 2.27)],
)
def test_flavours_differ_as_much_as_stated(other, gap, place):
    """A01: far more than the float32 error of a port."""
    x = tensor(X)
    exact, close = (ACTIVATIONS[name][0](x) for name in ("gelu", other))
    difference = np.abs(numpy(exact) - numpy(close))
    assert difference.max() == pytest.approx(gap, rel=5e-3)
    assert abs(X[difference.argmax()]) == pytest.approx(place, abs=0.02)


def test_swiglu_has_the_gate_first():
    """A18: `silu(first) * second`; the other order gives -0.2384."""
    y = numpy(ACTIVATIONS["swiglu"][0](tensor([[1.0, -2.0]])))
    assert y.item() == pytest.approx(-2 / (1 + math.exp(-1)))


@pytest.mark.parametrize("name", FORMULAS)
def test_mlp_equals_the_formula(name):
    layer = layers.MLP(5, name)
    x = normal(2, 3, 4)
    layer.build(x.shape)
    weights = [normal(*w.shape, seed=i) for i, w in enumerate(layer.weights)]
    layer.set_weights(weights)
    kernel, bias, kernel_2, bias_2 = (w.astype("float64") for w in weights)
    assert kernel.shape == (4, 5 * ACTIVATIONS[name][1])
    expected = FORMULAS[name](x @ kernel + bias) @ kernel_2 + bias_2
    np.testing.assert_allclose(
        numpy(layer(tensor(x))), expected, rtol=0, atol=2e-5
    )


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_stochastic_depth(rate):
    """D11: drops whole images and keeps the mean; at rest it is the input."""
    count, keep = 4000, 1 - rate
    x = np.ones((count, 2, 3), "float32")
    layer = layers.StochasticDepth(rate, seed=1)
    y = numpy(layer(tensor(x), training=True))
    draws = y[:, 0, 0]
    assert np.array_equal(y, np.broadcast_to(draws[:, None, None], y.shape))
    kept = draws > 0
    np.testing.assert_allclose(draws[kept], 1 / keep, rtol=1e-6)
    deviation = math.sqrt(rate / keep / count)
    assert abs(draws.mean() - 1) < 4 * deviation
    assert np.array_equal(numpy(layer(tensor(x))), x)


def test_stochastic_depth_draws_anew():
    x = tensor(np.ones((64, 1)))
    layer, twin = (layers.StochasticDepth(0.5, seed=7) for _ in range(2))
    first = numpy(layer(x, training=True))
    assert np.array_equal(first, numpy(twin(x, training=True)))
    assert not np.array_equal(first, numpy(layer(x, training=True)))


def test_stochastic_depth_of_zero_does_nothing():
    x = normal(4, 3)
    layer = layers.StochasticDepth(0.0)
    assert np.array_equal(numpy(layer(tensor(x), training=True)), x)
    assert not layer.variables


def test_layer_scale_starts_at_its_value():
    layer = layers.LayerScale(0.25)
    x = normal(2, 3, 4)
    assert np.array_equal(numpy(layer(tensor(x))), 0.25 * x)


def block_with_weights(**options):
    block = layers.TransformerBlock(2, 5, **options)
    block.build((None, 7, 8))
    block.set_weights(
        [
            normal(*w.shape, seed=i) / math.sqrt(w.shape[0])
            for i, w in enumerate(block.get_weights())
        ]
    )
    return block


@pytest.mark.parametrize("layer_scale", [None, 0.5])
def test_block_is_that_of_the_paper(layer_scale):
    """Equations 2 and 3: norm, then attention or MLP, then the residual."""
    block = block_with_weights(layer_scale=layer_scale)
    x, bias = tensor(normal(2, 7, 8)), tensor(normal(2, 7, 7, seed=5))
    scales = [1.0, 1.0]
    if layer_scale:
        gammas = (block.layer_scale_1.gamma, block.layer_scale_2.gamma)
        scales = [numpy(gamma) for gamma in gammas]
        assert np.abs(scales[0] - scales[1]).max() > 0.1
    attended = block.attention(block.norm_1(x), bias=bias)
    y = numpy(x) + scales[0] * numpy(attended)
    z = numpy(block.mlp(block.norm_2(tensor(y))))
    np.testing.assert_allclose(
        numpy(block(x, bias)), y + scales[1] * z, rtol=0, atol=1e-5
    )


def test_block_hands_its_options_down():
    """A02, A13: one epsilon for both norms, a rate of its own for each drop."""
    block = layers.TransformerBlock(
        num_heads=2,
        mlp_dim=5,
        activation="swiglu",
        epsilon=0.1,
        qkv_bias=False,
        layer_scale=0.5,
        dropout_rate=0.2,
        attention_dropout_rate=0.3,
        stochastic_depth_rate=0.4,
    )
    norms = (block.norm_1, block.norm_2)
    scales = (block.layer_scale_1, block.layer_scale_2)
    assert [norm.epsilon for norm in norms] == [0.1, 0.1]
    assert [scale.initial_value for scale in scales] == [0.5, 0.5]
    assert block.attention.num_heads == 2
    assert not block.attention.use_bias
    assert block.attention.dropout_rate == 0.3
    assert (block.mlp.mlp_dim, block.mlp.activation) == (5, "swiglu")
    assert (block.mlp.dropout_rate, block.dropout.rate) == (0.2, 0.2)
    assert block.drop_path.rate == 0.4


def test_block_shows_its_attention():
    """I01: rows sum to one, from the very input of the block."""
    block = block_with_weights()
    x, bias = tensor(normal(2, 7, 8)), tensor(normal(2, 7, 7, seed=5))
    maps = numpy(block.attention_maps(x, bias))
    assert maps.shape == (2, 2, 7, 7)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=0, atol=1e-6)
    normed = block.norm_1(x)
    expected = numpy(block.attention.probabilities(normed, bias))
    assert np.array_equal(maps, expected)
    without = numpy(block.attention_maps(x))
    assert np.abs(without - maps).max() > 0.01


def test_block_drops_whole_branches():
    """Both branches of an image dropped: the block is the identity there."""
    block = block_with_weights(stochastic_depth_rate=0.5)
    x = normal(64, 7, 8)
    y = numpy(block(tensor(x), training=True))
    untouched = (y == x).all(axis=(1, 2))
    assert 4 <= untouched.sum() <= 32  # 16 expected, deviation 3.5


ERRORS = {
    "rate_of_one": (lambda: layers.StochasticDepth(1.0), r"\[0, 1\).*1\.0"),
    "negative": (lambda: layers.StochasticDepth(-0.1), r"rate=-0\.1"),
    "mlp": (lambda: layers.MLP(4, dropout_rate=1.5), r"dropout_rate=1\.5"),
    "attention": (lambda: layers.Attention(2, dropout_rate=2), "rate=2"),
    "activation": (lambda: layers.MLP(4, "gelo"), "'gelo'.*'gelu'"),
    "block": (lambda: layers.TransformerBlock(2, 4, "relu"), "'relu'"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors(error):
    make, match = ERRORS[error]
    with pytest.raises(ValueError, match=match):
        make()


def test_half_precision_block():
    """D01: finite and near float32 under both half-precision policies."""
    full = block_with_weights()
    x = normal(2, 7, 8)
    expected = numpy(full(tensor(x)))
    for policy, close in (("mixed_float16", 0.02), ("mixed_bfloat16", 0.15)):
        half = block_with_weights(dtype=keras.DTypePolicy(policy))
        y = half(tensor(x))
        assert keras.backend.standardize_dtype(y.dtype) == policy[6:]
        np.testing.assert_allclose(numpy(y), expected, rtol=0, atol=close)
