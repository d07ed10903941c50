"""What MkDocs does not do by itself: pages of the API, CONTRIBUTING as a page, and links that leave docs/."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Modules that users import, with a page each.
MODULES = ("ops", "reference", "errors", "frontends", "torch", "relax", "onnxruntime", "metaschedule")
# Pages that lie elsewhere in the repository than on the site.
MOVED = {"contributing.md": "CONTRIBUTING.md"}
ROLE = re.compile(r":[a-z]+:<code>~?")
INLINE = re.compile(r"(?<!<pre>)<code>[^<]*--[^<]*</code>")
OPTION = re.compile(r"--[a-z][a-z-]*")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures that are not in docs/."""
    pages = {"api/tvmconv.md": _api("tvmconv"), **{f"api/{name}.md": _api(f"tvmconv.{name}") for name in MODULES}}
    pages |= {page: (ROOT / path).read_text() for page, path in MOVED.items()}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    for picture in (ROOT / "benchmarks/results").rglob("*.png"):
        files.append(File.generated(config, picture.relative_to(ROOT).as_posix(), abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return a page with its links to other places of the repository led to their place on the site, or to `repo_url`."""
    at = PurePosixPath(page.file.src_uri)
    folder = (ROOT / MOVED.get(str(at), f"docs/{at}")).parent
    uris = {MOVED.get(uri, uri if uri.startswith("benchmarks/") else f"docs/{uri}"): uri for uri in files.src_uris}

    def lead(link: re.Match[str]) -> str:
        target, anchor = link[1], link[2] or ""
        path = Path(os.path.normpath(folder / target))
        if ":" in target or not path.exists():
            return link[0]  # MkDocs tells of what is missing
        inside = path.relative_to(ROOT).as_posix()
        place = os.path.relpath(uris[inside], at.parent) if inside in uris else f"{config.repo_url}/blob/main/{inside}"
        return f"]({place}{anchor})"

    return LINK.sub(lead, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Return a page without the roles of docstrings, which are Sphinx's, and with commands' options in one piece."""
    html = ROLE.sub("<code>", html)
    return INLINE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def _api(module: str) -> str:
    """Return the page of a module: what it defines, and what it imports for its users."""
    path = ROOT / module.replace(".", "/")
    package = path.is_dir()
    tree = ast.parse((path / "__init__.py" if package else path.with_suffix(".py")).read_text())
    names = sorted([*(f"{module}.{name}" for name in _defined(tree)), *(_imported(tree, module) if package else ())])
    text = (ast.get_docstring(tree) or "").replace("::\n", ":\n")
    return "\n\n".join([f"# {module}", text, *(f"::: {name}" for name in names)])


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield where what a package lists in `__all__`, or imports as itself, is defined."""
    lists = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    listed = {item.value for node in lists for item in ast.walk(node.value) if isinstance(item, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            base = ".".join(package.split(".")[: 1 - node.level or None])
            yield from (
                f"{base}.{node.module}.{name.name}" for name in node.names if name.asname or name.name in listed
            )
