"""What TorchScript files say about the forward method of their module, read without PyTorch.

They tell the names and kinds of the arguments and the number of results. A file is a zip archive of
which only small members are read; nothing is unpickled. Any thread; blocks on the disk.
"""

from __future__ import annotations

import ast
import pickletools
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from serving.config import syntax
from serving.errors import InvalidArgumentError

_MAX_MEMBER_BYTES = 64 * 1024 * 1024
_LFS_POINTER = b"version https://git-lfs"


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
    with open_archive(path, "TorchScript module") as archive:
        root = _root(archive, "/data.pkl")
        if not any(name.startswith(f"{root}/code/") for name in archive.namelist()):
            raise InvalidArgumentError(
                f"'{path}' holds weights only (torch.save of a state dict), not a TorchScript "
                f"module: save it with torch.jit.save"
            )
        try:
            module, name = _class_of(archive.read(small_member(archive, f"{root}/data.pkl")))
            file = f"{root}/code/{module.replace('.', '/')}.py"
            code = archive.read(small_member(archive, file)).decode()
            return _forward(code, name)
        except (KeyError, ValueError, SyntaxError) as error:
            raise InvalidArgumentError(
                f"'{path}' is not a TorchScript module with a forward method: {error}"
            ) from error


def open_archive(path: Path, what: str) -> zipfile.ZipFile:
    """Raises: InvalidArgumentError naming the file and why it is no archive."""
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


def small_member(archive: zipfile.ZipFile, name: str) -> str:
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
