"""What the model looks at: functions from a model and images to arrays."""

from keras_vit.analysis.attention import attention_maps
from keras_vit.analysis.attention import class_attention
from keras_vit.analysis.cka import layer_cka
from keras_vit.analysis.cka import linear_cka
from keras_vit.analysis.distance import attention_distance
from keras_vit.analysis.distance import attention_entropy
from keras_vit.analysis.embeddings import patch_filters
from keras_vit.analysis.embeddings import position_similarity
from keras_vit.analysis.receptive_field import effective_receptive_field
from keras_vit.analysis.relevance import class_relevance
from keras_vit.analysis.rollout import attention_rollout

__all__ = [
    "attention_distance",
    "attention_entropy",
    "attention_maps",
    "attention_rollout",
    "class_attention",
    "class_relevance",
    "effective_receptive_field",
    "layer_cka",
    "linear_cka",
    "patch_filters",
    "position_similarity",
]
