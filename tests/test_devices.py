"""The same training on one device and on several, in real processes.

Weights after five steps agree to 1e-5; they differ by the order of sums.
"""

import os
import pathlib
import socket
import subprocess
import sys
import types

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.devices.spec import Spec
from keras_vit.devices.spec import parse

HERE = pathlib.Path(__file__).parent
# Backend to what its process is asked for, the reference first.
RUNS = {
    "jax": ["cpu:8", "cpu:1", "cpu:2", "cpu:4", "model=4,data=2", "model=2"],
    "tensorflow": ["cpu:2", "cpu:1"],
    "torch": ["cpu"],
}


def start(out, specs, **environment):
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, str(HERE / "device_run.py"), str(out), *specs],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*processes):
    """Waits for all before it judges one: what is left open warns later."""
    try:
        said = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    for process, text in zip(processes, said, strict=True):
        assert process.returncode == 0, text[-3000:]


@pytest.mark.once
def test_one_that_fails_leaves_none_behind():
    """Else a warning of it falls into the test that runs next."""
    failing, other = (
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
        )
        for code in ("raise SystemExit(3)", "pass")
    )
    with pytest.raises(AssertionError):
        finish(failing, other)
    assert other.returncode == 0
    assert other.stdout.closed


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """All that the runs of this backend in one process have found."""
    out = tmp_path_factory.mktemp("devices") / "found.npz"
    finish(start(out, RUNS[keras.config.backend()]))
    with np.load(out) as file:
        return dict(file)


def part(found, spec, kind):
    prefix = f"{spec}/{kind}/"
    return {
        name.removeprefix(prefix): value
        for name, value in found.items()
        if name.startswith(prefix)
    }


def compare(found, spec, other, reference):
    for kind, bar in (("weight", 1e-5), ("metric", 1e-5)):
        ours, theirs = part(found, spec, kind), part(other, reference, kind)
        assert set(ours) == set(theirs) != set()
        for name, value in ours.items():
            np.testing.assert_allclose(
                value, theirs[name], rtol=0, atol=bar, err_msg=f"{spec} {name}"
            )


def reference():
    return next(s for s in RUNS[keras.config.backend()] if s[-1] in "1u")


def test_several_devices_train_like_one(found):
    """G01, G03: data and model parallel, metrics and top 5 included."""
    one = reference()
    assert found[f"{one}/replicas"] == 1
    assert "top_5" in part(found, one, "metric")
    for spec in RUNS[keras.config.backend()]:
        if spec != one:
            compare(found, spec, found, one)
            np.testing.assert_allclose(
                found[f"{spec}/logits"], found[f"{one}/logits"], atol=1e-4
            )
            last = spec[-1]
            expected = 4 if spec == "model=2" else int(last)
            assert found[f"{spec}/replicas"] == expected


def test_each_device_holds_its_share(found, backend):
    """G06: the kernels of the blocks are split, nothing is left whole."""
    if backend != "jax":
        pytest.skip("weights are split on JAX alone")
    total = per_device = 0
    for path, sizes in part(found, "model=4,data=2", "shards").items():
        assert len(sizes) == 8
        assert len(set(sizes)) == 1, path
        whole = part(found, "model=4,data=2", "weight")[path].size
        total, per_device = total + whole, per_device + sizes[0]
        if path.endswith("kernel") and path.startswith("block"):
            assert sizes[0] * 4 == whole, path
    largest = max(
        v.size for v in part(found, "model=4,data=2", "weight").values()
    )
    assert per_device <= total / 4 + largest


def test_two_processes_train_like_one(found, backend, tmp_path):
    """G07, G10: each on its share of the batch; one of them writes.

    On torch with kernels of its own each, as timing them may choose: their
    graphs differ, and the order in which gradients arrive.
    """
    if backend == "tensorflow":
        pytest.skip("Keras' fit fails under MultiWorkerMirroredStrategy")
    out, port = tmp_path / "two.npz", free_port()
    names = {
        "jax": ("KERAS_DISTRIBUTION_PROCESS_ID", "auto"),
        "torch": ("RANK", "cpu"),
    }
    rank, spec = names[backend]
    processes = [
        start(
            out,
            [spec],
            KERAS_DISTRIBUTION_JOB_ADDRESSES=f"127.0.0.1:{port}",
            KERAS_DISTRIBUTION_NUM_PROCESSES="2",
            WORLD_SIZE="2",
            LOCAL_RANK=str(i),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            KERAS_VIT_LINEAR=["plain", "onednn"][i],
            **{rank: str(i)},
        )
        for i in range(2)
    ]
    finish(*processes)
    with np.load(out) as file:
        two = dict(file)
    assert two[f"{spec}/replicas"] == 2
    compare(two, spec, found, reference())


@pytest.mark.once
@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("auto", Spec()),
        ("cpu", Spec("cpu")),
        ("gpu:4", Spec("gpu", 4)),
        ("tpu", Spec("tpu")),
        ("model=4,data=2", Spec(model=4, data=2)),
        ("data=2", Spec(data=2)),
    ],
)
def test_words(text, spec):
    assert parse(text) == spec


@pytest.mark.once
@pytest.mark.parametrize(
    "text", ["", "gpu:0", "npu", "gpu:two", "model=4;data=2", "model=4,depth=2"]
)
def test_words_without_a_meaning(text):
    with pytest.raises(ValueError, match="These are no devices"):
        parse(text)


def test_what_a_backend_cannot_is_refused(backend):
    """G07, G05: with the way that works."""
    cases = {
        "jax": [("gpu", RuntimeError, "gpu|cuda")],
        "tensorflow": [
            ("model=2", ValueError, "KERAS_BACKEND=jax"),
            ("gpu:2", ValueError, "2 of kind gpu. Received: 0"),
        ],
        "torch": [
            ("model=2", ValueError, "KERAS_BACKEND=jax"),
            ("tpu", ValueError, "KERAS_BACKEND=jax"),
            ("cpu:2", ValueError, "torchrun --nproc-per-node 2"),
            ("gpu", ValueError, "no GPU that torch sees"),
        ],
    }
    for spec, kind, text in cases[backend]:
        with pytest.raises(kind, match=text):
            keras_vit.use_devices(spec)


def test_one_device_changes_nothing(backend):
    devices = keras_vit.use_devices("cpu" if backend == "torch" else "cpu:1")
    assert (devices.replicas, devices.processes) == (1, 1)
    assert devices.writer
    assert devices.callbacks() == []
    assert keras.config.dtype_policy().name == "float32"
    keras_vit.use_devices("auto", dtype="mixed_bfloat16")
    assert keras.config.dtype_policy().name == "mixed_bfloat16"


def test_tensorflow_leaves_the_gpu_to_jax(backend, monkeypatch):
    """H01: it reads the data; JAX keeps its own share of the memory."""
    if backend != "jax":
        pytest.skip("JAX, with TensorFlow beside it")
    hidden = []
    config = types.SimpleNamespace(
        set_visible_devices=lambda *args: hidden.append(args)
    )
    beside = types.SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, "tensorflow", beside)
    before = dict(os.environ)
    keras_vit.use_devices("cpu:1")
    assert hidden == [([], "GPU")]
    assert {k for k in os.environ if "MEM_FRACTION" in k} <= set(before)


@pytest.mark.once
def test_shares_are_rows_of_the_batch():
    x, y = np.arange(12).reshape(6, 2), np.arange(6)

    class Two:
        def stream(self, start):
            yield x, y
            yield x[:5], y[:5]

    devices = keras_vit.devices.Devices("cpu", 3, process=1, processes=3)
    stream = devices.share(Two()).stream(0)
    ours = next(stream)
    np.testing.assert_array_equal(ours[0], x[2:4])
    np.testing.assert_array_equal(ours[1], y[2:4])
    with pytest.raises(ValueError, match="multiple of 3.*Received: 5"):
        next(stream)
