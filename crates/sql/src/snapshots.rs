//! What one statement sees: of each table the readings of one moment, whichever layers of it, and under whichever names, the
//! statement reads.

use std::cell::RefCell;
use std::collections::HashMap;

use tidefall_storage::{Db, Snapshot, TableSnapshot};
use tidefall_types::Result;

tokio::task_local! {
    /// The tables that the statement which is being planned has asked for.
    static SEEN: RefCell<HashMap<String, Snapshot>>;
}

/// Plans one statement.
pub(crate) async fn with_own_snapshots<T>(planning: impl Future<Output = T>) -> T {
    SEEN.scope(RefCell::default(), planning).await
}

/// A table of whichever kind as the statement that is being planned sees it; as it is now where none is.
///
/// # Errors
/// Those of [`Db::snapshot`].
pub(crate) fn snapshot_of_any(db: &Db, table: &str) -> Result<Snapshot> {
    let known = SEEN.try_with(|seen| seen.borrow().get(table).cloned());
    if let Ok(Some(known)) = known {
        return Ok(known);
    }
    let taken = db.snapshot_of_any(table)?;
    // Outside of a statement there is nothing to remember it for.
    let _ = SEEN.try_with(|seen| seen.borrow_mut().insert(table.to_owned(), taken.clone()));
    Ok(taken)
}

/// As [`snapshot_of_any`], for what is asked of series tables alone.
///
/// # Errors
/// Those of [`Db::snapshot`].
pub(crate) fn snapshot(db: &Db, table: &str) -> Result<TableSnapshot> {
    match snapshot_of_any(db, table)? {
        Snapshot::Series(snapshot) => Ok(snapshot),
        Snapshot::Records(_) => db.snapshot(table),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Session;
    use tidefall_storage::DbOptions;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_statement_sees_one_snapshot_of_a_table() {
        let directory = tempfile::tempdir().expect("a directory");
        let db = Db::open(directory.path(), DbOptions::default()).expect("a database");
        let session = Session::new(db.clone());
        let create =
            "CREATE TABLE t (time TIMESTAMP, host TEXT, v DOUBLE, PRIMARY KEY (host, time))";
        session.collect(create).await.expect("a table");
        let insert = "INSERT INTO t VALUES ('2024-01-01', 'a', 1.0)";
        with_own_snapshots(async {
            assert_eq!(snapshot(&db, "t").expect("a snapshot").sensor_count(), 0);
            session.collect(insert).await.expect("a row");
            assert_eq!(snapshot(&db, "t").expect("a snapshot").sensor_count(), 0);
        })
        .await;
        assert_eq!(snapshot(&db, "t").expect("a snapshot").sensor_count(), 1);
    }
}
