"""What the documentation site has besides Sphinx (docs/conf.py).

- The navigation is that of docs/index.md: each heading over a table is a caption, each link in the
  first column a page.
- A link to a file or folder of the repository leads to a page with its text. Such pages are made
  for what some page links to; a link to what isn't there is a warning, like any dead link.
- The picture of docs/architecture.md becomes part of the page: it has the page's colours, and its
  links work.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| \[([^\]]*)\]\(([\w./]+)\.md\)", re.MULTILINE)
LANGUAGES = {".py": "python", ".pyi": "python", ".cpp": "cpp", ".h": "cpp", ".toml": "toml"}
SVG_LINK = re.compile(r'(<a [^>]*href=")([^"]+)(")')


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", link_to_code, priority=100)  # before files are collected
    app.connect("env-purge-doc", forget)
    app.connect("html-collect-pages", code_pages)
    app.connect("build-finished", write_start)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}


# ---- navigation


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """The tables of the index once more, as the directives that make the navigation."""
    if docname == "docs/index":
        source[0] += "".join(map(toctree, *zip(*navigation(source[0]), strict=True)))
    elif docname == "docs/decisions/README":
        source[0] += "\n```{toctree}\n:glob:\n:maxdepth: 1\n\n[0-9]*\n```\n"


def navigation(index: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The captions of the index, each with the titles of its pages and where they are."""
    _, *sections = re.split(r"^## ", index, flags=re.MULTILINE)
    found = [(section.partition("\n")[0], ROW.findall(section)) for section in sections]
    return [(caption, pages) for caption, pages in found if pages]


def toctree(caption: str, pages: list[tuple[str, str]]) -> str:
    entries = [f"{title} <{page}>" for title, page in pages]
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```\n"])


# ---- links to code


def linked(app: Sphinx) -> dict[str, set[str]]:
    """The files and folders outside of the documentation that each page links to."""
    if not hasattr(app.env, "linked_code"):
        app.env.linked_code = {}  # type: ignore[attr-defined]
    return app.env.linked_code  # type: ignore[attr-defined, no-any-return]


def forget(app: Sphinx, env: Any, docname: str) -> None:
    linked(app).pop(docname, None)


def address(app: Sphinx, docname: str, path: str) -> str:
    """The address of a file's page, from a page that links to it."""
    linked(app).setdefault(docname, set()).add(path)
    return posixpath.relpath(f"{path}.html", posixpath.dirname(docname) or ".")


def link_to_code(app: Sphinx, doctree: nodes.document) -> None:
    docname = app.env.docname
    links = (addnodes.download_reference, addnodes.pending_xref)  # files, and what may be a folder
    for node in list(doctree.findall(lambda node: isinstance(node, links))):
        path = resolved(docname, node["reftarget"])
        if isinstance(node, addnodes.download_reference) or (ROOT / path).is_dir():
            link = nodes.reference("", "", refuri=address(app, docname, path), internal=True)
            link += node.children
            node.replace_self(link)
    for image in list(doctree.findall(nodes.image)):
        if image["uri"].endswith(".svg"):
            image.replace_self(nodes.raw("", drawing(app, docname, image), format="html"))


def resolved(docname: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(docname), target))


def drawing(app: Sphinx, docname: str, image: nodes.image) -> str:
    """An SVG with its links changed to those of the site."""

    def changed(link: re.Match[str]) -> str:
        path = resolved(docname, link[2])
        return f"{link[1]}{address(app, docname, path)}{link[3]}"

    text = SVG_LINK.sub(changed, (ROOT / resolved(docname, image["uri"])).read_text())
    return f'<figure class="drawing" aria-label="{html.escape(image["alt"])}">\n{text}</figure>\n'


# ---- pages of code


def code_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    paths = {path for paths in linked(app).values() for path in paths}
    for path in sorted(paths):
        file = ROOT / path
        body = folder(path, paths) if file.is_dir() else listing(app, file)
        title = f"<h1>{html.escape(path)}</h1>"
        yield path, {"title": path, "body": title + body, "hide_toc": True}, "page.html"


def listing(app: Sphinx, file: Path) -> str:
    highlighter = app.builder.highlighter  # type: ignore[attr-defined]
    language = LANGUAGES.get(file.suffix, "text")
    return highlighter.highlight_block(file.read_text(), language, linenos=False)  # type: ignore[no-any-return]


def folder(path: str, paths: set[str]) -> str:
    """What the modules of a folder are about. Those that have a page are linked."""
    own = ROOT / path / "__init__.py"
    modules = [file for file in sorted(own.parent.glob("*.py")) if file != own]
    packages = sorted(file.parent for file in own.parent.glob("*/__init__.py"))

    def name(file: Path) -> str:
        shown = f"<code>{file.name}</code>"
        has_page = f"{path}/{file.name}" in paths
        return f'<a href="{own.parent.name}/{file.name}.html">{shown}</a>' if has_page else shown

    entries = [(name(file), file) for file in modules]
    entries += [(name(package), package / "__init__.py") for package in packages]
    rows = [f"<tr><td>{link}</td><td>{about(file)}</td></tr>" for link, file in entries]
    first = f"<p>{about(own)}</p>" if own.exists() else ""
    return f'{first}<table class="docutils"><tbody>{"".join(rows)}</tbody></table>'


def about(module: Path) -> str:
    """The first paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    paragraph = html.escape(" ".join(text.split("\n\n")[0].split()))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", paragraph)


def write_start(app: Sphinx, error: Exception | None) -> None:
    """The first page, for whoever opens the folder of the site."""
    if error is None and app.builder.format == "html":
        page = f"{app.config.root_doc}.html"
        text = f'<!doctype html><meta http-equiv="refresh" content="0; url={page}">'
        Path(app.outdir, "index.html").write_text(text)
