"""The documentation site: ``make docs`` builds it in docs/_build/html, without a network."""

import inspect
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import glru  # noqa: E402

project = "glru"
author = copyright = "the glru developers"
version = release = glru.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "gallery/**/*.ipynb",
    "gallery/sg_execution_times.rst",
    "sg_execution_times.rst",
    "api/index.txt",
]
root_doc = "index"
nitpicky = False

# Pages

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
copybutton_exclude = ".linenos, .gp, .go"

# Reference

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# Gallery: every example is a script that draws and that the tests run, too.

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(tour|__init__)\.py$",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_memory": False,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
}
suppress_warnings = ["config.cache"]  # the gallery's settings hold nothing that is kept between builds

# Look

html_theme = "pydata_sphinx_theme"
html_title = "glru"
html_static_path = ["_static"]
html_css_files = ["glru.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_copy_source = html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "glru"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "get_started": []}
linkcheck_ignore = [r"https?://.*"]  # only links within the site can be checked without a network

API = HERE / "api"

GROUPS = (
    ("Functions", lambda module, name: name[0].islower() and not module.startswith("glru.datasets")),
    ("Problem and solution", lambda module, name: name in ("Problem", "Solution", "Point")),
    ("Losses", lambda module, name: module.startswith("glru.losses")),
    ("Penalties", lambda module, name: module.startswith("glru.penalties")),
    ("Changes", lambda module, name: module.startswith("glru.changes")),
    ("Estimators", lambda module, name: module.startswith("glru.sklearn.estimators")),
    ("Live models", lambda module, name: module.startswith("glru.live")),
    ("Results", lambda module, name: True),
)
"""Headings of the reference, and which public names stand under each: the first that fits."""


def write_reference(app, config):
    """Write the page that lists every public name, from ``__all__`` of the package and of its public modules."""
    groups = {heading: [] for heading, _ in GROUPS}
    modules = []
    for name in glru.__all__:
        value = getattr(glru, name)
        if inspect.ismodule(value):
            modules.append(value.__name__)
            continue
        place = getattr(value, "__module__", "")
        groups[next(heading for heading, fits in GROUPS if fits(place, name))].append(f"glru.{name}")
    for module in modules:
        members = import_module(module).__all__
        missing = [name for name in members if getattr(glru, name, None) is not getattr(import_module(module), name)]
        if missing:
            groups[f":mod:`{module}`"] = [f"{module}.{name}" for name in missing]
    lines = [
        "API reference",
        "=============",
        "",
        "Every public name. :doc:`../guide/index` says which one answers which question.",
        "",
    ]
    for heading, names in groups.items():
        title = heading.replace(":mod:", "").replace("`", "") if heading.startswith(":mod:") else heading
        lines += [title, "-" * len(title), ""]
        if heading.startswith(":mod:"):
            lines += [(inspect.getdoc(import_module(title)) or "").splitlines()[0], ""]
        lines += [".. autosummary::", "   :toctree:", "", *(f"   {name}" for name in names), ""]
    API.mkdir(exist_ok=True)
    text = "\n".join(lines)
    page = API / "index.rst"
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def draw_figures(app, config):
    """Draw the figures of the guide that are older than the code that draws them."""
    import figures

    figures.draw_missing(HERE / "_figures", layers=read_layers())


def read_layers():
    """The layers of the package, top first, as import-linter checks them."""
    settings = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["tool"]["importlinter"]["contracts"][0]["layers"]


def replace_diagrams(app, name, source):
    """Show the diagram of the layers, which the page has as text, as a picture."""
    source[0] = re.sub(
        r"^```mermaid\n.*?^```$",
        "```{drawn} layers\nThe layers of the package: each imports only from those below it.\n```",
        source[0],
        flags=re.MULTILINE | re.DOTALL,
    )


def inline_math(writer, node):
    """Write a formula within a line as MathML, which browsers draw by themselves."""
    writer.body.append(latex2mathml.tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def block_math(writer, node):
    """Write a displayed formula as MathML."""
    writer.body.append('<div class="math-block">')
    writer.body.append(latex2mathml.tex2mathml(node.astext(), as_block=True))
    writer.body.append("</div>")
    raise nodes.SkipNode


def skip_inherited(app, what, name, value, skip, options):
    """Leave out what the estimators inherit from scikit-learn: its own pages describe that."""
    function = getattr(value, "fget", value)
    foreign = str(getattr(function, "__module__", "")).startswith("sklearn") or name.endswith("_request")
    return True if foreign else None


class Drawn(SphinxDirective):
    """A figure of ``figures.py`` by its name, for light and for dark pages; the content describes it."""

    required_arguments = 1
    has_content = True

    def run(self):
        alt = " ".join(self.content)
        return [
            nodes.image(uri=f"/_figures/{self.arguments[0]}-{theme}.svg", alt=alt, classes=[f"only-{theme}", "drawn"])
            for theme in ("light", "dark")
        ]


def setup(app):
    app.add_directive("drawn", Drawn)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("config-inited", write_reference)  # before Sphinx looks for pages
    app.connect("config-inited", draw_figures)
    app.connect("source-read", replace_diagrams)
    app.connect("autodoc-skip-member", skip_inherited)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
