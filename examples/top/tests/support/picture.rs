//! A screen as an SVG picture.

use std::fmt::Write;

use vt100::{Cell, Color, Screen};

const WIDTH: f32 = 8.0;
const HEIGHT: f32 = 17.0;
const MARGIN: f32 = 12.0;

const BACK: &str = "#16191f";
const FRONT: &str = "#c9d1d9";
/// The terminal's colours: the dark ones, and the light ones.
const COLOURS: [&str; 16] = [
    "#0b0d10", "#e5696f", "#7fbf6a", "#d7b35f", "#6ca3e0", "#bd8ade", "#58b7c2", "#aab4bf", //
    "#626c78", "#ff8086", "#9bdc85", "#efcb74", "#86bbf5", "#d5a4f2", "#71d2dd", "#f0f4f8",
];

#[derive(Clone, PartialEq)]
struct Look {
    front: &'static str,
    back: &'static str,
    is_bold: bool,
}

fn colour(of: Color, otherwise: &'static str) -> &'static str {
    match of {
        Color::Idx(index) => COLOURS
            .get(usize::from(index))
            .copied()
            .unwrap_or(otherwise),
        _ => otherwise,
    }
}

fn look(cell: &Cell) -> Look {
    let (front, back) = (colour(cell.fgcolor(), FRONT), colour(cell.bgcolor(), BACK));
    let (front, back) = match cell.inverse() {
        true => (back, front),
        false => (front, back),
    };
    Look {
        front,
        back,
        is_bold: cell.bold(),
    }
}

/// Draws the screen.
pub fn svg(screen: &Screen) -> String {
    let (rows, columns) = (screen.size().0.get(), screen.size().1.get());
    let width = f32::from(columns) * WIDTH + 2.0 * MARGIN;
    let height = f32::from(rows) * HEIGHT + 2.0 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACK}\"/>\n"
    );
    for row in 0..rows {
        let mut run: Option<(u16, Look, String)> = None;
        for column in 0..=columns {
            let cell = screen.cell(row, column).filter(|_| column < columns);
            let next = cell.map(|cell| (look(cell), cell.contents()));
            if let (Some((_, now, text)), Some((look, more))) = (&mut run, &next)
                && now == look
            {
                text.push_str(if more.is_empty() { " " } else { more });
                continue;
            }
            if let Some((from, look, text)) = run.take() {
                write_run(&mut out, row, from, &look, &text);
            }
            run = next.map(|(look, text)| {
                let text = if text.is_empty() { " " } else { text };
                (column, look, text.to_string())
            });
        }
    }
    out.push_str("</svg>\n");
    out
}

fn write_run(out: &mut String, row: u16, from: u16, look: &Look, text: &str) {
    let y = MARGIN + f32::from(row) * HEIGHT;
    let x = |column: usize| MARGIN + column as f32 * WIDTH;
    let length = text.chars().count();
    let from = usize::from(from);
    if look.back != BACK {
        let (x, width) = (x(from), length as f32 * WIDTH);
        let back = look.back;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\" fill=\"{back}\"/>"
        );
    }
    // Each word at its place: fonts differ.
    let mut word: Option<(usize, String)> = None;
    for (i, sign) in text.chars().chain([' ']).enumerate() {
        match (&mut word, sign) {
            (Some((_, word)), sign) if sign != ' ' => word.push(sign),
            (None, sign) if sign != ' ' => word = Some((i, sign.into())),
            _ => {}
        }
        let Some((start, word)) = word.take_if(|_| sign == ' ') else {
            continue;
        };
        if let Some(shape) = shape(&word) {
            draw_shape(out, x(from + start), y, &word, shape, look.front);
            continue;
        }
        let weight = if look.is_bold {
            " font-weight=\"600\""
        } else {
            ""
        };
        let word_length = word.chars().count() as f32 * WIDTH;
        let word = word
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" fill=\"{}\"{weight} textLength=\"{word_length}\">{word}</text>",
            x(from + start),
            y + 12.5,
            look.front
        );
    }
}

/// How signs that fill their cells are drawn, since a font may leave gaps.
#[derive(Clone, Copy)]
enum Shape {
    /// A line of this thickness.
    Line(f32),
    /// Columns of a curve.
    Blocks,
}

fn shape(word: &str) -> Option<Shape> {
    let all = |from: char, to: char| word.chars().all(|sign| (from..=to).contains(&sign));
    match word {
        _ if all('─', '─') => Some(Shape::Line(1.0)),
        _ if all('━', '━') => Some(Shape::Line(5.0)),
        _ if all('▁', '█') => Some(Shape::Blocks),
        _ => None,
    }
}

fn draw_shape(out: &mut String, x: f32, y: f32, word: &str, shape: Shape, colour: &str) {
    let length = word.chars().count() as f32 * WIDTH;
    match shape {
        Shape::Line(thickness) => {
            let y = y + (HEIGHT - thickness) / 2.0;
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{length}\" height=\"{thickness}\" fill=\"{colour}\"/>"
            );
        }
        Shape::Blocks => {
            for (i, sign) in word.chars().enumerate() {
                let height = (sign as u32 - '▁' as u32 + 1) as f32 / 8.0 * HEIGHT;
                let (x, y) = (x + i as f32 * WIDTH, y + HEIGHT - height);
                let _ = writeln!(
                    out,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" fill=\"{colour}\"/>"
                );
            }
        }
    }
}
