//! Who may know whom: crates by their manifests, modules of the engine by their `use` lines.

use std::fs;
use std::path::Path;

use super::crates::{CRATES, Crate};

/// Who alone may depend on what is not ours: each outside world has its own crates.
const OUTSIDE_WORLDS: [(&str, &[&str]); 4] = [
    ("datafusion", &["plans", "sql"]),
    ("axum", &["server"]),
    ("hyper", &["server"]),
    ("pyo3", &["python"]),
];

/// Modules that must not know others of their crate or of the ground, or crates: models do not know each other, and what
/// lies below does not know what stands on it.
const MODULES: [(&str, &[&str]); 6] = [
    ("series/src/kv", &["segment", "cascade", "read", "ingest", "manifest", "wal", "store"]),
    ("series/src/segment", &["kv", "cascade", "read", "ingest", "wal"]),
    ("series/src/read", &["cascade", "ingest", "wal"]),
    ("series/src/ingest", &["cascade"]),
    ("ground/src/wal", &["manifest"]),
    ("ground/src/manifest", &["wal"]),
];

pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    for one in &CRATES {
        check_crate(root, one, &mut wrong)?;
    }
    for (module, forbidden) in MODULES {
        let folder = root.join("crates").join(module);
        check_folder(&folder, forbidden, &mut wrong)?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("layering:\n  {}", wrong.join("\n  "))) }
}

fn check_crate(root: &Path, one: &Crate, wrong: &mut Vec<String>) -> Result<(), String> {
    let path = root.join("crates").join(one.name).join("Cargo.toml");
    let manifest = read(&path)?;
    let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
    for line in dependencies.lines() {
        let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if let Some(other) = dependency.strip_prefix("tidefall-")
            && !one.knows.contains(&other)
        {
            wrong.push(format!("crate {} must not depend on {other}", one.name));
        }
        for (outside, owners) in OUTSIDE_WORLDS {
            if dependency.starts_with(outside) && !owners.contains(&one.name) {
                wrong.push(format!("crate {} must not know {dependency}", one.name));
            }
        }
    }
    Ok(())
}

fn check_folder(folder: &Path, forbidden: &[&str], wrong: &mut Vec<String>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.is_dir() {
            check_folder(&path, forbidden, wrong)?;
            continue;
        }
        let source = read(&path)?;
        for other in forbidden {
            let places = ["crate::", "tidefall_ground::", "tidefall_"];
            if places.iter().any(|place| source.contains(&format!("{place}{other}::"))) {
                wrong.push(format!("{} must not know {other}", path.display()));
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
