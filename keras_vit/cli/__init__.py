"""The command line."""

from keras_vit.cli.main import main

__all__ = ["main"]
