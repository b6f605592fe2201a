"""PT2 archives: what AOTInductor has compiled, and programs of torch.export.

One program for each instance, or with ENABLE_WEIGHT_SHARING one for each device. Load threads
enter the model, an instance belongs to its thread. Source: spec PT-01, PT-09..14, PT-16..19,
PT-22, PT-23.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving.backends.base import (
    LoadedModel,
    ModelContext,
    ModelInstance,
    Placement,
    TensorInstance,
)
from serving.backends.model_place import default_max_batch_size, model_path
from serving.backends.pytorch import failures, machine, runtime, switches
from serving.backends.pytorch.init_library import CPU, InitLibrary, library_of
from serving.backends.pytorch.programs import MisfitError, Program, compiled, exported
from serving.backends.pytorch.pt2_plan import (
    CallPlan,
    check_inputs,
    check_outputs,
    expected_of,
    not_completed,
    plan_call,
)
from serving.backends.pytorch.results import Results
from serving.backends.pytorch.runtime import Array, torch
from serving.config.compare import fill_from_signature
from serving.config.compare_pt2 import with_ordinal_names
from serving.config.decode import InstanceKind
from serving.config.protobuf import pb
from serving.config.pt2_sizes import SizeRules
from serving.config.signature import Signature
from serving.config.signature_pt2 import CompiledInput, CompiledProgram, read_pt2_signature
from serving.config.torch_call_spec import CallSpec
from serving.config.torch_parameters import TorchOptions
from serving.errors import (
    ErrorCode,
    FailureReason,
    InvalidArgumentError,
    ModelLoadError,
    ServingError,
    error_from_code,
)

logger = logging.getLogger(__name__)

FILENAME = "model.pt2"
PLATFORM = "torch_aoti"


def auto_complete(context: ModelContext) -> None:
    """From an exported program; of compiled code only where it runs is known.

    Raises: InvalidArgumentError with what to declare.
    """
    signature = _read(model_path(context, FILENAME))
    config = context.config
    if isinstance(signature, Signature):
        if not signature.unsupported:
            size = default_max_batch_size(context.backend_config)
            fill_from_signature(config, with_ordinal_names(signature), default_max_batch_size=size)
        return
    if signature.call_spec is not None and not (config.input and config.output):
        raise InvalidArgumentError(
            f"{_shown(context)}: {not_completed(signature.call_spec, signature.inputs)}"
        )
    _prefer_device(config, signature.metadata.get("AOTI_DEVICE_KEY", ""))


def _prefer_device(config: pb.ModelConfig, device: str) -> None:
    """Groups that may run anywhere run where the code was compiled for."""
    if device != "cpu":
        return
    if not config.instance_group:
        config.instance_group.add()
    for group in config.instance_group:
        if group.kind == pb.ModelInstanceGroup.KIND_AUTO and not group.gpus:
            group.kind = pb.ModelInstanceGroup.KIND_CPU


class Pt2Model(LoadedModel):
    def __init__(self, context: ModelContext) -> None:
        """Raises: ServingError for parameters, names, and archives that cannot run here."""
        self.context = context
        self.options = TorchOptions.of(context.spec.parameters)
        self._path = model_path(context, FILENAME)
        self._signature = _read(self._path)
        self._library = library_of(context.spec.parameters, context.backend_config)
        self._opened: dict[int, InitLibrary] = {}
        self._shared: dict[str, Program] = {}
        self._lock = threading.Lock()
        self._check()
        torch()  # a server without it says so at load

    def create_instance(self, placement: Placement) -> ModelInstance:
        switches.apply_threads(self.options, self.context.spec.name)
        device = self._device(placement)
        with self._lock:
            self._initialise(CPU if device.type == "cpu" else device.index or 0)
        program = self._program(device, keeps_devices=placement.kind is InstanceKind.MODEL)
        call_spec, expected = self._call()
        if call_spec is None:
            call_spec = program.call_spec
        plan = plan_call(self.context.spec, call_spec)
        return Pt2Instance(self, program, plan, expected, device)

    @property
    def size_rules(self) -> SizeRules:
        """Of compiled code; an exported program looks at sizes itself."""
        if isinstance(self._signature, CompiledProgram) and self._signature.size_rules is not None:
            return self._signature.size_rules
        return SizeRules()

    def _warn_of_its_end(self, program: CompiledProgram) -> None:
        if program.ends_process and self.context.child is None:
            logger.warning(
                "a request with an index that is out of range ends the process that runs %s: give "
                "the model the parameter instance_isolation with the value process, or the "
                "server's own ends model=%s",
                _shown(self.context),
                self.context.spec.name,
            )

    def _warn_of_untold(self, program: CompiledProgram) -> None:
        first = int(self.context.spec.has_batch_axis)  # the batch is alike in all inputs
        if program.inputs is None:
            told, remedy = "shapes its code takes", "be exactly those that it was compiled for"
        elif program.size_rules is None and any(
            -1 in item.shape[first:] for item in program.inputs
        ):
            told, remedy = "sizes its code takes for granted", "not be -1 where one follows another"
        else:
            return
        logger.warning(
            "%s does not tell which %s, and the code does not look at them itself: dims of the "
            "config must %s model=%s",
            _shown(self.context),
            told,
            remedy,
            self.context.spec.name,
        )

    def unload(self) -> None:
        self._shared.clear()
        while self._opened:
            self._opened.popitem()[1].close()

    def _check(self) -> None:
        spec = self.context.spec
        call_spec, expected = self._call()
        try:
            if isinstance(self._signature, CompiledProgram):
                machine.check_metadata(self._signature.metadata)
                self._warn_of_its_end(self._signature)
                self._warn_of_untold(self._signature)
            elif self._signature.unsupported:
                name, kind = next(iter(self._signature.unsupported.items()))
                raise InvalidArgumentError(
                    f"'{name}' is a {kind}, which no request can carry: export the model with "
                    "plain tensors"
                )
            if call_spec is None:
                return  # seen once it is loaded
            plan = plan_call(spec, call_spec)
            if expected is not None:
                check_inputs(spec, plan, expected)
                _warn_of_fixed_batch(self.context, plan, expected)
            if isinstance(self._signature, Signature):
                check_outputs(spec, plan, self._signature.outputs)
        except ServingError as error:
            raise _about(_shown(self.context), error) from error

    def _call(self) -> tuple[CallSpec | None, tuple[CompiledInput, ...] | None]:
        """As far as the file tells: how forward is called, and with what."""
        signature = self._signature
        if isinstance(signature, CompiledProgram):
            return signature.call_spec, signature.inputs
        return signature.call_spec, expected_of(signature)

    def _device(self, placement: Placement) -> Any:
        """The torch.device of an instance; of KIND_MODEL the one that the code is for (PT-23)."""
        device = runtime.device_of(self.context, placement)
        if isinstance(self._signature, Signature):
            return torch().device("cpu") if device is None else device
        metadata = self._signature.metadata
        if device is None:
            return torch().device(metadata.get("AOTI_DEVICE_KEY", "cpu"))
        try:
            machine.check_device(metadata, device.type)
            if device.type == "cuda":
                machine.check_capability(metadata, torch().cuda.get_device_capability(device))
        except ModelLoadError as error:
            raise _about(_shown(self.context), error) from error
        return device

    def _initialise(self, device: int) -> None:
        if self._library is not None and device not in self._opened:
            logger.info(
                "initialising native code %s model=%s", self._library, self.context.spec.name
            )
            directory = self.context.version_directory
            self._opened[device] = InitLibrary(self._library, directory, device)

    def _program(self, device: Any, *, keeps_devices: bool) -> Program:
        if not self.options.weight_sharing:
            return self._load(device, 1, keeps_devices)
        with self._lock:
            program = self._shared.get(str(device))
            if program is None:
                program = self._load(device, self._instances_on(device), keeps_devices)
                self._shared[str(device)] = program
            return program

    def _instances_on(self, device: Any) -> int:
        """How many may run at once in a program that they share."""
        count = 0
        for group in self.context.spec.instance_groups:
            if device.type == "cpu" or not group.gpus or device.index in group.gpus:
                count += max(1, group.count)
        return max(1, count)

    def _load(self, device: Any, runners: int, keeps_devices: bool) -> Program:
        try:
            with switches.modes(self.options):
                if isinstance(self._signature, CompiledProgram):
                    return compiled(self._path, self._signature.model_name, device, runners)
                return exported(self._path, None if keeps_devices else device)
        except ServingError:
            raise
        except Exception as error:
            raise failures.load_error(self.context.spec.name, self._path, error) from error


class Pt2Instance(TensorInstance):
    def __init__(
        self,
        model: Pt2Model,
        program: Program,
        plan: CallPlan,
        expected: tuple[CompiledInput, ...] | None,
        device: Any,
    ) -> None:
        super().__init__(model.context)
        self._program: Program | None = program
        self._plan = plan
        self._expected = tuple(zip(plan.inputs, expected, strict=True)) if expected else ()
        self._size_rules = model.size_rules
        self._device = device
        self._options = model.options
        self._results = Results(model.context.spec, plan.outputs)
        self._stream = torch().cuda.Stream(device) if device.type == "cuda" else None

    def run(self, inputs: dict[str, Array], output_names: Sequence[str]) -> dict[str, Array]:
        for name, expected in self._expected:
            refusal = expected.refusal(inputs[name].shape)
            if refusal:
                raise self._refused(name, inputs[name].shape, refusal)
        misfit = self._size_rules.refusal([inputs[name].shape for name in self._plan.inputs])
        if misfit is not None:
            name = self._plan.inputs[misfit[0]]
            raise self._refused(name, inputs[name].shape, misfit[1])
        try:
            with switches.modes(self._options, self._stream):
                tensors = [
                    runtime.to_tensor(inputs[name], self._device) for name in self._plan.inputs
                ]
                assert self._program is not None
                values = self._program.run(tensors)
                return self._results.arrays(values, output_names, None)
        except ServingError:
            raise
        except MisfitError as error:
            text = f"model '{self._spec.name}' refused the request: {error}"
            raise error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND) from error
        except Exception as error:
            raise failures.execution_error(self._spec.name, error) from error
        finally:
            if self._options.cache_cleaning:
                runtime.give_back_memory()

    def close(self) -> None:
        self._program = None
        runtime.give_back_memory()

    def _refused(self, name: str, shape: Sequence[int], refusal: str) -> ServingError:
        """Compiled code does not look at shapes: it would read what is not the caller's."""
        text = (
            f"model '{self._spec.name}' refused the request: input '{name}' has shape "
            f"{list(shape)}, and the archive was exported for another: {refusal}"
        )
        if self._spec.has_batch_axis and refusal.startswith("dimension 0 "):
            text += (
                "; it serves batches of that size only, until it is exported with a dynamic first "
                "dimension (torch.export.Dim)"
            )
        return error_from_code(ErrorCode.INVALID_ARG, text, FailureReason.BACKEND)


def _read(path: Path) -> Signature | CompiledProgram:
    try:
        return read_pt2_signature(path)
    except InvalidArgumentError as error:
        shown = f"{path.parent.name}/{path.name}"
        text = error.message.replace(f"'{path}'", shown)
        if path.suffix == ".pt":
            text += '; TorchScript modules are loaded with platform: "pytorch_libtorch"'
        raise ModelLoadError(text) from error


def _shown(context: ModelContext) -> str:
    return f"{context.version}/{context.config.default_model_filename or FILENAME}"


def _about(file: str, error: ServingError) -> ServingError:
    return type(error)(f"{file}: {error.message}")


def _warn_of_fixed_batch(
    context: ModelContext, plan: CallPlan, expected: Sequence[CompiledInput]
) -> None:
    """PT-12: it is loaded, and other sizes are refused when they come."""
    if not context.spec.has_batch_axis:
        return
    for name, item in zip(plan.inputs, expected, strict=True):
        if item.shape and item.shape[0] >= 0:
            logger.warning(
                "%s was exported for batches of exactly %d (input '%s'): other sizes are refused; "
                "export it with a dynamic first dimension model=%s",
                _shown(context),
                item.shape[0],
                name,
                context.spec.name,
            )
            return
