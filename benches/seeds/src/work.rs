//! What is measured, and its names on the command line and in the table.

use std::fmt;
use std::time::Duration;

use tokio::sync::Notify;

use crate::blocking::{OnGreenthread, OnMay, OnStd};
use crate::cforall::{RING, churn, cycle, locality, yields};
use crate::report::Report;
use crate::runtime::{Runtime, Spawner, measure};
use crate::storm::{create, matmult, skynet, storm};
use crate::tasks::{OnRayon, OnSmol, OnTokio, Spot};
use crate::transfer::{Wait, transfer};

/// A benchmark of the seeds, and its number: of rings, threads, chains, spawners, leaves, rows.
#[derive(Clone, Copy, PartialEq)]
pub struct Work {
    pub kind: Kind,
    pub n: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Create,
    Storm,
    Matmult,
    Skynet,
    Cycle,
    Yield,
    Churn,
    LocalityOwn,
    LocalityShared,
    TransferYield,
    TransferPark,
}

const KINDS: [(Kind, &str); 11] = [
    (Kind::Create, "create"),
    (Kind::Storm, "storm"),
    (Kind::Matmult, "matmult"),
    (Kind::Skynet, "skynet"),
    (Kind::Cycle, "cycle"),
    (Kind::Yield, "yield"),
    (Kind::Churn, "churn"),
    (Kind::LocalityOwn, "locality-own"),
    (Kind::LocalityShared, "locality-shared"),
    (Kind::TransferYield, "transfer-yield"),
    (Kind::TransferPark, "transfer-park"),
];

impl Work {
    /// All there is to measure with so many workers: few threads and many, as in the thesis.
    pub fn all(workers: usize) -> Vec<Work> {
        let many = 100 * workers;
        let works = [
            (Kind::Create, 1),
            (Kind::Create, workers),
            (Kind::Storm, 1),
            (Kind::Storm, workers),
            (Kind::Matmult, 256),
            (Kind::Skynet, 1_000_000),
            (Kind::Cycle, workers),
            (Kind::Cycle, many),
            (Kind::Yield, workers),
            (Kind::Yield, many),
            (Kind::Churn, many),
            (Kind::LocalityOwn, many),
            (Kind::LocalityShared, many),
            (Kind::TransferYield, 200),
            (Kind::TransferPark, 200),
        ];
        let mut works = works.map(|(kind, n)| Work { kind, n }).to_vec();
        works.dedup();
        works
    }

    pub fn parse(kind: &str, n: &str) -> Option<Work> {
        let (kind, _) = KINDS.into_iter().find(|&(_, name)| name == kind)?;
        let n = n.parse().ok().filter(|&n| n > 0)?;
        Some(Work { kind, n })
    }

    pub fn kind_name(self) -> &'static str {
        let named = KINDS.into_iter().find(|&(kind, _)| kind == self.kind);
        named.expect("every kind has a name").1
    }

    /// Whether a runtime can do it.
    pub fn is_for(self, runtime: &str) -> bool {
        match runtime {
            "rayon" => matches!(self.kind, Kind::Create | Kind::Storm),
            // As tokio, where nobody parks.
            "tokio-spot" => matches!(
                self.kind,
                Kind::Cycle
                    | Kind::Churn
                    | Kind::LocalityOwn
                    | Kind::LocalityShared
                    | Kind::TransferPark
            ),
            // A kernel thread for each: measured where the others differ from it most.
            "std" => matches!(self.kind, Kind::TransferYield | Kind::TransferPark),
            _ => true,
        }
    }

    /// How long to measure it if others take `time`: one transfer can take as long as that.
    pub fn time(self, time: Duration) -> Duration {
        match self.kind {
            Kind::TransferYield | Kind::TransferPark => 4 * time,
            _ => time,
        }
    }

    /// Measures it in this process. `None`: no such runtime, or it cannot do this.
    pub fn measure(self, runtime: &str, workers: usize, time: Duration) -> Option<Report> {
        match runtime {
            "greenthread" => Some(self.on::<OnGreenthread>(workers, time)),
            "tokio" => Some(self.on::<OnTokio<Notify>>(workers, time)),
            "tokio-spot" => Some(self.on::<OnTokio<Spot>>(workers, time)),
            "smol" => Some(self.on::<OnSmol>(workers, time)),
            "may" => Some(self.on::<OnMay>(workers, time)),
            "std" => Some(self.on::<OnStd>(workers, time)),
            "rayon" => self.spawning_on::<OnRayon>(workers, time),
            _ => None,
        }
    }

    fn spawning_on<S: Spawner>(self, workers: usize, time: Duration) -> Option<Report> {
        let n = self.n;
        match self.kind {
            Kind::Create => Some(measure::<S, _>(workers, time, move |t| create::<S>(n, t))),
            Kind::Storm => Some(measure::<S, _>(workers, time, move |t| storm::<S>(n, t))),
            _ => None,
        }
    }

    fn on<R: Runtime>(self, workers: usize, time: Duration) -> Report {
        /// Each has a future of its own type.
        macro_rules! measured {
            ($work:expr) => {
                measure::<R, _>(workers, time, $work)
            };
        }
        let n = self.n;
        match self.kind {
            Kind::Create => measured!(move |t| create::<R>(n, t)),
            Kind::Storm => measured!(move |t| storm::<R>(n, t)),
            Kind::Matmult => measured!(move |t| matmult::<R>(n, t)),
            Kind::Skynet => measured!(move |t| skynet::<R>(n, t)),
            Kind::Cycle => measured!(move |t| cycle::<R>(n, t)),
            Kind::Yield => measured!(move |t| yields::<R>(n, t)),
            Kind::Churn => measured!(move |t| churn::<R>(n, t)),
            Kind::LocalityOwn => measured!(move |t| locality::<R>(n, false, t)),
            Kind::LocalityShared => measured!(move |t| locality::<R>(n, true, t)),
            Kind::TransferYield => measured!(move |t| transfer::<R>(n, Wait::Yield, t)),
            Kind::TransferPark => measured!(move |t| transfer::<R>(n, Wait::Park, t)),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.n;
        match self.kind {
            Kind::Create => write!(f, "CreateGoroutines, {n} in parallel"),
            Kind::Storm => write!(f, "spawn storm by {n}"),
            Kind::Matmult => write!(f, "Matmult {n} × {n}"),
            Kind::Skynet => write!(f, "skynet, {n} leaves"),
            Kind::Cycle => write!(f, "Cycle, {n} rings of {RING}"),
            Kind::Yield => write!(f, "Yield, {n} threads"),
            Kind::Churn => write!(f, "Churn, {n} threads"),
            Kind::LocalityOwn => write!(f, "Locality, {n} threads, own data"),
            Kind::LocalityShared => write!(f, "Locality, {n} threads, shared data"),
            Kind::TransferYield => write!(f, "Transfer, {n} threads yield"),
            Kind::TransferPark => write!(f, "Transfer, {n} threads park"),
        }
    }
}
