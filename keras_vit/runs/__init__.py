"""Runs that survive being killed."""

from keras_vit.runs.finetune import finetune
from keras_vit.runs.train import train

__all__ = ["finetune", "train"]
