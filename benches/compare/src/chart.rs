//! A suite's picture, as SVG: a bar for each row, from the best peer's figure to greenthread's, on a
//! logarithmic axis of their ratio.
//!
//! Rows of which lower is better and rows of which higher is better have panels of their own. A bar is blue
//! where greenthread is ahead of the best peer and orange where it is behind, on whichever side of 1.0
//! that is. What lies beyond the axis ends in an arrow; its figure stands beside it.

use std::cmp::Reverse;
use std::fmt::Write;

use crate::results::{Better, Measured, Row};
use crate::suites::Suite;
use crate::targets::Bound;

const WIDTH: f64 = 880.0;
/// Names end and bars begin.
const LEFT: f64 = 300.0;
/// Bars end and figures begin.
const RIGHT: f64 = 742.0;
const HEADER: f64 = 104.0;
const PANEL_HEADER: f64 = 48.0;
const LINE: f64 = 19.0;
const BELOW: f64 = 12.0;

/// Distinct to the colour-blind (Okabe and Ito).
const AHEAD: &str = "#0072b2";
const BEHIND: &str = "#e69f00";
const INK: &str = "#222";
const GREY: &str = "#666";
const PALE: &str = "#f4f4f4";
const GRID: &str = "#ddd";

/// The least and the most that an axis shows, as powers of two.
const WIDEST: (f64, f64) = (-3.0, 3.0);
const NARROWEST: (f64, f64) = (-1.0, 1.0);

/// A row as it is drawn.
struct Bar<'a> {
    name: &'a str,
    ratio: f64,
    /// Where half of the rounds lie.
    spread: Option<(f64, f64)>,
    target: Option<f64>,
    of: &'a str,
    better: Better,
}

impl<'a> Bar<'a> {
    /// `None`: there is nothing to compare.
    fn of(measured: &Measured, row: &'a Row) -> Option<Bar<'a>> {
        let share = row.by_medians()?;
        Some(Bar {
            name: &row.name,
            ratio: share.ratio,
            spread: row.spread(share.of),
            target: Bound::of(measured, row).map(|bound| bound.ratio),
            of: share.of,
            better: row.better,
        })
    }

    fn is_ahead(&self) -> bool {
        match self.better {
            Better::Lower => self.ratio < 1.0,
            Better::Higher => self.ratio > 1.0,
        }
    }

    fn all(&self) -> impl Iterator<Item = f64> {
        let spread = self.spread.into_iter().flat_map(|(low, high)| [low, high]);
        spread.chain(self.target).chain([self.ratio])
    }
}

/// The document under construction.
struct Svg {
    text: String,
    /// The powers of two where the axis begins and ends.
    axis: (f64, f64),
}

pub fn draw(suite: &Suite, measured: &Measured) -> String {
    let rows = measured.rows.iter().filter(|row| row.is_main());
    let bars: Vec<Bar> = rows.filter_map(|row| Bar::of(measured, row)).collect();
    let panels = [Better::Lower, Better::Higher].map(|better| {
        let bars = bars.iter().filter(move |bar| bar.better == better);
        (better, bars.collect::<Vec<_>>())
    });
    let mut panels: Vec<_> = panels.iter().filter(|(_, bars)| !bars.is_empty()).collect();
    panels.sort_by_key(|(_, bars)| Reverse(bars.len()));
    let height = panels.iter().fold(HEADER, |height, (_, bars)| {
        height + PANEL_HEADER + LINE * bars.len() as f64 + BELOW
    });
    let mut svg = Svg {
        text: format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
        ),
        axis: axis(&bars),
    };
    svg.header(suite, measured);
    let mut top = HEADER;
    for (better, bars) in panels {
        svg.panel(top, *better, bars);
        top += PANEL_HEADER + LINE * bars.len() as f64 + BELOW;
    }
    svg.text.push_str("</svg>\n");
    svg.text
}

/// Whole powers of two around all that is drawn, as far as [`WIDEST`] allows.
fn axis(bars: &[Bar]) -> (f64, f64) {
    let powers = || bars.iter().flat_map(Bar::all).map(f64::log2);
    let low = powers().fold(NARROWEST.0, f64::min).floor();
    let high = powers().fold(NARROWEST.1, f64::max).ceil();
    (low.max(WIDEST.0), high.min(WIDEST.1))
}

impl Svg {
    fn header(&mut self, suite: &Suite, measured: &Measured) {
        let title = format!("{}: greenthread beside the best of its peers", suite.title);
        self.words(
            (16.0, 26.0),
            "start",
            INK,
            &title,
            "font-size=\"16\" font-weight=\"bold\"",
        );
        let conditions: Vec<&str> = measured.conditions.split("; ").collect();
        for (i, line) in conditions.chunks(2).enumerate() {
            let place = (16.0, 44.0 + 14.0 * i as f64);
            self.words(place, "start", GREY, &line.join("; "), "font-size=\"10\"");
        }
        // The legend.
        let y = 82.0;
        let mut x = 16.0;
        for (colour, name) in [(AHEAD, "ahead of the best peer"), (BEHIND, "behind it")] {
            self.bar((x, y - 9.0), 22.0, colour);
            self.words((x + 28.0, y), "start", INK, name, "");
            x += 60.0 + 6.6 * name.len() as f64;
        }
        self.whisker((x, x + 22.0), y - 4.0);
        self.words((x + 28.0, y), "start", INK, "half of the rounds", "");
        x += 180.0;
        self.diamond(x + 10.0, y - 4.0);
        self.words((x + 22.0, y), "start", INK, "target", "");
    }

    fn panel(&mut self, top: f64, better: Better, bars: &[&Bar]) {
        let y = top + 14.0;
        let heading = match better {
            Better::Lower => "◂ lower is better",
            Better::Higher => "higher is better ▸",
        };
        self.words(
            (LEFT - 10.0, y + 6.0),
            "end",
            INK,
            heading,
            "font-weight=\"bold\"",
        );
        let (first, last) = (top + PANEL_HEADER, LINE * bars.len() as f64);
        for i in (0..bars.len()).step_by(2) {
            let y = first + LINE * i as f64;
            let width = WIDTH - 32.0;
            let _ = writeln!(
                self.text,
                "<rect x=\"16\" y=\"{y:.1}\" width=\"{width}\" height=\"{LINE}\" fill=\"{PALE}\"/>"
            );
        }
        for power in self.axis.0 as i32..=self.axis.1 as i32 {
            let x = self.x(2.0_f64.powi(power));
            let label = format!("{}", 2.0_f64.powi(power));
            self.words((x, y + 22.0), "middle", GREY, &label, "");
            self.line((x, first - 6.0), (x, first + last), GRID, 1.0);
        }
        let one = self.x(1.0);
        self.words(
            (one, y + 6.0),
            "middle",
            INK,
            "the best peer",
            "font-size=\"10\"",
        );
        for (i, bar) in bars.iter().enumerate() {
            self.row(first + LINE * i as f64, bar);
        }
        self.line((one, first - 8.0), (one, first + last), INK, 1.5);
    }

    fn row(&mut self, top: f64, bar: &Bar) {
        let (middle, base) = (top + LINE / 2.0, top + LINE / 2.0 + 4.0);
        let (one, end) = (self.x(1.0), self.x(bar.ratio));
        let colour = if bar.is_ahead() { AHEAD } else { BEHIND };
        self.words((LEFT - 10.0, base), "end", INK, bar.name, "");
        self.bar((one.min(end), middle - 5.0), (end - one).abs(), colour);
        if let Some((low, high)) = bar.spread {
            self.whisker((self.x(low), self.x(high)), middle);
        }
        if let Some(target) = bar.target {
            self.diamond(self.x(target), middle);
        }
        if self.is_beyond(bar.ratio) {
            let (tip, out) = (end, (end - one).signum());
            let points = [
                (tip + 7.0 * out, middle),
                (tip, middle - 7.0),
                (tip, middle + 7.0),
            ];
            self.polygon(&points, colour);
        }
        let figure = format!("{:.2} of {}", bar.ratio, bar.of);
        self.words((RIGHT + 14.0, base), "start", INK, &figure, "");
    }

    /// Where a ratio is, or the end of the axis that is nearest to it.
    fn x(&self, ratio: f64) -> f64 {
        let (low, high) = self.axis;
        LEFT + (ratio.log2().clamp(low, high) - low) / (high - low) * (RIGHT - LEFT)
    }

    fn is_beyond(&self, ratio: f64) -> bool {
        let power = ratio.log2();
        power < self.axis.0 || power > self.axis.1
    }

    fn bar(&mut self, (x, y): (f64, f64), width: f64, colour: &str) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"10\" fill=\"{colour}\"/>"
        );
    }

    fn whisker(&mut self, (low, high): (f64, f64), y: f64) {
        self.line((low, y), (high, y), INK, 1.2);
        for x in [low, high] {
            self.line((x, y - 3.5), (x, y + 3.5), INK, 1.2);
        }
    }

    fn diamond(&mut self, x: f64, y: f64) {
        self.polygon(
            &[(x, y - 6.0), (x + 4.0, y), (x, y + 6.0), (x - 4.0, y)],
            "#d55e00",
        );
    }

    fn polygon(&mut self, points: &[(f64, f64)], colour: &str) {
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let points = points.join(" ");
        let _ = writeln!(
            self.text,
            "<polygon points=\"{points}\" fill=\"{colour}\" stroke=\"white\" stroke-width=\"0.8\"/>"
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let _ = writeln!(
            self.text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    fn words(&mut self, (x, y): (f64, f64), anchor: &str, colour: &str, words: &str, how: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\" {how}>{words}</text>"
        );
    }
}
