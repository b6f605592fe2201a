"""What PyTorch files say about the forward method of their module, read without PyTorch.

A TorchScript file (.pt) tells the names and kinds of the arguments and the number of results; an
exported program (.pt2) tells data types and shapes too. Both are zip archives of which only small
members are read; nothing is unpickled. Any thread; blocks on the disk.
"""

from __future__ import annotations

import ast
import json
import pickletools
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.config import syntax
from serving.config.signature import Signature, TensorSignature
from serving.datatypes import BY_NAME
from serving.errors import InvalidArgumentError

_MAX_MEMBER_BYTES = 64 * 1024 * 1024
_LFS_POINTER = b"version https://git-lfs"
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
}


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    kind: str
    """As TorchScript writes it: Tensor, List[str], Dict[str, Tensor], int, ..."""
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class ModuleSignature:
    """The forward method of a TorchScript module."""

    arguments: tuple[Argument, ...]
    result: str
    """Kind of the result."""
    result_count: int | None
    """Number of results; None where the file does not tell."""


def read_torchscript_signature(path: Path) -> ModuleSignature:
    """Raises: InvalidArgumentError naming the file and why it is not a TorchScript module."""
    with _archive(path, "TorchScript module") as archive:
        root = _root(archive, "/data.pkl")
        if not any(name.startswith(f"{root}/code/") for name in archive.namelist()):
            raise InvalidArgumentError(
                f"'{path}' holds weights only (torch.save of a state dict), not a TorchScript "
                f"module: save it with torch.jit.save"
            )
        try:
            module, name = _class_of(archive.read(_small(archive, f"{root}/data.pkl")))
            file = f"{root}/code/{module.replace('.', '/')}.py"
            code = archive.read(_small(archive, file)).decode()
            return _forward(code, name)
        except (KeyError, ValueError, SyntaxError) as error:
            raise InvalidArgumentError(
                f"'{path}' is not a TorchScript module with a forward method: {error}"
            ) from error


def read_exported_signature(path: Path) -> Signature | None:
    """Of an exported program (.pt2); None where the archive holds compiled code only.

    Raises: InvalidArgumentError naming the file and why it is not a PT2 archive.
    """
    with _archive(path, "PT2 archive") as archive:
        names = archive.namelist()
        programs = [
            name
            for name in names
            if name.endswith("serialized_exported_program.json")
            or re.search(r"(?:^|/)models/[^/]+\.json$", name)
        ]
        if not programs:
            if not any("aotinductor" in name or name.endswith("archive_format") for name in names):
                raise InvalidArgumentError(f"'{path}' is not a PT2 archive: it holds no program")
            return None
        try:
            return _exported(json.loads(archive.read(_small(archive, programs[0]))))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgumentError(
                f"'{path}' holds an exported program that cannot be read: {error!r}"
            ) from error


def _archive(path: Path, what: str) -> zipfile.ZipFile:
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS_POINTER))
        if start == _LFS_POINTER:
            raise InvalidArgumentError(
                f"'{path}' is a Git LFS pointer, not the model: run git lfs pull"
            )
        return zipfile.ZipFile(path)
    except OSError as error:
        raise InvalidArgumentError(f"'{path}' cannot be read: {error.strerror}") from error
    except zipfile.BadZipFile as error:
        raise InvalidArgumentError(f"'{path}' is not a {what}: it is no zip archive") from error


def _root(archive: zipfile.ZipFile, member: str) -> str:
    for name in archive.namelist():
        if name.endswith(member) and name.count("/") == 1:
            return name.removesuffix(member)
    raise InvalidArgumentError(
        f"'{archive.filename}' is not a TorchScript module: it holds no data.pkl"
    )


def _small(archive: zipfile.ZipFile, name: str) -> str:
    """The member's name, if it may be read whole."""
    if archive.getinfo(name).file_size > _MAX_MEMBER_BYTES:
        raise ValueError(f"its member '{name}' is too large")
    return name


def _class_of(pickled: bytes) -> tuple[str, str]:
    """Module and name of the outermost object's class; the pickle is read, not run."""
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name == "GLOBAL" and isinstance(argument, str):
            module, _, name = argument.partition(" ")
            if module.startswith("__torch__"):
                return module, name
    raise ValueError("it names no module class")


def _forward(code: str, class_name: str) -> ModuleSignature:
    start = re.search(rf"^class {re.escape(class_name)}\(", code, re.MULTILINE)
    body = code[start.end() :] if start else ""
    end = re.search(r"^class ", body, re.MULTILINE)
    body = body[: end.start()] if end else body
    head = re.search(r"^  def forward\(.*?\)\s*->\s*[^\n]*:$", body, re.MULTILINE | re.DOTALL)
    if head is None:
        raise ValueError(f"class {class_name} has no forward method")
    tree = syntax.parse(f"{head.group().strip()} pass").body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError("forward is no function")
    given = tree.args.args[1:]
    first_default = len(given) - len(tree.args.defaults)
    arguments = tuple(
        _argument(item, has_default=index >= first_default) for index, item in enumerate(given)
    )
    result = ast.unparse(tree.returns) if tree.returns is not None else "None"
    return ModuleSignature(arguments, result, _count(tree.returns))


def _argument(item: ast.arg, *, has_default: bool) -> Argument:
    kind = ast.unparse(item.annotation) if item.annotation is not None else "Tensor"
    is_optional = kind.startswith("Optional[")
    if is_optional:
        kind = kind.removeprefix("Optional[")[:-1]
    return Argument(item.arg, kind, is_optional or has_default)


def _count(result: ast.expr | None) -> int | None:
    if isinstance(result, ast.Name):
        return 1
    if not isinstance(result, ast.Subscript) or not isinstance(result.value, ast.Name):
        return None
    if result.value.id == "Tuple":
        return len(result.slice.elts) if isinstance(result.slice, ast.Tuple) else 1
    return 1 if ast.unparse(result) == "List[str]" else None


def _exported(program: dict[str, Any]) -> Signature:
    module = program["graph_module"]
    values = module["graph"]["tensor_values"]
    unsupported: dict[str, str] = {}
    inputs = [
        spec["user_input"]["arg"]["as_tensor"]["name"]
        for spec in module["signature"]["input_specs"]
        if "as_tensor" in spec.get("user_input", {}).get("arg", {})
    ]
    outputs = [
        spec["user_output"]["arg"]["as_tensor"]["name"]
        for spec in module["signature"]["output_specs"]
        if "as_tensor" in spec.get("user_output", {}).get("arg", {})
    ]
    return Signature(
        tuple(_exported_tensors(inputs, values, unsupported)),
        tuple(_exported_tensors(outputs, values, unsupported)),
        unsupported=unsupported,
        is_positional=True,
    )


def _exported_tensors(
    names: list[str], values: dict[str, Any], unsupported: dict[str, str]
) -> list[TensorSignature]:
    tensors = []
    for name in names:
        meta = values[name]
        datatype = _SCALAR_TYPES.get(meta["dtype"])
        if datatype is None:
            unsupported[name] = f"scalar type {meta['dtype']}"
        else:
            shape = tuple(int(size.get("as_int", -1)) for size in meta["sizes"])
            tensors.append(TensorSignature(name, BY_NAME[datatype], shape))
    return tensors
