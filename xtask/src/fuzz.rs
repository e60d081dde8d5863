//! Runs real fuzzers on every target in `fuzz/`, for longer than the tests do.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Outcome, Xtask, run};

/// Seconds for each target if nobody says otherwise.
const SECONDS: u64 = 60;

/// Fuzzes each target for some seconds, from the files of a small real database. What is found is kept
/// in `fuzz/artifacts`, the inputs that reached something new in `fuzz/corpus`.
pub(crate) fn run_all(xtask: &Xtask, seconds: Option<&str>) -> Outcome {
    let seconds = match seconds {
        None => SECONDS,
        Some(text) => text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?,
    };
    let root = &xtask.root;
    write_seeds(xtask, &root.join("fuzz/corpus"))?;
    let mut failed = Vec::new();
    for target in targets(&root.join("fuzz/fuzz_targets"))? {
        println!("fuzzing {target} for {seconds} s");
        let mut fuzz = cargo_fuzz(xtask);
        fuzz.args([&target, "--", &format!("-max_total_time={seconds}")]);
        // Forged text may decode to 256 MiB, and fuzzers keep several copies.
        fuzz.args(["-rss_limit_mb=4096", "-print_final_stats=1"]);
        if run(&mut fuzz).is_err() {
            failed.push(target);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} did not end well; what was found is in fuzz/artifacts",
            failed.join(", ")
        )),
    }
}

/// With a nightly compiler there is the address sanitizer, too; without one the stable compiler is told
/// to allow what coverage needs.
fn cargo_fuzz(xtask: &Xtask) -> Command {
    let has_nightly = Command::new("cargo")
        .args(["+nightly", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&xtask.root).env("CARGO_TARGET_DIR", xtask.target.join("fuzz"));
    // `cargo xtask` has pinned the toolchain that runs it.
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    // C code would be instrumented by the C compiler, too. What GCC makes of zstd then stops under the runtime of
    // LLVM, at a read of a constant array.
    cargo.env("CFLAGS", "-fno-sanitize=address");
    match has_nightly {
        true => cargo.args(["+nightly", "fuzz", "run"]),
        false => cargo.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", "run", "--sanitizer", "none"]),
    };
    cargo
}

fn write_seeds(xtask: &Xtask, corpus: &Path) -> Outcome {
    run(xtask
        .cargo()
        .args(["test", "--release", "--package", "tidefall-storage", "--test", "storage"])
        .args(["the_seeds_of_the_fuzzers"])
        .env("TIDEFALL_CORPUS", corpus))
}

fn targets(dir: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let names = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        Some(path.file_stem()?.to_str()?.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}
