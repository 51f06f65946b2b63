//! The window over the tables: a thread's backtrace, or deadlocks. It can be scrolled.

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Padding, Paragraph};
use serde_json::Value;

use crate::link::{Answer, Ask};
use crate::model::Thread;
use crate::style::{Theme, fit, time};

pub struct Window {
    ask: Ask,
    title: String,
    content: Content,
    top: usize,
}

enum Content {
    Awaited,
    Trouble(String),
    Is(Value),
}

impl Window {
    pub fn thread(thread: &Thread) -> Window {
        let kind = if thread.is_green {
            "thread"
        } else {
            "kernel thread"
        };
        Window::new(
            Ask::Thread(thread.id),
            format!("{kind} {} {}", thread.id, thread.name),
        )
    }

    pub fn deadlocks() -> Window {
        Window::new(Ask::Deadlocks, "deadlocks".into())
    }

    fn new(ask: Ask, title: String) -> Window {
        Window {
            ask,
            title,
            content: Content::Awaited,
            top: 0,
        }
    }

    pub fn ask(&self) -> Ask {
        self.ask
    }

    pub fn take(&mut self, ask: Ask, answer: Answer) {
        if ask == self.ask {
            self.content = match answer {
                Answer::Is(value) => Content::Is(value),
                Answer::Refused(reason) | Answer::Gone(reason) => Content::Trouble(reason),
            };
        }
    }

    pub fn key(&mut self, key: KeyCode) {
        self.top = match key {
            KeyCode::Up | KeyCode::Char('k') => self.top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.top.saturating_add(1),
            KeyCode::PageUp => self.top.saturating_sub(10),
            KeyCode::PageDown | KeyCode::Char(' ') => self.top.saturating_add(10),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.top,
        };
    }

    pub fn draw(&mut self, frame: &mut Frame, over: Rect, theme: Theme) {
        let whole = over.centered(
            Constraint::Length((over.width.saturating_sub(8)).clamp(40, 120)),
            Constraint::Percentage(80),
        );
        let block = Block::bordered()
            .border_type(BorderType::Rounded)
            .border_style(theme.title())
            .title(Line::styled(
                format!(" {} ", self.title.trim_end()),
                theme.strong(),
            ))
            .title_bottom(
                Line::styled(" Esc close  ↑↓ scroll  r again ", theme.quiet()).right_aligned(),
            )
            .padding(Padding::horizontal(1));
        let inner = block.inner(whole);
        let width = usize::from(inner.width);
        let lines = match &self.content {
            Content::Awaited => vec![Line::styled("…", theme.quiet())],
            Content::Trouble(reason) => vec![Line::styled(reason.clone(), theme.alarm())],
            Content::Is(value) => match self.ask {
                Ask::Deadlocks => deadlocks(value, width, theme),
                _ => thread(&value["thread"], width, theme),
            },
        };
        self.top = self
            .top
            .min(lines.len().saturating_sub(usize::from(inner.height)));
        let top = u16::try_from(self.top).unwrap_or(u16::MAX);
        frame.render_widget(Clear, whole);
        frame.render_widget(Paragraph::new(lines).block(block).scroll((top, 0)), whole);
    }
}

fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

/// `name      value`, broken over as many lines as it needs.
fn fact(name: &str, value: &str, style: Style, width: usize, theme: Theme) -> Vec<Line<'static>> {
    const NAMES: usize = 12;
    let width = width.saturating_sub(NAMES).max(10);
    let value: Vec<char> = value.chars().collect();
    let parts = value.chunks(width).enumerate();
    let line = |(i, part): (usize, &[char])| {
        let name = if i == 0 { name } else { "" };
        Line::from(vec![
            Span::styled(format!("{name:NAMES$}"), theme.quiet()),
            Span::styled(part.iter().collect::<String>(), style),
        ])
    };
    parts.map(line).collect()
}

fn thread(value: &Value, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let about = Thread::read(value);
    let state = format!("{} for {}", about.state, time(about.since));
    let mut lines = fact("state", &state, theme.state(&about.state), width, theme);
    lines.extend(fact(
        "waits for",
        &about.waits_for,
        Style::new(),
        width,
        theme,
    ));
    lines.extend(fact(
        "spawned at",
        &about.spawned_at,
        Style::new(),
        width,
        theme,
    ));
    lines.push(Line::default());
    let frames = value["frames"].as_array().map_or(&[][..], Vec::as_slice);
    if frames.is_empty() {
        lines.push(Line::styled("its stack cannot be seen", theme.quiet()));
    }
    for (i, frame) in frames.iter().enumerate() {
        lines.push(Line::from(vec![
            Span::styled(format!("{i:>3}  "), theme.quiet()),
            Span::styled(
                fit(text(&frame["function"]), width.saturating_sub(5)),
                theme.strong(),
            ),
        ]));
        if let Some(file) = frame["file"].as_str() {
            let place = match frame["line"].as_u64() {
                Some(line) => format!("{file}:{line}"),
                None => file.to_string(),
            };
            lines.push(Line::styled(
                format!("     {}", fit(&place, width.saturating_sub(5))),
                theme.quiet(),
            ));
        }
    }
    lines
}

fn deadlocks(value: &Value, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let circles = value["deadlocks"].as_array().map_or(&[][..], Vec::as_slice);
    if circles.is_empty() {
        let text = "No threads wait for each other in a circle.";
        return vec![Line::raw(text)];
    }
    let mut lines = Vec::new();
    for circle in circles {
        lines.push(Line::styled("These wait for each other:", theme.alarm()));
        for thread in circle.as_array().map_or(&[][..], Vec::as_slice) {
            let thread = Thread::read(thread);
            let name = format!("  thread {} {}", thread.id, thread.name);
            lines.push(Line::styled(fit(&name, width), theme.strong()));
            let rest = width.saturating_sub(4);
            let wait = format!("waits for {}", thread.waits_for);
            lines.push(Line::raw(format!("    {}", fit(&wait, rest))));
        }
        lines.push(Line::default());
    }
    lines
}
