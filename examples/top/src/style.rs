//! Colours, and numbers and times in words. With `NO_COLOR` in the environment there are none: bold, dim and reversed
//! text is left.

use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy)]
pub struct Theme {
    has_colour: bool,
}

impl Theme {
    pub fn from_environment() -> Theme {
        let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Theme {
            has_colour: !is_set,
        }
    }

    fn colour(self, colour: Color) -> Style {
        match self.has_colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    /// What is there to structure the screen.
    pub fn quiet(self) -> Style {
        match self.has_colour {
            true => Style::new().fg(Color::DarkGray),
            false => Style::new().add_modifier(Modifier::DIM),
        }
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Titles.
    pub fn title(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub fn selected(self) -> Style {
        // The whole row looks alike, whatever the colours of its cells.
        Style::new()
            .fg(Color::Reset)
            .add_modifier(Modifier::REVERSED)
            .remove_modifier(Modifier::DIM)
    }

    pub fn alarm(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn state(self, state: &str) -> Style {
        match state {
            "running" => self.colour(Color::Green),
            "ready" | "new" | "scheduling" => self.colour(Color::Yellow),
            "blocked" => self.colour(Color::Magenta),
            _ => self.quiet(),
        }
    }

    /// How full something is, in thousandths.
    pub fn load(self, thousandths: u64) -> Style {
        match thousandths {
            ..900 => self.colour(Color::Green),
            _ => self.colour(Color::Yellow),
        }
    }

    pub fn curve(self) -> Style {
        self.colour(Color::Blue)
    }
}

/// `12,345`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `12.3k`: at most five characters.
pub fn short(value: u64) -> String {
    let (unit, sign) = match value {
        ..10_000 => return value.to_string(),
        10_000..1_000_000 => (1_000, 'k'),
        1_000_000..1_000_000_000 => (1_000_000, 'M'),
        _ => (1_000_000_000, 'G'),
    };
    match value / unit {
        whole @ 100.. => format!("{whole}{sign}"),
        whole => format!("{whole}.{}{sign}", value % unit * 10 / unit),
    }
}

/// A time, to some digits.
pub fn time(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds}.{} s", millis % 1000 / 100),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// As much of `text` as fits, with a sign if that is not all.
pub fn fit(text: &str, width: usize) -> String {
    match text.chars().count() {
        count if count <= width => text.into(),
        _ => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
    }
}

/// A bar: the full part, and the rest.
pub fn bar(thousandths: u64, width: usize) -> (String, String) {
    let full = (thousandths.min(1000) as usize * width + 500) / 1000;
    ("━".repeat(full), "─".repeat(width - full))
}
