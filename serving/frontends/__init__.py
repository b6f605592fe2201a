"""Thin adapters that put the protocol's routes and RPCs on sockets."""

from __future__ import annotations
