"""Models that contain a ViT and teach it something."""

from keras_vit.pretraining.distiller import Distiller
from keras_vit.pretraining.masked_autoencoder import MaskedAutoencoder
from keras_vit.pretraining.masked_patches import MaskedPatchPrediction

__all__ = ["Distiller", "MaskedAutoencoder", "MaskedPatchPrediction"]
