"""How good features are, without training."""

from keras_vit.evaluation.few_shot import few_shot
from keras_vit.evaluation.nearest import knn

__all__ = ["few_shot", "knn"]
