"""The catalogue: what a preset name means. A new preset is a new row."""

import dataclasses
import fnmatch
import os
import pathlib

from keras_vit.checks import did_you_mean
from keras_vit.config import ViTConfig
from keras_vit.variants import vit_config

ASSETS = pathlib.Path(__file__).parent / "assets"


@dataclasses.dataclass(frozen=True)
class Preset:
    """One row of the catalogue.

    `source` is an address; `package:NAME` is a directory inside this package.
    `top_1` is the accuracy in per cent on `dataset` as `reference` states it.
    """

    config: ViTConfig
    source: str
    description: str
    license: str
    dataset: str
    top_1: float
    reference: str


PRESETS = {
    "vit_nano_fashion_mnist": Preset(
        vit_config(
            "nano/4",
            image_size=28,
            num_classes=10,
            stochastic_depth_rate=0.05,
        ),
        source="package:vit_nano_fashion_mnist",
        description="28 px gray pictures of clothing, ten classes",
        license="Apache-2.0 (weights), MIT (data)",
        dataset="Fashion-MNIST test",
        top_1=83.85,
        reference="recipes/train_fashion_mnist.py",
    ),
}


def list_presets(pattern: str = "*") -> dict[str, Preset]:
    """Returns the presets whose name matches a shell pattern.

    Args:
        pattern: Such as `"*b16*"`, upper or lower case.

    Example:
    ```python
    for name, preset in keras_vit.list_presets("*mnist*").items():
        size = preset.config.image_size
    ```
    """
    pattern = pattern.lower()
    return {
        name: preset
        for name, preset in PRESETS.items()
        if fnmatch.fnmatchcase(name, pattern)
    }


def sample_images() -> list[pathlib.Path]:
    """Returns ten pictures for `vit_nano_fashion_mnist`, one of each class.

    They are the first of their class in the test set; the file name is the
    class.
    """
    return sorted((ASSETS / "samples").glob("*.png"))


def find_preset(preset: str | os.PathLike) -> pathlib.Path:
    """Returns the directory of a preset name or of a path.

    Raises:
        ValueError: Neither a known name nor an existing directory.
    """
    name = os.fspath(preset)
    if name in PRESETS:
        folder = PRESETS[name].source.removeprefix("package:")
        return ASSETS / folder
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise ValueError(
            f"A preset is a directory. Expected: a directory that "
            f"save_to_preset wrote. Received: the file {path}."
        )
    raise ValueError(
        f"No such preset. Expected: a directory that save_to_preset wrote, or "
        f"one of {', '.join(PRESETS)}. Received: {name!r}."
        f"{did_you_mean(name, PRESETS)}"
    )
