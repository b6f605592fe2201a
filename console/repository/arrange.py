"""Work out what an unpacked upload is: which files are the model's, which a version's.

Pure: from relative paths and what the person asked for to an `Arrangement`; nothing is moved here
(`staging.build` does). Accepted: `<model>/<version>/...`, `<version>/...`, the files of one version
without a version folder, a bare model file, and a bare `config.pbtxt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from console.repository.names import NameRefusedError, check_model_name, is_version
from serving.config.findings import Finding, Severity

CONFIG_NAME = "config.pbtxt"
RESERVED_FOLDERS = frozenset({"warmup", "initial_state", "configs"})
# Ending of a bare model file -> the name its backend looks for (spec 1.2).
STANDARD_FILE_NAMES = {
    ".onnx": "model.onnx",
    ".plan": "model.plan",
    ".engine": "model.plan",
    ".trt": "model.plan",
    ".pt": "model.pt",
    ".pt2": "model.pt2",
    ".py": "model.py",
    ".graphdef": "model.graphdef",
    ".savedmodel": "model.savedmodel",
    ".xml": "model.xml",
    ".dali": "model.dali",
    ".ubj": "xgboost.ubj",
    ".tl": "checkpoint.tl",
}
# Endings that mean a model only where nothing else is uploaded: XGBoost's and LightGBM's text.
BARE_FILE_NAMES = STANDARD_FILE_NAMES | {".json": "xgboost.json", ".txt": "model.txt"}
_PICKLE = (
    "A pickle is code, and is not served as it is: export trees to checkpoint.tl with treelite, "
    "another model to ONNX, or upload a .zip of a Python model (model.py) with the file beside it."
)
_WEIGHTS = (
    "It looks like weights without their model: export TorchScript (.pt), torch.export (.pt2) or "
    "ONNX, or upload a .zip of model.py and config.pbtxt with the file beside it."
)
_KERAS = "Export a SavedModel with model.export('model.savedmodel') and upload that folder."
# Ending of a file that no backend reads -> the way from it to one that some backend does.
_WAYS = {
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), _PICKLE),
    **dict.fromkeys((".safetensors", ".pth", ".ckpt", ".bin"), _WEIGHTS),
    **dict.fromkeys((".h5", ".keras"), _KERAS),
}
_NAME_FIELD = re.compile(r'^\s*name\s*:\s*"([^"\n]+)"', re.MULTILINE)
_ENSEMBLE = re.compile(r'^\s*(platform\s*:\s*"ensemble"|ensemble_scheduling\b)', re.MULTILINE)
NEXT_VERSION = "next"


class ArrangementError(Exception):
    """The files do not make a model yet; `field` names what the person can give to mend it."""

    def __init__(self, message: str, hint: str = "", field_name: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field_name

    def as_finding(self) -> Finding:
        return Finding(
            Severity.ERROR, self.message, self.hint, field=self.field, file="", code="UPLOAD"
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asked for, beside the files."""

    model: str = ""
    """Empty: take the name from the files."""
    version: str = ""
    """Empty: as in the files; `next`; or a number."""


@dataclass(slots=True)
class Arrangement:
    model: str
    versions: list[int]
    files: dict[PurePosixPath, PurePosixPath]
    """Path in the model directory -> path in the upload."""
    has_config: bool
    notes: list[Finding] = field(default_factory=list)


def arrange(
    paths: Sequence[PurePosixPath],
    wish: Wish,
    *,
    archive_stem: str = "",
    config_text: str = "",
    taken_versions: Callable[[str], Iterable[int]] = lambda model: (),
) -> Arrangement:
    """Decide where each of `paths` belongs. Raises ArrangementError, NameRefusedError.

    `config_text` is the upload's own config (`config_path` finds it), `taken_versions` answers
    which versions of a model the repository has.
    """
    if len(paths) == 1 and paths[0].name != CONFIG_NAME and len(paths[0].parts) == 1:
        return _bare_file(paths[0], wish, taken_versions)
    prefix, notes = _model_root(paths)
    inner = {_strip(path, prefix): path for path in paths}
    model = _model_name(wish, prefix, config_text, archive_stem)
    layout, more_notes = _split_versions(inner, model)
    version_map = _choose_versions(layout, wish.version, taken_versions(model))
    files: dict[PurePosixPath, PurePosixPath] = {}
    for target, source in layout.items():
        first = target.parts[0]
        if is_version(first) and len(target.parts) > 1:
            target = PurePosixPath(str(version_map[int(first)]), *target.parts[1:])
        files[target] = source
    versions = sorted(version_map.values())
    if not versions and _ENSEMBLE.search(config_text) and not list(taken_versions(model)):
        # An ensemble has no files of its own, but every model needs a version folder.
        versions = [1]
    has_config = PurePosixPath(CONFIG_NAME) in files
    return Arrangement(model, versions, files, has_config, notes + more_notes)


def top_folder(paths: Sequence[PurePosixPath]) -> PurePosixPath:
    """The folder that is the model directory; empty path when the upload itself is."""
    return _model_root(paths)[0]


def config_path(paths: Sequence[PurePosixPath]) -> PurePosixPath | None:
    """Where the upload's own config lies, if it has one."""
    wanted = top_folder(paths) / CONFIG_NAME
    return wanted if wanted in paths else None


def _note(message: str, hint: str = "", severity: Severity = Severity.NOTE) -> Finding:
    return Finding(severity, message, hint, file="", code="UPLOAD")


def _strip(path: PurePosixPath, prefix: PurePosixPath) -> PurePosixPath:
    return path.relative_to(prefix) if prefix.parts else path


def _model_root(paths: Sequence[PurePosixPath]) -> tuple[PurePosixPath, list[Finding]]:
    """Go down single folders until one looks like a model directory."""
    prefix = PurePosixPath()
    notes: list[Finding] = []
    while True:
        inner = [_strip(path, prefix) for path in paths]
        folders = {path.parts[0] for path in inner if len(path.parts) > 1}
        has_files = any(len(path.parts) == 1 for path in inner)
        if has_files or any(is_version(folder) for folder in folders):
            return prefix, notes
        if len(folders) > 1:
            raise _many_models(folders)
        if prefix.parts:
            notes.append(_note(f"The outer folder '{prefix.name}' is left out."))
        prefix = prefix / folders.pop()


def _many_models(folders: set[str]) -> ArrangementError:
    names = ", ".join(sorted(folders)[:6])
    return ArrangementError(
        f"The upload holds {len(folders)} folders side by side ({names}) and none is a version.",
        "Upload one model at a time: one folder with config.pbtxt and numbered version folders.",
        "files",
    )


def _model_name(wish: Wish, prefix: PurePosixPath, config_text: str, stem: str) -> str:
    named = _NAME_FIELD.search(config_text)
    candidates = [wish.model, prefix.name, named.group(1) if named else "", stem]
    for candidate in candidates:
        if candidate and not is_version(candidate):
            return _checked_name(candidate)
    raise ArrangementError(
        "The files do not say what the model is called.", "Give the model a name.", "model"
    )


def _checked_name(name: str) -> str:
    try:
        return check_model_name(name)
    except NameRefusedError as error:
        raise ArrangementError(str(error), "Give the model another name.", "model") from error


def _split_versions(
    inner: dict[PurePosixPath, PurePosixPath], model: str
) -> tuple[dict[PurePosixPath, PurePosixPath], list[Finding]]:
    """Files by their place in the model directory; loose model files go into version 1."""
    notes: list[Finding] = []
    has_versions = any(len(path.parts) > 1 and is_version(path.parts[0]) for path in inner)
    loose = [path for path in inner if len(path.parts) == 1 and _is_model_file(path)]
    if has_versions or not loose:
        if not has_versions and any(path != PurePosixPath(CONFIG_NAME) for path in inner):
            notes.extend(_no_version_notes(inner))
        return dict(inner), notes
    stays = {path for path in inner if _stays_in_model_directory(path)}
    layout = {
        (path if path in stays else PurePosixPath("1") / _standard_name(path, loose)): source
        for path, source in inner.items()
    }
    notes.append(
        _note(f"'{loose[0]}' is not in a version folder: it becomes a version of {model}.")
    )
    return layout, notes


def _no_version_notes(inner: Iterable[PurePosixPath]) -> list[Finding]:
    folders = sorted({path.parts[0] for path in inner if len(path.parts) > 1} - RESERVED_FOLDERS)
    wrong = [name for name in folders if name.lstrip("v").lstrip("0").isdigit()]
    if not wrong:
        return []
    return [
        _note(
            f"The folder '{wrong[0]}' is not a version: its name is not a plain whole number.",
            f"Name it '{int(wrong[0].lstrip('v'))}' and upload again.",
            Severity.ERROR,
        )
    ]


def _is_model_file(path: PurePosixPath) -> bool:
    return path.suffix.lower() in STANDARD_FILE_NAMES


def _stays_in_model_directory(path: PurePosixPath) -> bool:
    if path.parts[0] in RESERVED_FOLDERS:
        return True
    return len(path.parts) == 1 and (path.name == CONFIG_NAME or path.suffix.lower() == ".txt")


def _standard_name(path: PurePosixPath, loose: Sequence[PurePosixPath]) -> PurePosixPath:
    """A single loose model file gets the name its backend looks for."""
    if len(loose) == 1 and path == loose[0]:
        return PurePosixPath(STANDARD_FILE_NAMES[path.suffix.lower()])
    return path


def _choose_versions(
    layout: Iterable[PurePosixPath], wished: str, taken: Iterable[int]
) -> dict[int, int]:
    """Version in the upload -> version it becomes."""
    present = sorted(
        {int(path.parts[0]) for path in layout if len(path.parts) > 1 and is_version(path.parts[0])}
    )
    if not wished or not present:
        return {version: version for version in present}
    if wished == NEXT_VERSION:
        start = max(taken, default=0)
        return {version: start + 1 + index for index, version in enumerate(present)}
    if not is_version(wished):
        raise ArrangementError(
            f"'{wished}' is not a version.", "Write a whole number, or choose 'next'.", "version"
        )
    if len(present) > 1:
        raise ArrangementError(
            f"The upload holds {len(present)} versions, so it cannot become version {wished}.",
            "Choose 'as in the files' or 'next', or upload one version.",
            "version",
        )
    return {present[0]: int(wished)}


def _bare_file(
    path: PurePosixPath, wish: Wish, taken: Callable[[str], Iterable[int]]
) -> Arrangement:
    name = BARE_FILE_NAMES.get(path.suffix.lower())
    if name is None:
        known = ", ".join(sorted(BARE_FILE_NAMES))
        raise ArrangementError(
            f"'{path}' is neither an archive nor a model file Conch knows ({known}).",
            _WAYS.get(path.suffix.lower(), "Upload a .zip or .tar of the model directory."),
            "files",
        )
    if not wish.model:
        stem = path.stem
        if stem == "model" or is_version(stem):
            raise ArrangementError(
                f"'{path}' does not say what the model is called.", "Give it a name.", "model"
            )
        wish = Wish(stem, wish.version)
    model = _checked_name(wish.model)
    layout = {PurePosixPath("1") / name: path}
    versions = _choose_versions(layout, wish.version or NEXT_VERSION, taken(model))
    files = {PurePosixPath(str(versions[1])) / name: path}
    notes = [] if path.name == name else [_note(f"'{path}' is stored as '{name}'.")]
    return Arrangement(model, [versions[1]], files, False, notes)
