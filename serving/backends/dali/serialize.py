"""`python -m serving.backends.dali.serialize FILE TARGET`: what `@autoserialize` marks in a model's
dali.py, as a serialized pipeline. A process of its own, since it runs the owner's code.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from serving.backends.dali.pipeline import dali


def main() -> int:
    source, target = Path(sys.argv[1]), sys.argv[2]
    dali()
    sys.path.insert(0, str(source.parent))
    spec = importlib.util.spec_from_file_location("conch_dali_model", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    marked = [
        item for item in vars(module).values() if getattr(item, "_is_autoserialize", False) is True
    ]
    if len(marked) != 1:
        sys.stderr.write(
            f"{source.name} must mark one pipeline with @autoserialize, found {len(marked)}\n"
        )
        return 1
    marked[0]().serialize(filename=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
