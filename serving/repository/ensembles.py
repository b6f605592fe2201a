"""What an ensemble is compared with when it loads: the models that serve as its parts now.

Loop thread, because it looks at what serves. Source: spec SCH-092, VAL-70..79.
"""

from __future__ import annotations

from serving.config.findings import Finding
from serving.config.pbtxt import ParsedConfig
from serving.config.protobuf import pb
from serving.config.validate_graph import validate_ensemble_graph
from serving.errors import ServingError
from serving.services import ModelCalls


def join(
    name: str, parsed: ParsedConfig, config: pb.ModelConfig, calls: ModelCalls, namespace: str
) -> list[Finding]:
    """Findings between the ensemble and its parts; `config` learns from them what Triton fills in:
    whether it is decoupled, and the namespace of each step.
    """
    configs = {name: config}
    versions: dict[str, list[int]] = {}
    for step in config.ensemble_scheduling.step:
        try:
            model = calls.model(step.model_name, -1, step.model_namespace or namespace)
        except ServingError:
            continue  # the graph's check names it
        configs.setdefault(step.model_name, model.config)
        if namespace:
            step.model_namespace = model.namespace
        versions[step.model_name] = _served(calls, step, model.version)
    found = validate_ensemble_graph(configs, versions=versions, only=name).get(name, [])
    # Set in any case, as Triton does: its `GET /config` shows it.
    is_decoupled = any(item.code == "VAL-79" for item in found)
    config.model_transaction_policy.decoupled |= is_decoupled
    return [parsed.placed(item) for item in found]


def _served(calls: ModelCalls, step: pb.ModelEnsembling.Step, newest: int) -> list[int]:
    try:
        return calls.ready_versions(step.model_name)
    except ServingError:  # several namespaces have the name: look for the wanted version only
        pass
    try:
        return [
            newest,
            calls.model(step.model_name, step.model_version, step.model_namespace).version,
        ]
    except ServingError:
        return [newest]
