"""Repository agents: code that is asked before a model is loaded and told what became of it.

A config names its agents in `model_repository_agents`; they are called in that order, in a loading
thread. Built in is `checksum`; others come from `<name>/agent.py` in --repoagent-directory, a class
`Agent`, or from Python entry points of the group `conch.repository_agents`; each is a subclass of
`RepositoryAgent`. Source: spec REP-110..113, CLI-110.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from serving.config.protobuf import pb
from serving.errors import InternalError, InvalidArgumentError, ModelLoadError, ServingError
from serving.plugin_files import find_class
from serving.repository.checksum import verify

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "conch.repository_agents"


class Action(enum.Enum):
    LOAD = "LOAD"
    """The model is about to be loaded: raise to refuse it, redirect it, or let it pass."""
    LOAD_COMPLETE = "LOAD_COMPLETE"
    LOAD_FAIL = "LOAD_FAIL"
    UNLOAD = "UNLOAD"
    """It gets no new requests."""
    UNLOAD_COMPLETE = "UNLOAD_COMPLETE"
    """Nothing of it is in use any more."""


_NEXT: Mapping[Action | None, frozenset[Action]] = {
    None: frozenset({Action.LOAD}),
    Action.LOAD: frozenset({Action.LOAD_COMPLETE, Action.LOAD_FAIL}),
    Action.LOAD_COMPLETE: frozenset({Action.UNLOAD}),
    Action.LOAD_FAIL: frozenset(),
    Action.UNLOAD: frozenset({Action.UNLOAD_COMPLETE}),
    Action.UNLOAD_COMPLETE: frozenset(),
}


@dataclass(slots=True, eq=False)
class AgentModel:
    """What one agent sees of one load of a model."""

    name: str
    config: pb.ModelConfig
    """As it was when the agents were asked; a copy."""
    parameters: Mapping[str, str]
    """What the config says to this agent."""
    directory: Path
    """Where the model's files are; earlier agents may have redirected it."""
    state: Any = None
    """The agent's own, from LOAD to the last action."""
    action: Action | None = None
    """The current or last one."""

    def redirect(self, directory: Path) -> None:
        """Load the model from another directory. Only during LOAD."""
        if self.action is not Action.LOAD:
            raise InvalidArgumentError(
                f"model '{self.name}' can be redirected during LOAD only, not at "
                f"{self.action.value if self.action else 'this point'}"
            )
        if not directory.is_dir():
            raise InvalidArgumentError(
                f"model '{self.name}' is redirected to '{directory}', which is no directory"
            )
        self.directory = directory


class RepositoryAgent(ABC):
    """One object for each agent in a server. Any loading thread; several models at once."""

    @abstractmethod
    def model_action(self, action: Action, model: AgentModel) -> None:
        """Raise during LOAD to refuse the model: the message goes to whoever asked for it."""


class ChecksumAgent(RepositoryAgent):
    """Refuses a model whose files have other digests than its config says. REP-113."""

    def model_action(self, action: Action, model: AgentModel) -> None:
        if action is Action.LOAD:
            verify(model.directory, model.parameters)


class AgentRegistry:
    def __init__(self, directory: Path | None = None) -> None:
        self._agents: dict[str, RepositoryAgent] = {"checksum": ChecksumAgent()}
        self._directory = directory
        self._lock = threading.Lock()

    def get(self, name: str) -> RepositoryAgent:
        """Raises InvalidArgumentError for an agent that is not there or cannot be made."""
        with self._lock:
            agent = self._agents.get(name)
            if agent is None:
                agent = self._agents[name] = self._make(name)
            return agent

    def _make(self, name: str) -> RepositoryAgent:
        try:
            kind = find_class(self._directory, name, "agent.py", "Agent")
            found = entry_points(group=ENTRY_POINT_GROUP, name=name)
            if kind is None and found:
                kind = next(iter(found)).load()
            agent = None if kind is None else kind()
        except Exception as error:
            raise InvalidArgumentError(
                f"repo agent '{name}' cannot be made: {type(error).__name__}: {error}"
            ) from error
        if agent is None:
            there = {*self._agents, *(item.name for item in entry_points(group=ENTRY_POINT_GROUP))}
            raise InvalidArgumentError(
                f"unable to find 'libtritonrepoagent_{name}.so', {name}/agent.py in "
                f"--repoagent-directory, or a Python entry point '{name}' of group "
                f"{ENTRY_POINT_GROUP} for repo agent '{name}'; there are: "
                f"{', '.join(sorted(there))}"
            )
        if not isinstance(agent, RepositoryAgent):
            raise InvalidArgumentError(
                f"repo agent '{name}' is a {type(agent).__name__}; it must derive from "
                "serving.repository.agents.RepositoryAgent"
            )
        return agent


@dataclass(slots=True, eq=False)
class AgentSession:
    """The agents of one load of one model, and how far they have come. One thread at a time."""

    name: str
    _called: list[tuple[str, RepositoryAgent, AgentModel]] = field(default_factory=list)
    telling: asyncio.Task[None] | None = None
    """The last `finish` that was started; the next one waits for it."""

    @classmethod
    def load(
        cls, registry: AgentRegistry, name: str, config: pb.ModelConfig, directory: Path
    ) -> AgentSession:
        """Ask every agent. Raises ServingError; those asked so far are told that it failed."""
        session = cls(name)
        try:
            for agent in config.model_repository_agents.agents:
                copy = pb.ModelConfig()
                copy.CopyFrom(config)
                model = AgentModel(name, copy, dict(agent.parameters), session.place(directory))
                session._ask(agent.name, registry.get(agent.name), model)
        except BaseException:
            session.finish(Action.LOAD_FAIL)
            raise
        return session

    def place(self, directory: Path) -> Path:
        """Where the last agent has left the model; `directory` if none was asked."""
        return self._called[-1][2].directory if self._called else directory

    def finish(self, action: Action) -> None:
        """Tell all agents. What they raise is logged: nothing depends on it any more."""
        for name, agent, model in self._called:
            try:
                _call(agent, action, model)
            except Exception:
                logger.exception(
                    "repo agent '%s' failed at %s model=%s", name, action.value, self.name
                )

    def _ask(self, name: str, agent: RepositoryAgent, model: AgentModel) -> None:
        self._called.append((name, agent, model))
        try:
            _call(agent, Action.LOAD, model)
        except ServingError as error:
            raise ModelLoadError(f"repo agent '{name}': {error.message}") from error
        except Exception as error:
            logger.exception("repo agent '%s' failed model=%s", name, self.name)
            raise ModelLoadError(f"repo agent '{name}': {type(error).__name__}: {error}") from error


def _call(agent: RepositoryAgent, action: Action, model: AgentModel) -> None:
    if action not in _NEXT[model.action]:
        before = model.action.value if model.action else "nothing"
        raise InternalError(f"{action.value} of model '{model.name}' cannot follow {before}")
    model.action = action
    agent.model_action(action, model)
