//! The program in a pseudo-terminal, looking at the demo: keys are typed, and the screen is read.
//!
//! `GT_PICTURE=docs/top.svg cargo test -p greenthread-top picture` draws the picture of the documents anew.

mod support;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use support::{demo, socket, top};

const DOWN: &str = "\x1b[B";
const ESCAPE: &str = "\x1b";

/// The line that contains all of `words`.
fn line<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    text.lines()
        .find(|line| words.iter().all(|word| line.contains(word)))
}

fn shows(words: &[&str]) -> impl Fn(&str) -> bool {
    move |text| line(text, words).is_some()
}

#[test]
fn the_screen_shows_processors_and_threads() {
    let path = socket("screen");
    let _demo = demo(&path, &[]);
    let mut top = top(&path, 30, 100, true);
    top.until(
        "the program",
        shows(&["demo", "process", "green mode", "work-stealing"]),
    );
    let text = top.until("the hog on a processor", shows(&["%", " q ", "pricing"]));
    assert!(text.contains("2 processors"), "{text}");
    top.until("rates", |text| {
        line(text, &["switches"]).is_some_and(|line| !line.contains('…'))
    });
    top.until(
        "the hog among the busiest",
        shows(&["pricing", "running", ".", "%"]),
    );
    top.keys("	s");
    let wait = ["clerk-", "parked", "mutex", "held by thread"];
    top.until("who waits for what", shows(&wait));
    top.until("a sleeper", shows(&["auditor", "parked", "sleep"]));
    top.until(
        "states",
        shows(&["threads", "running", "ready", "blocked", "parked", "new"]),
    );
    top.keys("q");
    assert!(top.end().success());
    assert!(
        !top.screen().alternate_screen(),
        "the terminal is as before"
    );
    assert!(!top.screen().hide_cursor());
}

#[test]
fn enter_opens_the_backtrace_of_the_selected_thread() {
    let path = socket("backtrace");
    let _demo = demo(&path, &[]);
    let mut top = top(&path, 30, 100, true);
    top.until("the tables", shows(&["clerk-"]));
    // By name, so that the clerk stands where it stands.
    top.keys("\ts");
    top.until("the order", shows(&["longest waiting", "by name"]));
    open(&mut top, "clerk-1");
    top.until("the function", shows(&["write_to_ledger"]));
    let text = top.text();
    assert!(line(&text, &["clerk-1", "╭"]).is_some(), "{text}");
    assert!(line(&text, &["state", "parked for"]).is_some(), "{text}");
    assert!(line(&text, &["waits for", "mutex"]).is_some(), "{text}");
    assert!(line(&text, &["spawned at", "demo.rs"]).is_some(), "{text}");
    assert!(line(&text, &["demo.rs:"]).is_some(), "{text}");
    top.keys(ESCAPE);
    top.until("the tables again", |text| !text.contains("write_to_ledger"));
    // A thread that runs.
    top.keys("\t");
    open(&mut top, "pricing");
    top.until("the hog's function", shows(&["compute_prices"]));
    top.keys("\x03");
    assert!(top.end().success());
}

/// Opens the backtrace of the thread of this name. The rows may change places between the look at the selection and the key:
/// then it is another thread's, and the next attempt follows.
fn open(top: &mut support::Terminal, name: &str) {
    for _ in 0..5 {
        select(top, name);
        top.keys("\r");
        let text = top.until("a backtrace", shows(&["╭ thread"]));
        if line(&text, &["╭ thread", name]).is_some() {
            return;
        }
        top.keys(ESCAPE);
        top.until("the tables", |text| !text.contains("╭ thread"));
    }
    panic!("{name} cannot be opened:\n{}", top.text());
}

/// Moves the selection to the thread of this name.
fn select(top: &mut support::Terminal, name: &str) {
    for _ in 0..5 {
        top.keys("\x1b[H");
        // The selection may stand elsewhere until the key has come.
        top.until_screen("the first row selected", |screen| {
            let first = selected_row(screen).and_then(|row| row.checked_sub(1));
            first.is_some_and(|row| shows(&["id", "name", "state"])(&row_text(screen, row)))
        });
        for _ in 0..60 {
            // While a frame is drawn there may be no selection.
            top.until_screen("a selection", |screen| selected(screen).is_some());
            let now = selected(&top.screen());
            if now.as_deref() == Some(name) {
                return;
            }
            top.keys(DOWN);
            // At the end it stays where it is.
            let mut looks = (0..30).map(|_| {
                thread::sleep(Duration::from_millis(100));
                selected(&top.screen())
            });
            if looks.all(|later| later == now) {
                break;
            }
        }
    }
    panic!("{name} cannot be selected:\n{}", top.text());
}

fn selected_row(screen: &vt100::Screen) -> Option<u16> {
    let is_selected = |row: &u16| screen.cell(*row, 10).is_some_and(vt100::Cell::inverse);
    (0..screen.size().0.get()).find(is_selected)
}

fn row_text(screen: &vt100::Screen, row: u16) -> String {
    screen.contents_between(row, 0, row, screen.size().1.get())
}

/// The name in the selected row.
fn selected(screen: &vt100::Screen) -> Option<String> {
    let row = selected_row(screen)?;
    let name = screen.contents_between(row, 10, row, 26);
    Some(name.trim().to_string())
}

#[test]
fn deadlocks_are_shown() {
    let path = socket("deadlocks");
    let _demo = demo(&path, &["0", "deadlock"]);
    let mut top = top(&path, 24, 80, true);
    top.until("the tables", shows(&["clerk-"]));
    top.keys("d");
    let text = top.until("the circle", shows(&["These wait for each other"]));
    for name in ["left", "right"] {
        assert!(line(&text, &["thread", name]).is_some(), "{text}");
    }
    top.keys("q");
    assert!(top.end().success());
}

#[test]
fn small_and_large_screens() {
    let path = socket("sizes");
    let _demo = demo(&path, &["2000"]);
    let mut top = top(&path, 24, 80, true);
    for (rows, columns) in [(24, 80), (60, 200), (10, 40), (3, 12), (1, 1), (24, 80)] {
        top.resize(rows, columns);
        if columns >= 80 {
            top.until("the tables", |text| {
                shows(&["busiest"])(text)
                    && shows(&["longest waiting"])(text)
                    && shows(&["quit"])(text)
            });
        }
        thread::sleep(Duration::from_millis(200));
        // A window does not fit into the smallest, either.
        top.keys("d");
        thread::sleep(Duration::from_millis(200));
        top.keys(ESCAPE);
    }
    top.until("the crowd", shows(&["2,0", "threads"]));
    top.keys("q");
    assert!(top.end().success());
}

#[test]
fn a_program_that_goes_and_comes_again() {
    let path = socket("again");
    let mut top = top(&path, 24, 80, true);
    top.until("why there is nothing", shows(&["there is no such socket"]));
    let first = demo(&path, &[]);
    top.until("the first", shows(&["pricing"]));
    drop(first);
    top.until("that it has gone", shows(&["demo", "Trying again"]));
    let second = demo(&path, &[]);
    let process = format!("process {}", second.0.id());
    top.until("the second", shows(&["demo", &process]));
    top.keys("q");
    assert!(top.end().success());
}

#[test]
fn no_color() {
    let path = socket("colour");
    let _demo = demo(&path, &[]);
    for has_colour in [true, false] {
        let mut top = top(&path, 30, 100, has_colour);
        top.until("the tables", shows(&["pricing", "%"]));
        let screen = top.screen();
        let cells = (0..30).flat_map(|row| (0..100).map(move |column| (row, column)));
        let mut cells = cells.filter_map(|(row, column)| screen.cell(row, column));
        let coloured = cells.any(|cell| {
            cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default
        });
        assert_eq!(coloured, has_colour);
        top.keys("q");
        assert!(top.end().success());
    }
}

#[test]
fn picture() {
    let Some(to) = std::env::var_os("GT_PICTURE") else {
        return println!("GT_PICTURE names no file");
    };
    let path = socket("picture");
    let _demo = demo(&path, &["1000000"]);
    let mut top = top(&path, 32, 116, true);
    top.until("the tables", shows(&["clerk-"]));
    // The crowd takes its time to come to rest.
    let begun = Instant::now();
    while !shows(&["threads", " 0 new"])(&top.text()) && begun.elapsed().as_secs() < 300 {
        thread::sleep(Duration::from_secs(1));
    }
    thread::sleep(Duration::from_secs(20));
    top.keys("\t");
    thread::sleep(Duration::from_millis(300));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::write(root.join(&to), support::picture::svg(&top.screen())).expect("a picture");
    select(&mut top, "clerk-1");
    top.keys("\r");
    top.until("the function", shows(&["write_to_ledger"]));
    if let Some(window) = std::env::var_os("GT_PICTURE_WINDOW") {
        std::fs::write(root.join(window), support::picture::svg(&top.screen())).expect("a picture");
    }
}
