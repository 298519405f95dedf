"""The encoder block of the paper's figure 1 and its parts."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.checks import check_rate
from keras_vit.layers.activations import ACTIVATIONS
from keras_vit.layers.attention import Attention
from keras_vit.layers.initializers import initial
from keras_vit.layers.linear_kernels import fuses
from keras_vit.layers.linear_kernels import linear
from keras_vit.layers.normalization import LayerNormalization
from keras_vit.layers.rematerialization import recompute_layer


@keras.saving.register_keras_serializable("keras_vit")
class StochasticDepth(keras.layers.Layer):
    """Drops whole residual branches in training, one draw per image.

    A kept branch is divided by `1 - rate`, so the expected output is the
    input. At inference the input is returned unchanged.

    Args:
        rate: Float in `[0, 1)`. Probability that a branch is dropped.
        seed: Optional int.

    Input shape:
        `(batch, ...)`, any rank.

    Output shape:
        Same as the input.

    Raises:
        ValueError: `rate` is outside `[0, 1)`.

    References:
        - [Huang et al., 2016](https://arxiv.org/abs/1603.09382)
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        check_rate("rate", rate)
        self.rate = rate
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, x, training=None):
        if not training or self.rate == 0:
            return x
        keep = 1.0 - self.rate
        shape = (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        draw = keras.random.uniform(shape, seed=self.seed_generator)
        return x * ops.cast(ops.floor(draw + keep) / keep, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable("keras_vit")
class LayerScale(keras.layers.Layer):
    """Multiplies each channel of a residual branch by a learned scale.

    Args:
        initial_value: Float. CaiT and DeiT-III 1e-5 to 1e-6, DINOv2 1e-5.

    Input shape:
        `(..., width)`.

    Output shape:
        Same as the input.

    References:
        - [Touvron et al., 2021](https://arxiv.org/abs/2103.17239), section 2
    """

    def __init__(self, initial_value=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
            name="gamma",
        )

    def call(self, x):
        return x * self.gamma

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "initial_value": self.initial_value}


@keras.saving.register_keras_serializable("keras_vit")
class MLP(keras.layers.Layer):
    """Two dense layers with an activation between them, on each token.

    Args:
        mlp_dim: Int, channels that enter the second layer.
        activation: `"gelu"` (erf), `"gelu_tanh"`, `"quick_gelu"` or
            `"swiglu"`, whose first layer has `2 * mlp_dim` outputs, gate
            first.
        dropout_rate: Float in `[0, 1)`, after each dense layer in training.

    Input shape:
        `(batch, tokens, width)`.

    Output shape:
        Same as the input.

    Raises:
        ValueError: Unknown activation, or a rate outside `[0, 1)`.
    """

    def __init__(self, mlp_dim, activation="gelu", dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        check_choice("activation", activation, ACTIVATIONS)
        check_rate("dropout_rate", dropout_rate)
        self.mlp_dim = mlp_dim
        self.activation = activation
        self.dropout_rate = dropout_rate

    def build(self, input_shape):
        # As in the JAX original: tiny random biases, not zeros.
        bias = keras.initializers.RandomNormal(stddev=1e-6)
        self._function, parts = ACTIVATIONS[self.activation]
        self.dense_1 = keras.layers.Dense(
            parts * self.mlp_dim,
            kernel_initializer=initial("glorot_uniform"),
            bias_initializer=initial(bias),
            dtype=self.dtype_policy,
            name="dense_1",
        )
        self.dense_2 = keras.layers.Dense(
            input_shape[-1],
            kernel_initializer=initial("glorot_uniform"),
            bias_initializer=initial(bias.clone()),
            dtype=self.dtype_policy,
            name="dense_2",
        )
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="dropout"
        )
        self.dense_1.build(input_shape)
        self.dense_2.build((*input_shape[:-1], self.mlp_dim))

    def call(self, x, training=None):
        if fuses(self.dense_1, x, self.activation):
            x = linear(self.dense_1, x, self.activation)
        else:
            x = self._function(linear(self.dense_1, x))
        if self.dropout_rate:
            x = self.dropout(x, training=training)
        x = linear(self.dense_2, x)
        return self.dropout(x, training=training) if self.dropout_rate else x

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "mlp_dim": self.mlp_dim,
            "activation": self.activation,
            "dropout_rate": self.dropout_rate,
        }


@keras.saving.register_keras_serializable("keras_vit")
class TransformerBlock(keras.layers.Layer):
    """One pre-norm encoder block: attention, then MLP, each with a residual.

    Args:
        num_heads: Int. It must divide the width.
        mlp_dim: Int, hidden channels of the MLP.
        activation: Of the MLP, see `MLP`.
        epsilon: Float, of both layer normalisations.
        qkv_bias: Whether queries, keys and values have a bias.
        layer_scale: Initial value of a learned scale on both residual
            branches, or `None` for no scale.
        dropout_rate: Float in `[0, 1)`, after the attention and both dense
            layers of the MLP.
        attention_dropout_rate: Float in `[0, 1)`, of attention weights.
        stochastic_depth_rate: Float in `[0, 1)`, see `StochasticDepth`.

    Call arguments:
        x: `(batch, tokens, width)`.
        bias: Optional, added to the attention scores, see `Attention`.

    Output shape:
        `(batch, tokens, width)`.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          equations 2 and 3
    """

    rematerialized = False  # see `ViT.enable_rematerialization`

    # One argument more than the house's eight: they are `BlockConfig`.
    def __init__(  # noqa: PLR0913
        self,
        num_heads,
        mlp_dim,
        activation="gelu",
        epsilon=1e-6,
        qkv_bias=True,
        layer_scale=None,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        stochastic_depth_rate=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._options = {
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "activation": activation,
            "epsilon": epsilon,
            "qkv_bias": qkv_bias,
            "layer_scale": layer_scale,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "stochastic_depth_rate": stochastic_depth_rate,
        }
        dtype = self.dtype_policy
        self.norm_1 = LayerNormalization(epsilon, dtype=dtype, name="norm_1")
        self.attention = Attention(
            num_heads,
            use_bias=qkv_bias,
            dropout_rate=attention_dropout_rate,
            dtype=dtype,
            name="attention",
        )
        self.norm_2 = LayerNormalization(epsilon, dtype=dtype, name="norm_2")
        self.mlp = MLP(
            mlp_dim, activation, dropout_rate, dtype=dtype, name="mlp"
        )
        self.dropout = self.drop_path = None
        self.layer_scale_1 = self.layer_scale_2 = None
        if dropout_rate:
            self.dropout = keras.layers.Dropout(
                dropout_rate, dtype=dtype, name="dropout"
            )
        if stochastic_depth_rate:
            self.drop_path = StochasticDepth(
                stochastic_depth_rate, dtype=dtype, name="drop_path"
            )
        if layer_scale is not None:
            self.layer_scale_1, self.layer_scale_2 = (
                LayerScale(layer_scale, dtype=dtype, name=f"layer_scale_{i}")
                for i in (1, 2)
            )

    def build(self, x_shape, bias_shape=None):
        for layer in self._flatten_layers(include_self=False, recursive=False):
            layer.build(x_shape)

    # `.call`, not `()`, by which Keras finds out dtype and scope once more: on
    # torch 0.1 ms a layer. It would also hand `training` on, so we do.
    def call(self, x, bias=None, training=None):
        if training and self.rematerialized:
            return recompute_layer(
                self, lambda x, bias: self._forward(x, bias, True), x, bias
            )
        return self._forward(x, bias, training)

    def _forward(self, x, bias, training):
        y = self.attention.call(self.norm_1.call(x), bias, training)
        return self.after_attention(x, y, training)

    def after_attention(self, x, y, training=None):
        """Returns the output for an input `x` whose attention gave `y`."""
        if self.dropout:
            y = self.dropout(y, training=training)
        x = x + self._end_branch(y, self.layer_scale_1, training)
        y = self.mlp.call(self.norm_2.call(x), training)
        return x + self._end_branch(y, self.layer_scale_2, training)

    def _end_branch(self, y, layer_scale, training):
        y = layer_scale(y) if layer_scale else y
        return self.drop_path(y, training=training) if self.drop_path else y

    def attention_maps(self, x, bias=None):
        """Returns `(batch, heads, tokens, tokens)` for this block's input."""
        return self.attention.probabilities(self.norm_1(x), bias)

    def compute_output_shape(self, x_shape, bias_shape=None):
        return x_shape

    def get_config(self):
        return {**super().get_config(), **self._options}
