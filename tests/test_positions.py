"""Positions at their own grid and at others, eagerly and inside a graph."""

import functools
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.layers import PositionEmbedding
from keras_vit.layers import RelativePosition
from keras_vit.resampling import resample
from keras_vit.resampling import sincos_2d

GRID = (3, 4)
WIDTH = 8
GRIDS = [GRID, (5, 2), (4, 3), (6, 8)]
RULES = ["bicubic_antialias", "dino", "zoom"]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def eager(layer, *inputs):
    return layer(*map(ops.array, inputs))


def graph(layer, *inputs, sizes_known=False, jit_compile=False):
    """Calls the layer in a graph, on TensorFlow with unknown sizes."""
    if keras.config.backend() == "jax":
        import jax

        return jax.jit(lambda *args: layer(*args))(*inputs)
    import tensorflow as tf

    shapes = [
        x.shape if sizes_known else (*[None] * (x.ndim - 1), x.shape[-1])
        for x in inputs
    ]
    call = tf.function(
        lambda *args: layer(*args),
        input_signature=[tf.TensorSpec(shape) for shape in shapes],
        jit_compile=jit_compile,
    )
    return call(*inputs)


MODES = {"eager": eager}
if keras.config.backend() != "torch":
    MODES["graph"] = graph
if keras.config.backend() == "tensorflow":
    MODES["graph_of_known_sizes"] = functools.partial(graph, sizes_known=True)
    MODES["xla"] = functools.partial(graph, jit_compile=True)
all_modes = pytest.mark.parametrize("mode", MODES)
all_grids = pytest.mark.parametrize("grid", GRIDS, ids="{0[0]}x{0[1]}".format)


def embedding(position, rule="bicubic_antialias", dtype="float32"):
    """A layer with random tables, and these by name."""
    layer = PositionEmbedding(
        GRID,
        position,
        num_prefix=0 if position == "sincos_2d" else 3,
        num_prefix_positions=0 if position == "sincos_2d" else 1,
        resampling=rule,
        dtype=dtype,
        name="positions",
    )
    layer.build((None, None, WIDTH))
    layer.set_weights(
        [normal(*w.shape, seed=i) for i, w in enumerate(layer.get_weights())]
    )
    return layer, {v.name: numpy(v) for v in layer.weights}


def expected_grid(tables, grid, rule):
    """`resample` of the table, or of the rows and the columns by themselves."""
    if "grid" in tables:
        return resample(tables["grid"], grid, rule)[0]
    if "rows" not in tables:
        return sincos_2d(*grid, WIDTH)
    rows = resample(tables["rows"][:, None], (grid[0], 1), rule)
    columns = resample(tables["columns"][None], (1, grid[1]), rule)
    shape = (*grid, WIDTH // 2)
    parts = [np.broadcast_to(part, shape) for part in (rows, columns)]
    return np.concatenate(parts, axis=-1)


def inputs_for(grid, num_prefix, batch=2):
    x = normal(batch, num_prefix + grid[0] * grid[1], WIDTH, seed=9)
    return x, np.zeros((batch, *grid, WIDTH), "float32")


@all_modes
@all_grids
@pytest.mark.parametrize(
    ("position", "rule"),
    [
        *itertools.product(["learned", "learned_2d"], RULES),
        ("sincos_2d", RULES[0]),
    ],
)
def test_positions_at_any_grid(position, rule, grid, mode):
    """B01, B05, B09, B14: those of `resample`; A18: registers get none."""
    layer, tables = embedding(position, rule)
    x, patches = inputs_for(grid, layer.num_prefix)
    added = numpy(MODES[mode](layer, x, patches)) - x
    expected = expected_grid(tables, grid, rule).reshape(-1, WIDTH)
    if layer.num_prefix:
        without = np.zeros((2, WIDTH), "float32")
        expected = np.concatenate([tables["prefix"][0], without, expected])
    for image in added:
        np.testing.assert_allclose(image, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", ["learned", "learned_2d", "sincos_2d"])
def test_without_patches_the_grid_is_the_stored_one(position):
    """B09: at the native size both ways give the same."""
    layer, _ = embedding(position, "dino")
    x, patches = inputs_for(GRID, layer.num_prefix)
    alone, fitted = numpy(eager(layer, x)), numpy(eager(layer, x, patches))
    assert np.array_equal(alone, fitted)


def test_transposed_grid_has_transposed_positions():
    """B05: rows are rows, on a grid that is not square."""
    layer, tables = embedding("learned")
    twin = PositionEmbedding(GRID[::-1], name="twin")
    twin.build((None, None, WIDTH))
    twin.set_weights([tables["grid"].swapaxes(1, 2)])
    x, patches = inputs_for((5, 2), 3)
    there = numpy(eager(layer, 0 * x, patches))[:, 3:]
    back = numpy(eager(twin, 0 * x[:, 3:], patches.swapaxes(1, 2)))
    back = back.reshape(-1, 2, 5, WIDTH).swapaxes(1, 2)
    there = there.reshape(-1, 5, 2, WIDTH)
    np.testing.assert_allclose(there, back, rtol=0, atol=1e-6)


@pytest.mark.parametrize("position", ["learned", "learned_2d"])
def test_half_precision_resamples_in_float32(position):
    layer, tables = embedding(position, dtype="mixed_bfloat16")
    x, patches = inputs_for((5, 2), 3)
    y = eager(layer, 0 * x, patches)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    expected = expected_grid(tables, (5, 2), "bicubic_antialias")
    expected = numpy(ops.cast(ops.array(expected), "bfloat16"))
    got = numpy(y)[0, 3:].reshape(expected.shape)
    # A last bit where the float32 value lies half way between two.
    assert (got != expected).mean() < 0.05
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-6)


def relative(num_prefix, rule="bicubic_antialias"):
    layer = RelativePosition((2, 3), 2, num_prefix=num_prefix, resampling=rule)
    layer.build((None, None, None, WIDTH))
    layer.set_weights(
        [normal(*w.shape, seed=i) for i, w in enumerate(layer.get_weights())]
    )
    return layer, numpy(layer.table)


def looked_up(table, rows, columns):
    """Bias of every pair of patches, one by one: `(heads, query, key)`."""
    places = list(itertools.product(range(rows), range(columns)))
    bias = [
        [table[r - s + rows - 1, c - d + columns - 1] for s, d in places]
        for r, c in places
    ]
    return np.moveaxis(np.array(bias), -1, 0)


def test_relative_positions_by_hand():
    """A 2x3 grid: offsets -1..1 by -2..2, so `(0, 0)` stands at `[1, 2]`."""
    layer, _ = relative(0)
    table = 10.0 * np.arange(3)[:, None] + np.arange(5)
    layer.set_weights([np.stack([table, -table], axis=-1)])
    bias = numpy(eager(layer, np.zeros((1, 2, 3, WIDTH), "float32")))
    top_left = [12, 11, 10, 2, 1, 0]
    assert bias[0, 0].tolist() == top_left
    assert bias[0, 5].tolist() == [24, 23, 22, 14, 13, 12]
    assert bias[1, 0].tolist() == [-v for v in top_left]


@all_modes
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "grid", [(2, 3), (3, 4), (3, 2), (1, 1)], ids="{0[0]}x{0[1]}".format
)
def test_relative_positions_at_any_grid(grid, rule, mode):
    """B05, B09: the table of offsets is resampled, then looked up."""
    layer, table = relative(0, rule)
    offsets = (2 * grid[0] - 1, 2 * grid[1] - 1)
    expected = looked_up(resample(table, offsets, rule), *grid)
    result = numpy(MODES[mode](layer, np.zeros((1, *grid, WIDTH), "float32")))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@all_modes
def test_relative_positions_of_the_prefix(mode):
    """Patch to prefix, prefix to patch, prefix to prefix: an entry each."""
    layer, table = relative(2)
    patches = np.zeros((1, 2, 3, WIDTH), "float32")
    bias = numpy(MODES[mode](layer, patches))
    assert bias.shape == (2, 8, 8)
    np.testing.assert_array_equal(bias[:, 2:, 2:], looked_up(table, 2, 3))
    corners = (bias[:, 2:, :2], bias[:, :2, 2:], bias[:, :2, :2])
    for part, entry in zip(corners, numpy(layer.prefix), strict=True):
        entry = np.broadcast_to(entry[:, None, None], part.shape)
        np.testing.assert_array_equal(part, entry)


# Arguments, shape of the tokens, and what the error says.
ERRORS = {
    "position": ({"position": "learnt"}, None, "'learnt'.*'learned'"),
    "rule": ({"resampling": "bicubc"}, None, "'bicubc'.*'bicubic'"),
    "B14-half": ({"position": "learned_2d"}, (1, 12, 7), "2.*width=7.*8"),
    "B14": ({"position": "sincos_2d"}, (1, 12, 6), "4.*width=6.*8"),
    "B09": ({"num_prefix": 1}, (1, 12, 8), "13 tokens.*1.*3x4.*12"),
    "one_token": ({}, (1, 1, 8), "12 tokens.*0.*3x4.*1"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors(error):
    options, shape, match = ERRORS[error]
    with pytest.raises(ValueError, match=match):
        PositionEmbedding(GRID, **options)(ops.zeros(shape))
