"""From tokens to one vector."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.layers.attention import check_heads
from keras_vit.layers.attention_kernels import attend
from keras_vit.layers.attention_kernels import attention_probabilities
from keras_vit.layers.block import MLP
from keras_vit.layers.initializers import initial
from keras_vit.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable("keras_vit")
class TokenPooling(keras.layers.Layer):
    """Takes one prefix token, or the mean of the patch tokens.

    Args:
        pooling: `"token"`, `"gap"` (global average pooling; the prefix is
            left out of the mean) or `"token_gap"`, both side by side.
        index: Int, which token `"token"` takes.
        num_prefix: Int, tokens in front of the patches.

    Input shape:
        `(batch, num_prefix + patches, width)`.

    Output shape:
        `(batch, width)`, twice the width for `"token_gap"`.

    Raises:
        ValueError: Unknown pooling.
    """

    def __init__(self, pooling="token", index=0, num_prefix=1, **kwargs):
        super().__init__(**kwargs)
        check_choice("pooling", pooling, ("token", "gap", "token_gap"))
        self.pooling = pooling
        self.index = index
        self.num_prefix = num_prefix

    def call(self, x):
        if self.pooling == "token":
            return x[:, self.index]
        mean = ops.mean(x[:, self.num_prefix :], axis=1)
        if self.pooling == "gap":
            return mean
        return ops.concatenate([x[:, self.index], mean], axis=-1)

    def compute_output_shape(self, input_shape):
        vectors = 2 if self.pooling == "token_gap" else 1
        return (input_shape[0], vectors * input_shape[-1])

    def get_config(self):
        return {
            **super().get_config(),
            "pooling": self.pooling,
            "index": self.index,
            "num_prefix": self.num_prefix,
        }


@keras.saving.register_keras_serializable("keras_vit")
class AttentionPooling(keras.layers.Layer):
    """Pools by attention: a learned probe reads from all tokens (MAP).

    `y = attention(probe, tokens)`, then `y + mlp(norm(y))`. The probe itself
    is not added.

    Args:
        num_heads: Int. It must divide the width.
        mlp_dim: Int, hidden channels of the MLP.
        activation: Of the MLP, see `MLP`.
        epsilon: Float, of the layer normalisation.

    Input shape:
        `(batch, tokens, width)`.

    Output shape:
        `(batch, width)`.

    Raises:
        ValueError: The width is not a multiple of `num_heads`.

    References:
        - [Zhai et al., 2022](https://arxiv.org/abs/2106.04560), section 3.2
        - [Lee et al., 2019](https://arxiv.org/abs/1810.00825)
    """

    def __init__(
        self, num_heads, mlp_dim, activation="gelu", epsilon=1e-6, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.epsilon = epsilon

    def build(self, input_shape):
        width, dtype = input_shape[-1], self.dtype_policy
        check_heads(width, self.num_heads)
        self.probe = self.add_weight(
            shape=(1, 1, width), initializer="glorot_uniform", name="probe"
        )
        self.query, self.key_value, self.out = (
            keras.layers.Dense(
                units,
                kernel_initializer=initial("glorot_uniform"),
                dtype=dtype,
                name=name,
            )
            for name, units in (
                ("query", width),
                ("key_value", 2 * width),
                ("out", width),
            )
        )
        self.norm = LayerNormalization(self.epsilon, dtype=dtype, name="norm")
        self.mlp = MLP(self.mlp_dim, self.activation, dtype=dtype, name="mlp")
        for layer in (
            self.query,
            self.key_value,
            self.out,
            self.norm,
            self.mlp,
        ):
            layer.build((None, None, width))

    def call(self, x):
        width = x.shape[-1]
        y = attend(*self._heads(x))  # (batch, heads, 1, dim)
        y = self.out(ops.reshape(ops.swapaxes(y, 1, 2), (-1, 1, width)))
        y = y + self.mlp(self.norm(y))
        return y[:, 0]

    def probabilities(self, x):
        """Returns what the probe reads, `(batch, heads, 1, tokens)`, float32.

        The input is that of `call`; each head sums to 1.
        """
        query, key, _ = self._heads(x)
        return attention_probabilities(query, key)

    def _heads(self, x):
        tokens, width = ops.shape(x)[1], x.shape[-1]
        heads, dim = self.num_heads, width // self.num_heads
        query = ops.reshape(self.query(self.probe), (1, 1, heads, dim))
        # Not tiled: on TensorFlow that of Keras 3.12 forgets the shape (K03).
        query = ops.broadcast_to(
            ops.swapaxes(query, 1, 2), (ops.shape(x)[0], heads, 1, dim)
        )
        y = ops.reshape(self.key_value(x), (-1, tokens, 2, heads, dim))
        y = ops.transpose(y, (2, 0, 3, 1, 4))  # (2, batch, heads, tokens, dim)
        return query, y[0], y[1]

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "activation": self.activation,
            "epsilon": self.epsilon,
        }
