"""Masked patch prediction: the paper's own self-supervision."""

import keras
from keras import ops

from keras_vit.checks import check_rate
from keras_vit.layers.initializers import initial
from keras_vit.pretraining.patches import check_encoder
from keras_vit.pretraining.patches import to_patches

BITS = 3  # per channel
COLOURS = 2 ** (3 * BITS)
# Of the patches that are corrupted: mask token, another patch, as it was.
MASKED, SWAPPED = 0.8, 0.1


@keras.saving.register_keras_serializable("keras_vit")
class MaskedPatchPrediction(keras.Model):
    """A ViT that guesses the mean colour of patches it cannot trust.

    Half of the patch embeddings are corrupted: 80 % of those become a learned
    token, 10 % the embedding of another patch of the image, 10 % stay. From
    the token that leaves the encoder in its place the mean colour of each is
    predicted, in 3 bits per channel, as one of 512 classes. Train it with
    `compile` and `fit(images)`, no loss and no labels; then fine-tune
    `encoder`.

    Args:
        encoder: A `ViT` with `num_classes=0`.
        corrupted_rate: Float in `(0, 1)`. The paper found 0.15 worse in
            few-shot accuracy.
        seed: Optional int.
        name: Name of the model.

    Call arguments:
        images: What the encoder takes.

    Output shape:
        A dict: `"logits"` `(batch, patches, 512)`, `"corrupted"` `(batch,
        patches)`, 1 where a patch was corrupted.

    Raises:
        ValueError: The encoder has a head, attention pooling, relative
            positions, any image size or a ResNet, or the rate is out of range.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          section 4.6 and appendix B.1.2

    Example:
    ```python
    config = keras_vit.vit_config("nano/4", image_size=28, num_classes=0)
    model = keras_vit.MaskedPatchPrediction(keras_vit.ViT(config))
    model.compile(keras.optimizers.Adam(2e-4))
    model.fit(np.zeros((4, 28, 28, 3), "uint8"), verbose=0)
    ```
    """

    def __init__(
        self,
        encoder,
        corrupted_rate=0.5,
        seed=None,
        name="masked_patch_prediction",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        check_encoder(encoder, "Masked patch prediction")
        check_rate("corrupted_rate", corrupted_rate)
        if not corrupted_rate:
            raise ValueError(
                "Nothing would be predicted. Expected: corrupted_rate in "
                "(0, 1). Received: corrupted_rate=0."
            )
        self.encoder = encoder
        self.corrupted_rate = corrupted_rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        width = encoder.config.width
        self.mask_token = self.add_weight(
            shape=(1, 1, width),
            initializer=initial(keras.initializers.RandomNormal(stddev=0.02)),
            name="mask_token",
        )
        self.prediction = keras.layers.Dense(
            COLOURS, dtype="float32", name="prediction"
        )
        self.prediction.build((None, None, width))
        self.accuracy = keras.metrics.Mean("accuracy")
        patches = encoder.get_layer("patches_to_tokens").output
        before = keras.Model(encoder.input, patches)
        after = keras.Model(patches, encoder.get_layer("norm").output)
        # Held where Keras does not look: their layers are the encoder's.
        self._before = lambda images: before(images)
        self._after = lambda x, training: after(x, training=training)
        self.built = True

    def call(self, images, training=None):
        x, corrupted = self._corrupt(self._before(images))
        x = self._after(x, training)[:, self.encoder.config.num_prefix :]
        return {"logits": self.prediction(x), "corrupted": corrupted}

    def _corrupt(self, x):
        """Patch embeddings with some replaced, and which: 1 for corrupted."""
        batch, patches = ops.shape(x)[0], x.shape[1]
        chosen, kind, other = (
            keras.random.uniform((batch, patches), seed=self.seed_generator)
            for _ in range(3)
        )
        corrupted = chosen < self.corrupted_rate
        masked = ops.logical_and(corrupted, kind < MASKED)
        swapped = ops.logical_and(
            corrupted,
            ops.logical_and(kind >= MASKED, kind < MASKED + SWAPPED),
        )
        # Any other patch of the same image, never itself.
        step = 1 + ops.cast(ops.floor(other * (patches - 1)), "int32")
        place = (ops.arange(patches, dtype="int32")[None] + step) % patches
        another = ops.take_along_axis(x, place[..., None], axis=1)
        token = ops.cast(self.mask_token, x.dtype)
        x = ops.where(swapped[..., None], another, x)
        x = ops.where(masked[..., None], token, x)
        return x, ops.cast(corrupted, "float32")

    def colours(self, images):
        """Returns the class of each patch: its mean colour in 9 bits.

        Args:
            images: What the encoder takes.

        Returns:
            Ints `(batch, patches)`, 0..511: `64 red + 8 green + blue`.
        """
        c = self.encoder.config
        pixels = self.encoder.get_layer("pixels")(images)
        pixels = pixels * ops.array(c.pixels.std) + ops.array(c.pixels.mean)
        patches = to_patches(pixels, c.stride)  # 0..1
        shape = (-1, patches.shape[1], c.stride[0] * c.stride[1], 3)
        mean = ops.mean(ops.reshape(patches, shape), axis=2)
        # A white patch may come out a rounding error below 1 or above it.
        level = ops.floor(mean * 2**BITS + 1e-4)
        level = ops.clip(level, 0, 2**BITS - 1)
        weights = ops.array([4.0**BITS, 2.0**BITS, 1.0])
        return ops.cast(ops.sum(level * weights, axis=-1), "int32")

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        loss = ops.sparse_categorical_crossentropy(
            self.colours(x), y_pred["logits"], from_logits=True
        )
        corrupted = y_pred["corrupted"]
        return ops.sum(loss * corrupted) / ops.maximum(ops.sum(corrupted), 1.0)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        found = ops.cast(ops.argmax(y_pred["logits"], axis=-1), "int32")
        right = ops.cast(found == self.colours(x), "float32")
        self.accuracy.update_state(right, sample_weight=y_pred["corrupted"])
        return self.get_metrics_result()

    def get_config(self):
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "corrupted_rate": self.corrupted_rate,
            "seed": self.seed,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(**{**config, "encoder": encoder})
