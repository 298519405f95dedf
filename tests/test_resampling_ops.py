"""Resampling inside a graph equals resampling in NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.resampling import RULES
from keras_vit.resampling import resize_matrix
from keras_vit.resampling import sincos_axis

LENGTHS = [(1, 1), (1, 4), (4, 1), (7, 12), (14, 24), (24, 14), (37, 16)]


def compiled(function):
    """`function(length)` in a compiled graph, its length unknown if it may."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        graph = tf.function(
            lambda x: function(ops.shape(x)[0]),
            input_signature=[tf.TensorSpec([None])],
        )
        return lambda length: graph(tf.zeros(length))
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function, static_argnums=0)
    return function


@pytest.mark.parametrize("rule", RULES)
def test_ops_equal_numpy(rule):
    for old in sorted({old for old, _ in LENGTHS}):
        in_graph = compiled(lambda n, old=old: resize_matrix(old, n, rule, ops))
        for new in (n for o, n in LENGTHS if o == old):
            matrix = in_graph(new)
            assert keras.backend.standardize_dtype(matrix.dtype) == "float32"
            np.testing.assert_allclose(
                ops.convert_to_numpy(matrix),
                resize_matrix(old, new, rule),
                atol=2e-6,
            )


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="unknown sizes under XLA"
)
def test_ops_equal_numpy_under_xla():
    import tensorflow as tf

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, 4])], jit_compile=True
    )
    def enlarge(x):
        matrix = resize_matrix(7, ops.shape(x)[0], "bicubic_antialias", ops)
        return matrix, sincos_axis(ops.shape(x)[1], 8, xp=ops)

    for rows, columns in ((12, 5), (3, 8)):
        matrix, waves = enlarge(tf.zeros((rows, columns, 4)))
        expected = resize_matrix(7, rows, "bicubic_antialias")
        np.testing.assert_allclose(matrix, expected, atol=2e-6)
        np.testing.assert_allclose(waves, sincos_axis(columns, 8), atol=1e-5)


@pytest.mark.parametrize("flavour", ["moco_v3", "mae"])
def test_sincos_ops_equal_numpy(flavour):
    in_graph = compiled(lambda n: sincos_axis(n, 24, 1e4, flavour, ops))
    for length in (1, 37):
        np.testing.assert_allclose(
            ops.convert_to_numpy(in_graph(length)),
            sincos_axis(length, 24, flavour=flavour),
            atol=1e-5,
        )
