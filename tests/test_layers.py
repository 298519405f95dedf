"""What every layer keeps to, and layer normalisation with its gradient."""

import json

import keras
import numpy as np
import pytest
from keras import ops
from test_conv import LAYERS

from keras_vit import layers
from keras_vit.checks import as_pair

X = (2, 7, 8)  # (batch, tokens, width): one prefix token and 2x3 patches
PATCHES = (2, 2, 3, 8)
OTHER = (2, 3, 2, 8)  # another grid of as many patches

# name -> (class, arguments, shapes of the inputs, number of weights)
# fmt: off
CASES = {
    "pixels": ("Pixels", {
        "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "rescale": True,
        "data_format": "channels_first"}, [(2, 3, 4, 6)], 0),
    "pixels_as_they_are": ("Pixels", {"rescale": False}, [(2, 4, 6, 3)], 0),
    "patch_embedding": ("PatchEmbedding", {
        "width": 8, "patch_size": (2, 3), "use_bias": False},
        [(2, 4, 9, 3)], 1),
    "patch_embedding_bias": ("PatchEmbedding", {
        "width": 8, "patch_size": 2}, [(2, 4, 6, 3)], 2),
    "prefix_tokens": ("PrefixTokens", {"count": 3}, [X], 1),
    "learned": ("PositionEmbedding", {
        "grid": (2, 3), "position": "learned", "num_prefix": 1,
        "num_prefix_positions": 1, "resampling": "zoom"}, [X], 2),
    "learned_2d": ("PositionEmbedding", {
        "grid": (2, 3), "position": "learned_2d", "num_prefix": 1,
        "resampling": "dino"}, [X, OTHER], 2),
    "sincos_2d": ("PositionEmbedding", {
        "grid": (2, 3), "position": "sincos_2d", "num_prefix": 1},
        [X, OTHER], 0),
    "relative_position": ("RelativePosition", {
        "grid": (2, 3), "num_heads": 2, "num_prefix": 1,
        "resampling": "bicubic"}, [OTHER], 2),
    "relative_without_prefix": ("RelativePosition", {
        "grid": (2, 3), "num_heads": 4}, [PATCHES], 1),
    "layer_normalization": ("LayerNormalization", {"epsilon": 1e-3}, [X], 2),
    "attention": ("Attention", {
        "num_heads": 2, "use_bias": False, "dropout_rate": 0.3},
        [X, (2, 7, 7)], 3),
    "attention_bias": ("Attention", {"num_heads": 4}, [X], 4),
    "stochastic_depth": ("StochasticDepth", {"rate": 0.5, "seed": 3}, [X], 0),
    "layer_scale": ("LayerScale", {"initial_value": 0.5}, [X], 1),
    "mlp": ("MLP", {
        "mlp_dim": 5, "activation": "swiglu", "dropout_rate": 0.3}, [X], 4),
    "block": ("TransformerBlock", {
        "num_heads": 2, "mlp_dim": 5, "activation": "quick_gelu",
        "epsilon": 1e-3, "qkv_bias": False, "layer_scale": 0.5,
        "dropout_rate": 0.1, "attention_dropout_rate": 0.2,
        "stochastic_depth_rate": 0.3}, [X, (2, 7, 7)], 13),
    "plain_block": ("TransformerBlock", {
        "num_heads": 4, "mlp_dim": 5}, [X], 12),
    "token_pooling": ("TokenPooling", {
        "pooling": "gap", "index": 1, "num_prefix": 2}, [X], 0),
    "attention_pooling": ("AttentionPooling", {
        "num_heads": 2, "mlp_dim": 5, "activation": "gelu_tanh",
        "epsilon": 1e-3}, [X], 13),
}
# fmt: on
POLICIES = ["float32", "mixed_bfloat16"]
all_cases = pytest.mark.parametrize("case", CASES)


def make(case, policy="float32"):
    """A built layer with weights of unit scale, and inputs for it."""
    name, options, shapes, _ = CASES[case]
    policy = keras.DTypePolicy(policy)
    layer = getattr(layers, name)(**options, dtype=policy, name=case)
    rng = np.random.default_rng(0)
    inputs = [ops.array(rng.normal(size=s), "float32") for s in shapes]
    layer(*inputs)
    layer.set_weights([_unit_scale(w.shape, rng) for w in layer.get_weights()])
    return layer, inputs


def _unit_scale(shape, rng):
    fan_in = np.prod(shape[:-1]) if len(shape) > 1 else 1
    return rng.normal(size=shape) * 1.5 / np.sqrt(fan_in)


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def gradients(layer, inputs, upstream):
    """Gradients of `sum(layer(*inputs) * upstream)`: inputs, then weights."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def loss(inputs, weights):
            state = [v.value for v in layer.non_trainable_variables]
            y, _ = layer.stateless_call(weights, state, *inputs)
            return ops.sum(y * upstream)

        weights = [v.value for v in layer.trainable_variables]
        return jax.jit(jax.grad(loss, (0, 1)))(inputs, weights)
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = ops.sum(layer(*inputs) * upstream)
        weights = [v.value for v in layer.trainable_variables]
        return tape.gradient(loss, (inputs, weights))
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    ops.sum(layer(*inputs) * upstream).backward()
    weights = [v.value.grad for v in layer.trainable_variables]
    return [x.grad for x in inputs], weights


def test_every_layer_has_a_case():
    """Here, or in files of their own."""
    convolutions = {type(make()).__name__ for make, _ in LAYERS.values()}
    here = {"EvaluationResize", *(row[0] for row in CASES.values())}
    assert here | convolutions == set(layers.__all__)


@pytest.mark.parametrize("policy", POLICIES)
@all_cases
def test_shape_and_dtype_are_those_announced(case, policy):
    layer, inputs = make(case, policy)
    y = layer(*inputs)
    shapes = [x.shape for x in inputs]
    assert tuple(layer.compute_output_shape(*shapes)) == tuple(y.shape)
    spec = layer.compute_output_spec(*map(keras.KerasTensor, shapes))
    assert spec.shape == tuple(y.shape)
    assert spec.dtype == keras.backend.standardize_dtype(y.dtype)
    assert np.isfinite(numpy(y)).all()
    assert len(layer.weights) == CASES[case][3]


@all_cases
def test_shape_is_announced_for_any_batch(case):
    layer, inputs = make(case)
    shapes = [(None, *x.shape[1:]) for x in inputs]
    without_batch = CASES[case][0] == "RelativePosition"
    expected = layer(*inputs).shape[0 if without_batch else 1 :]
    announced = layer.compute_output_shape(*shapes)
    assert tuple(announced)[-len(expected) :] == tuple(expected)
    if not without_batch:
        assert announced[0] is None


@pytest.mark.parametrize("policy", POLICIES)
@all_cases
def test_config_round_trip(case, policy):
    """C03, C06: equal configs, weight paths and outputs, through JSON."""
    layer, inputs = make(case, policy)
    config = layer.get_config()
    for name, value in CASES[case][1].items():
        assert config[name] == (
            as_pair(name, value) if "size" in name else value
        )
    twins = [type(layer).from_config(config)]
    text = json.dumps(keras.saving.serialize_keras_object(layer))
    twins.append(keras.saving.deserialize_keras_object(json.loads(text)))
    for twin in twins:
        twin(*inputs)
        twin.set_weights(layer.get_weights())
        assert twin.get_config() == config
        assert twin.dtype_policy == layer.dtype_policy
        assert [v.path for v in twin.weights] == [v.path for v in layer.weights]
        assert np.array_equal(numpy(twin(*inputs)), numpy(layer(*inputs)))


@all_cases
def test_saved_and_loaded(case, tmp_path):
    """C01, C04: `.keras` files load without `custom_objects`, all restored."""
    layer, inputs = make(case)
    symbols = [keras.Input(x.shape[1:]) for x in inputs]
    model = keras.Model(symbols, layer(*symbols))
    model.save(tmp_path / "layer.keras")
    loaded = keras.saving.load_model(tmp_path / "layer.keras")
    assert np.array_equal(numpy(loaded(inputs)), numpy(layer(*inputs)))


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name][3]])
def test_one_step_moves_every_weight(case):
    """But for the bias of the keys: softmax takes no notice of it."""
    layer, inputs = make(case)
    y = layer(*inputs)
    upstream = np.random.default_rng(1).normal(size=y.shape).astype("float32")
    _, gradient = gradients(layer, inputs, ops.array(upstream))
    before = [numpy(v) for v in layer.trainable_variables]
    paths = [v.path for v in layer.trainable_variables]
    keras.optimizers.SGD(1.0).apply(gradient, layer.trainable_variables)
    for old, path, v in zip(
        before, paths, layer.trainable_variables, strict=True
    ):
        moved = np.abs(numpy(v) - old)
        if path.endswith(("qkv/bias", "key_value/bias")):
            moved = _without_keys(moved)
        assert (moved > 1e-6).all(), path


def _without_keys(moved):
    """Checks the part of the keys, and returns the rest."""
    first = 8 if len(moved) == 24 else 0
    assert moved[first : first + 8].max() < 1e-4 * moved.max()
    return np.delete(moved, range(first, first + 8))


@pytest.mark.parametrize(
    "case", ["attention", "mlp", "block", "stochastic_depth"]
)
def test_dropout_only_in_training(case):
    layer, inputs = make(case)
    at_rest, again = numpy(layer(*inputs)), numpy(layer(*inputs))
    assert np.array_equal(at_rest, again)
    trained = [numpy(layer(*inputs, training=True)) for _ in range(6)]
    assert all(np.isfinite(y).all() for y in trained)
    assert any(np.abs(y - at_rest).max() > 1e-2 for y in trained)
    assert any(np.abs(y - trained[0]).max() > 1e-2 for y in trained)


def layer_norm(x, gamma, beta, epsilon):
    """The definition, in float64."""
    x, gamma, beta = (np.asarray(a, "float64") for a in (x, gamma, beta))
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-5, 0.1])
def test_layer_normalization(epsilon):
    """A02: the epsilon given is the one that counts."""
    layer, (x,) = make("layer_normalization")
    layer.epsilon = epsilon
    for scale in (1.0, 1e-3):  # at 1e-3 the variance is about 1e-6
        expected = layer_norm(
            scale * numpy(x), *layer.get_weights(), epsilon=epsilon
        )
        y = numpy(layer(scale * x))
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


def test_gradient_of_layer_normalization_is_the_stock_one():
    layer, (x,) = make("layer_normalization")
    stock = keras.layers.LayerNormalization(epsilon=layer.epsilon)
    stock.build(x.shape)
    stock.set_weights(layer.get_weights())
    upstream = np.random.default_rng(1).normal(size=x.shape).astype("float32")
    ours, theirs = (
        [*inputs, *weights]
        for inputs, weights in (
            gradients(f, [x], ops.array(upstream)) for f in (layer, stock)
        )
    )
    assert len(ours) == 3
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(numpy(a), numpy(b), rtol=0, atol=1e-5)


def test_layer_normalization_is_one_step(backend):
    """J05: one kernel on torch, one rule of its own on JAX."""
    layer = layers.LayerNormalization()
    layer.build((None, 8))
    x = ops.ones((2, 8))
    if backend == "torch":
        from torch.profiler import profile

        with profile() as found:
            layer(x)
        names = [event.name for event in found.events()]
        assert names.count("aten::native_layer_norm") == 1
        assert not {"aten::mean", "aten::mul", "aten::sub"} & set(names)
    elif backend == "jax":
        import jax

        steps = [e.primitive.name for e in jax.make_jaxpr(layer)(x).eqns]
        assert sum(name.startswith("custom_") for name in steps) == 1
        assert not {"rsqrt", "reduce_sum", "mul"} & set(steps)
    else:
        pytest.skip("the operations are Keras' own; XLA makes one of them")


def test_layer_normalization_is_float32_inside():
    """D01: squares overflow float16, and a rounded scale is another one."""
    layer = layers.LayerNormalization(dtype="mixed_float16")
    x = np.array([[299, 301] * 4, [-1000, 1000] * 4], "float16")
    layer.build(x.shape)
    gamma = np.full(8, 1000.3)  # 1000.5 in float16
    layer.set_weights([gamma, np.full(8, -1000.0)])
    y = layer(ops.array(x))
    assert keras.backend.standardize_dtype(y.dtype) == "float16"
    expected = np.array([[-2000.3, 0.3] * 4] * 2)
    np.testing.assert_allclose(numpy(y), expected, rtol=1e-3, atol=0.05)
