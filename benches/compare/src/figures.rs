//! What is made of the figures of several rounds.

use crate::results::{Better, Row, Series};

/// greenthread's figure, as a multiple of the best peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share<'a> {
    pub of: &'a str,
    pub ratio: f64,
}

/// The figure that as many others are below as above it; `None` of nothing.
pub fn median(figures: &[f64]) -> Option<f64> {
    quantile(figures, 0.5)
}

/// Half of all figures lie between these two.
pub fn quartiles(figures: &[f64]) -> Option<(f64, f64)> {
    Some((quantile(figures, 0.25)?, quantile(figures, 0.75)?))
}

/// The figure below which so great a part of all lies, by linear interpolation.
fn quantile(figures: &[f64], part: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = part * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    Some(below + (above - below) * place.fract())
}

impl Better {
    pub fn best(self, figures: impl IntoIterator<Item = f64>) -> Option<f64> {
        let figures = figures.into_iter();
        match self {
            Better::Lower => figures.min_by(f64::total_cmp),
            Better::Higher => figures.max_by(f64::total_cmp),
        }
    }
}

impl Series {
    pub fn median(&self) -> Option<f64> {
        median(self.figures()?)
    }

    /// Whether greenthread is measured by it. Not those that cannot do what is asked of the others (`loop` is no
    /// runtime, a job of `rayon` cannot wait, `tokio-spot` waits in what is less than tokio has); nor, of
    /// course, greenthread otherwise.
    pub fn is_peer(&self) -> bool {
        !["loop", "rayon", "tokio-spot"].contains(&&*self.contender) && !self.is_ours()
    }

    /// greenthread, or with another policy or driver (`greenthread, NAME`).
    pub fn is_ours(&self) -> bool {
        self.contender.starts_with("greenthread")
    }
}

impl Row {
    pub fn by_medians(&self) -> Option<Share<'_>> {
        self.share(Series::median)
    }

    pub fn by_bests(&self) -> Option<Share<'_>> {
        self.share(|series| self.better.best(series.figures()?.iter().copied()))
    }

    /// The quartiles of greenthread's shares of that peer's figures, round by round: what disturbs
    /// a round disturbs both.
    pub fn spread(&self, peer: &str) -> Option<(f64, f64)> {
        let ours = self.series("greenthread")?.figures()?;
        let theirs = self.series(peer)?.figures()?;
        let shares = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
        quartiles(&shares.collect::<Vec<_>>())
    }

    fn share(&self, figure: impl Fn(&Series) -> Option<f64>) -> Option<Share<'_>> {
        let ours = figure(self.series("greenthread")?)?;
        let peers = self.series.iter().filter(|series| series.is_peer());
        let peers = peers.filter_map(|series| Some((figure(series)?, &*series.contender)));
        let (theirs, of) = match self.better {
            Better::Lower => peers.min_by(|(a, _), (b, _)| a.total_cmp(b)),
            Better::Higher => peers.max_by(|(a, _), (b, _)| a.total_cmp(b)),
        }?;
        let ratio = ours / theirs;
        Some(Share { of, ratio }).filter(|_| ratio.is_finite())
    }
}
