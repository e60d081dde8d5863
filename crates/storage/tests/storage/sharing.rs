//! Databases that cannot be written from here, as another has them or their folder must not be written: they can be
//! read, and what would change them is refused for that reason.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use caps::{CapSet, Capability};
use tidefall_storage::{Db, DbOptions, Repair, WriteOptions};
use tidefall_types::{Error, ErrorKind};

use crate::small::{batch_of, copy_folder, read, write};

const ROW: (i64, i64) = (7, 1);

fn options() -> DbOptions {
    DbOptions { threads: 1, ..DbOptions::default() }
}

/// Makes a database with a row in its log, and another in an object.
fn make(dir: &Path) {
    let db = Db::open(dir, options()).unwrap();
    write(&db, "plant", &[ROW]);
    db.flush().unwrap();
    write(&db, "plant", &[(8, 2)]);
    db.close().unwrap();
}

/// All folders and files of a database.
fn all_of(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn allow(dir: &Path, file_mode: u32) {
    for path in all_of(dir) {
        let mode = if path.is_dir() { file_mode | 0o111 } else { file_mode };
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}

/// Runs this without the right of root to write everywhere.
fn as_anybody(place: &Path, act: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Of this thread alone, and of those that it starts.
            #[cfg(target_os = "linux")]
            for right in [Capability::CAP_DAC_OVERRIDE, Capability::CAP_DAC_READ_SEARCH] {
                caps::drop(None, CapSet::Effective, right).unwrap();
            }
            if fs::write(place.join("probe"), "").is_ok() {
                eprintln!("skipped: whoever runs this may write everywhere");
                return;
            }
            act();
        });
        thread.join().unwrap();
    });
}

/// Checks that a database shows its rows, and changes nothing for this reason.
fn check_only_read(db: &Db, is_reason: impl Fn(&Error) -> bool) {
    assert_eq!(read(db, "plant"), [ROW, (8, 2)]);
    assert_eq!(db.verify().unwrap().damages, []);
    let error = db.drop_table("plant").unwrap_err();
    assert!(is_reason(&error), "{error}");
    db.close().unwrap();
}

#[test]
fn a_folder_that_must_not_be_written_can_be_read() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    for has_lock in [true, false] {
        let dir = place.path().join(format!("lock {has_lock}"));
        make(&dir);
        if !has_lock {
            fs::remove_file(dir.join("LOCK")).unwrap();
        }
        allow(&dir, 0o444);
        let before = all_of(&dir).len();
        let is_reason = |error: &Error| {
            error.kind() == ErrorKind::Io
                && error.message().starts_with(&format!(
                    "the folder {} cannot be written, so its database can only be read",
                    dir.display()
                ))
        };
        as_anybody(&dir, || {
            check_only_read(&Db::open_shared(&dir, options()).unwrap(), is_reason);
            check_only_read(&Db::open_read_only(&dir, options()).unwrap(), |error| {
                error.kind() == ErrorKind::Unsupported
            });
            let error = Db::open(&dir, options()).map(drop).unwrap_err();
            assert!(is_reason(&error), "{error}");
            let error = Db::repair(&dir, options(), Repair::Mend).map(drop).unwrap_err();
            assert!(is_reason(&error), "{error}");
        });
        assert_eq!(all_of(&dir).len(), before);
        allow(&dir, 0o644);
    }
}

#[test]
fn no_database_is_made_where_nothing_must_be_written() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("empty");
    fs::create_dir(&dir).unwrap();
    allow(place.path(), 0o444);
    as_anybody(&dir, || {
        let error = Db::open_shared(&dir, options()).map(drop).unwrap_err();
        assert!(error.message().contains("cannot be written"), "{error}");
        let error = Db::open_shared(dir.join("new"), options()).map(drop).unwrap_err();
        assert!(error.message().starts_with("making the folder"), "{error}");
    });
    allow(place.path(), 0o644);
}

#[test]
fn who_may_only_read_is_told_who_writes() {
    let place = tempfile::tempdir().unwrap();
    make(place.path());
    let writer = Db::open_shared(place.path(), options()).unwrap();
    let is_reason = |error: &Error| {
        let text = error.message();
        error.kind() == ErrorKind::Locked && text.contains("this process, or one")
    };
    check_only_read(&Db::open_shared(place.path(), options()).unwrap(), is_reason);
    let error = Db::open(place.path(), options()).map(drop).unwrap_err();
    assert!(is_reason(&error), "{error}");
    // Neither a writer nor repair can do with reading.
    assert!(!error.message().contains("read-only"), "{error}");
    write(&writer, "plant", &[(9, 3)]);
    writer.close().unwrap();
    let after = Db::open_shared(place.path(), options()).unwrap();
    write(&after, "plant", &[(10, 4)]);
}

/// Otherwise acknowledged readings would be in files that nobody finds again, and traces of one database in another.
#[test]
fn what_was_put_in_the_place_of_a_database_is_not_written() {
    for how in ["copied back", "another", "moved", "without its lock"] {
        let place = tempfile::tempdir().unwrap();
        let [dir, copy] = ["db", "copy"].map(|name| place.path().join(name));
        make(&dir);
        copy_folder(&dir, &copy);
        let writer = Db::open(&dir, options()).unwrap();
        write(&writer, "plant", &[(9, 3)]);
        match how {
            "copied back" => {
                fs::read_dir(&dir).unwrap().for_each(|entry| {
                    let path = entry.unwrap().path();
                    let removed = if path.is_dir() {
                        fs::remove_dir_all(path)
                    } else {
                        fs::remove_file(path)
                    };
                    removed.unwrap();
                });
                copy_folder(&copy, &dir);
            }
            "another" => {
                fs::rename(&dir, place.path().join("aside")).unwrap();
                make(&dir);
            }
            "moved" => fs::rename(&dir, place.path().join("aside")).unwrap(),
            _ => fs::remove_file(dir.join("LOCK")).unwrap(),
        }
        let files = |dir: &Path| -> Vec<(PathBuf, Option<Vec<u8>>)> {
            let all = if dir.exists() { all_of(dir) } else { Vec::new() };
            all.into_iter().map(|path| (path.clone(), fs::read(path).ok())).collect()
        };
        let before = files(&dir);
        let batch = batch_of(&[(10, 4)]);
        let error = writer.write("plant", &batch, &WriteOptions::default()).unwrap_err();
        // What it says of rows would be taken as said of these.
        assert_eq!(error.kind(), ErrorKind::Closed, "{how}");
        assert!(error.to_string().contains("LOCK"), "{how}: {error}");
        assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::Closed, "{how}");
        assert!(writer.close().is_err(), "{how}");
        drop(writer);
        assert_eq!(files(&dir), before, "{how}");
        if how != "moved" {
            let rows = read(&Db::open(&dir, options()).unwrap(), "plant");
            assert_eq!(rows[..2], [ROW, (8, 2)], "{how}");
            assert_eq!(rows.len(), if how == "without its lock" { 3 } else { 2 }, "{how}");
        }
    }
}

/// Somebody has taken the lock for one that was left behind.
#[test]
fn a_writer_without_its_lock_harms_no_next_one() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let first = Db::open(dir.path(), options()).unwrap();
    write(&first, "plant", &[(9, 3)]);
    fs::remove_file(dir.path().join("LOCK")).unwrap();
    let second = Db::open(dir.path(), options()).unwrap();
    write(&second, "plant", &[(10, 4)]);
    let refused = first.write("plant", &batch_of(&[(11, 5)]), &WriteOptions::default());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    write(&second, "plant", &[(12, 6)]);
    assert!(first.close().is_err());
    std::mem::forget(second);
    fs::remove_file(dir.path().join("LOCK")).unwrap();
    let rows = read(&Db::open(dir.path(), options()).unwrap(), "plant");
    assert_eq!(rows, [ROW, (8, 2), (9, 3), (10, 4), (12, 6)]);
}
