"""What training a ViT needs beside Keras' own pieces."""

from keras_vit.training.adamw import AdamW
from keras_vit.training.freezing import freeze
from keras_vit.training.layer_decay import layer_decay
from keras_vit.training.losses import Crossentropy
from keras_vit.training.mixing import Mix
from keras_vit.training.schedules import WarmUp
from keras_vit.training.schedules import scaled_rate

__all__ = [
    "AdamW",
    "Crossentropy",
    "Mix",
    "WarmUp",
    "freeze",
    "layer_decay",
    "scaled_rate",
]
