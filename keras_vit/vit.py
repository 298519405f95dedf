"""The Vision Transformer: pixels in, class scores out."""

import warnings

import keras

from keras_vit.architecture import activation
from keras_vit.architecture import encode
from keras_vit.checks import check_labels
from keras_vit.config import ViTConfig
from keras_vit.image_checks import ImageModel
from keras_vit.image_checks import input_shape
from keras_vit.image_checks import onnx_signature
from keras_vit.preset_files import check_shapes
from keras_vit.preset_files import load_h5
from keras_vit.preset_files import read_preset
from keras_vit.preset_files import write_preset
from keras_vit.presets import find_preset
from keras_vit.transfer import add_lora
from keras_vit.transfer import copy_weights


@keras.saving.register_keras_serializable("keras_vit")
class ViT(ImageModel):
    """A Vision Transformer, from pixels to logits.

    A functional `keras.Model`: `get_layer("block_3").output` is a tensor of
    its graph. The layers, in order: `pixels`, `patch_embedding`,
    `patches_to_tokens`, then `register_tokens`, `distillation_token`,
    `class_token` and `position_embedding` as far as the config has them,
    `block_0` to `block_{depth - 1}`, `norm`, `pooling`, `pre_logits`, `head`.

    Args:
        config: A `ViTConfig`, for example `vit_config("b/16")`.
        labels: Optional class names, one per class, in the order of the
            logits. They are saved with the model.
        dtype: Dtype policy, such as `"mixed_bfloat16"`; the global one by
            default. Pixels, the final norm, the head and the logits are
            float32 under every policy.
        name: Name of the model.

    Input shape:
        `(batch, height, width, 3)`, RGB, 0..255, any integer or float dtype.
        With `config.any_image_size` the sides may be any multiples of the
        patch size.

    Output shape:
        `(batch, num_classes)` logits, float32; `(batch, width)` pooled
        features if `num_classes` is 0.

    Raises:
        ValueError: `labels` and `num_classes` differ, or an image of another
            shape is given.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929)

    Example:
    ```python
    config = keras_vit.vit_config("ti/16", image_size=64, num_classes=10)
    model = keras_vit.ViT(config)
    logits = model.predict(np.zeros((2, 64, 64, 3), "uint8"), verbose=0)
    ```
    """

    def __init__(self, config, labels=None, dtype=None, name="vit", **kwargs):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        check_labels(labels, config.head.num_classes)
        images = keras.Input(input_shape(config), name="images")
        outputs = encode(images, config, policy)
        super().__init__(images, outputs, name=name, **kwargs)
        self.config = config
        self.labels = None if labels is None else tuple(labels)
        self.policy = policy

    def blocks(self):
        """Returns the `TransformerBlock` layers, first to last."""
        depth = self.config.depth
        return [self.get_layer(f"block_{i}") for i in range(depth)]

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
            changes: Fields of `ViTConfig` or of its parts, by plain name.

        Raises:
            ValueError: The change needs weights that this model lacks.
        """
        config = self.config.replace(**changes)
        same = config.head.num_classes == self.config.head.num_classes
        model = type(self)(
            config,
            labels=self.labels if same else None,
            dtype=self.policy,
            name=self.name,
        )
        copy_weights(self, model)
        return model

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

    def enable_lora(self, rank, targets=("qkv", "out", "dense_1", "dense_2")):
        """Freezes the blocks but for a low-rank update of their kernels.

        The head stays trainable. Compile after this call.

        Args:
            rank: Int, inner width of the update.
            targets: Names of the dense layers of attention and MLP.

        References:
            - [Hu et al., 2022](https://arxiv.org/abs/2106.09685)
        """
        add_lora(self, rank, targets)

    @classmethod
    def from_preset(cls, preset, dtype=None, labels=None, **overrides):
        """Returns a model with trained weights, ready to predict.

        Args:
            preset: A name of `list_presets()`, or a directory that
                `save_to_preset` wrote.
            dtype: Dtype policy; that of the preset by default.
            labels: Optional class names of a new head.
            overrides: Fields of `ViTConfig` or of its parts, by plain name:
                `num_classes=37` (a fresh zero head), `num_classes=0` (pooled
                features), `image_size=384` (positions resampled, the rest
                bit-identical), `stochastic_depth_rate=0.1`.

        Raises:
            ValueError: An unknown name (the nearest are listed), a damaged
                directory, or an override that does not fit.

        Example:
        ```python
        model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
        ```
        """
        directory = find_preset(preset)
        config, weights = read_preset(directory, cls.__name__)
        if dtype is not None:
            config["dtype"] = dtype
        model = cls.from_config(config)
        load_h5(model, weights)
        if overrides:
            model = model.with_config(**overrides)
        if labels is not None:
            check_labels(labels, model.config.head.num_classes)
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
            model = type(self)(self.config, dtype="float32", name=self.name)
            copy_weights(self, model)
        if format == "onnx" and "input_signature" not in kwargs:
            kwargs["input_signature"] = [onnx_signature(self.config)]
        return super(ViT, model).export(filepath, format, **kwargs)

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
        dense = self.blocks()[0].attention.qkv
        return getattr(dense, "quantization_mode", None)

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        mode = config.pop("quantization", None)
        config["config"] = ViTConfig.from_dict(config["config"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        model = cls(**config)
        if mode:
            model.quantize(mode)
        return model
