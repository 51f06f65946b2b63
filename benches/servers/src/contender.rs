//! Who takes part.

use std::env;
use std::path::PathBuf;

use crate::{Options, go};

/// A runtime with its settings.
pub struct Contender {
    /// Its name in the tables.
    pub name: String,
    /// What it is called on the command line of its program.
    pub runtime: &'static str,
    pub program: PathBuf,
    pub environment: Vec<(String, String)>,
}

/// Greenthread with other settings: a name, and environment variables.
pub struct Variant {
    name: String,
    environment: Vec<(String, String)>,
}

impl Contender {
    /// Whether it is one of those that greenthread is compared with.
    pub fn is_peer(&self) -> bool {
        !["greenthread", "loop"].contains(&self.runtime)
    }
}

impl Variant {
    /// `NAME:VARIABLE=VALUE,...`
    pub fn parse(word: &str) -> Option<Variant> {
        let (name, variables) = word.split_once(':')?;
        let environment = variables
            .split(',')
            .map(|variable| {
                let (name, value) = variable.split_once('=')?;
                Some((name.to_string(), value.to_string()))
            })
            .collect::<Option<_>>()?;
        Some(Variant {
            name: name.to_string(),
            environment,
        })
    }
}

/// All that the options ask for and this machine has.
pub fn all(options: &Options) -> Vec<Contender> {
    let me = env::current_exe().expect("no path to this program");
    let contender = |runtime: &'static str, name: &str| Contender {
        name: name.to_string(),
        runtime,
        program: me.clone(),
        environment: Vec::new(),
    };
    let mut all = vec![contender("greenthread", "greenthread")];
    all.extend(options.variants.iter().map(|variant| Contender {
        environment: variant.environment.clone(),
        ..contender("greenthread", &variant.name)
    }));
    all.extend(["tokio", "hyper", "std", "loop"].map(|name| contender(name, name)));
    all.push(contender("go", "Go"));
    let asked_for = |contender: &Contender| {
        options.servers.is_empty() || options.servers.contains(&contender.name)
    };
    all.retain(asked_for);
    if let Some(i) = all.iter().position(|contender| contender.runtime == "go") {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/go");
        match go::build(source, me.with_file_name("go-server")) {
            Some(program) => all[i].program = program,
            None => drop(all.remove(i)),
        }
    }
    all
}
