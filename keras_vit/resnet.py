"""BiT: the ResNet that the Vision Transformer was measured against."""

import keras

from keras_vit import layers
from keras_vit.adaptable import AdaptableModel
from keras_vit.architecture import pixels
from keras_vit.architecture import trunk
from keras_vit.resnet_config import ResNetConfig


@keras.saving.register_keras_serializable("keras_vit")
class ResNetV2(AdaptableModel):
    """A BiT ResNet, from pixels to logits.

    A functional `keras.Model`. The layers, in order: `pixels`, `root`,
    `stage_0` to `stage_{depth - 1}`, `norm` and `relu` (with pre-activation
    units only), `pooling`, `head`. Weights are named `root/conv/kernel`,
    `stage_{s}/unit_{u}/conv_{1, 2, 3, proj}/kernel`,
    `stage_{s}/unit_{u}/norm_{1, 2, 3, proj}/{gamma, beta}`, all from 0.

    Args:
        config: A `ResNetConfig`, for example `resnet_config("r50x1")`.
        labels: Optional class names, one per class, in the order of the
            logits. They are saved with the model.
        dtype: Dtype policy, such as `"mixed_bfloat16"`; the global one by
            default. Pixels, standardised kernels before their cast, statistics
            of the norms, pooling, head and logits are float32 under every
            policy.
        name: Name of the model.

    Input shape:
        `(batch, height, width, 3)`, RGB, 0..255, any integer or float dtype.

    Output shape:
        `(batch, num_classes)` logits, float32; `(batch, channels)` pooled
        features if `num_classes` is 0.

    Raises:
        ValueError: `labels` and `num_classes` differ, or an image of another
            shape is given.

    References:
        - [Kolesnikov et al., 2020](https://arxiv.org/abs/1912.11370)

    Example:
    ```python
    config = keras_vit.resnet_config("r26x0.5", image_size=64, num_classes=10)
    model = keras_vit.ResNetV2(config)
    logits = model.predict(np.zeros((2, 64, 64, 3), "uint8"), verbose=0)
    stages = model.feature_model([0, 1, 2, 3])
    ```
    """

    config_class = ResNetConfig
    repeated = "stage"

    def __init__(
        self, config, labels=None, dtype=None, name="resnet", **kwargs
    ):
        super().__init__(config, labels, dtype, name, **kwargs)

    @staticmethod
    def _outputs_of(images, config, policy):
        x = trunk(pixels(images, config), config.trunk, policy)
        if config.trunk.pre_activation:
            x = layers.GroupNormalization(
                config.trunk.group_norm_epsilon, dtype=policy, name="norm"
            )(x)
            x = keras.layers.ReLU(dtype=policy, name="relu")(x)
        x = keras.layers.GlobalAveragePooling2D(
            data_format="channels_last", dtype="float32", name="pooling"
        )(x)
        if not config.num_classes:
            return x
        return keras.layers.Dense(
            config.num_classes,
            kernel_initializer="zeros",  # as in the BiT paper, section 3.3
            dtype="float32",
            name="head",
        )(x)
