"""Distillation: a ViT that learns from labels and from a teacher."""

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.training.losses import Crossentropy


@keras.saving.register_keras_serializable("keras_vit")
class Distiller(keras.Model):
    """A student ViT trained by labels and by what a teacher answers.

    `(1 - weight) * CE(label, class head) + weight * T`, where `T` is for
    `"hard"` the cross-entropy with the class that the teacher finds, for
    `"soft"` `tau ** 2` times the Kullback-Leibler divergence of softmax with
    temperature `tau`. The student's distillation token, if it has one, is
    taught by the teacher and its class token by the labels; without one both
    teach the same head. Train it with `compile` and `fit(images, labels)`;
    then use `student`, whose logits are the mean of its heads.

    Args:
        student: A `ViT` with a head.
        teacher: Any `keras.Model` from the same images to logits, such as a
            `ResNetV2`; it does not train.
        kind: `"hard"` (the better one in the paper) or `"soft"`.
        weight: Float in `[0, 1]`, of the teacher: 0.5 for `"hard"`, 0.1 for
            `"soft"` in the paper.
        temperature: Float, `tau`; 3 in the paper.
        label_smoothing: Float in `[0, 1)`, of the labels.
        name: Name of the model.

    Call arguments:
        images: What both models take.

    Output shape:
        A dict of `(batch, num_classes)` logits: `"logits"` (what the student
        answers), `"class"`, `"distillation"` and `"teacher"`.

    Raises:
        ValueError: Student and teacher have different classes, or a value is
            out of range.

    References:
        - [Touvron et al., 2021](https://arxiv.org/abs/2012.12877), equations
          2 and 3

    Example:
    ```python
    config = keras_vit.vit_config(
        "nano/4", image_size=28, num_classes=10, distillation_token=True
    )
    teacher = keras_vit.ViT.from_preset("vit_nano_fashion_mnist")
    model = keras_vit.Distiller(keras_vit.ViT(config), teacher)
    model.compile(keras.optimizers.AdamW(1e-3), metrics=["accuracy"])
    images = np.zeros((4, 28, 28, 3), "uint8")
    model.fit(images, np.arange(4), verbose=0)
    ```
    """

    def __init__(
        self,
        student,
        teacher,
        kind="hard",
        weight=0.5,
        temperature=3.0,
        label_smoothing=0.0,
        name="distiller",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        check_choice("kind", kind, ("hard", "soft"))
        self._check(student, teacher, weight, temperature)
        self.student = student
        self.teacher = teacher
        teacher.trainable = False
        self.kind = kind
        self.weight = weight
        self.temperature = temperature
        self.label_loss = Crossentropy(label_smoothing, name="label_loss")
        heads = [
            layer.output
            for layer in student.layers
            if layer.name in ("head", "head_distillation")
        ]
        both = {"class": heads[0], "distillation": heads[-1]}
        answers = keras.Model(student.input, {**both, "logits": student.output})
        # Held where Keras does not look: its layers are the student's.
        self._answers = lambda x, training: answers(x, training=training)
        self.built = True

    @staticmethod
    def _check(student, teacher, weight, temperature):
        classes = [m.output.shape[-1] for m in (student, teacher)]
        if not student.config.num_classes or classes[0] != classes[1]:
            raise ValueError(
                f"Student and teacher answer different questions. Expected: "
                f"logits of the same classes. Received: {classes[0]} values "
                f"of the student (num_classes={student.config.num_classes}), "
                f"{classes[1]} of the teacher."
            )
        if not 0 <= weight <= 1 or temperature <= 0:
            raise ValueError(
                f"Label and teacher share the loss. Expected: weight in "
                f"[0, 1], temperature above 0. Received: weight={weight!r}, "
                f"temperature={temperature!r}."
            )

    def call(self, images, training=None):
        answers = self._answers(images, training)
        teacher = ops.stop_gradient(self.teacher(images, training=False))
        return {**answers, "teacher": ops.cast(teacher, "float32")}

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        by_label = self.label_loss(y, y_pred["class"], sample_weight)
        taught, teacher = y_pred["distillation"], y_pred["teacher"]
        if self.kind == "hard":
            by_teacher = ops.sparse_categorical_crossentropy(
                ops.argmax(teacher, axis=-1), taught, from_logits=True
            )
        else:
            tau = self.temperature
            target = ops.log_softmax(teacher / tau, axis=-1)
            found = ops.log_softmax(taught / tau, axis=-1)
            by_teacher = tau**2 * ops.sum(
                ops.exp(target) * (target - found), axis=-1
            )
        by_teacher = ops.mean(by_teacher)
        return (1 - self.weight) * by_label + self.weight * by_teacher

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred["logits"], sample_weight)

    def get_config(self):
        return {
            "student": keras.saving.serialize_keras_object(self.student),
            "teacher": keras.saving.serialize_keras_object(self.teacher),
            "kind": self.kind,
            "weight": self.weight,
            "temperature": self.temperature,
            "label_smoothing": self.label_loss.label_smoothing,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        models = {
            part: keras.saving.deserialize_keras_object(config[part])
            for part in ("student", "teacher")
        }
        return cls(**{**config, **models})
