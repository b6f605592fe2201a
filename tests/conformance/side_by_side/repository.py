"""The models of the scenarios: `tests/data/schedulers/*.pbtxt`, made into a model repository.

The first line of a config names the program of the model (`# record.py`), or says `# ensemble`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "schedulers"


def config_of(model: str) -> str:
    return (DATA / f"{model}.pbtxt").read_text(encoding="utf-8")


def parts_of(model: str) -> set[str]:
    """The models that an ensemble calls, itself, and those that its parts call."""
    found = {model}
    for line in config_of(model).splitlines():
        words = line.replace('"', " ").split()
        for key, name in zip(words, words[1:], strict=False):
            if key == "model_name:":
                found |= parts_of(name)
    return found


def write(models: set[str], folder: Path) -> None:
    """A repository with these models and whatever ensembles among them call."""
    for name in sorted(set().union(*(parts_of(model) for model in models))):
        text = config_of(name)
        program = text.partition("\n")[0].removeprefix("# ")
        version = folder / name / "1"
        version.mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(f'name: "{name}"\n{text}', encoding="utf-8")
        if program != "ensemble":
            shutil.copy(DATA / program, version / "model.py")
