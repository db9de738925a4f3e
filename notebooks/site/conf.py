"""Sphinx's settings for the site; `bash scripts/docs.sh` builds it. Nothing is fetched at build or view time."""

from __future__ import annotations

import inspect
import os
import re
import struct
import warnings
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx_gallery.scrapers import matplotlib_scraper

import tensorcep
from tensorcep import datasets

logger = logging.getLogger(__name__)

project = "tensorcep"
author = "the tensorcep authors"
copyright = author
version = release = tensorcep.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "jupyter_execute",
    "gallery/*.ipynb",
    "gallery/*/*.ipynb",
    "gallery/*.py",
    "gallery/*/*.py",
]
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions
default_role = "py:obj"  # `name` in a docstring links where there is a page, and is code where there is none
nitpicky = False

html_theme = "pydata_sphinx_theme"
html_title = "tensorcep"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}  # light or dark as the reader's system has it
html_theme_options: dict[str, Any] = {
    "logo": {"text": "tensorcep"},
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "show_nav_level": 1,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars: dict[str, list[str]] = {"index": [], "start": []}

toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 88
autodoc_member_order = "alphabetical"
autodoc_typehints = "none"  # the text of the parameters says it, in words
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# "off": pages without outputs
nb_execution_mode = os.environ.get("TENSORCEP_SITE_RUN", "cache")
nb_execution_cache_path = os.environ.get("TENSORCEP_SITE_CACHE", "")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
# A notebook on downloaded data is shown without outputs where the data are not.
there = {info.name for info in datasets.available() if info.cached}
nb_execution_excludepatterns = [] if "alog" in there else ["**/03_recommender.ipynb"]
nb_ipywidgets_js: dict[str, Any] = {}
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars, and warnings about them

EXAMPLES = Path(os.environ.get("TENSORCEP_EXAMPLES", "../../scripts/examples")).resolve()


def _figure_as_svg(block: Any, variables: Any, conf: Any, **options: Any) -> str:
    """A figure of the gallery, as lines that stay sharp."""
    return str(matplotlib_scraper(block, variables, conf, format="svg", **options))


def _plain(conf: Any, name: str) -> None:
    """Short fits say that they are short."""
    warnings.simplefilter("ignore")


sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": str(EXAMPLES),
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "plot_gallery": nb_execution_mode != "off",
    "image_scrapers": (_figure_as_svg,),
    "reset_modules": ("matplotlib", _plain),
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": (),
    "abort_on_example_error": True,
    "min_reported_time": 1_000_000,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "write_computation_times": False,
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Packages below give these; what the site itself does wrong is an error (-W).
warnings.filterwarnings("ignore", category=DeprecationWarning)
html_math_renderer = "mathml"


def _mathml(translator: Any, node: nodes.Element, block: bool) -> None:
    """Formulas as MathML, which every browser draws by itself."""
    tex = node.astext()
    try:
        text = tex2mathml(tex, as_block=block)
    except MathError as error:
        logger.warning("the formula %r: %s", tex, error, location=node)
        raise nodes.SkipNode from None
    label = translator.encode(re.sub(r"\s+", " ", tex).strip())
    kind = "div" if block else "span"
    translator.body.append(
        f'<{kind} class="math notranslate nohighlight" title="{label}">{text}</{kind}>'
    )
    raise nodes.SkipNode


def _skip(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn brings along: pages are about this package's own methods."""
    home = getattr(obj, "__module__", "") or ""
    if isinstance(obj, property):
        home = getattr(obj.fget, "__module__", "") or ""
    if what == "class" and callable(obj) and not str(home).startswith("tensorcep"):
        return True
    return None


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str,
    returned: str,
) -> Any:
    """A class's own parameters, with their types, where its constructor is a general one."""
    if what != "class" or "*args" not in (signature or ""):
        return None
    parameters = inspect.signature(obj).parameters.values()
    words = [f"{one.name}: {one.annotation}" for one in parameters]
    defaults = [
        "" if one.default is one.empty else f" = {one.default!r}" for one in parameters
    ]
    return (
        f"({', '.join(word + default for word, default in zip(words, defaults, strict=True))})",
        None,
    )


def _proportion(path: Path) -> float:
    """How many times as wide as high a picture is."""
    if path.suffix == ".png":
        width, height = struct.unpack(">II", path.read_bytes()[16:24])
        return float(width / height)
    found = re.search(r'viewBox="0 0 (\S+) (\S+)"', path.read_text(encoding="utf-8"))
    return float(found[1]) / float(found[2]) if found else 1.0


def _mark_wide(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Wide pictures have several panels, too small to read on a phone, where site.css lets them scroll."""
    for image in doctree.findall(nodes.image):
        if _proportion(Path(app.srcdir) / image["uri"]) > 1.8:
            image["classes"].append("wide")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the drawing of formulas, and what reference pages leave out."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda self, node: _mathml(self, node, False), None),
        block_renderers=(lambda self, node: _mathml(self, node, True), None),
    )
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("doctree-resolved", _mark_wide)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
