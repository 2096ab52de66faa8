"""Configuration of Sphinx for the site that scripts/build-docs builds."""
import html
import os
import pathlib

from docutils import nodes
from docutils.parsers.rst import Directive

project = "Muster"
author = "the authors of Muster"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_title = "Muster"
html_static_path = ["static"]
html_css_files = ["muster.css"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "none"
smartquotes = False
# Anchors of headings are those that the usual hosts of repositories make.
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
MERMAID = os.environ.get("MUSTER_MERMAID")
# A wide diagram scrolls and keeps the size of its text.
KINDS = ("flowchart", "sequence", "state")
START = "mermaid.initialize({ startOnLoad: true, theme: 'neutral', %s });" % ", ".join(
    f"{kind}: {{ useMaxWidth: false }}" for kind in KINDS
)


class Mermaid(Directive):
    """A diagram as text, which Mermaid's script replaces by a drawing."""

    has_content = True

    def run(self):
        text = html.escape("\n".join(self.content), quote=False)
        return [nodes.raw("", f'<pre class="mermaid">{text}</pre>', format="html")]


def add_mermaid(app, pagename, templatename, context, doctree):
    """Loads the script only in pages that have a diagram."""
    if MERMAID and 'class="mermaid"' in context.get("body", ""):
        app.add_js_file("mermaid.min.js")
        app.add_js_file(None, body=START)


def copy_mermaid(app, error):
    if MERMAID and not error:
        script = pathlib.Path(app.outdir) / "_static/mermaid.min.js"
        script.write_bytes(pathlib.Path(MERMAID).read_bytes())


def setup(app):
    app.add_directive("mermaid", Mermaid)
    app.connect("html-page-context", add_mermaid)
    app.connect("build-finished", copy_mermaid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
