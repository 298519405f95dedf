"""A model that is saved with its config, and made into another."""

import os
import typing
import warnings

import keras

from keras_vit.architecture import activation
from keras_vit.checks import check_config
from keras_vit.checks import check_labels
from keras_vit.image_checks import ImageModel
from keras_vit.image_checks import input_shape
from keras_vit.image_checks import onnx_signature
from keras_vit.layers import StdConv2D
from keras_vit.layers.initializers import unfilled_weights
from keras_vit.preset_files import check_shapes
from keras_vit.preset_files import load_h5
from keras_vit.preset_files import read_preset
from keras_vit.preset_files import write_preset
from keras_vit.presets import preset_directory
from keras_vit.transfer import rebuilt


class AdaptableModel(ImageModel):
    """What `ViT` and `ResNetV2` have in common: all but their figure.

    A subclass has a `config_class`, an `_outputs_of(images, config, policy)`
    and an `__init__` with the name that its models get.

    Args:
        config: A config of the class.
        labels: Optional class names, one per class.
        dtype: Dtype policy; the global one by default.
        name: Name of the model.
    """

    config_class: typing.Any
    repeated = "block"  # with a number: the layers that an index means

    def __init__(self, config, labels, dtype, name, **kwargs):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        check_config(type(self), config)
        check_labels(labels, config.num_classes)
        images = keras.Input(input_shape(config), name="images")
        outputs = self._outputs_of(images, config, policy)
        super().__init__(images, outputs, name=name, **kwargs)
        self.config = config
        self.labels = None if labels is None else tuple(labels)
        self.policy = policy

    @staticmethod
    def _outputs_of(images, config, policy):
        """Returns the output of symbolic `images`."""
        raise NotImplementedError

    def train_step(self, *args, **kwargs):
        if keras.config.backend() == "torch":
            # Keras drops the gradients of the step before only after the
            # forward pass: as large as the weights, at the peak of memory.
            self.zero_grad()
        return super().train_step(*args, **kwargs)

    def feature_model(self, names):
        """Returns a model of the same weights that gives inner activations.

        Args:
            names: Layer names (`"block_3"`, `"norm"`), indices of blocks
                (`3`, `-1` for the last), `"pre_logits"` for the vector that
                enters the head or `"logits"`; a single one or a sequence.

        Returns:
            A `keras.Model` from images to a dict of arrays; blocks are under
            `block_{i}` however they were asked for.

        Raises:
            ValueError: No such layer; the nearest names are listed.

        Example:
        ```python
        model = keras_vit.ViT(keras_vit.vit_config("nano/4", image_size=28))
        inner = model.feature_model([0, -1, "pre_logits"])
        features = inner.predict(np.zeros((1, 28, 28, 3)), verbose=0)
        tokens = features["block_0"]  # (1, 50, 64)
        ```
        """
        names = [names] if isinstance(names, (str, int)) else names
        outputs = dict(activation(self, name) for name in names)
        return keras.Model(self.input, outputs, name=f"{self.name}_features")

    def with_config(self, **changes):
        """Returns a new model with fields of the config changed.

        Weights are copied bit by bit wherever their layer and shape are the
        same; positions and patch kernels are resampled by the rule in the
        config; a head for another number of classes starts at zero. What
        has no source at all raises. One log line (`logging`, name
        `keras_vit`, level INFO) per tensor that was resampled or is new.

        Args:
            changes: Fields of the config or of its parts, by plain name.

        Raises:
            ValueError: The change needs weights that this model lacks.
        """
        config = self.config.replace(**changes)
        same = config.num_classes == self.config.num_classes
        labels = self.labels if same else None
        return rebuilt(self, config, labels=labels, dtype=self.policy)

    def with_image_size(self, image_size):
        """Returns a new model for another image size, weights kept.

        Args:
            image_size: Int or `(height, width)` in pixels, or `None` for any
                multiple of the patch size at call time (the stored positions
                stay as they are and are resampled in the call).
        """
        return self.with_config(image_size=image_size)

    def with_num_classes(self, num_classes, labels=None):
        """Returns a new model with a new head, the rest kept bit by bit.

        Args:
            num_classes: Int; 0 for pooled features.
            labels: Optional class names.
        """
        model = self.with_config(num_classes=num_classes)
        check_labels(labels, num_classes)
        if labels is not None:
            model.labels = tuple(labels)
        return model

    def with_stored_kernels(self):
        """Returns a model for inference whose kernels are standard already.

        A ResNet and a hybrid otherwise standardise their kernels in every
        call: of R50x1 at 224 pixels on one CPU core a third of the time for
        one image, a tenth at most for eight. Not for training: a kernel that
        moves would no longer be standard.
        """
        model = self.with_config(standardization="stored")
        layers = zip(
            self._flatten_layers(), model._flatten_layers(), strict=True
        )
        for source, target in layers:
            if isinstance(source, StdConv2D):
                target.kernel.assign(source.standardized())
        return model

    @classmethod
    def from_preset(cls, preset, dtype=None, labels=None, **overrides):
        """Returns a model with trained weights, ready to predict.

        Args:
            preset: A name of `list_presets()` or an alias; an address,
                `gs://...`, `hf://user/repo`, `timm/name` or `https://...`; a
                directory that `save_to_preset`, timm or Hugging Face wrote.
            dtype: Dtype policy; that of the preset by default.
            labels: Optional class names of a new head.
            overrides: Fields of the config or of its parts, by plain name:
                `num_classes=37` (a fresh zero head), `num_classes=0` (pooled
                features), `image_size=384` (positions resampled, the rest
                bit-identical), `stochastic_depth_rate=0.1`.

        Raises:
            ValueError: An unknown name (the nearest are listed), a damaged
                directory or file, or an override that does not fit.
            OSError: The file cannot be fetched.

        Example:
        ```python
        model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
        ```
        """
        directory = preset_directory(preset)
        if directory is None:
            from keras_vit.published import load_published

            model = load_published(preset, dtype, labels, **overrides)
            return check_class(cls, model, preset)
        config, weights = read_preset(directory, cls.__name__)
        if dtype is not None:
            config["dtype"] = dtype
        # To quantise, `from_config` has to find numbers in the weights.
        with unfilled_weights(not config.get("quantization")):
            model = cls.from_config(config)
        load_h5(model, weights)
        if overrides:
            model = model.with_config(**overrides)
        if labels is not None:
            check_labels(labels, model.config.num_classes)
            model.labels = tuple(labels)
        return model

    def save_to_preset(self, directory):
        """Writes a directory that `from_preset` reads.

        It holds `config.json` (architecture, numerics, pixel recipe),
        `model.weights.h5` and, if the model has them, `labels.json`. It
        appears whole or not at all; an earlier preset there is replaced.

        Args:
            directory: A path; missing parents are made.

        Raises:
            ValueError: The directory holds something else.
        """
        # An optimizer's state is three times the model and not part of it.
        optimizer, self.optimizer = getattr(self, "optimizer", None), None
        try:
            write_preset(
                directory,
                type(self).__name__,
                self.get_config(),
                self.save_weights,
            )
        finally:
            self.optimizer = optimizer

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
        """Loads a `.weights.h5` file of a model of the same config.

        Raises:
            ValueError: It is of another image size, patch or class count;
                the error names the weight and the method that adapts it.
        """
        if not skip_mismatch:
            check_shapes(self, filepath)
        return super().load_weights(filepath, skip_mismatch, **kwargs)

    def export(self, filepath, format="tf_saved_model", **kwargs):
        """Writes the forward pass for use without Keras, in float32.

        Args:
            filepath: Where.
            format: `"tf_saved_model"` (TensorFlow and JAX), `"onnx"` or what
                else Keras has.
            kwargs: As for `keras.Model.export`. On torch the batch of an
                ONNX file is fixed, at 1 without an `input_signature`.

        Raises:
            ValueError: The model is quantised and of mixed precision.
        """
        model = self
        if self.policy.compute_dtype != "float32":
            # Converters fail on half precision, or keep its rounding.
            model = rebuilt(self, self.config, dtype="float32")
        if format == "onnx" and "input_signature" not in kwargs:
            kwargs["input_signature"] = [onnx_signature(self.config)]
        return super(AdaptableModel, model).export(filepath, format, **kwargs)

    def quantize(self, *args, **kwargs):
        """As in Keras: the dense layers become, for example, `"int8"`."""
        with warnings.catch_warnings():
            # Layers without such a form stay as they are; that is no news.
            warnings.filterwarnings("ignore", "Layer .*`quantize` method")
            super().quantize(*args, **kwargs)

    def get_config(self):
        return {
            "config": self.config.to_dict(),
            "labels": self.labels,
            "dtype": keras.dtype_policies.serialize(self.policy),
            "name": self.name,
            "trainable": self.trainable,
            "quantization": self.quantization,
        }

    @property
    def quantization(self):
        """The mode of `quantize`, such as `"int8"`, or `None`."""
        modes = (
            getattr(layer, "quantization_mode", None)
            for layer in self._flatten_layers()
        )
        return next(filter(None, modes), None)

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        mode = config.pop("quantization", None)
        config["config"] = cls.config_class.from_dict(config["config"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        model = cls(**config)
        if mode:
            model.quantize(mode)
        return model


def check_class(cls, model, preset):
    """Returns `model` if it is of the class that was asked for."""
    if not isinstance(model, cls):
        raise ValueError(
            f"This preset is of another class. Expected: "
            f"{type(model).__name__}.from_preset({os.fspath(preset)!r}). "
            f"Received: {cls.__name__}.from_preset."
        )
    return model
