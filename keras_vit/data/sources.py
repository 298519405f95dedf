"""Labelled images: a folder, a table, idx files or a data set by name."""

import csv
import dataclasses
import gzip
import pathlib
import typing

import numpy as np

from keras_vit.image_files import SUFFIXES

FASHION_MNIST = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
# Split to how the idx files of MNIST's family call it.
IDX_SPLITS = {"train": "train", "test": "t10k", "validation": "t10k"}


@dataclasses.dataclass(frozen=True)
class LabelledImages:
    """Images and their classes, decoded when they are needed.

    `images` holds paths, or is a uint8 array `(n, height, width, 3)`;
    `labels` are ints `(n,)`, indices of `names`.

    Raises:
        ValueError: There are more images or fewer than labels, or a label is
            no index of `names`.
    """

    images: typing.Any
    labels: np.ndarray
    names: tuple[str, ...]

    def __post_init__(self):
        labels, count = np.asarray(self.labels), len(self.images)
        whole = labels.shape == (count,) and labels.dtype.kind in "iu"
        if not whole or (count and not 0 <= labels.min() <= labels.max()):
            raise ValueError(
                f"Each image has one class. Expected: {count} integers from 0. "
                f"Received: labels of shape {labels.shape} and dtype "
                f"{labels.dtype}."
            )
        if count and labels.max() >= len(self.names):
            raise ValueError(
                f"A label is no class. Expected: 0 to {len(self.names) - 1}, "
                f"indices of names. Received: {labels.max()}."
            )

    def __len__(self):
        return len(self.labels)

    def subset(self, indices: typing.Any) -> "LabelledImages":
        """Returns some of the images, by index or slice."""
        images = self.images
        if not isinstance(images, np.ndarray):
            images = np.asarray(images, object)
        return LabelledImages(images[indices], self.labels[indices], self.names)


def open_images(
    where: str | pathlib.Path,
    split: str = "train",
    names: typing.Sequence[str] | None = None,
    data_dir: str | None = None,
) -> LabelledImages:
    """Returns the labelled images of a folder, a file or a data set.

    Args:
        where: A folder of class folders (with or without `train`, `test` or
            `validation` above them); a `.csv` of `path,label` with paths
            beside it; a folder of gzipped idx files as of Fashion-MNIST; or
            `tfds:name`, a data set of tensorflow-datasets.
        split: `"train"`, `"validation"` or `"test"`; any split of
            tensorflow-datasets, such as `"train[:800]"`.
        names: Class names in the order of the labels. By default the folder
            names or words of the table, sorted.
        data_dir: Where tensorflow-datasets looks: a prepared copy there needs
            no network.

    Raises:
        ValueError: There is nothing there that can be read, or a label that
            is none of `names`.

    Example:
    ```python
    import pathlib

    from PIL import Image

    for name in ("cat", "dog"):
        pathlib.Path("pets", name).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(f"pets/{name}/1.png")
    images = keras_vit.data.open_images("pets")
    images.names  # ("cat", "dog")
    ```
    """
    text = str(where)
    if text.startswith("tfds:"):
        from keras_vit.data.tfds import load_tfds

        return load_tfds(text.removeprefix("tfds:"), split, data_dir)
    path = pathlib.Path(where)
    if path.suffix.lower() == ".csv" and path.is_file():
        return _from_table(path, names)
    if path.is_dir() and list(path.glob("*-images-idx3-ubyte*")):
        return _from_idx(path, split, names)
    if path.is_dir():
        return _from_folders(path, split, names)
    raise ValueError(
        f"There are no images there. Expected: a folder of class folders, a "
        f".csv of path,label, a folder of idx files, or tfds:name. Received: "
        f"{text!r}, which is {'a file' if path.is_file() else 'not there'}."
    )


def _from_folders(path, split, names):
    root = path / split if (path / split).is_dir() else path
    folders = sorted(p for p in root.iterdir() if p.is_dir())
    if root == path and {p.name for p in folders} & {"train", "test"}:
        raise ValueError(
            f"This folder has splits, but not that one. Expected: one of "
            f"{', '.join(p.name for p in folders)}. Received: "
            f"split={split!r}."
        )
    words = [p.name for p in folders]
    pairs = [
        (file, folder.name)
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in SUFFIXES
    ]
    return _from_pairs(pairs, names or words, root)


def _from_table(path, names):
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if row]
    if rows and not (path.parent / rows[0][0]).is_file():
        rows = rows[1:]  # a heading
    short = [i for i, row in enumerate(rows) if len(row) < 2]
    if short:
        raise ValueError(
            f"A row has no label. Expected: path,label in each row of {path}. "
            f"Received: {rows[short[0]]}."
        )
    pairs = [(path.parent / row[0], row[1].strip()) for row in rows]
    words = sorted({word for _, word in pairs}, key=_number_first)
    return _from_pairs(pairs, names or words, path)


def _number_first(word):
    return (0, int(word), "") if word.isdigit() else (1, 0, word)


def _from_pairs(pairs, names, where):
    index = {name: i for i, name in enumerate(names)}
    strange = sorted({word for _, word in pairs if word not in index})
    if strange or not pairs:
        raise ValueError(
            f"These images cannot be labelled. Expected: at least one image, "
            f"of the classes {', '.join(names)}. Received: {len(pairs)} in "
            f"{where}" + (f", some of {strange[:5]}." if strange else ".")
        )
    labels = np.array([index[word] for _, word in pairs], "int32")
    return LabelledImages([p for p, _ in pairs], labels, tuple(names))


def _from_idx(path, split, names):
    if split not in IDX_SPLITS:
        raise ValueError(
            f"Idx files have two splits. Expected: 'train' or 'test'. "
            f"Received: split={split!r}."
        )
    prefix = IDX_SPLITS[split]
    images, labels = (
        read_idx(_idx_file(path, f"{prefix}-{part}"))
        for part in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    if len(images) != len(labels):
        raise ValueError(
            f"Images and labels belong together. Expected: one label per "
            f"image. Received: {len(images)} images, {len(labels)} labels."
        )
    count = int(labels.max()) + 1
    if names is None:
        fashion = "fashion" in str(path) and count == len(FASHION_MNIST)
        names = FASHION_MNIST if fashion else list(map(str, range(count)))
    rgb = np.repeat(images[..., None], 3, axis=-1)
    return LabelledImages(rgb, labels.astype("int32"), tuple(names))


def _idx_file(path, name):
    for file in (path / f"{name}.gz", path / name):
        if file.is_file():
            return file
    raise ValueError(
        f"An idx file is missing. Expected: {name}.gz or {name} in {path}. "
        f"Received: {', '.join(sorted(p.name for p in path.iterdir()))}."
    )


def read_idx(path: str | pathlib.Path) -> np.ndarray:
    """Returns the array of an idx file of bytes, gzipped or not.

    Raises:
        ValueError: It is no such file, or it is cut short.
    """
    path = pathlib.Path(path)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        data = file.read()
    if data[:2] != b"\0\0" or len(data) < 4 or data[2] != 8:
        raise ValueError(
            f"Not an idx file of bytes. Expected: it to start with 00 00 08. "
            f"Received: {path}, which starts with {data[:4].hex(' ')}."
        )
    rank = data[3]
    shape = np.frombuffer(data, ">u4", rank, offset=4).astype(int)
    values = np.frombuffer(data, "uint8", offset=4 + 4 * rank)
    if values.size != shape.prod():
        raise ValueError(
            f"This idx file is cut short. Expected: {shape.prod()} bytes for "
            f"shape {tuple(shape)}. Received: {values.size} in {path}."
        )
    return values.reshape(shape)
