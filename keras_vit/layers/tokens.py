"""The learned tokens in front of the patches."""

import keras
from keras import ops

from keras_vit.layers.initializers import initial


@keras.saving.register_keras_serializable("keras_vit")
class PrefixTokens(keras.layers.Layer):
    """Puts learned tokens in front of the sequence.

    The class token, the distillation token and the registers are this layer
    under three names.

    Args:
        count: Int, how many tokens.

    Input shape:
        `(batch, tokens, width)`.

    Output shape:
        `(batch, count + tokens, width)`.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929) (class)
        - [Touvron et al., 2021](https://arxiv.org/abs/2012.12877)
          (distillation)
        - [Darcet et al., 2024](https://arxiv.org/abs/2309.16588) (registers)
    """

    def __init__(self, count=1, **kwargs):
        super().__init__(**kwargs)
        self.count = count

    def build(self, input_shape):
        # One token starts at zero as in the paper; several have to differ.
        initializer = (
            "zeros"
            if self.count == 1
            else keras.initializers.RandomNormal(stddev=0.02)
        )
        self.token = self.add_weight(
            shape=(1, self.count, input_shape[-1]),
            initializer=initial(initializer),
            name="token",
        )

    def call(self, x):
        token = ops.cast(self.token, x.dtype)
        shape = (ops.shape(x)[0], self.count, x.shape[-1])
        return ops.concatenate([ops.broadcast_to(token, shape), x], axis=1)

    def compute_output_shape(self, input_shape):
        batch, tokens, width = input_shape
        return (batch, tokens and tokens + self.count, width)

    def get_config(self):
        return {**super().get_config(), "count": self.count}
