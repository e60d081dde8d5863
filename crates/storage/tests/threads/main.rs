#![cfg(tidefall_shuttle)]
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on should stop.
//! The engine under threads whose turns a scheduler chooses: before each lock and each atomic operation it says who goes on. Scenarios are small, so that
//! thousands of orders are tried, and what was chosen can be chosen again. `cargo xtask threads` runs them; docs/testing.md says how.

mod history;
mod schedules;
mod shown;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidefall_storage::{Ack, Target};
use tidefall_types::NS_PER_DAY;

use self::schedules::explore;
use self::world::{Does, Plan, Refuses, World};

/// Long enough for the upkeep never to look what is due.
const NEVER: Duration = Duration::MAX;
/// Short enough for it to look whenever it has its turn.
const OFTEN: Duration = Duration::from_secs(1);

const READER: &[Does] = &[Does::Read, Does::ReadAgain];

/// Rows, fields and deletes come while others read; nothing else happens but what memory makes necessary.
#[test]
fn writes_and_snapshots() {
    let writer = &[Does::Write, Does::Write, Does::AddField, Does::Delete][..];
    explore("writes_and_snapshots", || {
        World::new(Plan { pause: NEVER, ..Plan::default() }).run(&[
            (writer, 3),
            (writer, 3),
            (READER, 8),
        ]);
    });
}

/// So many rows come that writers wait for flushes, which nobody asks for.
#[test]
fn memory_fills() {
    static DELAYED: AtomicU64 = AtomicU64::new(0);
    let writer = &[Does::WriteMany][..];
    explore("memory_fills", || {
        let plan = Plan { pause: NEVER, memory_bytes: 16 << 10, ..Plan::default() };
        let work = World::new(plan).run(&[
            (writer, 4),
            (writer, 4),
            (&[Does::Read, Does::ReadAgain, Does::FreeMemory], 2),
        ]);
        DELAYED.fetch_add(work.delayed_writes, Ordering::Relaxed);
    });
    let delayed = DELAYED.load(Ordering::Relaxed);
    println!("memory_fills: {delayed} writes have waited for memory");
    assert!(delayed > 0);
}

/// Readings leave memory, are laid together and come of age while more come, also late.
#[test]
fn readings_move() {
    let writer = &[Does::Write, Does::Write, Does::Load, Does::Delete, Does::AddField][..];
    let mover =
        &[Does::Flush, Does::Cascade(Target::ByAge), Does::Cascade(Target::Long), Does::Wait][..];
    explore("readings_move", || {
        World::new(Plan { pause: NEVER, ..Plan::default() }).run(&[
            (writer, 3),
            (mover, 2),
            (mover, 2),
            (READER, 6),
        ]);
    });
}

/// The upkeep looks what is due all the time.
#[test]
fn upkeep() {
    let writer = &[Does::Write, Does::Write, Does::Delete, Does::Flush][..];
    explore("upkeep", || {
        World::new(Plan { pause: OFTEN, ..Plan::default() }).run(&[
            (writer, 2),
            (&[Does::Wait, Does::Flush, Does::Load], 2),
            (READER, 6),
        ]);
    });
}

/// Run files, of which there are enough, are laid together while readings in them come of age, and others come.
#[test]
fn run_files_become_one() {
    explore("run_files_become_one", || {
        let plan = Plan { pause: OFTEN, times: 2, ..Plan::default() };
        World::new(plan).with_run_files(8).run(&[
            (&[Does::Wait], 1),
            (&[Does::Write, Does::Delete], 2),
            (READER, 4),
        ]);
    });
}

/// Writes that must not replace anything meet each other, others and deletes.
#[test]
fn refusals() {
    let writer = &[Does::WriteNew, Does::WriteNew, Does::LoadNew][..];
    explore("refusals", || {
        World::new(Plan { pause: NEVER, times: 2, ..Plan::default() }).run(&[
            (writer, 2),
            (writer, 2),
            (&[Does::Write, Does::Delete, Does::Flush, Does::AddField], 2),
            (READER, 3),
        ]);
    });
}

/// The database closes in the middle of everything.
#[test]
fn closing() {
    let writer = &[Does::Write, Does::WriteNew, Does::Load, Does::Delete, Does::AddField][..];
    let mover =
        &[Does::Flush, Does::Cascade(Target::Long), Does::FreeMemory, Does::Retype, Does::Drop][..];
    explore("closing", || {
        World::new(Plan { pause: OFTEN, refuses: Refuses::WhenClosed, ..Plan::default() }).run(&[
            (writer, 3),
            (mover, 2),
            (&[Does::Close], 1),
            (&[Does::Close, Does::Read], 1),
        ]);
    });
}

/// Another process reads along.
#[test]
fn following() {
    let writer = &[Does::Write, Does::Write, Does::AddField, Does::Delete, Does::Load][..];
    let mover = &[Does::Flush, Does::Cascade(Target::Long), Does::FreeMemory][..];
    explore("following", || {
        World::new(Plan { pause: NEVER, ack: Some(Ack::Durable), ..Plan::default() }).run(&[
            (writer, 3),
            (mover, 2),
            (&[Does::Follow], 5),
        ]);
    });
}

/// Fields get other types while rows come in the types before, and readings move.
#[test]
fn types_change() {
    let writer = &[Does::Write, Does::Write, Does::AddField, Does::Load, Does::Delete][..];
    let mover = &[Does::Flush, Does::Cascade(Target::ByAge), Does::Cascade(Target::Long)][..];
    explore("types_change", || {
        World::new(Plan { pause: NEVER, ..Plan::default() }).run(&[
            (writer, 3),
            (&[Does::Retype], 2),
            (&[Does::Retype, Does::WriteLarge, Does::WriteLarge, Does::Wait], 3),
            (mover, 2),
            (READER, 4),
        ]);
    });
}

/// The table is dropped, and others make it anew, or have still to do with the one that is gone.
#[test]
fn tables_go() {
    let writer = &[Does::Write, Does::WriteNew, Does::Load, Does::AddField, Does::Delete][..];
    let mover =
        &[Does::Flush, Does::FreeMemory, Does::Cascade(Target::Long), Does::Retype, Does::Wait][..];
    explore("tables_go", || {
        World::new(Plan { pause: NEVER, ..Plan::default() }).with_run_files(1).run(&[
            (writer, 4),
            (&[Does::Drop, Does::Drop, Does::Write], 3),
            (mover, 3),
            (READER, 5),
        ]);
    });
}

/// Readings become too old while others are read, written and move.
#[test]
fn readings_become_too_old() {
    let writer = &[Does::Write, Does::Write, Does::Load, Does::Delete, Does::AddField][..];
    let mover =
        &[Does::Wait, Does::Flush, Does::Cascade(Target::ByAge), Does::Cascade(Target::Long)][..];
    explore("readings_become_too_old", || {
        let keep_ns = Some(60 * NS_PER_DAY);
        World::new(Plan { pause: OFTEN, keep_ns, ..Plan::default() }).run(&[
            (writer, 3),
            (&[Does::Write, Does::Flush], 3),
            (mover, 3),
            (READER, 5),
        ]);
    });
}

/// Objects lie elsewhere, and threads of their own read ahead what is announced.
#[test]
fn objects_apart() {
    let writer = &[Does::Write, Does::Write, Does::Load, Does::Delete, Does::AddField][..];
    let mover = &[Does::Flush, Does::Cascade(Target::Long), Does::FreeMemory, Does::Wait][..];
    explore("objects_apart", || {
        World::new(Plan { pause: OFTEN, is_apart: true, ..Plan::default() }).run(&[
            (writer, 3),
            (mover, 2),
            (READER, 4),
        ]);
    });
}

/// Another process reads along, while the table gets other types, is dropped and made anew.
#[test]
fn following_other_tables() {
    let writer = &[Does::Write, Does::Write, Does::AddField, Does::Load][..];
    explore("following_other_tables", || {
        World::new(Plan { pause: NEVER, ack: Some(Ack::Durable), ..Plan::default() }).run(&[
            (writer, 3),
            (&[Does::Drop, Does::Retype, Does::Flush, Does::Write], 4),
            (&[Does::Follow], 5),
        ]);
    });
}
