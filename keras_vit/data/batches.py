"""Batches as a function of the step, so that a run can go on anywhere."""

import collections
import concurrent.futures
import os
import threading
import typing

import numpy as np

from keras_vit.checks import as_pair
from keras_vit.checks import check_at_least
from keras_vit.checks import check_choice
from keras_vit.config_parts import PixelConfig
from keras_vit.data.sources import LabelledImages
from keras_vit.devices.beside import tensorflow_beside
from keras_vit.image_files import ImageError
from keras_vit.pixels import read_image
from keras_vit.pixels import resize_image

WORKERS = min(8, os.cpu_count() or 1)  # threads: decoding lets the GIL go
AHEAD = 4  # batches that are made while one is used


class Batches:
    """An endless stream of training batches, each known by its number.

    Step `k` is made of `seed` and `k` alone: the order of an epoch by `(seed,
    epoch)`, crops, flips and mixing by `(seed, step)`. What is shuffled are
    indices, never decoded images, so memory does not grow with the data.

    Args:
        images: `LabelledImages`.
        batch_size: Int; what is left at the end of an epoch is left out.
        image_size: Int or `(height, width)` in pixels.
        augment: `"crop"` (a random part of 8 to 100 % of the image, half of
            them flipped), `"shift"` (up to an eighth of a side, half of them
            flipped; for small images), `"none"`, or a function of a uint8
            batch and a generator. A `keras.layers.RandAugment` or another
            Keras or keras-cv layer goes in through `augment_by_layer`. A pair
            of a word and a function does one after the other.
        mix: Optional `keras_vit.Mix`.
        seed: Int.
        on_error: `"raise"`, or `"skip"` to put another image of the batch in
            the place of one that cannot be read; `failed` then lists them.
        pixels: How to resize without augmentation, a `PixelConfig`.

    Raises:
        ValueError: Unknown words, or fewer images than one batch.
        ImageError: From the stream, if a file cannot be read.

    Example:
    ```python
    rng = np.random.default_rng(0)
    images = keras_vit.data.LabelledImages(
        rng.integers(0, 256, (10, 28, 28, 3), "uint8"), np.arange(10) % 2, "ab"
    )
    batches = keras_vit.data.Batches(images, 4, 28, augment="shift")
    x, y = batches[7]
    ```
    """

    def __init__(
        self,
        images: LabelledImages,
        batch_size: int,
        image_size: int | tuple[int, int],
        augment: typing.Any = "crop",
        mix: typing.Any = None,
        seed: int = 0,
        on_error: str = "raise",
        pixels: PixelConfig | None = None,
    ):
        check_at_least("batch_size", batch_size, 1)
        check_choice("on_error", on_error, ("raise", "skip"))
        steps = augment if isinstance(augment, tuple) else (augment,)
        words = [step for step in steps if not callable(step)]
        for word in words:
            check_choice("augment", word, ("crop", "shift", "none"))
        if len(images) < batch_size:
            raise ValueError(
                f"There is not one whole batch. Expected: at least "
                f"batch_size={batch_size} images. Received: {len(images)}."
            )
        self.images = images
        self.batch_size = batch_size
        self.image_size = as_pair("image_size", image_size)
        self.augment = words[0] if words else "none"
        self.functions = [step for step in steps if callable(step)]
        self.mix = mix
        self.seed = seed
        self.on_error = on_error
        self.pixels = pixels or PixelConfig()
        self.failed: dict[str, str] = {}
        self._orders = collections.OrderedDict()

    @property
    def steps_per_epoch(self) -> int:
        """Batches until each image has been seen once."""
        return len(self.images) // self.batch_size

    def __getitem__(self, step: int):
        """Returns `(images, labels)` of a step, from 0."""
        epoch, index = divmod(step, self.steps_per_epoch)
        first = index * self.batch_size
        chosen = self._order(epoch)[first : first + self.batch_size]
        rng = np.random.default_rng((self.seed, 1, step))
        pixels = self._read(chosen, rng)
        labels = self.images.labels[chosen]
        for function in self.functions:
            pixels = function(pixels, rng)
        if self.mix is not None:
            return self.mix(pixels, labels, rng)
        return pixels, labels

    def stream(self, start: int = 0):
        """Yields the batches of step `start` and on, made ahead in threads."""
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            waiting = collections.deque(
                pool.submit(self.__getitem__, start + i) for i in range(AHEAD)
            )
            step = start + AHEAD
            try:
                while True:
                    batch = waiting.popleft()
                    waiting.append(pool.submit(self.__getitem__, step))
                    step += 1
                    yield batch.result()
            finally:
                for batch in waiting:
                    batch.cancel()

    def dataset(self, start: int = 0) -> typing.Any:
        """Returns the same batches as a `tf.data.Dataset`, for JAX too.

        Endless: give `fit` its `steps_per_epoch`. What else a pipeline needs
        can follow, such as `map` with a Keras layer.

        Args:
            start: Step of the first batch.

        Raises:
            ImportError: TensorFlow is not installed.
        """
        tf = tensorflow_beside()
        parts = self[start]
        kinds = [part.dtype for part in parts]

        def one(step):
            return tf.numpy_function(lambda k: self[int(k)], [step], kinds)

        def shaped(*found):
            for tensor, part in zip(found, parts, strict=True):
                tensor.set_shape(part.shape)
            return found

        steps = tf.data.Dataset.range(start, np.iinfo("int64").max)
        batches = steps.map(one, num_parallel_calls=WORKERS).map(shaped)
        return batches.prefetch(AHEAD)

    def _order(self, epoch):
        # A copy: threads of two epochs look at once.
        order = self._orders.get(epoch)
        if order is None:
            rng = np.random.default_rng((self.seed, 0, epoch))
            order = rng.permutation(len(self.images))
            self._orders[epoch] = order
            while len(self._orders) > 3:
                self._orders.popitem(last=False)
        return order

    def _read(self, chosen, rng):
        draws = rng.random((len(chosen), 5))
        found = [
            self._one(self.images.images[i], draw)
            for i, draw in zip(chosen, draws, strict=True)
        ]
        good = [image for image in found if image is not None]
        if not good:
            raise ImageError(
                f"No image of a whole batch can be read. Expected: at least "
                f"one of {len(chosen)}. Received: {list(self.failed)[:5]}."
            )
        return np.stack(
            [
                good[i % len(good)] if x is None else x
                for i, x in enumerate(found)
            ]
        )

    def _one(self, item, draw):
        try:
            if self.augment == "crop":
                return random_crop(read_image(item), self.image_size, draw)
            image = read_image(item, self.pixels, self.image_size)
        except ImageError as error:
            if self.on_error == "raise":
                raise
            self.failed[str(item)] = str(error)
            return None
        return random_shift(image, draw) if self.augment == "shift" else image


def random_crop(image, size, draw):
    """Returns a random part of an image at a size, perhaps flipped.

    Args:
        image: `(height, width, 3)` uint8.
        size: `(height, width)` in pixels.
        draw: Five numbers in `[0, 1)`: area, 8 to 100 %; aspect, 3/4 to 4/3;
            place down and across; flip.

    References:
        - [Szegedy et al., 2015](https://arxiv.org/abs/1409.4842), section 6
    """
    area, aspect, down, across, flip = draw
    height, width = image.shape[:2]
    share = 0.08 + 0.92 * area
    ratio = (3 / 4) * (16 / 9) ** aspect  # evenly in its logarithm
    tall = min(height, max(1, round((height * width * share / ratio) ** 0.5)))
    wide = min(width, max(1, round((height * width * share * ratio) ** 0.5)))
    top, left = (
        int(down * (height - tall + 1)),
        int(across * (width - wide + 1)),
    )
    part = image[top : top + tall, left : left + wide]
    part = resize_image(part, PixelConfig(resize="squash"), size)
    return part[:, ::-1] if flip < 0.5 else part


def random_shift(image, draw):
    """Returns an image moved by up to an eighth of a side, perhaps flipped."""
    most = [max(1, side // 14) for side in image.shape[:2]]
    padded = np.pad(image, ((most[0],) * 2, (most[1],) * 2, (0, 0)))
    height, width = image.shape[:2]
    top, left = (int(draw[i] * (2 * most[i] + 1)) for i in (0, 1))
    moved = padded[top : top + height, left : left + width]
    return moved[:, ::-1] if draw[4] < 0.5 else moved


def augment_by_layer(layer: typing.Any) -> typing.Callable:
    """Returns a Keras or keras-cv layer as an `augment` function.

    Its seed generators are set by the generator of the step, so that a run
    that goes on draws what it would have drawn.

    Args:
        layer: Such as `keras.layers.RandAugment(value_range=(0, 255))`.
    """
    import keras

    one_at_a_time = threading.Lock()

    def apply(images, rng):
        with one_at_a_time:
            for variable in layer.variables:
                if variable.name == "seed_generator_state":
                    variable.assign(rng.integers(0, 2**31, 2, dtype="uint32"))
            out = layer(images.astype("float32"), training=True)
            out = keras.ops.convert_to_numpy(out)
        return np.clip(np.round(out), 0, 255).astype("uint8")

    return apply
