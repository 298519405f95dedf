"""Every test starts from the same state, on whichever backend is active."""

import importlib
import os
import pathlib

# Half the time of the suite on JAX is LLVM's: it compiles, and what it compiled
# runs once.
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"]
)

if os.environ.get("KERAS_BACKEND") == "torch":
    # Before TensorFlow, which a test of `tf.data` may import: the other
    # order can crash the process.
    import torch  # noqa: F401

import keras
import pytest

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


def pytest_addoption(parser):
    parser.addoption(
        "--run-slow", action="store_true", help="run tests marked slow too"
    )
    parser.addoption(
        "--skip-once", action="store_true", help="leave out tests marked once"
    )


def pytest_configure(config):
    _full_float32(keras.config.backend())


def pytest_collection_modifyitems(config, items):
    if config.getoption("--skip-once"):
        once = [i for i in items if i.get_closest_marker("once")]
        config.hook.pytest_deselected(items=once)
        items[:] = [i for i in items if not i.get_closest_marker("once")]
    if config.getoption("--run-slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: needs --run-slow"))


def pytest_report_header(config):
    return f"keras {keras.__version__} on {keras.config.backend()}"


def _full_float32(backend):
    """Turns TF32 off: its 10 bits hide what the tolerances look for (A17)."""
    module = importlib.import_module(backend)
    if backend == "jax":
        module.config.update("jax_default_matmul_precision", "float32")
    elif backend == "tensorflow":
        module.config.experimental.enable_tensor_float_32_execution(False)
    elif backend == "torch":
        module.backends.cuda.matmul.allow_tf32 = False
        module.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True)
def fresh_state():
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session(free_memory=False)


@pytest.fixture
def backend():
    """Name of the active backend."""
    return keras.config.backend()


@pytest.fixture(scope="session")
def fashion_mnist():
    """Directory of the four real Fashion-MNIST files."""
    if not FASHION_MNIST.is_dir():
        pytest.skip(
            f"no {FASHION_MNIST}: apt-get install dataset-fashion-mnist"
        )
    return FASHION_MNIST


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A loopback server in the place of the hub, the buckets and the web."""
    import loopback

    from keras_vit.fetching import retrying

    for name in ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("KERAS_VIT_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(retrying, "BASE_DELAY", 0.002)
    monkeypatch.setattr(retrying, "ENOUGH", 100_000)
    with loopback.Loopback() as server:
        monkeypatch.setenv("KERAS_VIT_BUCKETS", server.url)
        yield server
