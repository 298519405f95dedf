"""Small models of every kind that an analysis has to read."""

from random_weights import fill
from random_weights import pictures
from random_weights import tiny

import keras_vit

SMALL = {"image_size": (8, 12), "width": 16, "mlp_dim": 24, "depth": 2}
# fmt: off
KINDS = {
    "class": {**SMALL, "depth": 3},
    "gap": {**SMALL, "pooling": "gap", "class_token": False},
    "registers": {**SMALL, "pooling": "gap", "num_registers": 3},
    "both": {**SMALL, "pooling": "token_gap"},
    "distilled": {**SMALL, "distillation_token": True},
    "map": {
        **SMALL, "class_token": False, "position": "relative",
        "pooling": "map"},
    "hybrid": {
        **SMALL, "patch_size": 1, "image_size": (16, 24), "stages": (),
        "trunk_width": 32},
    "any": {**SMALL, "image_size": None},
}
# fmt: on


def made(kind):
    return fill(keras_vit.ViT(tiny(**KINDS[kind])))


def images_of(kind, count=4):
    height, width = KINDS[kind]["image_size"] or (16, 20)
    return pictures(count, height, width)
