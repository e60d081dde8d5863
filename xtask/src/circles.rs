//! No module may need one that needs it, through others or at once: such modules are one room with walls in it.
//!
//! A module needs those that its paths begin with: in `use`, and where they are written out. What a module only hands on, by `pub use`, is
//! needed by those who name it. A module and those within it are one room seen from above, which may use what is in it. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{File, Item, ItemUse, UseTree, Visibility};

use super::crates::CRATES;

/// The names from the crate's root to a module.
type Place = Vec<String>;

/// What a module says.
#[derive(Default)]
struct Module {
    /// The paths that begin in this crate, from its root.
    paths: BTreeSet<Place>,
    /// What it hands on: the name here, and where that is.
    handed_on: BTreeMap<String, Place>,
}

pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    for one in &CRATES {
        let modules = modules_of(&root.join("crates").join(one.name).join("src"))?;
        for circle in circles(&modules) {
            wrong.push(format!("{}: {}", one.name, circle.join(", ")));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("circles:\n  {}", wrong.join("\n  "))) }
}

/// The modules of a crate that have files.
fn modules_of(source: &Path) -> Result<BTreeMap<Place, Module>, String> {
    let mut files = Vec::new();
    list(source, &mut files)?;
    let mut read = Vec::new();
    for path in files {
        let place = place_of(&path, source);
        if place.last().is_some_and(|name| name == "tests") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| told(&path, &error))?;
        let file = syn::parse_file(&text).map_err(|error| told(&path, &error))?;
        read.push((place, file));
    }
    let places: BTreeSet<Place> = read.iter().map(|(place, _)| place.clone()).collect();
    Ok(read.iter().map(|(place, file)| (place.clone(), module(place, file, &places))).collect())
}

pub(crate) fn told(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

pub(crate) fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(|error| told(folder, &error))? {
        let path = entry.map_err(|error| told(folder, &error))?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn place_of(path: &Path, source: &Path) -> Place {
    let path = path.strip_prefix(source).unwrap_or(path).with_extension("");
    let mut place: Place = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if place.last().is_some_and(|name| name == "mod")
        || (place.len() == 1 && (place[0] == "lib" || place[0] == "main"))
    {
        place.pop();
    }
    place
}

fn module(place: &Place, file: &File, places: &BTreeSet<Place>) -> Module {
    let mut reader = Reader { place, places, module: Module::default() };
    reader.visit_file(file);
    reader.module
}

struct Reader<'a> {
    place: &'a Place,
    places: &'a BTreeSet<Place>,
    module: Module,
}

impl Reader<'_> {
    /// A path from the root of the crate, if it begins there.
    fn path_of(&self, path: &[String]) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([self.place, rest].concat()),
            "super" => {
                let mut above = self.place.clone();
                above.pop()?;
                let more = rest.iter().take_while(|name| *name == "super").count();
                above.truncate(above.len().checked_sub(more)?);
                Some([&above[..], &rest[more..]].concat())
            }
            child => {
                let mut below = self.place.clone();
                below.push(child.to_owned());
                self.places.contains(&below).then(|| [self.place, path].concat())
            }
        }
    }

    fn take_tree(&mut self, tree: &UseTree, before: &[String], hands_on: bool) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => {
                self.take_tree(&path.tree, &with(path.ident.to_string()), hands_on)
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take_tree(tree, before, hands_on));
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.take(before, before.last(), hands_on)
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.take(&with(name.clone()), Some(&name), hands_on);
            }
            UseTree::Rename(rename) => {
                self.take(
                    &with(rename.ident.to_string()),
                    Some(&rename.rename.to_string()),
                    hands_on,
                );
            }
            UseTree::Glob(_) => self.take(before, None, hands_on),
        }
    }

    fn take(&mut self, path: &[String], name: Option<&String>, hands_on: bool) {
        let Some(path) = self.path_of(path) else { return };
        match name.filter(|_| hands_on) {
            Some(name) => drop(self.module.handed_on.insert(name.clone(), path)),
            None => drop(self.module.paths.insert(path)),
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let hands_on = !matches!(item.vis, Visibility::Inherited);
        self.take_tree(&item.tree, &[], hands_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names: Place = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.take(&names, None, false);
        }
        visit::visit_path(self, path);
    }
}

/// Whether an item is compiled for tests alone.
pub(crate) fn is_for_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// The module in which a path ends, whoever hands its name on.
fn needed<'a>(modules: &'a BTreeMap<Place, Module>, path: &[String]) -> Option<&'a Place> {
    let length = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let (place, module) = modules.get_key_value(&path[..length])?;
    match path.get(length).and_then(|name| module.handed_on.get(name)) {
        Some(further) => needed(modules, further),
        None => Some(place),
    }
}

/// Modules that need each other, by the names of their files' places.
fn circles(modules: &BTreeMap<Place, Module>) -> Vec<Vec<String>> {
    let needs = |place: &Place| -> BTreeSet<&Place> {
        let paths = modules[place].paths.iter();
        let found = paths.filter_map(|path| needed(modules, path));
        found.filter(|other| !other.starts_with(place)).collect()
    };
    let direct: BTreeMap<&Place, BTreeSet<&Place>> =
        modules.keys().map(|place| (place, needs(place))).collect();
    let reached: BTreeMap<&Place, BTreeSet<&Place>> = modules
        .keys()
        .map(|place| {
            let (mut reached, mut waiting) = (BTreeSet::new(), vec![place]);
            while let Some(place) = waiting.pop() {
                let new = direct[place].iter().filter(|other| reached.insert(**other));
                waiting.extend(new.copied());
            }
            (place, reached)
        })
        .collect();
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (place, reached_from) in &reached {
        if reached_from.contains(*place) {
            let with = reached_from.iter().filter(|other| reached[**other].contains(*place));
            circles.insert(with.map(|place| place.join("::")).collect());
        }
    }
    circles.into_iter().collect()
}
