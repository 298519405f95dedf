"""The decoder of a masked autoencoder, and what files call its weights."""

import keras
from keras import ops

from keras_vit import layers
from keras_vit.layers.initializers import initial
from keras_vit.weights.layouts import Row
from keras_vit.weights.layouts import with_names
from keras_vit.weights.torch_layouts import HF
from keras_vit.weights.torch_layouts import TIMM

# What stands around the blocks, for both: names with `decoder` in them.
_ROWS = (
    Row("dense", "decoder_embedding", "decoder_embed"),
    Row("same", "mask_tokens/token", "mask_token"),
    Row("positions", "position_embedding", "decoder_pos_embed"),
    Row("norm", "norm", "decoder_norm"),
    Row("dense", "prediction", "decoder_pred"),
)


def _blocks_of(layout):
    return tuple(row for row in layout.rows if row.ours.startswith("block_"))


# The rows of the encoder's blocks under the decoder's names.
MAE_DECODER = with_names(
    TIMM._replace(rows=_blocks_of(TIMM)), "mae", {"blocks.": "decoder_blocks."}
)
MAE_DECODER = MAE_DECODER._replace(
    rows=(*MAE_DECODER.rows, *_ROWS), prefixes=("",), ignored=()
)
HF_DECODER = with_names(
    HF._replace(rows=_blocks_of(HF)),
    "hf_vitmae",
    {"encoder.layer.": "decoder_encoder.layer."},
)
HF_DECODER = HF_DECODER._replace(
    rows=(*HF_DECODER.rows, *_ROWS), prefixes=("decoder.",), ignored=()
)
DECODERS = {"": MAE_DECODER, "decoder.": HF_DECODER}


@keras.saving.register_keras_serializable("keras_vit")
class MaskTokens(keras.layers.Layer):
    """Puts one learned token in the place of every patch that was left out.

    Args:
        num_prefix: Int, tokens in front of the patches, which stay there.

    Call arguments:
        x: `(batch, num_prefix + kept, width)`.
        restore: Ints `(batch, patches)`, where each patch stands in the
            shuffled order whose first `kept` were kept.

    Output shape:
        `(batch, num_prefix + patches, width)`, patches in their own order.

    References:
        - [He et al., 2022](https://arxiv.org/abs/2111.06377), section 3
    """

    def __init__(self, num_prefix=1, **kwargs):
        super().__init__(**kwargs)
        self.num_prefix = num_prefix

    def build(self, x_shape, restore_shape=None):
        self.token = self.add_weight(
            shape=(1, 1, x_shape[-1]),
            initializer=initial(keras.initializers.RandomNormal(stddev=0.02)),
            name="token",
        )

    def call(self, x, restore):
        prefix, kept = x[:, : self.num_prefix], x[:, self.num_prefix :]
        lost = restore.shape[1] - kept.shape[1]
        shape = (ops.shape(x)[0], lost, x.shape[-1])
        token = ops.broadcast_to(ops.cast(self.token, x.dtype), shape)
        patches = ops.concatenate([kept, token], axis=1)
        patches = ops.take_along_axis(patches, restore[..., None], axis=1)
        return ops.concatenate([prefix, patches], axis=1)

    def compute_output_shape(self, x_shape, restore_shape):
        batch, _, width = x_shape
        return (batch, self.num_prefix + restore_shape[1], width)

    def get_config(self):
        return {**super().get_config(), "num_prefix": self.num_prefix}


def build_decoder(c, kept, options, policy):
    """Returns a model from kept tokens to the pixels of all patches.

    Args:
        c: Config of the encoder.
        kept: Int, patches that the encoder sees.
        options: `width`, `depth`, `num_heads`, `mlp_dim` and `position`.
        policy: Dtype policy.
    """
    patches = c.grid[0] * c.grid[1]
    tokens = keras.Input((c.num_prefix + kept, c.width), name="tokens")
    restore = keras.Input((patches,), dtype="int32", name="restore")
    x = keras.layers.Dense(
        options["width"], dtype=policy, name="decoder_embedding"
    )(tokens)
    x = MaskTokens(c.num_prefix, dtype=policy, name="mask_tokens")(x, restore)
    learned = options["position"] != "sincos_2d"
    x = layers.PositionEmbedding(
        c.grid,
        options["position"],
        num_prefix=c.num_prefix,
        num_prefix_positions=c.num_prefix_positions if learned else 0,
        dtype=policy,
        name="position_embedding",
    )(x)
    for i in range(options["depth"]):
        x = layers.TransformerBlock(
            options["num_heads"],
            options["mlp_dim"],
            activation=c.block.activation,
            epsilon=c.block.epsilon,
            dtype=policy,
            name=f"block_{i}",
        )(x)
    x = layers.LayerNormalization(
        c.block.epsilon, dtype="float32", name="norm"
    )(x)
    x = keras.layers.Dense(
        c.stride[0] * c.stride[1] * 3, dtype="float32", name="prediction"
    )(x)  # (batch, prefix + patches, pixels)
    return keras.Model([tokens, restore], x, name="decoder")
