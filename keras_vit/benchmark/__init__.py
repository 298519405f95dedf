"""This package against its peers, in one interleaved run."""

from keras_vit.benchmark.run import benchmark
from keras_vit.benchmark.run import task_of

__all__ = ["benchmark", "task_of"]
