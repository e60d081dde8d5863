//! Names of columns on the command line: `a,b`, and `'"a, b",c'` where a name has commas, as in CSV.

use std::convert::Infallible;
use std::str::FromStr;

/// The names of one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names(Vec<String>);

impl FromStr for Names {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let mut names = Vec::new();
        let mut rest = Some(text);
        while let Some(text) = rest {
            let quoted = text.strip_prefix('"').and_then(quoted);
            let (name, behind) = quoted.unwrap_or_else(|| {
                let end = text.find(',').unwrap_or(text.len());
                (text[..end].to_owned(), &text[end..])
            });
            names.push(name);
            rest = behind.strip_prefix(',');
        }
        Ok(Self(names))
    }
}

/// The name up to the quotation mark that ends it, and what stands behind: a comma or nothing.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (part, behind) = rest.split_once('"')?;
        name.push_str(part);
        if behind.is_empty() || behind.starts_with(',') {
            return Some((name, behind));
        }
        rest = behind.strip_prefix('"')?;
        name.push('"');
    }
}

/// The names of an argument that may come several times.
pub(crate) fn all_of(lists: &[Names]) -> Vec<String> {
    lists.iter().flat_map(|list| list.0.iter().cloned()).collect()
}

/// Names as an argument that a shell hands on as they are.
pub(crate) fn as_argument<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names = names.map(|name| match name.contains(',') || name.starts_with('"') {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_owned(),
    });
    let all = names.collect::<Vec<_>>().join(",");
    let is_plain = |c: char| c.is_alphanumeric() || "_-.,:/@%+=".contains(c);
    match all.chars().all(is_plain) {
        true => all,
        false => format!("'{}'", all.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_commas_and_quotation_marks() {
        for (text, names) in [
            ("a", &["a"][..]),
            ("a,b c,#3", &["a", "b c", "#3"]),
            ("", &[""]),
            ("a,", &["a", ""]),
            (r#""site, room",id"#, &["site, room", "id"]),
            (r#"a,"say ""x"", y""#, &["a", r#"say "x", y"#]),
            (r#"v "x""#, &[r#"v "x""#]),
            (r#""open"#, &[r#""open"#]),
            (r#""a"b,c"#, &[r#""a"b"#, "c"]),
        ] {
            let Ok(Names(parsed)) = text.parse();
            assert_eq!(parsed, names, "{text}");
        }
    }

    #[test]
    fn names_come_back_from_what_is_printed() {
        for (names, shown) in [
            (&["a", "b-1"][..], "a,b-1"),
            (&["sensor id"], "'sensor id'"),
            (&["Gerät"], "Gerät"),
            (&["site, room", "id"], r#"'"site, room",id'"#),
            (&[r#""x", y"#], r#"'"""x"", y"'"#),
            (&["it's"], r"'it'\''s'"),
        ] {
            let argument = as_argument(names.iter().copied());
            assert_eq!(argument, shown);
            let unquoted = argument.replace(r"'\''", "\0").replace('\'', "").replace('\0', "'");
            let Ok(Names(parsed)) = unquoted.parse();
            assert_eq!(parsed, names);
        }
    }
}
