//! Conditions on tags.

/// A condition on the tags of a sensor, with the meaning that SQL gives it: a comparison with a
/// missing tag is neither true nor false, and only sensors for which the whole is true count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TagFilter {
    /// Every sensor.
    All,
    /// The tag has this value.
    Eq {
        /// The name of the tag.
        tag: String,
        /// The value.
        value: String,
    },
    /// The tag has one of these values.
    In {
        /// The name of the tag.
        tag: String,
        /// The values.
        values: Vec<String>,
    },
    /// The tag matches a SQL pattern, in which `%` stands for any text and `_` for one character;
    /// `\` takes the meaning from the next character.
    Like {
        /// The name of the tag.
        tag: String,
        /// The pattern.
        pattern: String,
        /// How letters compare.
        case: Case,
    },
    /// The tag matches a regular expression somewhere.
    Regex {
        /// The name of the tag.
        tag: String,
        /// The expression, in the syntax of the `regex` crate.
        pattern: String,
        /// How letters compare.
        case: Case,
    },
    /// The sensor has no value for the tag.
    IsNull {
        /// The name of the tag.
        tag: String,
    },
    /// The condition is false.
    Not(Box<TagFilter>),
    /// All of these hold.
    And(Vec<TagFilter>),
    /// One of these holds.
    Or(Vec<TagFilter>),
}

/// How letters compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Case {
    /// Upper and lower case differ.
    Sensitive,
    /// Upper and lower case are the same.
    Insensitive,
}
