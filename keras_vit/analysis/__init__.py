"""What the model looks at: functions from a model and images to arrays."""

from keras_vit.analysis.attention import attention_maps
from keras_vit.analysis.attention import attention_rollout

__all__ = ["attention_maps", "attention_rollout"]
