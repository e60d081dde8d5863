//! Small numbers that name things. Each is its own type, so that no two can be swapped by mistake.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// The id as an index into a table kept in id order.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A table of one database. Never reused, also not after `DROP TABLE`.
    TableId(u32)
}
id! {
    /// A tag of one table, numbered by first appearance.
    TagId(u16)
}
id! {
    /// A field of one table, numbered by first appearance.
    FieldId(u16)
}
id! {
    /// A stored object (a run file, a segment, a sensor dictionary). Never reused.
    ObjectId(u64)
}
id! {
    /// The position of a write in the order of all writes of one database. A later write wins
    /// over an earlier one of the same identity.
    Seq(u64)
}
