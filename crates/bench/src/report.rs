//! Lines of JSON, as `peers/common.py` prints them.

use std::path::{Path, PathBuf};

use tidefall_types::{Error, Result};

/// A result.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was measured.
    pub bench: String,
    /// How.
    pub settings: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The figure of each run.
    pub runs: Vec<f64>,
    /// Further figures, by name.
    pub more: Vec<(&'static str, f64)>,
}

impl Report {
    /// The median, and (greatest - least) / median.
    pub fn median_and_spread(&self) -> (f64, f64) {
        let mut runs = self.runs.clone();
        runs.sort_by(f64::total_cmp);
        let median = runs[runs.len() / 2];
        (median, (runs[runs.len() - 1] - runs[0]) / median)
    }

    /// Prints a line of JSON.
    pub fn print(&self) {
        let (median, spread) = self.median_and_spread();
        let more: String =
            self.more.iter().map(|(name, value)| format!(", \"{name}\": {value:.4}")).collect();
        println!(
            "{{\"bench\": {:?}, \"system\": \"Tidefall\", \"version\": \"{}\", \"settings\": {:?}, \
             \"unit\": {:?}, \"runs\": {:.4?}, \"median\": {median:.4}, \"spread\": {spread:.4}{more}}}",
            self.bench,
            env!("CARGO_PKG_VERSION"),
            self.settings,
            self.unit,
            self.runs,
        );
    }
}

/// An empty folder for a run.
///
/// # Errors
/// `Io` when it cannot be made.
pub fn fresh(work: &Path, name: &str) -> Result<PathBuf> {
    let folder = work.join(name);
    let cleared = match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(&folder),
    };
    cleared.map_err(|error| Error::io("clearing the scratch folder", &error))?;
    Ok(folder)
}
