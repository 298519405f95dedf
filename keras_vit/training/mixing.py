"""MixUp and CutMix of a batch, with labels that say what was mixed."""

import numpy as np

from keras_vit.checks import check_at_least
from keras_vit.checks import check_rate


class Mix:
    """Mixes each image with another one of its batch, labels in proportion.

    One draw per image and, where both are on, one per batch of which of the
    two it is. Labels may be integers or one-hot. What a label gets is the
    share of pixels to the last one: `keras.layers.CutMix` draws a box with
    fractions of pixels and labels it with its area before rounding, and
    neither layer takes integer labels.

    Args:
        num_classes: Int.
        mixup: Float, alpha of `Beta(alpha, alpha)` of MixUp; 0 for none.
            DeiT 0.8, AugReg 0.2 or 0.5.
        cutmix: Float, alpha of CutMix; 0 for none. DeiT 1.0.
        switch_rate: Float in `[0, 1]`, how often it is CutMix if both are on.
        label_smoothing: Float in `[0, 1)`, before mixing. DeiT 0.1.
        seed: Int, of the draws of a call without a generator.

    Call arguments:
        images: `(batch, height, width, channels)`, any dtype: an array, or
            a tensor inside `tf.data`.
        labels: `(batch,)` ints or `(batch, num_classes)`.
        rng: Optional `numpy.random.Generator`.

    Returns:
        `(images, labels)`, float32, of the shapes `(batch, height, width,
        channels)` and `(batch, num_classes)`.

    Raises:
        ValueError: A value is out of range, or a label is no class.

    References:
        - [Zhang et al., 2018](https://arxiv.org/abs/1710.09412) (MixUp)
        - [Yun et al., 2019](https://arxiv.org/abs/1905.04899) (CutMix)

    Example:
    ```python
    mix = keras_vit.Mix(num_classes=10, mixup=0.8, cutmix=1.0, seed=0)
    images = np.random.randint(0, 256, (4, 28, 28, 3), "uint8")
    images, labels = mix(images, np.array([3, 1, 4, 1]))
    ```
    """

    def __init__(
        self,
        num_classes,
        mixup=0.8,
        cutmix=1.0,
        switch_rate=0.5,
        label_smoothing=0.0,
        seed=None,
    ):
        check_at_least("num_classes", num_classes, 2)
        check_rate("label_smoothing", label_smoothing)
        if min(mixup, cutmix) < 0 or not 0 <= switch_rate <= 1:
            raise ValueError(
                f"These draws do not exist. Expected: mixup and cutmix of at "
                f"least 0, switch_rate in [0, 1]. Received: mixup={mixup!r}, "
                f"cutmix={cutmix!r}, switch_rate={switch_rate!r}."
            )
        self.num_classes = num_classes
        self.mixup = mixup
        self.cutmix = cutmix
        self.switch_rate = switch_rate
        self.label_smoothing = label_smoothing
        self._rng = np.random.default_rng(seed)

    def __call__(self, images, labels, rng=None):
        if type(images).__module__.startswith("tensorflow"):
            return self._in_tf_data(images, labels)
        images = np.asarray(images, "float32")
        labels = self._soft(np.asarray(labels))
        rng = self._rng if rng is None else rng
        alpha, mixing = self._choose(rng)
        if not alpha:
            return images, labels
        other = rng.permutation(len(images))
        kept = rng.beta(alpha, alpha, len(images))
        images, kept = mixing(images, images[other], kept, rng)
        kept = kept.astype("float32")[:, None]
        return images, kept * labels + (1 - kept) * labels[other]

    def _choose(self, rng):
        on = [(self.mixup, _blend), (self.cutmix, _paste)]
        if self.mixup and self.cutmix:
            return on[int(rng.random() < self.switch_rate)]
        return on[0] if self.mixup else on[1]

    def _soft(self, labels):
        if labels.ndim == 1:
            wrong = labels[(labels < 0) | (labels >= self.num_classes)]
            if wrong.size:
                raise ValueError(
                    f"A label is no class. Expected: 0 to "
                    f"{self.num_classes - 1}. Received: {wrong[0]}."
                )
            labels = np.eye(self.num_classes, dtype="float32")[labels]
        if labels.shape[1:] != (self.num_classes,):
            raise ValueError(
                f"These labels are of other classes. Expected: (batch,) "
                f"integers or (batch, {self.num_classes}). Received: shape "
                f"{labels.shape}."
            )
        s = self.label_smoothing
        return ((1 - s) * labels + s / self.num_classes).astype("float32")

    def _in_tf_data(self, images, labels):
        import tensorflow as tf

        mixed, soft = tf.numpy_function(
            self, (images, labels), (tf.float32, tf.float32)
        )
        mixed.set_shape(images.shape)
        soft.set_shape((images.shape[0], self.num_classes))
        return mixed, soft


def _blend(images, others, kept, rng):
    k = kept.astype("float32")[:, None, None, None]
    return k * images + (1 - k) * others, kept


def _paste(images, others, kept, rng):
    """Puts a box of the other image in; returns the part that is left."""
    count, height, width = images.shape[:3]
    side = np.sqrt(1 - kept)
    images = images.copy()
    # The centre may be anywhere: a box at the border is cut off, as in the
    # authors' code, and the part that is left grows.
    y, x = rng.integers(0, height, count), rng.integers(0, width, count)
    half_h = (height * side / 2).astype(int)
    half_w = (width * side / 2).astype(int)
    top, bottom = np.maximum(y - half_h, 0), np.minimum(y + half_h, height)
    left, right = np.maximum(x - half_w, 0), np.minimum(x + half_w, width)
    for i in range(count):
        box = (i, slice(top[i], bottom[i]), slice(left[i], right[i]))
        images[box] = others[box]
    area = (bottom - top) * (right - left)
    return images, 1 - area / (height * width)
