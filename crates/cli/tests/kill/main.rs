//! `kill -9` of the real process at random moments, against a ledger of what it acknowledged.
//!
//! 1. Each round starts a process on the same database and kills it (`rounds.rs`): mostly a server
//!    under load, else an import, a cascade or a verification.
//! 2. Clients write and delete, each in parts of the tables that are its own, so that the order of
//!    its changes is known (`clients.rs`). The ledger has every change from before it is sent
//!    (`ledger.rs`).
//! 3. The next server is asked for the rows (`check.rs`). What was acknowledged must be there, once and as
//!    it was written last; what was under way is there whole or not at all, and stays what it is.
//! 4. In some rounds another process has the database open for reading all the while, and must see the same. It is killed, too, and comes back
//!    (`follower.rs`).
//! 5. Beside the series there is a table of records (`records.rs`).
//!
//! `docs/testing.md` tells how to run it for longer.

mod check;
mod clients;
mod follower;
mod http;
mod ledger;
mod process;
mod records;
mod report;
mod rounds;
mod values;

use rounds::{Run, Settings};

#[test]
fn acknowledged_readings_are_there_once_and_nothing_else_is() {
    let settings = Settings::from_env();
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(&settings, dir.path()).unwrap();
    match run.all_rounds() {
        Ok(()) => println!("{}", run.report),
        Err(why) => {
            // What is left is the only evidence.
            let dir = dir.keep();
            panic!(
                "round {} of the seed {}: {why}\nthe database and the logs are in {}\n{}",
                run.round,
                settings.seed,
                dir.display(),
                run.report
            );
        }
    }
}
