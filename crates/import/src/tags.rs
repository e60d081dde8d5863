//! Whether a file has the tags of the table that its rows are for.

use tidefall_types::{Error, Result, TableSchema};

/// What a file has, and what is said about it.
pub(crate) struct Provided<'a> {
    /// The names of the columns of the file.
    pub columns: Vec<&'a str>,
    /// Tags that come from elsewhere, or that the caller wants to be missing.
    pub others: Vec<&'a str>,
}

impl Provided<'_> {
    /// Checks that every tag of the table comes from somewhere. Rows that lack one are of no sensor, so that those of equal
    /// time replace each other.
    ///
    /// # Errors
    /// `Invalid`, naming the tags that do not, and columns that differ from them in their letters' case.
    pub(crate) fn check(&self, table: &TableSchema) -> Result<()> {
        let is_there = |tag: &str| self.columns.contains(&tag) || self.others.contains(&tag);
        let missing = table.tags.iter().map(String::as_str).filter(|tag| !is_there(tag));
        let missing: Vec<&str> = missing.collect();
        let [first, ..] = *missing else { return Ok(()) };
        let is_alike = |column: &str| {
            let column = column.trim().to_lowercase();
            missing.iter().any(|tag| tag.trim().to_lowercase() == column)
        };
        let alike: Vec<&str> = self.columns.iter().copied().filter(|name| is_alike(name)).collect();
        let names = |list: &[&str]| -> String {
            let shown: Vec<String> = list.iter().map(|name| format!("{name:?}")).collect();
            shown.join(" and ")
        };
        let tags = if missing.len() == 1 { "tag" } else { "tags" };
        let rename = match alike.len() {
            0 => ":".to_owned(),
            1 => format!("; it has {}: rename it, or", names(&alike)),
            _ => format!("; it has {}: rename them, or", names(&alike)),
        };
        Err(Error::invalid(format!(
            "the table {:?} has the {tags} {}, which the file does not have{rename} give all rows one with \
             --constant-tag {first}=VALUE or --tag-from-file {first}, or leave them without with --skip {}",
            table.name,
            names(&missing),
            missing.join(",")
        )))
    }
}

/// The names among those to be left out that are columns of the file: a tag of the table may be named there to say that
/// there is none.
pub(crate) fn skipped<'a>(
    skip: &'a [String],
    table: Option<&'a TableSchema>,
    is_column: impl Fn(&str) -> bool,
) -> impl Iterator<Item = &'a String> {
    let is_tag = move |name: &String| table.is_some_and(|table| table.tags.contains(name));
    skip.iter().filter(move |name| is_column(name) || !is_tag(name))
}
