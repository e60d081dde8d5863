//! SQL over Tidefall, and the only crate that knows DataFusion.
//!
//! [`Session::query`] takes statements and answers with a stream of Arrow batches. Statements that
//! define or change tables go to the storage from `statements`; everything else is planned by
//! DataFusion over `table`, which pushes conditions (`pushdown`) into `scan`, or, when `metrics`
//! can answer an aggregate from block metrics, asks for those instead of rows. `layers` shows the same
//! tables with a column or a row for each sensor, `asof` joins two of them by the nearest time. All that
//! is read comes into a plan by the node in `source`.

mod ahead;
mod ambiguous;
mod amend;
mod answer_node;
mod arrange;
mod asof;
mod ast;
mod blocking;
mod bounds;
mod by_time;
mod calls;
mod catalog;
mod claims;
mod clauses;
mod constants;
mod cooperate;
mod correlated;
mod csv;
mod depth;
mod dialect;
mod error;
mod expansion;
mod filters;
mod fit;
mod functions;
mod grouped_join;
mod groupwise;
mod hints;
mod inserted;
mod instead;
mod intervals;
mod json;
mod keys;
mod layers;
mod literals;
mod live;
mod long_numbers;
mod marks;
mod metrics;
mod named_windows;
mod names;
mod nearest;
mod null_keys;
mod operators;
mod orders;
mod otherwise;
mod over;
mod parameters;
mod parse;
mod passing;
mod planner;
mod planning;
mod prepared;
mod projection;
mod pushdown;
mod quantified;
mod query_stream;
mod reads;
mod records;
mod regroup;
mod relations;
mod repeat;
mod request;
mod rewrite;
mod rules;
mod same_windows;
mod scan;
mod schemas;
mod script;
mod session;
mod settings;
mod simplify;
mod sink;
mod size;
mod snapshots;
mod sort;
mod source;
mod statements;
mod table;
#[cfg(test)]
mod testing;
mod tuple_keys;
mod tuples;
mod types;
mod unique;
mod unknown;
mod unnested;
mod using;
mod view;
mod window_limits;
mod with_names;

use tidefall_plans::{steps, tree, walk};

pub use csv::{write_csv, write_csv_header};
pub use json::{JsonRows, JsonShape};
pub use parameters::Parameter;
pub use prepared::{Description, Prepared};
pub use query_stream::QueryStream;
pub use reads::Reads;
pub use script::Script;
pub use session::Session;
pub use sink::Inserted;
pub use unique::UniqueValues;
