"""TensorFlow beside another backend: for data, and off the accelerators."""

import keras


def tensorflow_beside():
    """Returns the module `tensorflow`, without its GPUs beside a backend.

    At its first operation it would take nearly all of the memory of every GPU,
    where it only reads data. What it has by then, it keeps.

    Raises:
        ImportError: TensorFlow is not installed.
    """
    import tensorflow as tf

    if keras.config.backend() != "tensorflow":
        try:
            tf.config.set_visible_devices([], "GPU")
        except RuntimeError:
            return tf  # it has begun
    return tf
