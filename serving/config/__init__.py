"""The paper half of a model: config.pbtxt text, its findings, completion and decoded form."""

from __future__ import annotations
