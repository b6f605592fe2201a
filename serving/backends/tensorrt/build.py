"""Makes an engine out of an ONNX file: the builder of TensorRT, with progress and a way to stop.

TensorRT needs a GPU to build, TensorRT-RTX does not. Runs in a process of its own (see
`workers.engine_process`): a build takes minutes and gigabytes, and must not take a server with it.
Blocks; progress is told from threads of the builder. Source: spec TRT-01, TRT-04.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.backends.tensorrt import cuda_runtime, library
from serving.backends.tensorrt.library import Library, shortened
from serving.backends.tensorrt.profiles import Profile, ShapeRange
from serving.backends.tensorrt.signature import EngineSignature, EngineTensor
from serving.config.plan_header import TENSORRT_RTX
from serving.config.shape_ranges import range_problem
from serving.errors import CancelledError, InvalidArgumentError, ModelLoadError, UnavailableError

PRECISIONS = ("model", "fp32", "fp16", "bf16", "int8")
"""model: as the ONNX file says. fp32: without TF32 besides. The others let the builder go lower."""
_FLAGS = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8"}
CURRENT = "current"
_SAID = re.compile(r'&& "([^"]+)"')
_CONDITION = re.compile(r"^Assertion failed: \S.*?: (?=[A-Z])")

Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Smallest, best, largest."""


@dataclass(frozen=True, slots=True)
class BuildOptions:
    library: str = ""
    """tensorrt, tensorrt_rtx, or empty: TensorRT where it is installed."""
    precision: str = "model"
    profiles: Sequence[Mapping[str, Range]] = ()
    """Shapes of every input of dynamic shape, values of every shape tensor; one map a profile."""
    workspace_bytes: int = 0
    """0: as much as the device has."""
    capabilities: Sequence[str] = ()
    """Compute capabilities to build for, as 8.6; empty: the GPU that is there. TensorRT-RTX only,
    TensorRT always builds for the GPU that is there."""
    is_version_compatible: bool = False
    timing_cache: Path | None = None
    """A folder; TensorRT keeps in it what it measured, by version and device."""


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    plan: Any
    """IHostMemory: a buffer."""
    signature: EngineSignature
    library: str
    version: str


@dataclass(slots=True)
class Progress:
    """Steps of nested phases as one rising fraction. Entered by any thread of the builder."""

    tell: Callable[[str, float], None]
    """Phase and fraction, 0 to 1."""
    is_cancelled: Callable[[], bool] = lambda: False
    _phases: dict[str, _Phase] = field(default_factory=dict)
    _fraction: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, name: str, parent: str | None, steps: int) -> None:
        with self._lock:
            self._phases[name] = _Phase(parent, max(1, steps))
            self._tell(name)

    def step(self, name: str, number: int) -> None:
        with self._lock:
            phase = self._phases.get(name)
            if phase is not None:
                phase.done = min(phase.steps, number + 1)
                self._tell(name)

    def finish(self, name: str) -> None:
        with self._lock:
            phase = self._phases.pop(name, None)
            if phase is not None and phase.parent is None:
                self._fraction = 1.0
            self._tell(name)

    def _tell(self, name: str) -> None:
        top = next((item for item, phase in self._phases.items() if phase.parent is None), None)
        if top is not None:
            self._fraction = max(self._fraction, min(1.0, self._of(top)))
        self.tell(name, self._fraction)

    def _of(self, name: str) -> float:
        """How much of a phase is done, what runs below its current step included."""
        phase = self._phases[name]
        below = max(
            (self._of(child) for child, other in self._phases.items() if other.parent == name),
            default=0.0,
        )
        return min(1.0, (phase.done + below) / phase.steps)


@dataclass(slots=True)
class _Phase:
    parent: str | None
    steps: int
    done: int = 0


def build(onnx: Path, options: BuildOptions, progress: Progress) -> BuiltEngine:
    """Raises: InvalidArgumentError, ModelLoadError, UnavailableError, CancelledError; each with
    one sentence.
    """
    runtime = library.library(options.library) if options.library else library.preferred()
    if runtime.name == TENSORRT_RTX and options.is_version_compatible:
        raise InvalidArgumentError(
            f"{runtime.product} builds no version compatible engines: leave that out, or build "
            "with TensorRT"
        )
    if runtime.name != TENSORRT_RTX or not options.capabilities:
        _require_device(runtime)
    module = runtime.module
    builder = module.Builder(runtime.log)
    network = builder.create_network(0)
    parser = module.OnnxParser(network, runtime.log)
    if not parser.parse_from_file(str(onnx)):
        raise ModelLoadError(f"{onnx.name} cannot become an engine: {_parse_errors(parser)}")
    if not network.num_outputs:  # the parser takes some files that are no model for an empty one
        raise ModelLoadError(f"{onnx.name} cannot become an engine: it holds no outputs")
    config = builder.create_builder_config()
    monitor = _monitor(module, progress)
    config.progress_monitor = monitor
    _set_precision(runtime, config, options.precision)
    _set_target(runtime, config, options)
    if options.workspace_bytes:
        config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    if options.is_version_compatible:
        config.set_flag(module.BuilderFlag.VERSION_COMPATIBLE)
    profiles = _add_profiles(builder, network, config, options.profiles)
    cache = _TimingCache(runtime, config, options.timing_cache)
    runtime.log.forget_errors()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        if progress.is_cancelled():
            raise CancelledError("the build was cancelled")
        cause = runtime.log.first_error() or "the builder gives no reason"
        raise ModelLoadError(f"{runtime.product} cannot build {onnx.name}: {cause}")
    cache.save()
    signature = _signature_of_network(network, profiles)
    return BuiltEngine(plan, signature, runtime.name, runtime.version)


def _require_device(runtime: Library) -> None:
    """The builder ends with a bare error of CUDA, or worse, where there is none."""
    try:
        cuda_runtime.driver()
    except UnavailableError as error:
        hint = ""
        if runtime.name == TENSORRT_RTX:
            hint = ", or say the compute capability to build for, which takes no GPU: e.g. 8.9"
        raise UnavailableError(f"{error.message}{hint}") from error


def _parse_errors(parser: Any) -> str:
    """The first one: the rest follows from it."""
    if not parser.num_errors:
        return "it is no ONNX model"
    error = parser.get_error(0)
    where = f"operator {error.node_operator()}" if error.node_operator() else "the model"
    if error.node_name():
        where += f" '{error.node_name()}'"
    return f"{where}: {shortened(_without_condition(error.desc()))} ({error.code().name})"


def _without_condition(text: str) -> str:
    """What the parser says, without the C++ that found it: `is_there(x) && "It is not there."`"""
    said = _SAID.search(text)
    return said[1] if said else _CONDITION.sub("", text)


def _monitor(module: Any, progress: Progress) -> Any:
    class Monitor(module.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            progress.start(phase_name, parent_phase, num_steps)

        def phase_finish(self, phase_name: str) -> None:
            progress.finish(phase_name)

        def step_complete(self, phase_name: str, step: int) -> bool:
            progress.step(phase_name, step)
            return not progress.is_cancelled()

    return Monitor()


def _set_precision(runtime: Library, config: Any, precision: str) -> None:
    if precision not in PRECISIONS:
        raise InvalidArgumentError(
            f"precision is '{precision}': it must be one of {', '.join(PRECISIONS)}"
        )
    flags = runtime.module.BuilderFlag
    if precision == "fp32":
        config.clear_flag(flags.TF32)
    if precision not in _FLAGS:
        return
    flag = getattr(flags, _FLAGS[precision], None)
    if flag is None:
        raise InvalidArgumentError(
            f"{runtime.product} {runtime.version} builds every layer in the precision that the "
            f"ONNX file says: export the model in {precision}, and build it with precision 'model'"
        )
    config.set_flag(flag)


def _set_target(runtime: Library, config: Any, options: BuildOptions) -> None:
    if not options.capabilities:
        return
    if runtime.name != TENSORRT_RTX:
        raise InvalidArgumentError(
            "TensorRT builds for the GPU that is there; only TensorRT-RTX builds for a compute "
            "capability that is named"
        )
    known = runtime.module.ComputeCapability
    config.num_compute_capabilities = len(options.capabilities)
    for index, text in enumerate(options.capabilities):
        name = "SM" + text.replace(".", "")
        if name not in known.__members__ or not config.set_compute_capability(
            known.__members__[name], index
        ):
            offered = [key[2:] for key in known.__members__ if key.startswith("SM")]
            raise InvalidArgumentError(
                f"{runtime.product} {runtime.version} cannot build for compute capability "
                f"'{text}': it knows {', '.join(f'{key[:-1]}.{key[-1]}' for key in offered)}"
            )


def _add_profiles(
    builder: Any, network: Any, config: Any, wanted: Sequence[Mapping[str, Range]]
) -> tuple[Profile, ...]:
    inputs = {network.get_input(i).name: network.get_input(i) for i in range(network.num_inputs)}
    dynamic = [name for name, item in inputs.items() if item.is_shape_tensor or -1 in item.shape]
    if dynamic and not wanted:
        raise InvalidArgumentError(
            f"input {', '.join(dynamic)} may have many shapes: give a profile with the smallest, "
            "the best and the largest"
        )
    made = []
    for number, ranges in enumerate(wanted):
        _check_profile(number, ranges, inputs, dynamic)
        profile = builder.create_optimization_profile()
        shapes = {name: ShapeRange(*[tuple(item.shape)] * 3) for name, item in inputs.items()}
        values = {}
        for name, (low, best, high) in ranges.items():
            if inputs[name].is_shape_tensor:
                profile.set_shape_input(name, low, best, high)
                values[name] = ShapeRange(low, best, high)
            else:
                profile.set_shape(name, low, best, high)
                shapes[name] = ShapeRange(low, best, high)
        if config.add_optimization_profile(profile) < 0:
            raise InvalidArgumentError(f"profile {number} does not fit the model")
        made.append(Profile(number, shapes, values))
    if not made:
        shapes = {name: ShapeRange(*[tuple(item.shape)] * 3) for name, item in inputs.items()}
        made.append(Profile(0, shapes, {}))
    return tuple(made)


def _check_profile(
    number: int, ranges: Mapping[str, Range], inputs: Mapping[str, Any], dynamic: Sequence[str]
) -> None:
    unknown = [name for name in ranges if name not in inputs]
    missing = [name for name in dynamic if name not in ranges]
    if unknown:
        raise InvalidArgumentError(
            f"profile {number} names '{unknown[0]}', but the inputs are {', '.join(inputs)}"
        )
    if missing:
        raise InvalidArgumentError(f"profile {number} says nothing of input '{missing[0]}'")
    for name, (low, best, high) in ranges.items():
        item = inputs[name]
        problem = range_problem(low, best, high)
        if problem:
            raise InvalidArgumentError(f"profile {number}, input '{name}': {problem}")
        shape = tuple(item.shape)
        if item.is_shape_tensor:
            continue
        fits = len(low) == len(shape) and all(
            dim in (-1, least) and (dim == -1 or least == most)
            for dim, least, most in zip(shape, low, high, strict=True)
        )
        if not fits:
            raise InvalidArgumentError(
                f"profile {number}, input '{name}': {list(low)} to {list(high)} does not fit the "
                f"model's shape {list(shape)}, where -1 is any"
            )


def _signature_of_network(network: Any, profiles: tuple[Profile, ...]) -> EngineSignature:
    def described(item: Any) -> EngineTensor:
        return EngineTensor(item.name, item.dtype.name, tuple(item.shape), item.is_shape_tensor)

    return EngineSignature(
        tuple(described(network.get_input(i)) for i in range(network.num_inputs)),
        tuple(described(network.get_output(i)) for i in range(network.num_outputs)),
        profiles,
    )


class _TimingCache:
    """What TensorRT measured on this device, kept between builds. TensorRT-RTX measures nothing."""

    def __init__(self, runtime: Library, config: Any, folder: Path | None) -> None:
        self._config = config
        self._path: Path | None = None
        if folder is None or runtime.name == TENSORRT_RTX:
            return
        cuda = cuda_runtime.driver()
        name = cuda.device_name(cuda.device_handle(0)).replace(" ", "-").replace("/", "-")
        self._path = folder / f"timing-{runtime.version}-{name}.cache"
        content = self._path.read_bytes() if self._path.is_file() else b""
        cache = config.create_timing_cache(content)
        # A cache that does not fit any more is refused; the next one replaces it.
        if cache is None or not config.set_timing_cache(cache, False):
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def save(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_bytes(self._config.get_timing_cache().serialize())
        part.replace(self._path)
