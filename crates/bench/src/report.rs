//! Lines of JSON, as `peers/common.py` prints them.

use std::path::{Path, PathBuf};

use tidefall_types::{Error, Result};

/// A result.
pub(crate) struct Report<'a> {
    pub(crate) bench: &'a str,
    pub(crate) settings: String,
    pub(crate) unit: &'a str,
    pub(crate) runs: Vec<f64>,
    /// Further figures, by name.
    pub(crate) more: Vec<(&'a str, f64)>,
}

impl Report<'_> {
    /// Prints the line; spread is (max - min) / median.
    pub(crate) fn print(mut self) {
        self.runs.sort_by(f64::total_cmp);
        let median = self.runs[self.runs.len() / 2];
        let spread = (self.runs[self.runs.len() - 1] - self.runs[0]) / median;
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
pub(crate) fn fresh(work: &Path, name: &str) -> Result<PathBuf> {
    let folder = work.join(name);
    let cleared = match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(&folder),
    };
    cleared.map_err(|error| Error::io("clearing the scratch folder", &error))?;
    Ok(folder)
}
