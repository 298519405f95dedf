"""Multi-head self-attention and attention pooling."""

import keras
from keras import ops

from keras_vit.checks import check_at_least
from keras_vit.checks import check_rate
from keras_vit.layers.attention_kernels import attend_from
from keras_vit.layers.attention_kernels import attention_probabilities
from keras_vit.layers.attention_kernels import merge_heads
from keras_vit.layers.attention_kernels import split_heads
from keras_vit.layers.initializers import initial
from keras_vit.layers.linear_kernels import linear


@keras.saving.register_keras_serializable("keras_vit")
class Attention(keras.layers.Layer):
    """Lets every token read from every other one, in several heads.

    `softmax(q k^T / sqrt(dim)) v` per head, with one product for q, k and v
    together. The columns of the `qkv` kernel are all of q, then k, then v,
    and inside each the heads are contiguous. Softmax is float32.

    Args:
        num_heads: Int. It must divide the width.
        use_bias: Whether `qkv` has a bias.
        dropout_rate: Float in `[0, 1)`, of attention weights in training.

    Call arguments:
        x: `(batch, tokens, width)`.
        bias: Optional, added to the scores: what broadcasts to
            `(batch, heads, tokens, tokens)`.

    Output shape:
        `(batch, tokens, width)`.

    Raises:
        ValueError: The width is not a multiple of `num_heads`, or the rate is
            outside `[0, 1)`.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          appendix A
    """

    def __init__(self, num_heads, use_bias=True, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        check_rate("dropout_rate", dropout_rate)
        self.num_heads = num_heads
        self.use_bias = use_bias
        self.dropout_rate = dropout_rate

    def build(self, x_shape, bias_shape=None):
        width = x_shape[-1]
        check_heads(width, self.num_heads)
        # Twice the variance: Glorot for each of q, k, v, not for the three.
        initializer = keras.initializers.VarianceScaling(
            2.0, "fan_avg", "uniform"
        )
        self.qkv = keras.layers.Dense(
            3 * width,
            use_bias=self.use_bias,
            kernel_initializer=initial(initializer),
            dtype=self.dtype_policy,
            name="qkv",
        )
        self.out = keras.layers.Dense(
            width,
            kernel_initializer=initial("glorot_uniform"),
            dtype=self.dtype_policy,
            name="out",
        )
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="dropout"
        )
        self.qkv.build(x_shape)
        self.out.build(x_shape)

    def call(self, x, bias=None, training=None):
        return linear(self.out, self.mix(x, bias, training))

    def mix(self, x, bias=None, training=None):
        """Returns what the heads have read, side by side: the input of `out`.

        The input is that of `call`; `(batch, tokens, width)`.
        """
        if not (training and self.dropout_rate):
            return attend_from(linear(self.qkv, x), self.num_heads, bias)
        query, key, value = self.heads(x)
        weights = attention_probabilities(query, key, bias)
        weights = self.dropout(ops.cast(weights, value.dtype), training=True)
        return merge_heads(ops.matmul(weights, value))

    def probabilities(self, x, bias=None):
        """Returns the attention maps, `(batch, heads, tokens, tokens)`.

        Float32, rows (queries) sum to 1. The input is that of `call`.
        """
        query, key, _ = self.heads(x)
        return attention_probabilities(query, key, bias)

    def heads(self, x):
        """Returns query, key and value, each `(batch, heads, tokens, dim)`."""
        return split_heads(linear(self.qkv, x), self.num_heads)

    def compute_output_shape(self, x_shape, bias_shape=None):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "use_bias": self.use_bias,
            "dropout_rate": self.dropout_rate,
        }


def check_heads(width, num_heads):
    """Raises unless the width can be split among the heads."""
    check_at_least("num_heads", num_heads, 1)
    if width % num_heads:
        raise ValueError(
            f"Cannot split the width among the heads. Expected: a width that "
            f"is a multiple of num_heads={num_heads}. Received: width={width}, "
            f"which leaves {width % num_heads} channels over."
        )
