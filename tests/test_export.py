"""Out of Keras: SavedModel and ONNX give the numbers of the model."""

import os

import keras
import numpy as np
import pytest
from random_weights import filled
from random_weights import pictures
from random_weights import predict

ACTIVATION = "gelu_tanh"  # erf of a new JAX is not known to every TensorFlow
# The writer of ONNX files behind each backend.
WRITERS = {"jax": "jax2onnx", "tensorflow": "tf2onnx", "torch": "onnxscript"}
POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]

pytestmark = [
    # Converters are older than the NumPy and the Python that they meet.
    pytest.mark.filterwarnings("ignore"),
]


def model_of(policy):
    return filled(
        image_size=(8, 12), depth=1, activation=ACTIVATION, dtype=policy
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_saved_model(policy, backend, tmp_path):
    """C07, C09: float32 whatever the policy, any batch."""
    if backend == "torch":
        pytest.skip("Keras on torch writes no SavedModel")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow = pytest.importorskip("tensorflow")
    model_of(policy).export(tmp_path / "saved", verbose=False)
    saved = tensorflow.saved_model.load(tmp_path / "saved")
    for count in (1, 3):
        images = pictures(count, 8, 12).astype("float32")
        expected = predict(model_of("float32"), images)
        logits = saved.serve(images).numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_tflite(activation, backend, tmp_path):
    """C08: TFLite's own operators are enough, flex ones are not allowed."""
    if backend != "tensorflow":
        pytest.skip("TFLite converts what TensorFlow has written")
    tensorflow = pytest.importorskip("tensorflow")
    model = filled(image_size=(8, 12), depth=1, activation=activation)
    model.export(tmp_path / "saved", verbose=False)
    lite = tensorflow.lite
    converter = lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"))
    converter.target_spec.supported_ops = [lite.OpsSet.TFLITE_BUILTINS]
    runner = lite.Interpreter(model_content=converter.convert())
    (entry,), (exit_,) = runner.get_input_details(), runner.get_output_details()
    images = pictures(1, 8, 12).astype("float32")
    runner.resize_tensor_input(entry["index"], images.shape)
    runner.allocate_tensors()
    runner.set_tensor(entry["index"], images)
    runner.invoke()
    logits = runner.get_tensor(exit_["index"])
    np.testing.assert_allclose(logits, predict(model, images), atol=1e-3)


@pytest.mark.parametrize("policy", POLICIES)
def test_onnx(policy, backend, tmp_path):
    """C07, C09: positions baked in; any batch where Keras can."""
    for module in ("onnx", "onnxruntime", WRITERS[backend]):
        pytest.importorskip(module)
    import onnxruntime

    path = str(tmp_path / "model.onnx")
    model_of(policy).export(path, format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(path)
    (entry,) = session.get_inputs()
    for count in (1,) if backend == "torch" else (1, 3):
        images = pictures(count, 8, 12).astype("float32")
        expected = predict(model_of("float32"), images)
        (logits,) = session.run(None, {entry.name: images})
        np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_onnx_batch(backend, tmp_path):
    """On torch the batch is fixed, at what the caller asks for."""
    for module in ("onnx", "onnxruntime", WRITERS[backend]):
        pytest.importorskip(module)
    import onnxruntime

    path = str(tmp_path / "model.onnx")
    spec = keras.InputSpec("float32", (2, 8, 12, 3), name="images")
    model_of("float32").export(
        path, format="onnx", input_signature=[spec], verbose=False
    )
    (entry,) = onnxruntime.InferenceSession(path).get_inputs()
    assert entry.shape == [2, 8, 12, 3]


def test_quantised_half_precision_is_refused(tmp_path):
    """C09: before a converter fails on it."""
    model = model_of("mixed_bfloat16")
    model.quantize("int8")
    with pytest.raises(ValueError, match="quantised to int8"):
        model.export(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
