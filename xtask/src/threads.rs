//! Threads in orders that a scheduler chooses: runs them, and sees to it that the engine leaves the choice to it.

use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Item, UseTree};

use super::circles::{is_for_tests, list, told};
use super::crates::CRATES;
use super::{Outcome, Xtask, checking, run};

/// Seconds for each scenario if nobody says otherwise.
const SECONDS: u64 = 8;

/// Modules and names of the standard library that crates which know `tidefall-sync` must not use.
const FORBIDDEN: [&str; 3] = ["std::sync", "std::thread", "std::time::Instant"];
/// What is the same in both.
const ALLOWED: [&str; 3] = ["std::sync::Arc", "std::sync::Weak", "std::sync::PoisonError"];

/// Tries each scenario in as many orders as there is time for, or only the one that a file has. The flag is one of all crates, so they are compiled
/// apart from others.
pub(crate) fn run_all(xtask: &Xtask, arguments: &[String]) -> Outcome {
    let mut cargo = xtask.cargo();
    checking(&mut cargo).args(["test", "--release", "--package", "tidefall-storage"]);
    cargo.args(["--test", "threads", "--", "--nocapture"]);
    cargo.env("CARGO_TARGET_DIR", xtask.target.join("threads"));
    cargo.env("RUSTFLAGS", "--cfg tidefall_shuttle");
    match arguments {
        [replay, file, scenario] if replay == "replay" => {
            cargo.env("TIDEFALL_REPLAY", file).args(["--exact", scenario]);
        }
        [] => drop(cargo.env("TIDEFALL_SECONDS", SECONDS.to_string())),
        [seconds] if seconds.parse::<u64>().is_ok() => drop(cargo.env("TIDEFALL_SECONDS", seconds)),
        _ => return Err("usage: cargo xtask threads [seconds | replay FILE SCENARIO]".to_owned()),
    }
    run(&mut cargo)
}

/// Looks for what a scheduler would not see.
pub(crate) fn check(root: &Path) -> Outcome {
    let mut wrong = Vec::new();
    for one in CRATES.iter().filter(|one| one.leaves_order_to_sync()) {
        let mut files = Vec::new();
        list(&root.join("crates").join(one.name).join("src"), &mut files)?;
        for path in files.iter().filter(|path| !path.ends_with("tests.rs")) {
            let text = fs::read_to_string(path).map_err(|error| told(path, &error))?;
            let file = syn::parse_file(&text).map_err(|error| told(path, &error))?;
            let found = unseen(&file).into_iter();
            wrong.extend(found.map(|name| format!("{}: {name}", path.display())));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("not of tidefall_sync:\n  {}", wrong.join("\n  "))),
    }
}

/// The forbidden names that a file has outside of tests.
fn unseen(file: &syn::File) -> Vec<String> {
    let mut reader = Reader::default();
    reader.visit_file(file);
    let is_below = |name: &str, above: &str| {
        name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let is_any = |name: &str, of: &[&str]| of.iter().any(|above| is_below(name, above));
    reader.names.retain(|name| is_any(name, &FORBIDDEN) && !is_any(name, &ALLOWED));
    reader.names
}

#[derive(Default)]
struct Reader {
    names: Vec<String>,
}

impl Reader {
    fn take_tree(&mut self, tree: &UseTree, before: &str) {
        match tree {
            UseTree::Path(path) => {
                self.take_tree(&path.tree, &format!("{before}{}::", path.ident));
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take_tree(tree, before))
            }
            UseTree::Name(name) if name.ident == "self" => self.take_all(before),
            UseTree::Name(name) => self.names.push(format!("{before}{}", name.ident)),
            UseTree::Rename(rename) => self.names.push(format!("{before}{}", rename.ident)),
            UseTree::Glob(_) => self.take_all(before),
        }
    }

    fn take_all(&mut self, before: &str) {
        self.names.push(before.trim_end_matches("::").to_owned());
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.take_tree(&item.tree, "");
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.names.push(names.join("::"));
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        unseen(&syn::parse_file(text).unwrap())
    }

    #[test]
    fn what_a_scheduler_would_not_see_is_found() {
        assert_eq!(names("use std::sync::{Arc, Mutex};"), ["std::sync::Mutex"]);
        assert_eq!(names("use std::{sync::atomic, fmt};"), ["std::sync::atomic"]);
        assert_eq!(names("use std::sync::*;"), ["std::sync"]);
        assert_eq!(names("use std::time::{Duration, Instant as Now};"), ["std::time::Instant"]);
        assert_eq!(names("fn f() { std::thread::spawn(f); }"), ["std::thread::spawn"]);
        assert!(names("use std::sync::{Arc, PoisonError, Weak};").is_empty());
        assert!(names("use tidefall_sync::{Mutex, atomic::AtomicU64};").is_empty());
        assert!(names("#[cfg(test)] mod tests { use std::sync::Mutex; }").is_empty());
    }
}
