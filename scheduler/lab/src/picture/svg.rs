//! Writer of SVG.

use std::fmt::{self, Write as _};

/// Number of hues that most colour-blind readers can tell apart, the most different ones first
/// (after Okabe and Ito).
pub const HUES: usize = 8;

/// Light and dark values of all CSS variables of the pictures.
pub const THEME: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2430;--soft:#5d6b7c;--line:#d9dfe6;--band:#f4f6f9;\
--c0:#2f7fc1;--c1:#e58606;--c2:#1a9f77;--c3:#c9609d;--c4:#d1492e;--c5:#6b5fc7;--c6:#a08a16;--c7:#3fb3c9;--other:#98a3b0}\
@media(prefers-color-scheme:dark){:root{--paper:#12171e;--ink:#e6ebf1;--soft:#9aa7b6;--line:#2d3743;--band:#191f28;\
--c0:#5aa9e6;--c1:#f4a340;--c2:#3cc79a;--c3:#e389bd;--c4:#f0735a;--c5:#9a8ff0;--c6:#cdb743;--c7:#6fd3e6;--other:#6f7b89}}";

/// Styles of the classes of a picture.
const STYLE: &str = "\
.picture{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;background:var(--paper)}\
.picture text{fill:var(--ink);font-size:12px}.picture .title{font-size:16px;font-weight:600}\
.picture .soft{fill:var(--soft);font-size:11px}.picture .end{text-anchor:end}.picture .middle{text-anchor:middle}\
.picture .grid{stroke:var(--line);stroke-width:1;fill:none}.picture .axis{stroke:var(--soft);stroke-width:1;fill:none}\
.picture .band{fill:var(--band)}.picture .bar{stroke:var(--paper);stroke-width:.5}.picture .bar:hover{stroke:var(--ink);stroke-width:1.5}\
.picture .thin{stroke:none}.picture .s1{fill-opacity:.84}.picture .s2{fill-opacity:.7}.picture .s3{fill-opacity:.92}\
.picture .in-bar{fill:#fff;paint-order:stroke;stroke:rgba(0,0,0,.45);stroke-width:2px;font-size:8px;pointer-events:none}\
.picture .curve{fill:none;stroke-width:2.2;stroke-linejoin:round}.picture .area{fill:var(--other);opacity:.75}";

/// Unfinished picture.
#[derive(Debug)]
pub struct Svg {
    text: String,
}

/// Escapes text for use between tags and inside quotes.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

/// Length with a precision of a hundredth of a pixel, without trailing zeros.
#[derive(Debug, Clone, Copy)]
struct Px(f64);

/// Upper left corner and size.
#[derive(Debug, Clone, Copy)]
pub struct SvgFrame {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Svg {
    /// Starts a picture; `what` is its text for screen readers.
    pub fn new(width: f64, height: f64, what: &str) -> Self {
        let mut svg = Self {
            text: String::new(),
        };
        let (w, h) = (Px(width), Px(height));
        svg.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" role=\"img\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
height=\"{h}\">\n<title>{}</title>\n<style>{THEME}{STYLE}</style>\n",
            Escaped(what)
        ));
        svg.rect(
            SvgFrame {
                x: 0.0,
                y: 0.0,
                width,
                height,
            },
            "",
            "var(--paper)",
            None,
        );
        svg
    }

    /// Rectangle; `title` is its tooltip.
    pub fn rect(&mut self, frame: SvgFrame, class: &str, fill: &str, title: Option<&str>) {
        self.put(format_args!("<rect"));
        for (name, value) in [("class", class), ("fill", fill)] {
            if !value.is_empty() {
                self.put(format_args!(" {name}=\"{}\"", Escaped(value)));
            }
        }
        self.put(format_args!(
            " x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
            Px(frame.x),
            Px(frame.y),
            Px(frame.width),
            Px(frame.height)
        ));
        match title {
            Some(title) => self.put(format_args!("><title>{}</title></rect>\n", Escaped(title))),
            None => self.put(format_args!("/>\n")),
        }
    }

    /// Ellipse inside the frame.
    pub fn dot(&mut self, frame: SvgFrame, fill: &str, title: &str) {
        let (rx, ry) = (frame.width / 2.0, frame.height / 2.0);
        self.put(format_args!(
            "<ellipse cx=\"{}\" cy=\"{}\" rx=\"{}\" ry=\"{}\" fill=\"{}\" stroke=\"var(--paper)\"><title>{}</title></ellipse>\n",
            Px(frame.x + rx),
            Px(frame.y + ry),
            Px(rx),
            Px(ry),
            Escaped(fill),
            Escaped(title)
        ));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.put(format_args!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n",
            Px(from.0),
            Px(from.1),
            Px(to.0),
            Px(to.1),
            Escaped(class)
        ));
    }

    /// Line through the points. `dash` has the format of `stroke-dasharray`, empty for none.
    pub fn curve(&mut self, points: &[(f64, f64)], stroke: &str, dash: &str, title: &str) {
        self.put(format_args!(
            "<path class=\"curve\" stroke=\"{}\" stroke-dasharray=\"{}\" d=\"",
            Escaped(stroke),
            if dash.is_empty() { "none" } else { dash }
        ));
        self.points(points);
        self.put(format_args!(
            "\"><title>{}</title></path>\n",
            Escaped(title)
        ));
    }

    /// Filled area inside the points.
    pub fn area(&mut self, points: &[(f64, f64)], class: &str) {
        self.put(format_args!("<path class=\"{}\" d=\"", Escaped(class)));
        self.points(points);
        self.put(format_args!("Z\"/>\n"));
    }

    pub fn text(&mut self, at: (f64, f64), class: &str, text: &str) {
        self.put(format_args!(
            "<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>\n",
            Px(at.0),
            Px(at.1),
            Escaped(class),
            Escaped(text)
        ));
    }

    /// Text that runs upwards with its middle at `at`.
    pub fn upright(&mut self, at: (f64, f64), class: &str, text: &str) {
        let (x, y) = (Px(at.0), Px(at.1));
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" class=\"{} middle\" transform=\"rotate(-90 {x} {y})\">{}</text>\n",
            Escaped(class),
            Escaped(text)
        ));
    }

    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn points(&mut self, points: &[(f64, f64)]) {
        for (index, &(x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            self.put(format_args!("{command}{} {}", Px(x), Px(y)));
        }
    }

    fn put(&mut self, what: fmt::Arguments<'_>) {
        let Ok(()) = self.text.write_fmt(what) else {
            unreachable!("a String takes whatever is written");
        };
    }
}

/// Colour of the n-th element; the hues repeat.
pub fn hue(index: usize) -> String {
    format!("var(--c{})", index % HUES)
}

/// Approximate width of a text in pixels; no font is available to measure it.
pub fn width_of(text: &str, size_px: f64) -> f64 {
    text.chars().count() as f64 * size_px * 0.58
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' | '\r' => f.write_char(character)?,
                // XML 1.0 does not allow these characters, not even escaped.
                control if control < ' ' || matches!(control, '\u{fffe}' | '\u{ffff}') => {
                    f.write_char('\u{fffd}')?;
                }
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shortest form of an f64; -0 becomes 0.
        write!(f, "{}", (self.0 * 100.0).round() / 100.0 + 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Escaped, Px, Svg, SvgFrame};

    #[test]
    fn names_of_users_are_escaped_in_svg() {
        let evil = "a<b>&\"'\u{0}\u{1b}é";
        assert_eq!(
            Escaped(evil).to_string(),
            "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd}é"
        );
        let mut svg = Svg::new(10.0, 10.0, "</title><script>");
        let frame = SvgFrame {
            x: 0.0,
            y: 0.0,
            width: 1.0,
            height: 1.0,
        };
        svg.rect(frame, "bar\" onclick=\"x", "red", Some("<b>"));
        svg.text((0.0, 0.0), "soft", "<script>");
        let text = svg.finish();
        assert!(
            !text.contains("<script>") && !text.contains("onclick=\""),
            "{text}"
        );
    }

    #[test]
    fn lengths_have_two_decimals_at_most() {
        assert_eq!(Px(1.0 / 3.0).to_string(), "0.33");
        assert_eq!(Px(12.0).to_string(), "12");
        assert_eq!(Px(-0.001).to_string(), "0");
    }
}
