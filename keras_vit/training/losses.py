"""Cross-entropy of integer, one-hot and mixed labels alike."""

import keras
from keras import ops

from keras_vit.checks import check_rate


@keras.saving.register_keras_serializable("keras_vit")
class Crossentropy(keras.losses.Loss):
    """Softmax cross-entropy of logits with whatever labels there are.

    Integer labels become one-hot; then `(1 - s) * label + s / classes`.
    Labels that mixing has made soft go in as they are.

    Args:
        label_smoothing: Float in `[0, 1)`, `s`. Leave it at 0 where `Mix` has
            smoothed already.
        reduction: Of the losses of a batch, as in `keras.losses.Loss`.
        name: Name of the loss.

    Call arguments:
        y_true: `(batch,)` or `(batch, 1)` ints, or `(batch, classes)` floats.
        y_pred: `(batch, classes)` logits.

    Raises:
        ValueError: The smoothing is outside `[0, 1)`.

    References:
        - [Szegedy et al., 2016](https://arxiv.org/abs/1512.00567), section 7
    """

    def __init__(
        self,
        label_smoothing=0.0,
        reduction="sum_over_batch_size",
        name="crossentropy",
        **kwargs,
    ):
        super().__init__(name=name, reduction=reduction, **kwargs)
        check_rate("label_smoothing", label_smoothing)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        classes = y_pred.shape[-1]
        integers = len(y_true.shape) < len(y_pred.shape)
        if not integers and y_true.shape[-1] == 1 and classes != 1:
            y_true, integers = y_true[..., 0], True
        if integers:
            y_true = ops.one_hot(ops.cast(y_true, "int32"), classes)
        y_true = ops.cast(y_true, y_pred.dtype)
        s = self.label_smoothing
        if s:
            y_true = (1.0 - s) * y_true + s / classes
        return ops.categorical_crossentropy(y_true, y_pred, from_logits=True)

    def get_config(self):
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
        }
