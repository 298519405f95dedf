"""Layer-wise learning rates and weight decay, in any Keras optimizer."""

import contextlib

import keras

from keras_vit.training.adamw import AdamW
from keras_vit.training.rates import decayed_paths
from keras_vit.training.rates import rate_scales

OPTIMIZERS = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "Muon",
    "Nadam",
    "RMSprop",
    "SGD",
]


def layer_decay(optimizer, model, decay=0.75, norm="head", also_decayed=()):
    """Returns an optimizer whose learning rate falls from the head down.

    A new optimizer of the same kind and settings. Its step is that of the
    original, for each group of variables of one rate; weight decay, scaled
    alike, reaches kernels only. With `gradient_accumulation_steps` a schedule
    and the moving average count the steps, where Keras' own count the parts
    of a step. Its moving average (`use_ema=True`) starts
    from the weights before the first step: `m * w0 + (1 - m) * w1` after it,
    where Keras' own takes `w1`.

    Args:
        optimizer: A `keras.optimizers.Optimizer` that has not been used.
        model: The `ViT` that it will train, or one inside a larger model.
        decay: Float in `(0, 1]`: block `i` of `depth` gets `decay ** (depth -
            i)` of the learning rate, patches, tokens and positions `decay **
            (depth + 1)`, the head all of it. 0.65 (B/16) to 0.8 (L/16) after
            masked pre-training, 1 for equal rates.
        norm: `"head"` counts the final norm to the head (BEiT, MAE),
            `"block"` to the last block (timm).
        also_decayed: Patterns of the paths of variables other than kernels
            that weight decay shall reach. DeiT's own code decays the
            distillation token: `("distillation_token/*",)`; timm the probe of
            attention pooling: `("pooling/probe",)`.

    Raises:
        TypeError: The model is not a `ViT`.
        ValueError: A value is out of range, or the optimizer has been used.

    References:
        - [Clark et al., 2020](https://arxiv.org/abs/2003.10555), section 3
        - [Bao et al., 2022](https://arxiv.org/abs/2106.08254), appendix H

    Example:
    ```python
    model = keras_vit.ViT.from_preset("vit_nano_fashion_mnist", num_classes=3)
    optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.05)
    optimizer = keras_vit.layer_decay(optimizer, model, decay=0.75)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    ```
    """
    if optimizer.built:
        raise ValueError(
            f"This optimizer has been used. Expected: a new one. Received: a "
            f"{type(optimizer).__name__} with {len(optimizer.variables)} "
            f"variables. Make another one, and hand that in."
        )
    return _layerwise_class(type(optimizer)).from_config(
        {
            **optimizer.get_config(),
            "scales": rate_scales(model, decay, norm),
            "decayed": sorted(decayed_paths(model, also_decayed)),
        }
    )


class _Layerwise:
    """Rates by variable, for whatever optimizer it is mixed into."""

    def __init__(self, *args, scales=None, decayed=(), **kwargs):
        super().__init__(*args, **kwargs)
        self._scales = dict(scales or {})
        self._decayed = list(decayed)
        self._scale = 1.0  # of the group whose step is being made

    def build(self, variables):
        unknown = [v.path for v in variables if v.path not in self._scales]
        if unknown:
            raise ValueError(
                f"No learning rate is given for these variables. Expected: "
                f"those of the model that `layer_decay` saw. Received: "
                f"{', '.join(unknown[:10])}. Call `layer_decay` again after "
                f"the model has changed; `scales` of the config takes more."
            )
        keyed = [(self._var_key(v), v.path) for v in variables]
        self._scale_of = {key: self._scales[path] for key, path in keyed}
        decayed = set(self._decayed)
        self._decay_keys = {key for key, path in keyed if path in decayed}
        super().build(variables)

    def add_variable_from_reference(
        self, reference_variable, name=None, initializer="zeros"
    ):
        if name == "average":
            # A buffer of its own: JAX gives both away in `fit`.
            def initializer(shape, dtype=None):
                copy = keras.ops.copy(reference_variable)
                return keras.ops.stop_gradient(copy)

        return super().add_variable_from_reference(
            reference_variable, name=name, initializer=initializer
        )

    def _groups(self, variables):
        """Scale to the places in a list of variables."""
        groups = {}
        for i, variable in enumerate(variables):
            scale = self._scale_of[self._var_key(variable)]
            groups.setdefault(scale, []).append(i)
        return groups.items()

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        for scale, places in self._groups(trainable_variables):
            super()._backend_update_step(
                [grads[i] for i in places],
                [trainable_variables[i] for i in places],
                learning_rate * scale,
            )

    def _apply_weight_decay(self, variables):
        decayed = [v for v in variables if self._use_weight_decay(v)]
        for scale, places in self._groups(decayed):
            with self._scaled(scale):
                super()._apply_weight_decay([decayed[i] for i in places])

    def _use_weight_decay(self, variable):
        return self._var_key(variable) in self._decay_keys

    def _get_current_learning_rate(self):
        rate = super()._get_current_learning_rate()
        if isinstance(
            self._learning_rate,
            keras.optimizers.schedules.LearningRateSchedule,
        ):
            # Keras' own counts each part of an accumulated gradient.
            rate = self._learning_rate(self.iterations)
        return rate if self._scale == 1.0 else rate * self._scale

    @contextlib.contextmanager
    def _scaled(self, scale):
        self._scale = scale
        try:
            yield
        finally:
            self._scale = 1.0

    def _update_model_variables_moving_average(self, trainable_variables):
        # Keras' own begins with what the first step has made, and goes on
        # while gradients are gathered and the weights stay.
        momentum, parts = self.ema_momentum, self.gradient_accumulation_steps
        if parts:
            stepped = keras.ops.equal((self._iterations + 1) % parts, 0)
            momentum = keras.ops.where(stepped, momentum, 1.0)
        averages = self._model_variables_moving_average
        for variable, average in zip(
            trainable_variables, averages, strict=True
        ):
            if average is not None:
                old = keras.ops.multiply(momentum, average)
                new = keras.ops.multiply(1 - momentum, variable)
                average.assign(keras.ops.add(old, new))

    def _overwrite_model_variables_with_average_value(
        self, trainable_variables
    ):
        # Keras' own hands the buffer on, and JAX cannot give it away twice in
        # the next `fit`.
        averages = self._model_variables_moving_average
        for variable, average in zip(
            trainable_variables, averages, strict=True
        ):
            if average is not None:
                variable.assign(keras.ops.copy(average))

    def get_config(self):
        return {
            **super().get_config(),
            "scales": self._scales,
            "decayed": self._decayed,
        }


def _layerwise_class(cls):
    if issubclass(cls, _Layerwise):
        return cls
    if issubclass(cls, keras.optimizers.AdamW):
        cls = AdamW
    name = f"Layerwise{cls.__name__}"
    if name not in globals():
        made = type(name, (_Layerwise, cls), {"__module__": __name__})
        keras.saving.register_keras_serializable("keras_vit")(made)
        globals()[name] = made
    return globals()[name]


def _make_classes():
    # Here and now, for a saved model may be loaded before one is made. On
    # torch Keras gives a class of its own in the place of the public one.
    for name in OPTIMIZERS:
        public = getattr(keras.optimizers, name, None)
        if public is not None:
            _layerwise_class(type(public.__new__(public)))


_make_classes()
