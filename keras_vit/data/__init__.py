"""Labelled images and batches of them, on every backend alike."""

from keras_vit.data.batches import Batches
from keras_vit.data.batches import augment_by_layer
from keras_vit.data.decoding import decode
from keras_vit.data.sources import LabelledImages
from keras_vit.data.sources import open_images
from keras_vit.data.vtab import VTAB

__all__ = [
    "VTAB",
    "Batches",
    "LabelledImages",
    "augment_by_layer",
    "decode",
    "open_images",
]
