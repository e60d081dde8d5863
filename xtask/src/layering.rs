//! Who may know whom: crates by their manifests, modules of the engine by their `use` lines.

use std::fs;
use std::path::Path;

/// For each crate the crates of this workspace that it may depend on.
const CRATES: [(&str, &[&str]); 15] = [
    ("types", &[]),
    ("sync", &[]),
    ("codec", &["types"]),
    ("store", &["types", "sync"]),
    ("ground", &["types", "sync", "codec", "store"]),
    ("series", &["types", "sync", "codec", "store", "ground"]),
    ("simulation", &["types", "sync", "store"]),
    ("fuzzing", &["types", "codec", "store", "ground", "series", "simulation"]),
    ("storage", &["types", "sync", "store", "ground", "series"]),
    ("import", &["types"]),
    ("sql", &["types", "storage", "import"]),
    ("server", &["types", "storage", "import", "sql"]),
    ("cli", &["types", "storage", "import", "sql", "server", "bench"]),
    ("python", &["types", "storage", "import", "sql", "cli"]),
    ("bench", &["types", "storage"]),
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
    for (name, allowed) in CRATES {
        check_crate(root, name, allowed, &mut wrong)?;
    }
    for (module, forbidden) in MODULES {
        let folder = root.join("crates").join(module);
        check_folder(&folder, forbidden, &mut wrong)?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("layering:\n  {}", wrong.join("\n  "))) }
}

fn check_crate(
    root: &Path,
    name: &str,
    allowed: &[&str],
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    let path = root.join("crates").join(name).join("Cargo.toml");
    let manifest = read(&path)?;
    let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
    for line in dependencies.lines() {
        let Some(rest) = line.strip_prefix("tidefall-") else { continue };
        let other = rest.split(['.', ' ', '=']).next().unwrap_or_default();
        if !allowed.contains(&other) {
            wrong.push(format!("crate {name} must not depend on {other}"));
        }
    }
    if name != "sql" && dependencies.contains("datafusion") {
        wrong.push(format!("crate {name} must not know DataFusion"));
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
