//! Shows the green threads of a running program, live.
//!
//!     GREENTHREAD_OBSERVE=unix:/run/user/1000/shop.sock shop &
//!     cargo run -p greenthread-top -- /run/user/1000/shop.sock
//!
//! | file | idea |
//! |---|---|
//! | `main` | keys, and when the screen is drawn |
//! | `link` | the connection to the program |
//! | `model` | what the program has said |
//! | `app` | what the user looks at: tables, selection, an open window |
//! | `screen`, `window`, `style` | drawing |

mod app;
mod link;
mod model;
mod screen;
mod style;
mod window;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use app::App;
use link::Link;

/// How often the program is asked.
const REFRESH: Duration = Duration::from_secs(1);
/// How often it is looked whether an answer has come.
const PACE: Duration = Duration::from_millis(50);

const USAGE: &str = "usage: greenthread-top PATH

Shows the threads of a program that was started with GREENTHREAD_OBSERVE=unix:PATH.";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(path), None) = (arguments.next(), arguments.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if path == "--help" || path == "-h" {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let path = path.to_string_lossy();
    let path = PathBuf::from(path.strip_prefix("unix:").unwrap_or(&path));
    let terminal = match ratatui::try_init() {
        Ok(terminal) => terminal,
        Err(error) => {
            eprintln!("greenthread-top: no terminal: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = run(terminal, App::new(Link::new(path.clone()), path));
    ratatui::restore();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("greenthread-top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut terminal: DefaultTerminal, mut app: App) -> io::Result<()> {
    let mut ask_at = Instant::now();
    let mut is_old = true;
    loop {
        if Instant::now() >= ask_at {
            app.refresh();
            ask_at = Instant::now() + REFRESH;
        }
        is_old |= app.take_answers();
        if is_old {
            terminal.draw(|frame| screen::draw(frame, &mut app))?;
            is_old = false;
        }
        if !event::poll(PACE)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if is_end(&key) {
                    return Ok(());
                }
                app.key(key.code);
                is_old = true;
            }
            Event::Resize(..) => is_old = true,
            _ => {}
        }
    }
}

fn is_end(key: &KeyEvent) -> bool {
    let control_c = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    key.code == KeyCode::Char('q') || control_c
}
