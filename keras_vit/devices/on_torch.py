"""torch: one process per device under `torchrun`, gradients averaged."""

import os

import keras

from keras_vit.devices.group import Devices


def use(spec):
    """Joins the processes that `torchrun` has started; returns the devices."""
    import torch

    if spec.model > 1:
        raise ValueError(
            "Keras splits no weights on torch. Expected: data parallelism, "
            f"such as 'gpu:4'. Received: model={spec.model}. Set "
            "KERAS_BACKEND=jax, which splits them."
        )
    if spec.kind == "tpu":
        raise ValueError(
            "torch has no TPU here. Expected: 'cpu' or 'gpu'. Received: "
            "'tpu'. Set KERAS_BACKEND=jax."
        )
    gpu = torch.cuda.is_available() and spec.kind != "cpu"
    if spec.kind == "gpu" and not gpu:
        raise ValueError(
            "There is no GPU that torch sees. Expected: at least one. "
            "Received: none. Install torch with CUDA, or use 'cpu'."
        )
    kind = "gpu" if gpu else "cpu"
    processes = int(os.environ.get("WORLD_SIZE", 1))
    wanted = spec.data or spec.count or processes
    if wanted != processes:
        raise ValueError(
            f"torch runs one process per device. Expected: {wanted} of them. "
            f"Received: {processes}. Start the script by `torchrun "
            f"--nproc-per-node {wanted} script.py`."
        )
    if processes == 1:
        return Devices(kind)
    return _Processes(kind, torch)


class _Processes(Devices):
    def __init__(self, kind, torch):
        if kind == "gpu":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                "nccl" if kind == "gpu" else "gloo"
            )
        count = torch.distributed.get_world_size()
        super().__init__(kind, count, torch.distributed.get_rank(), count)

    def prepare(self, model):
        """Gives all processes the weights of the first, and its gradients.

        Gradients are averaged during the backward pass, so that `fit` needs
        no other step than its own.
        """
        import torch

        for variable in model.variables:
            torch.distributed.broadcast(variable.value.data, 0)
        averager = _Averager(self.processes)
        for variable in model.trainable_variables:
            # Once is enough; what was frozen before may be new.
            if not hasattr(variable.value, "averager"):
                averager.add(variable.value)
        return model

    def callbacks(self):
        return [_MeanLogs(self.processes)]


class _Averager:
    """Averages gradients over the processes, all in one order.

    In which order gradients become whole depends on the graph, which is not
    everywhere the same: each process times its own kernels. So a gradient is
    sent as soon as it and all before it are there, from the head down, as
    `DistributedDataParallel` does; what never came is left out at the end.
    """

    def __init__(self, processes):
        self.processes = processes
        self.parameters = []
        self._forget()

    def add(self, parameter):
        """Averages the gradient of this parameter too, before the others."""
        parameter.averager = self
        self.parameters.insert(0, parameter)
        parameter.register_post_accumulate_grad_hook(self._arrived)

    def _forget(self):
        self.here, self.sent, self.next = set(), [], 0

    def _arrived(self, parameter):
        import torch

        if not self.here:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)
        self.here.add(id(parameter))
        while self.next < len(self.parameters):
            if id(self.parameters[self.next]) not in self.here:
                return
            self._send()

    def _send(self):
        import torch

        parameter = self.parameters[self.next]
        self.next += 1
        if id(parameter) in self.here:
            work = torch.distributed.all_reduce(parameter.grad, async_op=True)
            self.sent.append((work, parameter))

    def _finish(self):
        while self.next < len(self.parameters):
            self._send()
        for work, parameter in self.sent:
            work.wait()
            parameter.grad /= self.processes
        self._forget()


class _MeanLogs(keras.callbacks.Callback):
    """Loss and metrics of all processes: each has seen as many images."""

    def __init__(self, processes):
        super().__init__()
        self.processes = processes

    def on_epoch_end(self, epoch, logs=None):
        import torch

        logs = {} if logs is None else logs
        for name in sorted(logs):
            value = torch.tensor(float(logs[name]), dtype=torch.float64)
            if torch.distributed.get_backend() == "nccl":
                value = value.cuda()
            torch.distributed.all_reduce(value)
            logs[name] = float(value) / self.processes
