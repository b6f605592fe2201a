"""`pb_utils.ModelConfig`: what `auto_complete_config` fills in (PB-003).

A value that contradicts config.pbtxt raises ValueError, whose text becomes the load error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_UNSET_TYPE = "TYPE_INVALID"
_SCHEDULERS = ("sequence_batching", "ensemble_scheduling")


class ModelConfig:
    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Raises ValueError when the file configures a bigger one."""
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in "
                f"auto_complete_config function for model '{self._name}' specified "
                f"max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        for scheduler in _SCHEDULERS:
            if scheduler in self._model_config:
                raise ValueError(
                    f"configuration specified scheduling_choice as '{scheduler}', but "
                    f"auto_complete_config function for model '{self._name}' tries to set "
                    "scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: Mapping[str, Any]) -> None:
        """`input`: name, data_type, dims and, where it may be left out, optional."""
        self._add("input", dict(input), ("name", "data_type", "dims", "optional"))

    def add_output(self, output: Mapping[str, Any]) -> None:
        """`output`: name, data_type, dims."""
        self._add("output", dict(output), ("name", "data_type", "dims"))

    def set_model_transaction_policy(self, transaction_policy_dict: Mapping[str, Any]) -> None:
        for name in transaction_policy_dict:
            if name != "decoupled":
                raise ValueError(
                    f"model transaction property in auto-complete-config function for model "
                    f"'{self._name}' contains property '{name}' other than 'decoupled'"
                )
        wanted = transaction_policy_dict.get("decoupled", False)
        configured = self._model_config.get("model_transaction_policy")
        if configured and bool(configured.get("decoupled", False)) != bool(wanted):
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config function for model "
                f"'{self._name}', which is already set to '{configured.get('decoupled')}'"
            )
        self._model_config["model_transaction_policy"] = {"decoupled": bool(wanted)}

    @property
    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def _add(self, side: str, tensor: dict[str, Any], properties: tuple[str, ...]) -> None:
        for name in tensor:
            if name not in properties:
                raise ValueError(
                    f"{side} '{tensor.get('name', '')}' in auto-complete-config function for model "
                    f"'{self._name}' contains property other than {', '.join(properties)}: "
                    f"'{name}'"
                )
        for name in ("name", "data_type", "dims"):
            if name not in tensor:
                raise ValueError(
                    f"{side} '{tensor.get('name', '')}' in auto-complete-config function for model "
                    f"'{self._name}' is missing '{name}' property"
                )
        tensor["dims"] = [int(dim) for dim in tensor["dims"]]
        tensors = self._model_config.setdefault(side, [])
        configured = next((item for item in tensors if item.get("name") == tensor["name"]), None)
        if configured is None:
            tensors.append(tensor)
        else:
            self._merge(side, configured, tensor)

    def _merge(self, side: str, configured: dict[str, Any], tensor: dict[str, Any]) -> None:
        configured_type = configured.get("data_type", _UNSET_TYPE)
        if configured_type not in (_UNSET_TYPE, tensor["data_type"]):
            self._contradiction(side, tensor, "data_type", configured_type)
        dims = [int(dim) for dim in configured.get("dims") or ()]
        if dims and dims != tensor["dims"]:
            self._contradiction(side, tensor, "dims", dims)
        if "optional" in tensor and configured.get("optional", False) != tensor["optional"]:
            if configured.get("optional", False):
                self._contradiction(side, tensor, "optional", True)
            configured["optional"] = tensor["optional"]
        configured["data_type"] = tensor["data_type"]
        configured["dims"] = tensor["dims"]

    def _contradiction(
        self, side: str, tensor: Mapping[str, Any], name: str, configured: object
    ) -> None:
        raise ValueError(
            f"unable to autofill for model '{self._name}': configuration specified {name} "
            f"{configured} for {side} '{tensor['name']}', but auto_complete_config function "
            f"specifies {tensor[name]}"
        )
