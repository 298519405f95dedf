"""The Vision Transformer: pixels in, class scores out."""

import keras

from keras_vit.adaptable import AdaptableModel
from keras_vit.architecture import encode
from keras_vit.config import ViTConfig
from keras_vit.transfer import add_lora
from keras_vit.transfer import freeze_layers
from keras_vit.transfer import frozen_layers


@keras.saving.register_keras_serializable("keras_vit")
class ViT(AdaptableModel):
    """A Vision Transformer, from pixels to logits.

    A functional `keras.Model`: `get_layer("block_3").output` is a tensor of
    its graph. The layers, in order: `pixels`, then `root`, `stage_0` and so on
    in a hybrid (their weights as in `ResNetV2`), `patch_embedding`,
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
        patch size (of `config.stride` in a hybrid).

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

    config_class = ViTConfig

    def __init__(self, config, labels=None, dtype=None, name="vit", **kwargs):
        super().__init__(config, labels, dtype, name, **kwargs)

    @staticmethod
    def _outputs_of(images, config, policy):
        return encode(images, config, policy)

    def blocks(self):
        """Returns the `TransformerBlock` layers, first to last."""
        depth = self.config.depth
        return [self.get_layer(f"block_{i}") for i in range(depth)]

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

    def enable_rematerialization(self, enabled=True):
        """Keeps only the inputs of the blocks for the backward pass.

        All else inside a block is computed again when its gradient is due:
        less memory in training, for about a third more time, and the same
        numbers, drop rates included. Prediction is as before. Compile after
        this call: a step that is already traced stays as it is. The switch is
        not saved, and not passed on by `with_config`.

        Args:
            enabled: Whether; `False` takes it back.

        References:
            - [Chen et al., 2016](https://arxiv.org/abs/1604.06174)

        Example:
        ```python
        model = keras_vit.ViT(keras_vit.vit_config("nano/4", image_size=28))
        model.enable_rematerialization()
        model.compile("adamw", "sparse_categorical_crossentropy")
        ```
        """
        for block in self.blocks():
            block.rematerialized = bool(enabled)

    def get_config(self):
        return {**super().get_config(), "frozen": frozen_layers(self)}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        frozen = config.pop("frozen", ())
        model = super().from_config(config)
        freeze_layers(model, frozen)
        return model
