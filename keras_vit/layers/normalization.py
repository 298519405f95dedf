"""Layer normalisation, with its own gradient where that is the faster one."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_vit")
class LayerNormalization(keras.layers.Layer):
    """Normalises each token to zero mean and unit variance, then scales it.

    `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, over the last
    axis. Statistics, scale and offset are float32 whatever the compute dtype.

    Args:
        epsilon: Float, added to the variance. Flax and timm 1e-6, torch 1e-5.

    Input shape:
        `(..., width)`.

    Output shape:
        Same as the input.

    References:
        - [Ba et al., 2016](https://arxiv.org/abs/1607.06450)
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        # `autocast=False`: half-precision scales would undo what the float32
        # statistics are for.
        width = (input_shape[-1],)
        self.gamma = self.add_weight(
            shape=width, initializer="ones", autocast=False, name="gamma"
        )
        self.beta = self.add_weight(
            shape=width, initializer="zeros", autocast=False, name="beta"
        )

    def call(self, x):
        if keras.config.backend() == "torch":
            return _normalize_torch(self, x)
        if keras.config.backend() == "jax":
            # As tensors: JAX 0.10 takes no variable of Keras 3.12 here (K03).
            gamma = ops.convert_to_tensor(self.gamma)
            beta = ops.convert_to_tensor(self.beta)
            y = _normalize(ops.cast(x, "float32"), gamma, beta, self.epsilon)
        else:
            # On TensorFlow the closed form gains nothing without XLA.
            y = ops.layer_normalization(
                ops.cast(x, "float32"), self.gamma, self.beta, -1, self.epsilon
            )
        return ops.cast(y, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


def _normalize_torch(layer, x):
    # The kernel behind `ops.layer_normalization`, without 0.1 ms on the way.
    import torch

    gamma, beta = layer.gamma.value, layer.beta.value
    y = torch.nn.functional.layer_norm(
        x.float(), gamma.shape, gamma, beta, layer.epsilon
    )
    half = layer.compute_dtype != "float32"
    return ops.cast(y, layer.compute_dtype) if half else y


def _normalize(x, gamma, beta, epsilon):
    """The layer's formula, with the gradient in closed form.

    Left to itself XLA computes the residual branch again for the backward
    pass: 1.45 times the training step of a ViT on a CPU.
    """

    @ops.custom_gradient
    def normalize(x, gamma, beta):
        centred = x - ops.mean(x, -1, keepdims=True)
        variance = ops.mean(ops.square(centred), -1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)
        unit = centred * inverse

        def gradient(upstream):
            axes = tuple(range(len(x.shape) - 1))
            g = upstream * gamma
            shared = ops.mean(g, -1, keepdims=True)
            along = unit * ops.mean(g * unit, -1, keepdims=True)
            return (
                inverse * (g - shared - along),
                ops.sum(upstream * unit, axes),
                ops.sum(upstream, axes),
            )

        return unit * gamma + beta, gradient

    return normalize(x, gamma, beta)
