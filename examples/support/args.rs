//! Command lines: `--name VALUE` or `--name=VALUE`, each with a default; `--help`.
//!
//! An argument that is not understood ends the program with status 2, and a message names it and what
//! is wrong with it.

use std::fmt::Display;
use std::io::{self, Write};
use std::str::FromStr;
use std::time::Duration;

/// Name, kind of value, default, and purpose.
pub(crate) type Opt = (&'static str, &'static str, &'static str, &'static str);

pub(crate) struct Args {
    about: &'static str,
    options: Vec<(Opt, String)>,
}

impl Args {
    /// Reads the command line `given`, program name included. `options` come first in the help.
    pub(crate) fn parse(
        about: &'static str,
        options: &[Opt],
        given: impl Iterator<Item = String>,
    ) -> Args {
        let options = options.iter().map(|&o| (o, o.2.to_string())).collect();
        let mut args = Args { about, options };
        let mut given = given.skip(1);
        while let Some(word) = given.next() {
            let Some(option) = word.strip_prefix("--") else {
                wrong(format!("'{word}': expected an option, --NAME VALUE"));
            };
            if option == "help" {
                args.help();
            }
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (option, None),
            };
            let Some(known) = args.options.iter_mut().find(|known| known.0.0 == name) else {
                wrong(format!("--{name}: there is no such option"));
            };
            match value.or_else(|| given.next()) {
                Some(value) => known.1 = value,
                None => wrong(format!("--{name}: the value ({}) is missing", known.0.1)),
            }
        }
        args
    }

    /// The value of an option that was declared.
    pub(crate) fn get<T: FromStr<Err: Display>>(&self, name: &str) -> T {
        let text = self.text(name);
        text.parse()
            .unwrap_or_else(|error| wrong(format!("--{name} '{text}': {error}")))
    }

    /// A number that is at least 1.
    pub(crate) fn count(&self, name: &str) -> usize {
        match self.get(name) {
            0 => wrong(format!("--{name} '0': must be at least 1")),
            count => count,
        }
    }

    /// A length of time in seconds; fractions are welcome.
    pub(crate) fn seconds(&self, name: &str) -> Duration {
        match Duration::try_from_secs_f64(self.get(name)) {
            Ok(time) if (1..1 << 30).contains(&time.as_millis()) => time,
            _ => wrong(format!(
                "--{name} '{}': expected seconds, from 0.001 to a million",
                self.text(name)
            )),
        }
    }

    fn text(&self, name: &str) -> &str {
        let option = self.options.iter().find(|option| option.0.0 == name);
        &option.expect("an option that was declared").1
    }

    fn help(&self) -> ! {
        let mut text = format!("{}\n\nOptions:\n", self.about);
        for ((name, value, default, help), _) in &self.options {
            let left = format!("--{name} {value}");
            text += &format!("  {left:24} {help} [{default}]\n");
        }
        text += &format!("  {:24} this\n", "--help");
        let _ = io::stdout().write_all(text.as_bytes()); // `print!` panics if the pipe is closed
        std::process::exit(0)
    }
}

/// Ends the program because of its command line.
pub(crate) fn wrong(message: impl Display) -> ! {
    super::say(format!("{message} (--help tells more)"));
    std::process::exit(2)
}
