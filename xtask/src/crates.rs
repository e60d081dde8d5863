//! The crates of this workspace, and what each may know of the others. All that is checked of crates goes by these lines, and a crate
//! without one is refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::circles::told;

/// What is known of a crate.
pub(crate) struct Crate {
    /// Its folder.
    pub name: &'static str,
    /// The crates of this workspace that it may depend on.
    pub knows: &'static [&'static str],
}

/// All of them, each below those that it knows.
pub(crate) const CRATES: [Crate; 18] = [
    Crate { name: "types", knows: &[] },
    Crate { name: "sync", knows: &[] },
    Crate { name: "codec", knows: &["types"] },
    Crate { name: "store", knows: &["types", "sync"] },
    Crate { name: "simulation", knows: &["types", "sync", "store"] },
    Crate { name: "ground", knows: &["types", "sync", "codec", "store"] },
    Crate { name: "series", knows: &["types", "sync", "codec", "store", "ground"] },
    Crate { name: "records", knows: &["types", "sync", "codec", "store", "ground"] },
    Crate {
        name: "fuzzing",
        knows: &["types", "codec", "store", "ground", "series", "records", "simulation"],
    },
    Crate { name: "storage", knows: &["types", "sync", "store", "ground", "series", "records"] },
    Crate { name: "questions", knows: &["types", "storage"] },
    Crate { name: "import", knows: &["types"] },
    Crate { name: "plans", knows: &[] },
    Crate { name: "sql", knows: &["types", "storage", "plans"] },
    Crate { name: "server", knows: &["types", "storage", "questions", "import", "sql"] },
    Crate { name: "bench", knows: &["types", "storage"] },
    Crate { name: "cli", knows: &["types", "storage", "import", "sql", "server", "bench"] },
    Crate { name: "python", knows: &["types", "storage", "questions", "import", "sql", "cli"] },
];

impl Crate {
    /// Whether its locks, atomics, threads and instants are those of `tidefall-sync`.
    pub(crate) fn leaves_order_to_sync(&self) -> bool {
        self.knows.contains(&"sync")
    }

    /// Whether it lints in seconds, as DataFusion does not come with it.
    pub(crate) fn is_light(&self) -> bool {
        let has = |heavy| self.name == heavy || self.knows.contains(&heavy);
        !has("plans") && !has("sql")
    }
}

/// Refuses crates that have no line, and lines that have no crate.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let folder = root.join("crates");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&folder).map_err(|error| told(&folder, &error))? {
        let entry = entry.map_err(|error| told(&folder, &error))?;
        if entry.path().join("Cargo.toml").is_file() {
            found.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let listed: BTreeSet<String> = CRATES.iter().map(|one| one.name.to_owned()).collect();
    let different: Vec<&str> = found.symmetric_difference(&listed).map(String::as_str).collect();
    match different.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "crates: {} must be both in crates/ and in xtask/src/crates.rs",
            different.join(", ")
        )),
    }
}
