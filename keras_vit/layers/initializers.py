"""What a weight starts at, unless it is about to be loaded."""

import contextlib
import contextvars

import keras
from keras import ops

_RANDOM = contextvars.ContextVar("random", default=True)


@contextlib.contextmanager
def zero_weights():
    """Layers built inside start at zero: no time for numbers nobody keeps.

    Filling ViT-B/16 with random numbers takes longer than reading its file.
    """
    token = _RANDOM.set(False)
    try:
        yield
    finally:
        _RANDOM.reset(token)


def initial(initializer):
    """Returns the initializer, or zeros inside `zero_weights`."""
    if not _RANDOM.get():
        return "zeros"
    torch = keras.config.backend() == "torch"
    return _in_place(keras.initializers.get(initializer)) if torch else initializer


def _in_place(initializer):
    """The same values, in memory that is taken before that of the way there.

    Keras' initializers on torch make three arrays and keep the last one. Freed
    in between the kept ones, the others leave holes into which no later weight
    fits: a ViT-B/16 of 330 MB took 430 to 650 MB.
    """

    def fill(shape, dtype=None):
        kept = ops.zeros(shape, dtype)
        kept.copy_(initializer(shape, dtype=dtype))
        return kept

    return fill
