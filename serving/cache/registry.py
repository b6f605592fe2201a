"""Makes the response cache that --cache-config names: built in, announced by a package, or a file.

A module is imported when its cache is wanted. Once, when the server starts; blocks.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from serving.cache import local
from serving.cache.base import ResponseCache
from serving.cache.store import ENTRY_POINT_GROUP, CacheStore
from serving.cache.store_cache import StoreCache
from serving.clock import Clock
from serving.errors import InvalidArgumentError, ServingError
from serving.options import CacheOptions
from serving.plugin_files import find_class

_LOCAL = "local"
_STORES = {"redis": "serving.cache.redis:RedisStore"}
_FILE = "cache.py"
_CLASS = "Cache"


def open_cache(
    options: CacheOptions | None, loop: asyncio.AbstractEventLoop, clock: Clock
) -> ResponseCache | None:
    """Raises InvalidArgumentError for an unknown name or setting, and where it cannot start."""
    if options is None:
        return None
    name, settings = options.name, options.settings
    if name == _LOCAL:
        return local.make(settings)
    store = _make_store(name, settings, options.directory)
    return StoreCache(name, store, loop, clock)


def _make_store(name: str, settings: Mapping[str, str], directory: Path | None) -> CacheStore:
    try:
        kind = _find(name, directory)
        store = kind(dict(settings))
    except ServingError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"the response cache '{name}' could not be started: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(store, CacheStore):
        raise InvalidArgumentError(
            f"the response cache '{name}' is not a subclass of serving.cache.store.CacheStore"
        )
    return store


def _find(name: str, directory: Path | None) -> Any:
    target = _STORES.get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute)
    kind = find_class(directory, name, _FILE, _CLASS)
    if kind is not None:
        return kind
    for item in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return item.load()
    searched = f", and --cache-directory={directory} has no {name}/{_FILE}" if directory else ""
    raise InvalidArgumentError(
        f"unable to find the response cache '{name}': built in are "
        f"{', '.join(sorted([_LOCAL, *_STORES]))}, no installed package announces it under the "
        f"entry point group '{ENTRY_POINT_GROUP}'{searched}"
    )
