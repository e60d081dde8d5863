//! What subqueries are refused, and what to write instead.

use datafusion::error::{DataFusionError, Result};
use tidefall_types::Error;

use crate::error::to_datafusion;

/// For what depends on all rows that belong together.
pub(super) const JOIN: &str =
    "write a join instead, with what the subquery computes for each group of rows";

/// For conditions that do not part rows.
pub(super) const GROUPS: &str =
    "compare a column with = in that condition, or join with a subquery that has GROUP BY";

/// For what looks past the query around it.
pub(super) const LEVELS: &str = "join the tables of both subqueries in one, as in EXISTS (SELECT 1 FROM b JOIN c ON ... WHERE ...)";

/// For whether there is a row, where no join can be made of the subquery.
pub(crate) const PARTNERS: &str = "write LEFT JOIN (SELECT DISTINCT ...) ON ... instead, and IS NOT NULL for whether there is a row";

/// Refuses a subquery, in a place, that depends on the query around it.
pub(crate) fn refuse<T>(place: &str, instead: &str) -> Result<T> {
    Err(to_datafusion(Error::unsupported(format!(
        "a subquery that looks at columns of the query around it {place} is not supported; {instead}"
    ))))
}

/// Refuses subqueries that are asked for NULL as well, and have too many parts then.
pub(crate) fn too_many_parts(parts_max: usize) -> DataFusionError {
    to_datafusion(Error::limit(format!(
        "subqueries of IN where NULL matters are asked up to three times each, and those here have more than {parts_max} \
         parts then; make tables of them, or leave NULL out by IS NOT NULL and write NOT EXISTS"
    )))
}
