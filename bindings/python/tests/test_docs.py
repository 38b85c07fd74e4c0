"""Pages of the book that are about Python: their programs and commands are run, their output is compared."""

import os
import re
import sys
from pathlib import Path

import pytest

import page as pages
import sheaf

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str) -> list[tuple[str, str, str]]:
    return pages.blocks(DOCS / page)


def test_the_tutorial_runs_as_written(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sheaf").symlink_to(sheaf.program())
    (tools / "python3").symlink_to(sys.executable)
    # A link to the Python of an environment does not find its packages by itself.
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": paths}
    folder = tmp_path / "work"
    folder.mkdir()
    assert pages.follow(DOCS / "tutorials/python.md", folder, environment) == 3


@pytest.mark.parametrize("page", ["how-to/python.md", "tutorials/python.md"])
def test_every_block_of_python_is_python(page):
    for kind, _, text in blocks(page):
        if kind == "python":
            compile(text, page, "exec")


@pytest.mark.parametrize("what", ["def test_my_analysis", "class MostFree"])
def test_examples_of_the_guide_run(what, capsys):
    (text,) = [text for kind, _, text in blocks("how-to/python.md") if kind == "python" and what in text]
    names: dict[str, object] = {}
    exec(text, names)
    if "test_my_analysis" in names:
        names["test_my_analysis"]()
    else:
        assert "MostFree" in capsys.readouterr().out


def test_names_of_the_guide_are_there():
    text = (DOCS / "how-to/python.md").read_text()
    for name in set(re.findall(r"\bsheaf\.([A-Za-z_]+)\b(?!\.md)", text)) - {"py", "data"}:
        assert hasattr(sheaf, name), name


def test_stubs_and_package_have_the_same_names():
    stubs = (Path(__file__).parents[1] / "python/sheaf/_sheaf.pyi").read_text()
    classes = set(re.findall(r"^class (\w+)", stubs, re.MULTILINE))
    native = {name for name in dir(sheaf._sheaf) if isinstance(getattr(sheaf._sheaf, name), type)}
    assert classes == native
    for name in classes:
        body = re.search(rf"^class {name}\b.*?(?=^class |^def |\Z)", stubs, re.DOTALL | re.MULTILINE)
        assert body is not None
        stated = set(re.findall(r"def (\w+)\(", body[0])) - {"__new__", "__buffer__", "__enter__"}
        missing = {method for method in stated if not hasattr(getattr(sheaf._sheaf, name), method)}
        public = {method for method in vars(getattr(sheaf._sheaf, name)) if not method.startswith("_")}
        assert not missing and public <= stated, (name, missing, public - stated)
