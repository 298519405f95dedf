"""The layers of a Vision Transformer, usable by themselves."""

from keras_vit.layers.attention import Attention
from keras_vit.layers.block import MLP
from keras_vit.layers.block import LayerScale
from keras_vit.layers.block import StochasticDepth
from keras_vit.layers.block import TransformerBlock
from keras_vit.layers.conv import GroupNormalization
from keras_vit.layers.conv import StdConv2D
from keras_vit.layers.evaluation import EvaluationResize
from keras_vit.layers.normalization import LayerNormalization
from keras_vit.layers.patches import PatchEmbedding
from keras_vit.layers.patches import Pixels
from keras_vit.layers.pooling import AttentionPooling
from keras_vit.layers.pooling import TokenPooling
from keras_vit.layers.positions import PositionEmbedding
from keras_vit.layers.positions import RelativePosition
from keras_vit.layers.residual import ResidualStage
from keras_vit.layers.residual import ResidualUnit
from keras_vit.layers.residual import Root
from keras_vit.layers.tokens import PrefixTokens

__all__ = [
    "MLP",
    "Attention",
    "AttentionPooling",
    "EvaluationResize",
    "GroupNormalization",
    "LayerNormalization",
    "LayerScale",
    "PatchEmbedding",
    "Pixels",
    "PositionEmbedding",
    "PrefixTokens",
    "RelativePosition",
    "ResidualStage",
    "ResidualUnit",
    "Root",
    "StdConv2D",
    "StochasticDepth",
    "TokenPooling",
    "TransformerBlock",
]
