"""Layouts of Google's npz files: vision_transformer and big_vision."""

from keras_vit.weights.layouts import Layout
from keras_vit.weights.layouts import Row
from keras_vit.weights.layouts import with_names

_BLOCK = "Transformer/encoderblock_{i}/"
_HEADS = "MultiHeadDotProductAttention_0/"
_MAP = "MAPHead_0/"

# fmt: off
ROWS = (
    Row("conv",      "patch_embedding",           "embedding"),
    Row("same",      "class_token/token",         "cls"),
    Row("positions", "position_embedding",        "pos_embedding"),
    Row("norm",      "block_{i}/norm_1",          _BLOCK + "LayerNorm_0"),
    Row("qkv",       "block_{i}/attention/qkv",   (
                     _BLOCK + _HEADS + "query",
                     _BLOCK + _HEADS + "key",
                     _BLOCK + _HEADS + "value")),
    Row("out",       "block_{i}/attention/out",   _BLOCK + _HEADS + "out"),
    Row("norm",      "block_{i}/norm_2",          _BLOCK + "LayerNorm_1"),
    Row("dense",     "block_{i}/mlp/dense_1",     _BLOCK + "MlpBlock_0/Dense_0"),
    Row("dense",     "block_{i}/mlp/dense_2",     _BLOCK + "MlpBlock_0/Dense_1"),
    Row("norm",      "norm",                      "Transformer/encoder_norm"),
    Row("same",      "pooling/probe",             _MAP + "probe"),
    Row("heads",     "pooling/query",             _MAP + _HEADS + "query"),
    Row("kv",        "pooling/key_value",         (
                     _MAP + _HEADS + "key",
                     _MAP + _HEADS + "value")),
    Row("out",       "pooling/out",               _MAP + _HEADS + "out"),
    Row("norm",      "pooling/norm",              _MAP + "LayerNorm_0"),
    Row("dense",     "pooling/mlp/dense_1",       _MAP + "MlpBlock_0/Dense_0"),
    Row("dense",     "pooling/mlp/dense_2",       _MAP + "MlpBlock_0/Dense_1"),
    Row("dense",     "pre_logits",                "pre_logits"),
    Row("dense",     "head",                      "head"),
)
# fmt: on

BIG_VISION = Layout(
    "big_vision",
    "flax",
    ROWS,
    marks=(
        "embedding/kernel",
        "Transformer/encoderblock_0/MlpBlock_0/Dense_0/kernel",
    ),
    prefixes=("params/img/", "params/", "opt/target/", ""),
    # Fixed sines, and models that take the mean.
    lacks=("position_embedding/grid", "class_token/token"),
    ignored=("^opt/*", "^chrono/*", "^params/txt/*", "^params/t", "^params/b"),
    defaults={
        "activation": "gelu_tanh",
        "resampling": "zoom",
        "interpolation": "bilinear",
        "antialias": False,
    },
)
_NUMBERING = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
_POSITIONS = {"pos_embedding": "Transformer/posembed_input/pos_embedding"}
# vision_transformer: its positions cover the class token, in either numbering.
GOOGLE = with_names(
    BIG_VISION,
    "google",
    {**_NUMBERING, **_POSITIONS},
    lacks=("class_token/token",),
)
GOOGLE_LINEN = with_names(BIG_VISION, "google_linen", _POSITIONS)._replace(
    lacks=GOOGLE.lacks,
    marks=(
        *BIG_VISION.marks,
        "Transformer/posembed_input/pos_embedding",
    ),
)
