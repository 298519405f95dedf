"""Gradients of a scalar: one function, one branch per backend."""

import keras


def gradients(function, arrays):
    """Returns the gradient of `function(*arrays)` with respect to each array.

    Args:
        function: From tensors of the backend to a scalar tensor.
        arrays: NumPy arrays of float32.

    Returns:
        A list of NumPy arrays, each of the shape of its argument.
    """
    tensors = [keras.ops.convert_to_tensor(array) for array in arrays]
    found = {
        "jax": _on_jax,
        "tensorflow": _on_tensorflow,
        "torch": _on_torch,
    }[keras.config.backend()](function, tensors)
    return [keras.ops.convert_to_numpy(gradient) for gradient in found]


def _on_jax(function, tensors):
    import jax

    return jax.grad(function, tuple(range(len(tensors))))(*tensors)


def _on_tensorflow(function, tensors):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return tape.gradient(
        value, tensors, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )


def _on_torch(function, tensors):
    import torch

    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(
        function(*tensors), tensors, allow_unused=True, materialize_grads=True
    )
