//! The picture: panels with logarithmic axes, as SVG, by hand.

use std::fmt::Write;

pub struct Panel {
    pub title: String,
    pub curves: Vec<Curve>,
    /// Names and places of single points.
    pub marks: Vec<(&'static str, f64, f64)>,
}

pub struct Curve {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

const COLUMNS: usize = 2;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const LEGEND: f64 = 40.0;
/// Distinct to the colour-blind (Okabe and Ito).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// All panels in one document, with a legend above them.
pub fn draw(panels: &[Panel]) -> String {
    let rows = panels.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * COLUMNS as f64, HEIGHT * rows as f64 + LEGEND);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    if let Some(panel) = panels.first() {
        for (index, curve) in panel.curves.iter().enumerate() {
            let x = LEFT + 150.0 * index as f64;
            line(&mut svg, &[(x, 22.0), (x + 24.0, 22.0)], colour(index), 2.0);
            text(&mut svg, (x + 30.0, 26.0), "start", curve.name);
        }
    }
    for (index, panel) in panels.iter().enumerate() {
        let (column, row) = (index % COLUMNS, index / COLUMNS);
        let (x, y) = (WIDTH * column as f64, LEGEND + HEIGHT * row as f64);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw_panel(&mut svg, panel);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, panel: &Panel) {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let all = || {
        points()
            .copied()
            .chain(panel.marks.iter().map(|&(_, x, y)| (x, y)))
    };
    let most = all().fold((1.0_f64, 0.0_f64), |most, (x, y)| {
        (most.0.max(x), most.1.max(y))
    });
    let least = all().fold(f64::INFINITY, |least, (_, y)| least.min(y));
    let (low, high) = (
        least.log10().floor(),
        most.1.log10().ceil().max(least.log10().floor() + 1.0),
    );
    let powers = most.0.log2().max(1.0);
    let place = |x: f64, y: f64| {
        let across = x.log2() / powers;
        let up = (y.log10() - low) / (high - low);
        (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )
    };
    text(svg, (LEFT, TOP - 12.0), "start", &panel.title);
    let right = 2.0_f64.powf(powers);
    for decade in low as i32..=high as i32 {
        let y = 10.0_f64.powi(decade);
        line(svg, &[place(1.0, y), place(right, y)], "#ddd", 1.0);
        let (x, at) = place(1.0, y);
        let label = if decade < 0 {
            format!("{y}")
        } else {
            format!("{y:.0}")
        };
        text(svg, (x - 6.0, at + 4.0), "end", &label);
    }
    for power in 0..=powers as i32 {
        let x = 2.0_f64.powi(power);
        let (bottom, top) = (10.0_f64.powf(low), 10.0_f64.powf(high));
        line(svg, &[place(x, bottom), place(x, top)], "#eee", 1.0);
        let (at, y) = place(x, bottom);
        text(svg, (at, y + 16.0), "middle", &format!("{x}"));
    }
    let middle = place(2.0_f64.powf(powers / 2.0), 10.0_f64.powf(low));
    text(svg, (middle.0, middle.1 + 32.0), "middle", "processors");
    for (index, curve) in panel.curves.iter().enumerate() {
        let line_of: Vec<_> = curve.points.iter().map(|&(x, y)| place(x, y)).collect();
        line(svg, &line_of, colour(index), 2.0);
    }
    for &(name, x, y) in &panel.marks {
        let (x, y) = place(x, y);
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"none\" stroke=\"black\" stroke-width=\"1.5\"/>"
        );
        text(svg, (x - 4.0, y - 10.0), "end", name);
    }
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn line(svg: &mut String, points: &[(f64, f64)], colour: &str, width: f64) {
    let list: Vec<_> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let list = list.join(" ");
    let _ = writeln!(
        svg,
        "<polyline points=\"{list}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}
