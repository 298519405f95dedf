"""The catalogue: what a preset name means. A new preset is a new row."""

import ast
import csv
import dataclasses
import fnmatch
import functools
import os
import pathlib
import re
import typing

from keras_vit.checks import did_you_mean
from keras_vit.config import ViTConfig
from keras_vit.resnet_config import ResNetConfig
from keras_vit.resnet_config import resnet_config
from keras_vit.variants import vit_config

ASSETS = pathlib.Path(__file__).parent / "assets"
# Weight files that tell a folder of another library, unless it has ours.
FOREIGN = ("*.safetensors", "*.bin", "*.pth", "*.pt", "*.npz")
OURS = "model.weights.h5"
# Published checkpoints with another architecture, and what is different.
UNSUPPORTED = {
    "aimv2_*": "RMS norms, and projections without a bias",
    "beit3_*": "norms inside attention and MLP",
    "vit_*_radio_*": "cropped positions and several class tokens",
    "vit_*_rpn_*": "norms after each branch",
    "vit_base_mci_*": "a convolutional stem with batch norms",
    "vit_dwee_*": "differential attention",
    "vit_dlittle_*": "differential attention",
    "vit_pwee_*": "attention and MLP side by side",
    "vit_dpwee_*": "differential attention beside the MLP",
}
# Addresses of Google's AugReg files: two parts, see `augreg_preset`.
AUGREG = "gs://vit_models/augreg/"
AUGREG_TRUNKS = {"R": "r", "R26": "r26", "R50": "r50"}
AUGREG_CLASSES = {
    "i1k": 1000,
    "i21k": 21843,
    "imagenet2012": 1000,
    "cifar100": 100,
    "kitti": 4,
    "oxford_iiit_pet": 37,
    "resisc45": 45,
}


@dataclasses.dataclass(frozen=True)
class Preset:
    """One row of the catalogue.

    `variant` and `fields` give the config, `source` is an address that
    `fetching.fetch` understands or `package:NAME` for a directory inside this
    package. `top_1` is the accuracy in per cent on `dataset` as `reference`
    states it, or `None`.
    """

    name: str
    variant: str
    image_size: int
    num_classes: int
    fields: dict[str, typing.Any]
    source: str
    license: str
    top_1: float | None = None
    dataset: str = ""
    reference: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def config(self) -> ViTConfig | ResNetConfig:
        """The architecture and the pixel recipe."""
        make = vit_config if "/" in self.variant else resnet_config
        return make(
            self.variant,
            image_size=self.image_size,
            num_classes=self.num_classes,
            **self.fields,
        )

    @property
    def commercial(self) -> bool:
        """Whether the licence allows commercial use."""
        closed = ("-nc", "amlr", "nvidia")
        return not any(part in self.license.lower() for part in closed)


@functools.cache
def catalogue() -> dict[str, Preset]:
    """Returns every row by name."""
    path = ASSETS / "catalogue.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: _preset(row) for row in csv.DictReader(file)}


def _preset(row):
    fields = (field.split("=") for field in row["fields"].split())
    return Preset(
        name=row["name"],
        variant=row["variant"],
        image_size=int(row["image_size"]),
        num_classes=int(row["num_classes"]),
        fields={name: ast.literal_eval(value) for name, value in fields},
        source=row["source"],
        license=row["license"],
        top_1=float(row["top_1"]) if row["top_1"] else None,
        dataset=row["dataset"],
        reference=row["reference"],
        aliases=tuple(filter(None, row["aliases"].split(";"))),
    )


@functools.cache
def _aliases():
    return {a: p for p in catalogue().values() for a in p.aliases}


def list_presets(pattern: str = "*") -> dict[str, Preset]:
    """Returns the presets whose name or alias matches a shell pattern.

    Args:
        pattern: Such as `"*b16*"`; upper and lower case are one.

    Example:
    ```python
    for name, preset in keras_vit.list_presets("*mnist*").items():
        size = preset.config.image_size
    ```
    """
    return {
        name: preset
        for name, preset in catalogue().items()
        if any(
            fnmatch.fnmatchcase(known.lower(), pattern.lower())
            for known in (name, *preset.aliases)
        )
    }


def find_preset(name: str) -> Preset:
    """Returns the row of a name, an alias or an AugReg address.

    Raises:
        ValueError: None of them; the nearest names are listed, or what an
            architecture has that this package has not.
    """
    row = catalogue().get(name) or _aliases().get(name)
    if row is not None:
        return row
    if name.startswith(AUGREG):
        return augreg_preset(name)
    for pattern, what in UNSUPPORTED.items():
        if fnmatch.fnmatchcase(name.removeprefix("timm/"), pattern):
            raise ValueError(
                f"This architecture is not one of ours. Expected: a plain "
                f"encoder. Received: {name!r}, which has {what}."
            )
    known = {*catalogue(), *_aliases()}
    raise ValueError(
        f"No such preset. Expected: a name of list_presets(), a directory "
        f"that save_to_preset wrote, or an address (gs://, hf://, timm/, "
        f"https://). Received: {name!r}.{did_you_mean(name, known)}"
    )


def augreg_preset(address: str) -> Preset:
    """Returns the row that the name of an AugReg file describes.

    More than 50,000 of them are published: `SIZE_PATCH-DATA-...npz`, with
    `--DATA-...-res_SIDE` where it was fine-tuned.

    Raises:
        ValueError: The name is not of this form.

    References:
        - [Steiner et al., 2021](https://arxiv.org/abs/2106.10270)
    """
    stem = address.removeprefix(AUGREG).removesuffix(".npz")
    match = re.fullmatch(
        r"(?:(R\d*)_)?([A-Za-z]+)_(\d+)-([a-z0-9]+)-.*?"
        r"(?:--(\w+)-.*res_(\d+))?",
        stem,
    )
    data = match and (match[5] or match[4])
    if match is None or data not in AUGREG_CLASSES:
        raise ValueError(
            f"This is not the name of an AugReg file. Expected: "
            f"{AUGREG}SIZE_PATCH-DATA-...[--DATA-...-res_SIDE].npz with data "
            f"of {', '.join(AUGREG_CLASSES)}. Received: {address!r}."
        )
    trunk = AUGREG_TRUNKS.get(match[1] or "", "")
    side = int(match[6] or 224)
    crop = {"resize": "crop", "crop_fraction": 0.9} if side < 384 else {}
    return Preset(
        name=address,
        variant=f"{trunk}{'+' if trunk else ''}{match[2].lower()}/{match[3]}",
        image_size=side,
        num_classes=AUGREG_CLASSES[data],
        fields={"activation": "gelu_tanh", **crop},
        source=address,
        license="Apache-2.0",
    )


def preset_directory(preset: str | os.PathLike) -> pathlib.Path | None:
    """Returns the directory of a preset in our own form, if it is one.

    `None` stands for a published checkpoint: a name, an address, or a folder
    of another library.

    Raises:
        ValueError: A file instead of a directory.
    """
    name = os.fspath(preset)
    row = catalogue().get(name)
    if row is not None:
        inside = row.source.startswith("package:")
        return ASSETS / row.source[8:] if inside else None
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        foreign = (
            any(any(path.glob(pattern)) for pattern in FOREIGN)
            and not (path / OURS).exists()
        )
        return None if foreign else path
    if path.is_file():
        raise ValueError(
            f"A preset is a directory. Expected: a directory that "
            f"save_to_preset wrote. Received: the file {path}. A checkpoint "
            f"file is for keras_vit.load_checkpoint."
        )
    return None


def sample_images() -> list[pathlib.Path]:
    """Returns ten pictures for `vit_nano_fashion_mnist`, one of each class.

    They are the first of their class in the test set; the file name is the
    class.
    """
    return sorted((ASSETS / "samples").glob("*.png"))
