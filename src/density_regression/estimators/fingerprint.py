"""Checksums by which checkpoints of one fit are told from those of others."""

import hashlib
import json
from typing import Any

import numpy as np
from torch import Tensor, nn

from density_regression.io.store import checksum
from density_regression.nn.parts import to_json
from density_regression.tabular.table import Floats, Index

__all__ = ["data_checksum", "network_checksum"]


def data_checksum(
    method: str, params: dict[str, Any], random_state: Any, pretrained: bool, *arrays: Floats | Index
) -> str:
    """Checksum of all that a fit depends on but its network: method, parameters as JSON, random state and arrays."""
    ignored = {"checkpoint_dir", "device", "devices", "num_nodes", "n_threads", "verbose", "encoder", "random_state"}
    params = {name: value for name, value in params.items() if name not in ignored}
    params["random_state"] = repr(random_state)
    if isinstance(random_state, np.random.RandomState):
        # Its repr is an address; its state says what it will draw next.
        state = random_state.get_state(legacy=False)["state"]
        params["random_state"] = [state["key"].tolist(), state["pos"]]
    digest = hashlib.sha256(json.dumps([method, params, pretrained], sort_keys=True).encode())
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def network_checksum(network: nn.Module) -> str:
    """Checksum of a network: its modules, weights, and the attributes that neither its state nor its `repr` shows."""
    tensors = dict(network.state_dict())
    settings = []
    for name, module in network.named_modules():
        shown = {key: value for key, value in vars(module).items() if not key.startswith("_") and key != "training"}
        tensors |= {f"{name}.{key}": value for key, value in shown.items() if isinstance(value, Tensor)}
        settings.append([name, {key: to_json(value) for key, value in shown.items()}])
    return hashlib.sha256(f"{network} {settings} {checksum(tensors)}".encode()).hexdigest()
