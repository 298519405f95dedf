"""The README's tables of sizes are what the configs cost."""

import pathlib
import re

import pytest

import keras_vit

pytestmark = pytest.mark.once

README = pathlib.Path(__file__).parent.parent / "README.md"
ROWS = re.findall(
    r"^\| `([^`|]+)` \| ([\d,.| ]+) \|$", README.read_text(), re.M
)
RESNET = re.compile(r"r\d+x\d+")


def cost(config):
    gflops = 2 * keras_vit.count_macs(config) / 1e9
    return f"{keras_vit.count_params(config):,}", f"{gflops:.1f}"


def test_every_size_has_a_row():
    names = {name for name, _ in ROWS}
    sizes = {name.partition("/")[0] for name in names}
    assert set(keras_vit.SIZES) - {"nano"} <= sizes
    assert len(names) == len(ROWS) >= 23


@pytest.mark.parametrize(("name", "cells"), ROWS, ids=[n for n, _ in ROWS])
def test_row(name, cells):
    cells = [cell.strip() for cell in cells.split("|")]
    if RESNET.fullmatch(name):
        costs = [
            cost(keras_vit.resnet_config(name, image_size=size))
            for size in (224, 480)
        ]
        assert cells == [costs[0][0], *(gflops for _, gflops in costs)]
        return
    expected = []
    for size in (224, 384):
        patch = keras_vit.vit_config(name).stride[0]
        config = keras_vit.vit_config(name, image_size=size // patch * patch)
        expected += [str(config.num_tokens), *cost(config)]
    assert cells == expected
