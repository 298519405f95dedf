"""How good features are, without training."""

from keras_vit.evaluation.accuracy import accuracy
from keras_vit.evaluation.features import features_of
from keras_vit.evaluation.few_shot import few_shot
from keras_vit.evaluation.nearest import knn

__all__ = ["accuracy", "features_of", "few_shot", "knn"]
