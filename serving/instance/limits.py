"""How long an instance process may take to start, to execute and to finalize, and how often it may
die: from the backend config of the server, and from parameters of the model, which win.

Pure functions; any thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.backends.base import ModelContext
from serving.errors import InvalidArgumentError
from serving.instance.restart import RestartPolicy

MAX_LIMIT_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    initialize_s: float = 600.0
    """For the process to start and to load the model; the deadline of the load holds as well."""
    execute_s: float = 0.0
    """For one execution; 0: no limit."""
    finalize_s: float = 30.0
    restart: RestartPolicy = RestartPolicy()

    @classmethod
    def of(cls, context: ModelContext) -> ProcessLimits:
        """Raises: InvalidArgumentError for a value that is no number, or out of range."""
        default = cls()
        policy = default.restart
        deaths = _seconds(context, "max-quick-restarts", float(policy.give_up_after))
        delay = _seconds(context, "max-restart-delay-seconds", policy.max_delay_s)
        return cls(
            _seconds(context, "initialize-timeout-seconds", default.initialize_s),
            _seconds(context, "execute-timeout-seconds", default.execute_s, may_be_zero=True),
            _seconds(context, "finalize-timeout-seconds", default.finalize_s),
            RestartPolicy(give_up_after=max(1, int(deaths)), max_delay_s=delay),
        )


def _seconds(
    context: ModelContext, key: str, default: float, *, may_be_zero: bool = False
) -> float:
    parameter = key.replace("-", "_")
    text = context.spec.parameters.get(parameter)
    where = f"parameter '{parameter}' of model '{context.spec.name}'"
    if text is None:
        text = context.backend_config.get(key)
        where = f"the backend config '{key}'"
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (value > 0 or (may_be_zero and value == 0)) or value > MAX_LIMIT_S:
        raise InvalidArgumentError(
            f"{where} is '{text}': it must be a number {'of 0' if may_be_zero else 'above 0'} or "
            f"more, and {MAX_LIMIT_S:.0f} at most"
        )
    return value
