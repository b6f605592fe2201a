"""`python -m serving`: a stand-alone server that takes tritonserver's options.

`python -m serving validate PATH` checks models instead, `python -m serving backends` lists
backends; neither starts a server.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0 normal, 1 after a bad option or a failed load (CLI-171)."""
    # Imported as needed: a check of models does not wait for all that a server is made of.
    if arguments[:1] == ["validate"]:
        from serving import validate_command

        return validate_command.main(arguments[1:])
    if arguments[:1] == ["backends"]:
        from serving import backends_command

        return backends_command.main(arguments[1:])
    from serving import serve_command

    return serve_command.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
