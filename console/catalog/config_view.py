"""Everything the Config tab shows about one text: findings, effective values with their origin,
what the model file says beside what the config says, the diff to the saved text, and what requests
must look like. Pure reads; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from console.catalog.signature import datatype_word, shape_text
from console.core.diff import DiffLine, diff_lines
from console.repository import checks
from serving.config import format as config_format
from serving.config.check import ModelCheck, check_model
from serving.config.check_graph import check_parts, check_users
from serving.config.explain import Explanation, explain
from serving.config.findings import Severity
from serving.config.protobuf import pb
from serving.config.schema import map_path
from serving.config.signature import TensorSignature

PLACEHOLDER = "YOUR_TOKEN"
ORIGIN_WORDS = {
    "file": "File",
    "override": "Load request",
    "model": "Model",
    "default": "Default",
}


@dataclass(frozen=True, slots=True)
class EffectiveField:
    path: str
    value: str
    origin: str
    """file, override, model or default."""

    @property
    def origin_word(self) -> str:
        return ORIGIN_WORDS.get(self.origin, self.origin)


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """One input or output as both sides declare it; empty text where a side has none."""

    kind: str
    name: str
    in_config: str
    in_model: str

    @property
    def differs(self) -> bool:
        return bool(self.in_config and self.in_model) and self.in_config != self.in_model


@dataclass(slots=True)
class ConfigView:
    text: str
    saved: str
    findings: list[dict[str, Any]]
    effective: list[EffectiveField] = field(default_factory=list)
    effective_text: str = ""
    effective_config: pb.ModelConfig | None = None
    comparison: list[TensorComparison] = field(default_factory=list)
    explanation: Explanation | None = None
    """None while the text has no effective form or declares no inputs."""
    curl: str = ""
    python: str = ""

    @property
    def counts(self) -> dict[str, int]:
        return {
            severity.value: sum(item["severity"] == severity.value for item in self.findings)
            for severity in Severity
        }

    @property
    def has_errors(self) -> bool:
        return self.counts[Severity.ERROR.value] > 0

    @property
    def summary(self) -> str:
        """`1 error · 2 notes`, or that nothing was found."""
        parts = [
            f"{count} {name}{'s' * (count != 1)}" for name, count in self.counts.items() if count
        ]
        return " · ".join(parts) or "No findings"

    @property
    def worst(self) -> str:
        """The severity that the summary is shown with; ok when nothing needs a look."""
        counts = self.counts
        return next((name for name, count in counts.items() if count), "ok")

    @property
    def diff(self) -> list[DiffLine]:
        return diff_lines(self.saved, self.text, "saved", "edited")


def inspect(directory: Path, *, text: str | None, saved: str, base_url: str = "") -> ConfigView:
    """Check `text` as the config.pbtxt of the model in `directory`; None stands for the file.

    `base_url` is the console's own address: snippets go through its gateway.
    """
    check = check_model(directory, config_text=text)
    check_parts(check, directory.name, directory.parent, parts_may_come=True)
    check_users(check, directory.name, directory.parent)
    view = ConfigView(
        text=check.text if text is None else text,
        saved=saved,
        findings=checks.as_rows([*check.findings, *checks.what_workers_lack(check, directory)]),
    )
    if check.effective is not None:
        view.effective = effective_fields(check.effective, check.origins)
        view.effective_config = check.effective
        view.effective_text = config_format.to_pbtxt(check.effective)
        _explain(view, explain(check.effective, check.origins), base_url)
    view.comparison = comparison(check)
    return view


def _explain(view: ConfigView, explanation: Explanation, base_url: str) -> None:
    if not explanation.inputs:
        return
    headers = {"Authorization": f"Bearer {PLACEHOLDER}"}
    view.explanation = explanation
    view.curl = explanation.curl(base_url, headers)
    view.python = explanation.python(base_url, headers)


def explanation_body(view: ConfigView) -> dict[str, Any]:
    """The explanation as JSON."""
    explanation = view.explanation
    if explanation is None:
        return {}
    return {
        "inputs": [asdict(item) for item in explanation.inputs],
        "outputs": [asdict(item) for item in explanation.outputs],
        "notes": list(explanation.notes),
        "request": explanation.request() if explanation.is_json else None,
        "curl": view.curl,
        "python": view.python,
    }


def effective_fields(config: pb.ModelConfig, origins: Mapping[str, str]) -> list[EffectiveField]:
    """Every field that is set, one row a scalar, with where its value comes from."""
    return [
        EffectiveField(path, value, _origin(path, origins)) for path, value in _walk(config, "")
    ]


def _origin(path: str, origins: Mapping[str, str]) -> str:
    """The origin of the field or of the nearest field around it."""
    while path:
        if path in origins:
            return origins[path]
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return "default"


def _walk(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    for descriptor, value in message.ListFields():
        path = f"{prefix}{descriptor.name}"
        element = _map_element(descriptor)
        if element is not None:
            for key in sorted(value):
                yield from _value(element, map_path(path, key), value[key])
        elif descriptor.is_repeated and descriptor.message_type is None:
            items = ", ".join(_scalar(descriptor, item) for item in value)
            yield path, f"[{items}]"
        elif descriptor.is_repeated:
            for index, item in enumerate(value):
                yield from _value(descriptor, f"{path}[{index}]", item)
        else:
            yield from _value(descriptor, path, value)


def _value(descriptor: FieldDescriptor, path: str, value: Any) -> Iterator[tuple[str, str]]:
    if descriptor.message_type is None:
        yield path, _scalar(descriptor, value)
        return
    inner = list(_walk(value, f"{path}."))
    yield from inner or [(path, "{ }")]


def _map_element(descriptor: FieldDescriptor) -> FieldDescriptor | None:
    """The value field of a map's entries; None for what is no map."""
    nested = descriptor.message_type
    if nested is None or not nested.GetOptions().map_entry:
        return None
    return nested.fields_by_name["value"]


def _scalar(descriptor: FieldDescriptor, value: Any) -> str:
    if descriptor.enum_type is not None:
        # A config under repair may hold a number that has no name.
        known = descriptor.enum_type.values_by_number.get(value)
        return str(known.name if known is not None else value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def comparison(check: ModelCheck) -> list[TensorComparison]:
    """Inputs and outputs of the model file beside those of the config; empty without a file."""
    if check.signature is None or check.config is None or check.effective is None:
        return []
    declared = check.signature
    return [
        *_compare("input", check.config.input, declared.inputs, check.effective),
        *_compare("output", check.config.output, declared.outputs, check.effective),
    ]


def _compare(
    kind: str,
    configured: Iterable[pb.ModelInput | pb.ModelOutput],
    declared: Iterable[TensorSignature],
    effective: pb.ModelConfig,
) -> list[TensorComparison]:
    batch = (-1,) if effective.max_batch_size > 0 else ()
    in_config = {
        item.name: f"{datatype_word(item.data_type)} {shape_text((*batch, *item.dims))}"
        for item in configured
    }
    in_model = {item.name: f"{item.datatype.name} {shape_text(item.shape)}" for item in declared}
    names = list(dict.fromkeys([*in_model, *in_config]))
    return [
        TensorComparison(kind, name, in_config.get(name, ""), in_model.get(name, ""))
        for name in names
    ]
