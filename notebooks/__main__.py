"""Run the notebooks and write their outputs into them: ``python -m notebooks [NAME ...]``.

Edit a notebook in Jupyter or as text, run this, look at it, commit it. Execution times, random cell identifiers and
kernel versions are left out, so that a notebook with the same outputs changes no line. Needs the extra ``docs``.
"""

import sys
from pathlib import Path
from time import perf_counter

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def execute(path: Path) -> None:
    """Run one notebook from top to bottom in a fresh kernel, in its folder, and write it back."""
    notebook = nbformat.read(path, as_version=4)
    begun = perf_counter()
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i}"
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(notebook, path)
    print(f"{path.name}: {perf_counter() - begun:.0f} s, {path.stat().st_size / 1000:.0f} kB")


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs with the pieces of each stream joined: where a stream is split is random."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if (
            joined
            and output.output_type == "stream" == joined[-1].output_type
            and output.name == joined[-1].name
        ):
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        execute(FOLDER / f"{name}.ipynb")
