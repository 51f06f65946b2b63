//! The main view, from the top: the program, its threads by state, processors and rates, and two tables.
//!
//! Everything is laid out anew for each size. What does not fit is left out from the bottom, the right, and the
//! less important columns.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table as Rows};

use crate::app::{App, Key, Table, View};
use crate::model::{Model, Processor, RATES, STATES, Summary};
use crate::style::{Theme, bar, fit, number, short, time};

pub fn draw(frame: &mut Frame, app: &mut App) {
    let whole = frame.area();
    let theme = app.theme;
    let [body, keys] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(whole);
    let is_open = app.window.is_some();
    match &app.model.summary {
        None => frame.render_widget(first(app, body), body),
        Some(summary) => {
            let shows = summary
                .processors
                .len()
                .div_ceil(columns(summary, body.width));
            let panel = shows.clamp(4, usize::from(body.height / 4).max(4)) as u16 + 1;
            let [head, panels, busiest, longest] = Layout::vertical([
                Constraint::Length(4),
                Constraint::Length(panel),
                Constraint::Fill(1),
                Constraint::Fill(1),
            ])
            .areas(body);
            frame.render_widget(Paragraph::new(self::head(app, summary, head.width)), head);
            let rates = if panels.width >= 110 { 44 } else { 36 };
            let [left, right] =
                Layout::horizontal([Constraint::Fill(1), Constraint::Length(rates)])
                    .spacing(2)
                    .areas(panels);
            processors(frame, summary, left, theme);
            self::rates(frame, &app.model, right, theme);
            let focus = app.focus;
            table(
                frame,
                &mut app.busiest,
                Table::Busiest,
                focus,
                busiest,
                theme,
            );
            table(
                frame,
                &mut app.longest,
                Table::Longest,
                focus,
                longest,
                theme,
            );
        }
    }
    if let Some(window) = &mut app.window {
        window.draw(frame, body, theme);
    }
    frame.render_widget(footer(is_open, theme), keys);
}

/// Before the first summary.
fn first(app: &App, area: Rect) -> Paragraph<'static> {
    let mut lines = vec![Line::default(); usize::from(area.height / 2).saturating_sub(1)];
    let path = app.path.display();
    lines.push(Line::raw(format!("Waiting for {path}")).centered());
    if let Some(trouble) = &app.model.trouble {
        lines.push(Line::styled(trouble.clone(), app.theme.quiet()).centered());
    }
    Paragraph::new(lines)
}

fn head(app: &App, summary: &Summary, width: u16) -> Vec<Line<'static>> {
    let theme = app.theme;
    let mut title = vec![Span::styled(
        format!(" {}", summary.program),
        theme.strong(),
    )];
    match &app.model.trouble {
        Some(trouble) => {
            let text = format!("  {trouble}; this is what it said last. Trying again.");
            title.push(Span::styled(text, theme.alarm()));
        }
        None => {
            let mut facts = vec![
                format!("process {}", summary.process),
                format!("up {}", time(summary.uptime)),
                format!("{} mode", summary.mode),
            ];
            facts.extend(Some(summary.policy.clone()).filter(|policy| !policy.is_empty()));
            if summary.runtimes > 1 {
                facts.push(format!("{} runtimes", summary.runtimes));
            }
            title.push(Span::styled(
                format!("  {}", facts.join("  ")),
                theme.quiet(),
            ));
        }
    }
    let counts = &summary.counts;
    let all = counts.green + counts.kernel;
    let mut states = vec![Span::styled(
        format!(" {} threads", number(all)),
        theme.strong(),
    )];
    for (state, count) in STATES.iter().zip(counts.by_state) {
        let style = if count == 0 {
            theme.quiet()
        } else {
            theme.state(state)
        };
        let count_style = if count == 0 {
            theme.quiet()
        } else {
            Style::new()
        };
        states.push(Span::styled(format!("   {} ", number(count)), count_style));
        states.push(Span::styled(*state, style));
    }
    let mut waits = vec![Span::styled(" waiting for", theme.quiet())];
    let mut left = usize::from(width).saturating_sub(14);
    for (what, count) in &summary.waits {
        let count = number(*count);
        let needed = 4 + count.len() + what.chars().count();
        if needed > left {
            break;
        }
        left -= needed;
        waits.push(Span::raw(format!("   {count} ")));
        waits.push(Span::styled(what.clone(), theme.quiet()));
    }
    vec![title.into(), states.into(), waits.into(), Line::default()]
}

fn titled(title: Line<'static>, theme: Theme) -> Block<'static> {
    Block::new()
        .borders(Borders::TOP)
        .border_style(theme.quiet())
        .title(title)
}

fn title(text: impl Into<String>, theme: Theme) -> Span<'static> {
    Span::styled(format!(" {} ", text.into()), theme.title())
}

/// In how many columns the processors stand.
fn columns(summary: &Summary, width: u16) -> usize {
    const NARROWEST: u16 = 20;
    match summary.processors.len() {
        ..=8 => 1,
        _ => usize::from((width / 2 / NARROWEST).max(1)),
    }
}

fn processors(frame: &mut Frame, summary: &Summary, area: Rect, theme: Theme) {
    let count = summary.processors.len();
    let queue = format!("global queue {}", short(summary.global_queue));
    let kernel = format!(
        "{} kernel threads, {} idle",
        short(summary.kernel_threads),
        short(summary.idle_kernel_threads)
    );
    let about = match area.width {
        60.. => format!(" {queue}, {kernel} "),
        _ => format!(" {queue} "),
    };
    let block = titled(
        Line::from(title(format!("{count} processors"), theme)),
        theme,
    )
    .title_top(Line::styled(about, theme.quiet()).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if summary.mode == "kernel" {
        let text = " Every thread is a kernel thread: the system schedules them.";
        frame.render_widget(Paragraph::new(text).style(theme.quiet()), inner);
        return;
    }
    let columns = columns(summary, frame.area().width);
    let rows = usize::from(inner.height).max(1);
    let shown = count.min(rows * columns);
    let is_all = shown == count;
    let areas = Layout::horizontal(vec![Constraint::Fill(1); columns])
        .spacing(2)
        .split(inner);
    for (chunk, area) in summary.processors[..shown].chunks(rows).zip(areas.iter()) {
        let is_last = chunk.as_ptr_range().end == summary.processors[..shown].as_ptr_range().end;
        let mut lines: Vec<Line> = chunk
            .iter()
            .map(|processor| line_of(processor, usize::from(area.width), theme))
            .collect();
        if !is_all && is_last {
            let more = format!(" and {} more", count - shown + 1);
            lines.pop();
            lines.push(Line::styled(more, theme.quiet()));
        }
        frame.render_widget(Paragraph::new(lines), *area);
    }
}

fn line_of(processor: &Processor, width: usize, theme: Theme) -> Line<'static> {
    let is_wide = width >= 38;
    // The label, the share, and where there is room the queue and the thread's name.
    let name = if is_wide {
        (width / 3).clamp(10, 24)
    } else {
        0
    };
    let fixed = 4 + 5 + if is_wide { 9 + name } else { 0 };
    let (full, rest) = bar(processor.busy, width.saturating_sub(fixed).clamp(4, 40));
    let mut spans = vec![
        Span::styled(format!("{:>3} ", processor.label), theme.quiet()),
        Span::styled(full, theme.load(processor.busy)),
        Span::styled(rest, theme.quiet()),
        Span::raw(format!("{:>4}%", processor.busy / 10)),
    ];
    if is_wide {
        let style = if processor.queue == 0 {
            theme.quiet()
        } else {
            Style::new()
        };
        spans.push(Span::styled(
            format!("  q {:<4} ", short(processor.queue)),
            style,
        ));
        let (what, style) = match processor.thread.is_empty() {
            true => (&processor.state, theme.state(&processor.state)),
            false => (&processor.thread, theme.state(&processor.state)),
        };
        spans.push(Span::styled(fit(what, name), style));
    }
    spans.into()
}

fn rates(frame: &mut Frame, model: &Model, area: Rect, theme: Theme) {
    let block = titled(Line::from(title("per second", theme)), theme);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    // The first two have curves, of two lines if there is room.
    let height = if inner.height >= 6 { 2 } else { 1 };
    let mut y = inner.y;
    for (i, history) in model.history.iter().enumerate() {
        let has_curve = i < 2;
        let rows = if has_curve { height } else { 1 };
        // The others stand two in a row.
        let half = inner.width / 2;
        let (x, width) = match has_curve {
            true => (inner.x, inner.width),
            false => (inner.x + half * ((i as u16) % 2), half),
        };
        if y + rows > inner.bottom() {
            break;
        }
        let now = history.back().copied();
        let text = now.map_or("…".into(), short);
        let name = format!("{:<11}{text:>5}", RATES[i].1);
        let style = if now.unwrap_or(0) == 0 {
            theme.quiet()
        } else {
            Style::new()
        };
        let place = Rect {
            x,
            y,
            width,
            height: rows,
        };
        frame.render_widget(Paragraph::new(name).style(style), place);
        if has_curve {
            let curve = Rect {
                x: x + 18,
                width: width.saturating_sub(18),
                ..place
            };
            let wide = usize::from(curve.width);
            let data: Vec<u64> = history.iter().rev().take(wide).rev().copied().collect();
            // The newest stands at the right.
            let shift = (wide - data.len()) as u16;
            let curve = Rect {
                x: curve.x + shift,
                width: curve.width - shift,
                ..curve
            };
            frame.render_widget(Sparkline::default().data(&data).style(theme.curve()), curve);
        }
        if has_curve || i % 2 == 1 {
            y += rows;
        }
    }
}

fn table(frame: &mut Frame, view: &mut View, which: Table, focus: Table, area: Rect, theme: Theme) {
    let is_focused = which == focus;
    let (name, own) = match which {
        Table::Busiest => ("busiest", "CPU time"),
        Table::Longest => ("longest waiting", "time"),
    };
    let by = match view.key {
        Key::Own => own,
        Key::Name => "name",
        Key::Wait => "what they wait for",
    };
    let mut heading = title(name, theme);
    if is_focused {
        heading = heading.style(theme.title().patch(theme.strong()));
    }
    let block = titled(Line::from(heading), theme)
        .title_top(Line::styled(format!(" by {by} "), theme.quiet()).right_aligned());
    let is_wide = area.width >= 120;
    let names = if is_wide { 24 } else { 16 };
    let mut widths = vec![
        Constraint::Length(8),
        Constraint::Length(names),
        Constraint::Length(8),
        Constraint::Length(12),
    ];
    let mut titles = vec!["      id", "name", "state"];
    match which {
        Table::Busiest => {
            titles.extend(["    CPU", " turns/s"]);
            widths[3] = Constraint::Length(7);
            widths.push(Constraint::Length(8));
        }
        Table::Longest => titles.push("         for"),
    }
    titles.push("waits for");
    // What is left, but for the gaps.
    let mut waits = usize::from(area.width).saturating_sub(widths.len() * 2);
    for width in &widths {
        if let Constraint::Length(width) = width {
            waits = waits.saturating_sub(usize::from(*width));
        }
    }
    if is_wide {
        titles.push("spawned at");
        waits = waits * 3 / 5;
    }
    widths.push(Constraint::Length(waits as u16));
    widths.push(Constraint::Fill(1));
    let rows = view.rows.iter().map(|thread| {
        let id = match thread.id {
            0 => String::new(),
            id => id.to_string(),
        };
        let mut cells = vec![
            Cell::from(format!("{id:>8}")).style(theme.quiet()),
            Cell::from(fit(&thread.name, names.into())),
            Cell::from(thread.state.clone()).style(theme.state(&thread.state)),
        ];
        match which {
            Table::Busiest => {
                let rate = thread.rate.map(short).unwrap_or_default();
                let busy = format!("{:>4}.{}%", thread.busy / 10, thread.busy % 10);
                cells.push(Cell::from(busy));
                cells.push(Cell::from(format!("{rate:>8}")));
            }
            Table::Longest => cells.push(Cell::from(format!("{:>12}", time(thread.since)))),
        }
        cells.push(Cell::from(fit(&without_address(&thread.waits_for), waits)));
        cells.push(Cell::from(thread.spawned_at.clone()).style(theme.quiet()));
        Row::new(cells)
    });
    let highlight = if is_focused {
        theme.selected()
    } else {
        Style::new()
    };
    let rows = Rows::new(rows, widths)
        .header(Row::new(titles).style(theme.quiet()))
        .column_spacing(2)
        .block(block)
        .row_highlight_style(highlight);
    frame.render_stateful_widget(rows, area, &mut view.state);
}

/// What a thread waits for, without the address of the thing: the window has it.
fn without_address(text: &str) -> String {
    let Some((before, rest)) = text.split_once(" 0x") else {
        return text.into();
    };
    let after = rest.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    format!("{before}{after}")
}

fn footer(is_open: bool, theme: Theme) -> Line<'static> {
    let keys: &[(&str, &str)] = match is_open {
        true => &[
            ("Esc", "close"),
            ("↑↓", "scroll"),
            ("r", "read again"),
            ("q", "quit"),
        ],
        false => &[
            ("↑↓", "select"),
            ("Tab", "other table"),
            ("Enter", "backtrace"),
            ("s", "sort"),
            ("d", "deadlocks"),
            ("q", "quit"),
        ],
    };
    let mut spans = Vec::new();
    for (key, meaning) in keys {
        spans.push(Span::styled(format!(" {key} "), theme.strong()));
        spans.push(Span::styled(format!("{meaning} "), theme.quiet()));
    }
    spans.into()
}
