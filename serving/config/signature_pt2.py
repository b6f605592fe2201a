"""What PT2 archives (.pt2) say about forward, read without PyTorch and without running their code.

An exported program tells names, types and shapes of everything. An archive of AOTInductor holds
machine code; its metadata tell for which device and CPU, and the source code that lies beside it
the call specification and what the code expects of its inputs. Any thread; blocks on the disk.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from serving.config.pt2_sizes import SizeRules, read_size_rules
from serving.config.signature import Signature, TensorSignature
from serving.config.signature_torch import open_archive, small_member
from serving.config.torch_call_spec import CallSpec, parse_call_spec
from serving.config.torch_dtypes import DATATYPES
from serving.datatypes import BY_NAME, DataType
from serving.errors import InvalidArgumentError

_SCALAR_TYPES = {
    1: "UINT8",
    2: "INT8",
    3: "INT16",
    4: "INT32",
    5: "INT64",
    6: "FP16",
    7: "FP32",
    8: "FP64",
    12: "BOOL",
    13: "BF16",
    28: "UINT16",
    34: "UINT32",
    35: "UINT64",
}
_PROGRAM = re.compile(r"(?:^|/)models/([^/]+)\.json$")
_CODE = re.compile(r"(?:^|/)data/aotinductor/([^/]+)/")
DEFAULT_MODEL_NAME = "model"
_BROKEN = (
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    RecursionError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
)

_MAX_RANK = 64

_IN_SPEC = re.compile(r'^[ \t]*in_spec_ = R"\((.*)\)";$', re.MULTILINE)
_OUT_SPEC = re.compile(r'^[ \t]*out_spec_ = R"\((.*)\)";$', re.MULTILINE)
_INPUT_INFO = re.compile(r"^[ \t]*inputs_info_\[(\d+)\]\.name = ", re.MULTILINE)
_CHECK = re.compile(r"^(?:\w+ )*static void check_input_(\d+)\(", re.MULTILINE)
_CHECK_END = re.compile(r"^}", re.MULTILINE)
_TYPE = re.compile(r"= aoti_torch_dtype_(\w+)\(\);")
_FIXED = re.compile(r"if \((\d+)L* != \w+_size\[(\d+)\]\)")
_LOW = re.compile(r"if \(\w+_size\[(\d+)\] < (\d+)L*\)")
_HIGH = re.compile(r"if \(\w+_size\[(\d+)\] > (\d+)L*\)")
_STRIDE = re.compile(r"if \((\d+)L* != \w+_stride\[(\d+)\]\)")


@dataclass(frozen=True, slots=True)
class CompiledInput:
    """What the compiled code takes for granted about one input, and does not look at."""

    datatype: DataType | None
    """None: a type that no request can carry."""
    lows: tuple[int, ...]
    """Smallest size of each dimension."""
    highs: tuple[int | None, ...]
    """Largest; None: any."""
    strides: tuple[int | None, ...]
    """In elements; None where they depend on sizes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """-1 where the size is not fixed."""
        pairs = zip(self.lows, self.highs, strict=True)
        return tuple(low if low == high else -1 for low, high in pairs)

    @property
    def described(self) -> str:
        kind = self.datatype.config_name if self.datatype is not None else "a type unknown here"
        return f"{kind} {list(self.shape)}"

    @property
    def is_row_major(self) -> bool:
        """False: the code walks through memory in an order in which no request comes."""
        expected: int | None = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if None not in (expected, stride) and stride != expected and size != 1:
                return False
            expected = None if expected is None or size < 0 else expected * size
        return True

    def problem_with(
        self, datatype: DataType | None, dims: Sequence[int], *, has_batch_axis: bool
    ) -> str:
        """Why no request under a config of this type and shape can be served; or "".

        A fixed batch size is no such reason: requests of that size can be served (PT-12).
        """
        if datatype is not None and datatype != self.datatype:
            return f"the config says {datatype.config_name}"
        full = [-1, *dims] if has_batch_axis else list(dims)
        if len(full) == len(self.shape) and all(
            -1 in (wanted, given) or wanted == given
            for wanted, given in zip(self.shape, full, strict=True)
        ):
            return ""
        if not self.shape and all(dim == 1 for dim in full):
            return ""
        with_batch = f", that is {full} with the batch axis" if has_batch_axis else ""
        return f"the config says dims {list(dims)}{with_batch}"

    def refusal(self, shape: Sequence[int]) -> str:
        """Why the code must not be run on a tensor of this shape; or ""."""
        if len(shape) != len(self.lows):
            return f"it takes {len(self.lows)} dimensions"
        for dim, (size, low, high) in enumerate(zip(shape, self.lows, self.highs, strict=True)):
            if size >= low and (high is None or size <= high):
                continue
            if low == high:
                return f"dimension {dim} must be {low}"
            return f"dimension {dim} must be {low} " + ("or more" if high is None else f"to {high}")
        return ""


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """An archive of AOTInductor."""

    model_name: str
    """Inside of the archive."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """AOTI_DEVICE_KEY, AOTI_CPU_ISA and others."""
    call_spec: CallSpec | None = None
    """None where the archive comes without the source code."""
    inputs: tuple[CompiledInput, ...] | None = None
    """None where the source code does not tell."""
    size_rules: SizeRules | None = None
    """Of sizes that follow from others; None where the source code does not tell."""
    ends_process: bool = False
    """An index from a request that is out of range ends the process that runs the code."""


def read_pt2_signature(path: Path) -> Signature | CompiledProgram:
    """Compiled code is preferred where an archive holds both.

    Raises: InvalidArgumentError naming the file and why it is not a PT2 archive that can be served.
    """
    with open_archive(path, "PT2 archive") as archive:
        names = archive.namelist()
        try:
            if any(_CODE.search(name) for name in names):
                return _compiled(archive, names)
            programs = [
                name
                for name in names
                if name.endswith("serialized_exported_program.json") or _PROGRAM.search(name)
            ]
            if not programs:
                raise InvalidArgumentError(f"'{path}' is not a PT2 archive: it holds no program")
            program = json.loads(archive.read(small_member(archive, _chosen(programs))))
            return _exported(program)
        except (json.JSONDecodeError, UnicodeDecodeError, *_BROKEN) as error:
            raise InvalidArgumentError(
                f"'{path}' holds a program that cannot be read: {error!r}"
            ) from error
        except ValueError as error:
            raise InvalidArgumentError(f"'{path}' cannot be served: {error}") from error


def _chosen(programs: list[str]) -> str:
    for name in programs:
        match = _PROGRAM.search(name)
        if match is not None and match.group(1) == DEFAULT_MODEL_NAME:
            return name
    if len(programs) > 1:
        raise ValueError(f"it holds {len(programs)} programs, and none is named 'model'")
    return programs[0]


# -- exported programs


def _exported(program: dict[str, Any]) -> Signature:
    module = program["graph_module"]
    values = module["graph"]["tensor_values"]
    call = module["module_call_graph"][0]["signature"]
    call_spec = parse_call_spec(call["in_spec"], call["out_spec"])
    unsupported: dict[str, str] = {}
    inputs = [
        next(iter(spec.values()))
        for spec in module["signature"]["input_specs"]
        if "user_input" in spec or "constant_input" in spec
    ]
    outputs = [
        spec["user_output"] for spec in module["signature"]["output_specs"] if "user_output" in spec
    ]
    return Signature(
        _tensors(call_spec.inputs, inputs, values, unsupported),
        _tensors(call_spec.outputs, outputs, values, unsupported),
        unsupported=unsupported,
        call_spec=call_spec,
    )


def _tensors(
    names: tuple[str, ...],
    leaves: list[dict[str, Any]],
    values: dict[str, Any],
    unsupported: dict[str, str],
) -> tuple[TensorSignature, ...]:
    if len(names) != len(leaves):
        raise ValueError(
            f"its call specification tells {len(names)} tensors, its graph {len(leaves)}"
        )
    tensors = []
    for name, leaf in zip(names, leaves, strict=True):
        tensor = leaf.get("arg", {}).get("as_tensor")
        if tensor is None:
            unsupported[name] = "value other than a tensor"
            continue
        meta = values[tensor["name"]]
        datatype = _SCALAR_TYPES.get(meta["dtype"])
        if datatype is None:
            unsupported[name] = f"tensor of scalar type {meta['dtype']}"
            continue
        shape = tuple(int(size.get("as_int", -1)) for size in meta["sizes"])
        tensors.append(TensorSignature(name, BY_NAME[datatype], shape))
    return tuple(tensors)


# -- compiled code


def _compiled(archive: zipfile.ZipFile, names: list[str]) -> CompiledProgram:
    found = {match.group(1) for name in names if (match := _CODE.search(name))}
    if len(found) > 1 and DEFAULT_MODEL_NAME not in found:
        raise ValueError(
            f"it holds the models {', '.join(sorted(found)[:8])}, and none is named 'model'"
        )
    model_name = DEFAULT_MODEL_NAME if DEFAULT_MODEL_NAME in found else found.pop()
    folder = f"data/aotinductor/{model_name}/"
    members = [name for name in names if f"/{folder}" in f"/{name}"]
    if not any(name.endswith((".so", ".pyd", ".dll", ".o")) for name in members):
        raise ValueError("it holds no compiled library: package it with aoti_compile_and_package")
    metadata: dict[str, str] = {}
    for name in members:
        if name.endswith("_metadata.json"):
            told = json.loads(archive.read(small_member(archive, name)))
            metadata |= {str(key): str(value) for key, value in told.items()}
    program = CompiledProgram(model_name, metadata)
    for name in members:
        if name.endswith(".cpp"):
            source = archive.read(small_member(archive, name)).decode("utf-8", "replace")
            if _ends_process(source):
                program = replace(program, ends_process=True)
            if "in_spec_ =" in source:
                call_spec, inputs = _read_source(source)
                rules = read_size_rules(source)
                program = replace(program, call_spec=call_spec, inputs=inputs, size_rules=rules)
    return program


def _ends_process(source: str) -> bool:
    """Indices are checked in regions of OpenMP, which no C++ exception may leave."""
    start = source.find("#pragma omp parallel")
    return start >= 0 and source.find('"index out of bounds', start) >= 0


def _read_source(source: str) -> tuple[CallSpec | None, tuple[CompiledInput, ...] | None]:
    """Call specification and inputs; None for what this version of PyTorch does not write down."""
    called, returned = _IN_SPEC.search(source), _OUT_SPEC.search(source)
    if called is None or returned is None:
        return None, None
    call_spec = parse_call_spec(called.group(1), returned.group(1))
    count = len(_INPUT_INFO.findall(source))
    if count != len(call_spec.inputs):
        raise ValueError(
            f"its forward takes {len(call_spec.inputs)} values, {count} of them tensors: let it "
            "take tensors only"
        )
    checks: dict[int, CompiledInput] = {}
    for match in _CHECK.finditer(source):
        end = _CHECK_END.search(source, match.end())
        body = source[match.end() : end.start() if end else len(source)]
        checks[int(match.group(1))] = _compiled_input(body)
    if sorted(checks) != list(range(count)):
        return call_spec, None
    return call_spec, tuple(checks[index] for index in range(count))


def _compiled_input(body: str) -> CompiledInput:
    """Out of the C++ code that would check the input, if it was switched on."""
    kind = _TYPE.search(body)
    fixed = {int(dim): int(size) for size, dim in _FIXED.findall(body)}
    lows = fixed | {int(dim): int(size) for dim, size in _LOW.findall(body)}
    highs = fixed | {int(dim): int(size) for dim, size in _HIGH.findall(body)}
    strides = {int(dim): int(step) for step, dim in _STRIDE.findall(body)}
    rank = 1 + max((*lows, *highs, *strides), default=-1)
    if rank > _MAX_RANK:
        raise ValueError(f"its code checks dimension {rank - 1} of an input")
    datatype = DATATYPES.get(kind.group(1), "") if kind else ""
    return CompiledInput(
        BY_NAME.get(datatype),
        # An export never sees sizes of 0 and 1 and writes 2 for any, as torch.export itself knows.
        tuple(low if (low := lows.get(dim, 0)) > 2 or dim in fixed else 0 for dim in range(rank)),
        tuple(highs.get(dim) for dim in range(rank)),
        tuple(strides.get(dim) for dim in range(rank)),
    )
