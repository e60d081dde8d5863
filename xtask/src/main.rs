//! One entry for building, checking and testing Tidefall: `cargo xtask <task>`.
//!
//! Tasks build the whole workspace into one target directory below the home directory's cache, so that DataFusion is compiled once, with one
//! set of features, for every checkout. `threads` and `fuzz` compile what they run in ways of their own, and have their own target directories.

mod circles;
mod crates;
mod fuzz;
mod layering;
mod threads;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str = "usage: cargo xtask <task>
  demo   build Tidefall and run its demo on real data
  ci     everything that must hold: format, lints, layering, all tests
  tidy   format, layering, and lints of the crates below DataFusion
  build  the release binary; prints where it is
  edit   as build, in parts of which only those that an edit has changed are compiled again
  bench  Tidefall beside other databases; writes docs/benchmarks.md; takes an hour and more
  fuzz   [seconds] fuzzers on every target, 60 s each; needs `cargo install cargo-fuzz`
  threads [seconds] threads in thousands of orders, 8 s for each scenario
  threads replay FILE SCENARIO  one of these orders again, from the file that a failure has named";

type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let xtask = Xtask::new();
    let outcome = match task.as_str() {
        "demo" => xtask.demo(),
        "ci" => xtask.ci(),
        "tidy" => xtask.tidy(),
        "build" => xtask.build().map(|binary| println!("{}", binary.display())),
        "edit" => xtask.edit(),
        "bench" => xtask.bench(),
        "fuzz" => fuzz::run_all(&xtask, std::env::args().nth(2).as_deref()),
        "threads" => threads::run_all(&xtask, &std::env::args().skip(2).collect::<Vec<_>>()),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

struct Xtask {
    root: PathBuf,
    target: PathBuf,
}

impl Xtask {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let home = std::env::var_os("HOME").map_or_else(|| root.to_owned(), PathBuf::from);
        let cache =
            std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
        Self { root: root.to_owned(), target: cache.join("tidefall").join("target") }
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    fn build(&self) -> Result<PathBuf, String> {
        run(self.cargo().args(["build", "--release", "--workspace", "--bin", "tidefall"]))?;
        Ok(self.target.join("release").join("tidefall"))
    }

    /// Many small units of our own crates: they take longer from nothing, and run a little slower, but an edit changes few of them.
    fn edit(&self) -> Outcome {
        let mut cargo = self.cargo();
        cargo.args(["build", "--release", "--workspace", "--bin", "tidefall"]);
        cargo.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64");
        run(&mut cargo)
    }

    fn demo(&self) -> Outcome {
        let binary = self.build()?;
        run(Command::new(binary).current_dir(&self.root).arg("demo"))
    }

    fn check_text(&self) -> Outcome {
        run(self.cargo().args(["fmt", "--all", "--check"]))?;
        crates::check(&self.root)?;
        layering::check(&self.root)?;
        circles::check(&self.root)?;
        threads::check(&self.root)
    }

    fn tidy(&self) -> Outcome {
        self.check_text()?;
        let mut clippy = self.cargo();
        clippy.arg("clippy").arg("--all-targets");
        for one in crates::CRATES.iter().filter(|one| one.is_light()) {
            clippy.args(["--package", &format!("tidefall-{}", one.name)]);
        }
        run(clippy.args(["--package", "xtask", "--", "--deny", "warnings"]))
    }

    fn ci(&self) -> Outcome {
        self.check_text()?;
        run(checking(self.cargo().args(["test", "--release", "--workspace"])))?;
        let binary = ["build", "--release", "--workspace", "--bin", "tidefall"];
        run(checking(self.cargo().args(binary)))?;
        threads::run_all(self, &[])?;
        self.test_package()?;
        self.ask_random_questions()?;
        let binary = self.target.join("release").join("tidefall");
        let large = self.large_data();
        // The project must stand alone: the carried data are enough, also where there are more.
        self.compare_with_duckdb(&binary, None)?;
        match large {
            Some(data) => self.compare_with_duckdb(&binary, Some(&data)),
            None => Ok(()),
        }
    }

    /// Installs the Python package into its environment, as `pip install .` does for everyone, and runs its
    /// tests there.
    fn test_package(&self) -> Outcome {
        let python = self.python(&["package"])?;
        run(checking(&mut self.install_package(&python)))?;
        run(Command::new(python).current_dir(&self.root).args([
            "-m",
            "pytest",
            "-q",
            "tests/python",
        ]))
    }

    /// Asks the package and DuckDB thousands of random questions.
    fn ask_random_questions(&self) -> Outcome {
        let python = self.python(&["package"])?;
        run(Command::new(python).current_dir(&self.root).arg("tests/differential/run.py"))
    }

    /// `pip install .`, which finds DataFusion compiled.
    fn install_package(&self, python: &Path) -> Command {
        let mut pip = Command::new(python);
        pip.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "."]);
        pip
    }

    /// Asks Tidefall and DuckDB the same questions about the carried data, or about what lies in a
    /// folder; its closing line is that of the whole run.
    fn compare_with_duckdb(&self, binary: &Path, data: Option<&Path>) -> Outcome {
        let python = self.python(&[])?;
        let mut compare = Command::new(python);
        compare.current_dir(&self.root).arg("tests/duckdb/run.py").arg("--binary").arg(binary);
        if let Some(data) = data {
            compare.arg("--data").arg(data);
        }
        run(&mut compare)
    }

    fn bench(&self) -> Outcome {
        let binary = self.build()?;
        let engine = ["build", "--release", "--workspace", "--bin", "tidefall-bench"];
        run(self.cargo().args(engine))?;
        let python = self.python(&["peers", "package"])?;
        run(&mut self.install_package(&python))?;
        let mut bench = Command::new(python);
        bench.current_dir(&self.root);
        bench.arg("crates/bench/peers/run.py");
        bench.arg("--binary").arg(&binary);
        bench.arg("--engine").arg(binary.with_file_name("tidefall-bench"));
        if let Some(data) = self.large_data() {
            bench.arg("--data").arg(data);
        }
        run(bench.args(std::env::args().skip(2)))
    }

    /// The interpreter of a virtual environment with what the comparisons need.
    fn python(&self, extras: &[&str]) -> Result<PathBuf, String> {
        let mut setup = Command::new(self.root.join("tests/setup_python"));
        let output = setup.args(extras).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{setup:?} could not be started: {error}"))?;
        match output.status.success() {
            true => Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())),
            false => Err(format!("{setup:?} ended with {}", output.status)),
        }
    }

    /// The folder of the large data sets: `TIDEFALL_DATA`, or one beside the checkout.
    fn large_data(&self) -> Option<PathBuf> {
        let beside = || self.root.parent().map(|above| above.join("shared/data"));
        let data = std::env::var_os("TIDEFALL_DATA").map(PathBuf::from).or_else(beside);
        let data = data.filter(|data| data.is_dir());
        if data.is_none() {
            println!("The large data sets are not here: only the carried ones are used.");
        }
        data
    }
}

/// Cargo with assertions and overflow checks in Tidefall's own crates, which are compiled by clippy: so linting
/// all of them takes no second pass over DataFusion.
fn checking(cargo: &mut Command) -> &mut Command {
    cargo
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true")
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        .env("CLIPPY_ARGS", "--deny=warnings__CLIPPY_HACKERY__")
}

fn run(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(error) => Err(format!("{command:?} could not be started: {error}")),
    }
}
