//! What the user looks at: which table and which thread are selected, how the tables are sorted, and the window that
//! is open, if any.

use std::cmp::Reverse;
use std::path::PathBuf;

use ratatui::crossterm::event::KeyCode;
use ratatui::widgets::TableState;

use crate::link::{Answer, Ask, Link};
use crate::model::{Model, Summary, Thread};
use crate::style::Theme;
use crate::window::Window;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Busiest,
    Longest,
}

/// By what a table is sorted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// CPU time, or waiting time: what the table is about.
    Own,
    Name,
    Wait,
}

/// The selection in one table.
pub struct View {
    pub key: Key,
    /// The selected thread stays selected when it moves to another row.
    pub selected: Option<u64>,
    pub state: TableState,
    pub rows: Vec<Thread>,
}

pub struct App {
    link: Link,
    pub path: PathBuf,
    pub model: Model,
    pub theme: Theme,
    pub focus: Table,
    pub busiest: View,
    pub longest: View,
    pub window: Option<Window>,
    /// A summary was asked for, and has not come.
    is_waiting: bool,
}

impl App {
    pub fn new(link: Link, path: PathBuf) -> App {
        App {
            link,
            path,
            model: Model::default(),
            theme: Theme::from_environment(),
            focus: Table::Busiest,
            busiest: View::new(),
            longest: View::new(),
            window: None,
            is_waiting: false,
        }
    }

    /// Asks for a summary, unless the last one has not come yet.
    pub fn refresh(&mut self) {
        if !self.is_waiting {
            self.is_waiting = true;
            self.link.ask(Ask::Summary);
        }
    }

    /// Takes what has come. Whether there was something.
    pub fn take_answers(&mut self) -> bool {
        let mut any = false;
        while let Some((ask, answer)) = self.link.answer() {
            any = true;
            self.is_waiting &= ask != Ask::Summary;
            match (ask, answer) {
                (Ask::Summary, Answer::Is(summary)) => {
                    self.model.take(&summary);
                    self.fill();
                }
                (Ask::Summary, Answer::Refused(reason) | Answer::Gone(reason)) => {
                    self.model.trouble = Some(reason);
                }
                (ask, answer) => {
                    if let Some(window) = &mut self.window {
                        window.take(ask, answer);
                    }
                }
            }
        }
        any
    }

    fn fill(&mut self) {
        let Some(Summary {
            busiest, longest, ..
        }) = &self.model.summary
        else {
            return;
        };
        self.busiest.fill(busiest, |thread| thread.busy);
        self.longest.fill(longest, |thread| thread.since);
    }

    pub fn view(&mut self) -> &mut View {
        match self.focus {
            Table::Busiest => &mut self.busiest,
            Table::Longest => &mut self.longest,
        }
    }

    pub fn key(&mut self, key: KeyCode) {
        if let Some(window) = &mut self.window {
            match key {
                KeyCode::Esc | KeyCode::Enter => self.window = None,
                KeyCode::Char('r') => self.link.ask(window.ask()),
                key => window.key(key),
            }
            return;
        }
        match key {
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
                self.focus = match self.focus {
                    Table::Busiest => Table::Longest,
                    Table::Longest => Table::Busiest,
                };
                self.view().go(0);
            }
            KeyCode::Up | KeyCode::Char('k') => self.view().go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.view().go(1),
            KeyCode::PageUp => self.view().go(-10),
            KeyCode::PageDown => self.view().go(10),
            KeyCode::Home => self.view().go(isize::MIN),
            KeyCode::End => self.view().go(isize::MAX),
            KeyCode::Char('s') => {
                let view = self.view();
                view.key = view.key.next();
                self.fill();
            }
            KeyCode::Char('d') => self.open(Window::deadlocks()),
            KeyCode::Enter => {
                let thread = self.view().selected();
                if let Some(thread) = thread {
                    self.open(Window::thread(&thread));
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, window: Window) {
        self.link.ask(window.ask());
        self.window = Some(window);
    }
}

impl View {
    fn new() -> View {
        View {
            key: Key::Own,
            selected: None,
            state: TableState::new(),
            rows: Vec::new(),
        }
    }

    fn fill(&mut self, threads: &[Thread], own: fn(&Thread) -> u64) {
        self.rows = threads.to_vec();
        match self.key {
            Key::Own => self.rows.sort_by_key(|thread| Reverse(own(thread))),
            // Those without a name come last.
            Key::Name => self
                .rows
                .sort_by_key(|t| (t.name.is_empty(), t.name.clone(), t.id)),
            Key::Wait => self
                .rows
                .sort_by_key(|t| (t.waits_for.is_empty(), t.waits_for.clone(), t.id)),
        }
        let place = self
            .rows
            .iter()
            .position(|row| Some(row.id) == self.selected);
        let last = self.rows.len().checked_sub(1);
        let place = place.or(self.state.selected()).zip(last);
        self.select(place.map(|(place, last)| place.min(last)));
    }

    fn select(&mut self, place: Option<usize>) {
        self.state.select(place);
        self.selected = place.and_then(|place| Some(self.rows.get(place)?.id));
    }

    /// Moves the selection by so many rows.
    fn go(&mut self, by: isize) {
        let Some(last) = self.rows.len().checked_sub(1) else {
            return;
        };
        let place = match self.state.selected() {
            Some(place) => place.saturating_add_signed(by),
            None => 0,
        };
        self.select(Some(place.min(last)));
    }

    fn selected(&self) -> Option<Thread> {
        let row = self.rows.get(self.state.selected().unwrap_or(0))?;
        Some(row.clone())
    }
}

impl Key {
    fn next(self) -> Key {
        match self {
            Key::Own => Key::Name,
            Key::Name => Key::Wait,
            Key::Wait => Key::Own,
        }
    }
}
