"""The figure of the paper as a Keras graph: image to logits, top to bottom."""

import dataclasses

import keras

from keras_vit import layers
from keras_vit.checks import did_you_mean

HEADS = ("head", "head_distillation")


def encode(images, c, policy):
    """Returns logits (or pooled features) of symbolic `images`.

    `c` is the `ViTConfig`, `policy` the dtype policy of everything between
    the pixels and the final norm.
    """
    x = trunk(pixels(images, c), c.trunk, policy)
    patches = layers.PatchEmbedding(
        c.width,
        c.stem.patch_size,
        use_bias=c.stem.patch_bias,
        dtype=policy,
        name="patch_embedding",
    )(x)  # (batch, rows, columns, width)
    x = _tokens(patches, c, policy)  # (batch, prefix + patches, width)
    for i in range(c.depth):
        x = _block(x, patches, i, c, policy)
    return _head(x, c)


def pixels(images, c):
    """Returns the normalised pixels, channels last, of any image model."""
    return layers.Pixels(
        c.pixels.mean,
        c.pixels.std,
        rescale=c.preprocessing,
        data_format=c.data_format,
        dtype="float32",
        name="pixels",
    )(images)


def trunk(x, c, policy):
    """Returns the feature map of a ResNet without its head.

    `c` is the `TrunkConfig`; `x` itself where that has no stages.
    """
    if c.stages is None:
        return x
    options = {
        "unit": c.unit,
        "standardization": c.standardization,
        "conv_epsilon": c.conv_epsilon,
        "group_norm_epsilon": c.group_norm_epsilon,
        "conv_padding": c.conv_padding,
        "dtype": policy,
    }
    x = layers.Root(c.trunk_width, c.root_pool, **options, name="root")(x)
    for i, units in enumerate(c.stages):
        x = layers.ResidualStage(
            units,
            c.trunk_width * 2**i,
            stride=2 if i else 1,
            **options,
            name=f"stage_{i}",
        )(x)
    return x


def _tokens(patches, c, policy):
    x = keras.layers.Reshape(
        (-1, c.width), dtype=policy, name="patches_to_tokens"
    )(patches)
    prefix = {
        "register_tokens": c.tokens.num_registers,
        "distillation_token": int(c.tokens.distillation_token),
        "class_token": int(c.tokens.class_token),
    }
    for name, count in prefix.items():
        if count:
            x = layers.PrefixTokens(count, dtype=policy, name=name)(x)
    if c.tokens.position in ("learned", "learned_2d", "sincos_2d"):
        position = layers.PositionEmbedding(
            c.grid,
            c.tokens.position,
            num_prefix=c.num_prefix,
            num_prefix_positions=c.num_prefix_positions,
            resampling=c.tokens.resampling,
            dtype=policy,
            name="position_embedding",
        )
        x = position(x, patches) if c.any_image_size else position(x)
    if c.block.dropout_rate:
        x = keras.layers.Dropout(
            c.block.dropout_rate, dtype=policy, name="dropout"
        )(x)
    if c.tokens.norm_pre:
        x = layers.LayerNormalization(
            c.block.epsilon, dtype=policy, name="norm_pre"
        )(x)
    return x


def _block(x, patches, i, c, policy):
    options = dataclasses.asdict(c.block)
    options["stochastic_depth_rate"] *= i / max(c.depth - 1, 1)
    block = layers.TransformerBlock(
        c.num_heads, c.mlp_dim, **options, dtype=policy, name=f"block_{i}"
    )
    if c.tokens.position != "relative":
        return block(x)
    bias = layers.RelativePosition(
        c.grid,
        c.num_heads,
        num_prefix=c.num_prefix,
        resampling=c.tokens.resampling,
        dtype=policy,
        name=f"relative_position_{i}",
    )(patches)
    return block(x, bias)


def _head(x, c):
    """Norm, pooling and head, in float32 under every policy."""
    norm = layers.LayerNormalization(
        c.block.epsilon, dtype="float32", name="norm"
    )
    if c.head.norm == "before_pooling":
        x = norm(x)
    x = [pool(x) for pool in _poolings(c)]
    if c.head.norm == "after_pooling":
        x = [norm(vector) for vector in x]
    if c.head.pre_logits:
        tanh = keras.layers.Dense(
            c.head.pre_logits, "tanh", dtype="float32", name="pre_logits"
        )
        x = [tanh(vector) for vector in x]
    if c.head.num_classes:
        x = [
            keras.layers.Dense(
                c.head.num_classes,
                use_bias=c.head.head_bias,
                kernel_initializer="zeros",  # as in the paper, section 3.2
                dtype="float32",
                name=name,
            )(vector)
            for vector, name in zip(x, HEADS, strict=False)
        ]
    if len(x) == 1:
        return x[0]
    # DeiT at inference: the mean of both classifiers.
    return keras.layers.Average(dtype="float32", name="average")(x)


def _poolings(c):
    options = {"num_prefix": c.num_prefix, "dtype": "float32"}
    if c.head.pooling == "map":
        return [
            layers.AttentionPooling(
                c.num_heads,
                c.mlp_dim,
                activation=c.block.activation,
                epsilon=c.block.epsilon,
                dtype="float32",
                name="pooling",
            )
        ]
    pools = [layers.TokenPooling(c.head.pooling, name="pooling", **options)]
    if c.num_classifiers == 2:
        pools.append(
            layers.TokenPooling(
                "token", 1, name="pooling_distillation", **options
            )
        )
    return pools


def activation(model, name):
    """Returns `(name, tensor)` of an inner activation, see `feature_model`."""
    depth = model.config.depth
    if isinstance(name, int) and -depth <= name < depth:
        name = f"{model.repeated}_{name % depth}"
    known = {layer.name: layer for layer in model.layers}
    if name == "logits":
        return name, model.output
    if name == "pre_logits":
        heads = [known[h] for h in HEADS if h in known]
        inputs = [head.input for head in heads]
        if len(inputs) == 2:
            return name, keras.layers.average(inputs)  # as their logits
        return name, inputs[0] if inputs else model.output
    if name not in known:
        raise ValueError(
            f"No such activation. Expected: an index of the {depth} "
            f"{model.repeated}s, 'pre_logits', 'logits' or one of "
            f"{', '.join(known)}. Received: {name!r}."
            f"{did_you_mean(str(name), known)}"
        )
    return name, known[name].output
