"""Masked autoencoder: a ViT that learns to complete images."""

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints import load_parts
from keras_vit.checks import check_rate
from keras_vit.pretraining.decoder import DECODERS
from keras_vit.pretraining.decoder import build_decoder
from keras_vit.pretraining.patches import check_encoder
from keras_vit.pretraining.patches import to_images
from keras_vit.pretraining.patches import to_patches
from keras_vit.weights.open_file import open_tensors


@keras.saving.register_keras_serializable("keras_vit")
class MaskedAutoencoder(keras.Model):
    """A ViT that sees a quarter of an image, and a decoder that fills it in.

    Positions are added, all but `1 - mask_ratio` of the patches dropped, the
    rest goes through the encoder's blocks and norm; the small decoder gets a
    learned token in each empty place and predicts pixels. The loss is the
    mean squared error over the patches left out. Train it with `compile` and
    `fit(images)`, no loss and no labels; then fine-tune `encoder`.

    Args:
        encoder: A `ViT` with `num_classes=0`. The paper's has
            `position="sincos_2d"`.
        decoder_width: Int, a multiple of 4 for `"sincos_2d"`.
        decoder_depth: Int.
        decoder_heads: Int.
        decoder_mlp_dim: Int; four times the width by default.
        decoder_position: `"sincos_2d"` (fixed) or `"learned"`.
        mask_ratio: Float in `[0, 1)`, part of the patches left out.
        normalize_pixels: Whether each target patch is scaled to mean 0 and
            variance 1, by which features become better.

    Call arguments:
        images: What the encoder takes.
        noise: Optional `(batch, patches)`: the patches with the lowest values
            are kept. Drawn for each call by default.

    Output shape:
        A dict: `"patches"` `(batch, patches, pixels)`, predicted normalised
        pixels in the order (row, column, channel); `"mask"` `(batch,
        patches)`, 1 where a patch was left out; `"tokens"` `(batch, prefix +
        kept, width)`, what the encoder gave.

    Raises:
        ValueError: The encoder has a head, attention pooling, relative
            positions, any image size or a ResNet, or nothing is kept.

    References:
        - [He et al., 2022](https://arxiv.org/abs/2111.06377)

    Example:
    ```python
    config = keras_vit.vit_config(
        "nano/4", image_size=28, num_classes=0, position="sincos_2d"
    )
    model = keras_vit.MaskedAutoencoder(
        keras_vit.ViT(config), decoder_width=32, decoder_depth=1,
        decoder_heads=2,
    )
    model.compile(keras.optimizers.AdamW(1e-3))
    model.fit(np.zeros((4, 28, 28, 3), "uint8"), verbose=0)
    classifier = model.encoder.with_num_classes(10)
    ```
    """

    def __init__(  # noqa: PLR0913
        self,
        encoder,
        decoder_width=512,
        decoder_depth=8,
        decoder_heads=16,
        decoder_mlp_dim=None,
        decoder_position="sincos_2d",
        mask_ratio=0.75,
        normalize_pixels=True,
        seed=None,
        name="masked_autoencoder",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        check_encoder(encoder, "A masked autoencoder")
        check_rate("mask_ratio", mask_ratio)
        c = encoder.config
        count = c.grid[0] * c.grid[1]
        self._kept = int(count * (1 - mask_ratio))
        if not self._kept:
            raise ValueError(
                f"The encoder has to see something. Expected: a mask_ratio of "
                f"at most {1 - 1 / count:.4f} for {count} patches. Received: "
                f"mask_ratio={mask_ratio}."
            )
        self.encoder = encoder
        self._options = {
            "width": decoder_width,
            "depth": decoder_depth,
            "num_heads": decoder_heads,
            "mlp_dim": decoder_mlp_dim or 4 * decoder_width,
            "position": decoder_position,
        }
        self.decoder = build_decoder(
            c, self._kept, self._options, encoder.policy
        )
        self.mask_ratio = mask_ratio
        self.normalize_pixels = normalize_pixels
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        embed = keras.Model(encoder.input, encoder.blocks()[0].input)
        # Held where Keras does not look: its layers are the encoder's.
        self._embed = lambda images: embed(images)
        self.built = True

    def call(self, images, noise=None, training=None):
        x = self._embed(images)  # (batch, prefix + patches, width)
        prefix = self.encoder.config.num_prefix
        patches = x[:, prefix:]
        if noise is None:
            shape = (ops.shape(x)[0], patches.shape[1])
            noise = keras.random.uniform(shape, seed=self.seed_generator)
        order = ops.argsort(noise, axis=1)
        restore = ops.argsort(order, axis=1)
        kept = order[:, : self._kept, None]
        patches = ops.take_along_axis(patches, kept, axis=1)
        x = ops.concatenate([x[:, :prefix], patches], axis=1)
        for block in self.encoder.blocks():
            x = block(x, training=training)
        x = self.encoder.get_layer("norm")(x)
        y = self.decoder([x, ops.cast(restore, "int32")], training=training)
        return {
            "patches": y[:, prefix:],
            "mask": ops.cast(restore >= self._kept, "float32"),
            "tokens": x,
        }

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        target, _, _ = self._target(x)
        error = ops.mean(ops.square(y_pred["patches"] - target), axis=-1)
        mask = y_pred["mask"]
        return ops.sum(error * mask) / ops.sum(mask)

    def _target(self, images):
        """Pixels to predict, and the mean and deviation they had."""
        c = self.encoder.config
        pixels = self.encoder.get_layer("pixels")(images)
        target = to_patches(pixels, c.stride)
        if not self.normalize_pixels:
            return target, 0.0, 1.0
        mean = ops.mean(target, axis=-1, keepdims=True)
        size = target.shape[-1]
        # As in the authors' code: unbiased, 1e-6 under the root.
        variance = ops.var(target, axis=-1, keepdims=True) * size / (size - 1)
        deviation = ops.sqrt(variance + 1e-6)
        return (target - mean) / deviation, mean, deviation

    def reconstruct(self, images, noise=None):
        """Returns what the model makes of images, as pictures.

        With normalised pixels the mean and deviation of each patch are taken
        from the image itself: the model does not predict them.

        Args:
            images: What the encoder takes, `(batch, height, width, 3)`.
            noise: See the call.

        Returns:
            `(masked, completed)`, uint8 arrays `(batch, height, width, 3)`:
            the input with gray in the place of what was left out, and with
            the prediction there.
        """
        images = ops.convert_to_tensor(images)
        noise = None if noise is None else ops.convert_to_tensor(noise)
        out = self(images, noise=noise, training=False)
        c = self.encoder.config
        target, mean, deviation = self._target(images)
        mask = out["mask"][..., None]
        parts = (ops.zeros_like(target), out["patches"] * deviation + mean)
        true = target * deviation + mean
        std = np.asarray(c.pixels.std, "float32")
        offset = np.asarray(c.pixels.mean, "float32")
        pictures = []
        for filled in parts:
            pixels = to_images(
                mask * filled + (1 - mask) * true, c.grid, c.stride
            )
            pixels = ops.convert_to_numpy(ops.stop_gradient(pixels))
            pixels = 255 * (pixels * std + offset)
            pictures.append(np.clip(np.round(pixels), 0, 255).astype("uint8"))
        return tuple(pictures)

    @classmethod
    def from_checkpoint(cls, path, decoder_heads=16, **overrides):
        """Returns a model with the encoder and the decoder of a file.

        Args:
            path: A pre-training file of MAE's or Hugging Face's ViTMAE.
            decoder_heads: Int, which no tensor tells; 16 in published files.
            overrides: Of `load_checkpoint`, and `mask_ratio`,
                `normalize_pixels` and `seed`.

        Raises:
            ValueError: The file has no decoder; see `load_checkpoint`.
        """
        own = ("mask_ratio", "normalize_pixels", "seed")
        fields = {k: v for k, v in overrides.items() if k not in own}
        encoder = load_checkpoint(path, **fields)
        with open_tensors(path) as tensors:
            prefix, layout = _decoder_of(path, tensors)
            sizes = _sizes(prefix, tensors)
            model = cls(
                encoder,
                decoder_heads=decoder_heads,
                decoder_position="learned",
                **sizes,
                **{k: v for k, v in overrides.items() if k in own},
            )
            load_parts(model.decoder, layout, prefix, tensors, encoder.config)
        return model

    def get_config(self):
        decoder = {f"decoder_{k}": v for k, v in self._options.items()}
        decoder["decoder_heads"] = decoder.pop("decoder_num_heads")
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            **decoder,
            "mask_ratio": self.mask_ratio,
            "normalize_pixels": self.normalize_pixels,
            "seed": self.seed,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(**{**config, "encoder": encoder})


def _decoder_of(path, tensors):
    for prefix, layout in DECODERS.items():
        if f"{prefix}decoder_pred.weight" in tensors:
            return prefix, layout
    raise ValueError(
        f"There is no decoder in this file. Expected: decoder_pred.weight or "
        f"decoder.decoder_pred.weight. Received: {path} with "
        f"{', '.join(sorted(tensors)[:5])}. `load_checkpoint` opens an "
        f"encoder alone."
    )


def _sizes(prefix, tensors):
    width = tensors[f"{prefix}decoder_embed.weight"].shape[0]
    mark = "norm1.weight" if not prefix else "layernorm_before.weight"
    names = [n for n in tensors if "decoder_" in n and n.endswith(mark)]
    wide = "mlp.fc1.weight" if not prefix else "intermediate.dense.weight"
    (first,) = [
        n for n in tensors if "decoder_" in n and n.endswith(f".0.{wide}")
    ]
    return {
        "decoder_width": width,
        "decoder_depth": len(names),
        "decoder_mlp_dim": tensors[first].shape[0],
    }
