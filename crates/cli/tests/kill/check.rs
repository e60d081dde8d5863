//! Comparing what the server says with the ledger.

use crate::http::{Connection, Stop};
use crate::ledger::{Fate, Lane, Rows};
use crate::records;
use crate::values::{Row, field_of, from_csv, room_of, sensor_of, time_of};

/// Reads all rows of a lane and settles it with them.
///
/// # Errors
/// `Gone` with the server; `Failed` when something is there that must not be, or is not there
/// that must be.
pub fn check_lane(connection: &mut Connection, lane: &mut Lane) -> Result<Fate, Stop> {
    let (table, condition) = (lane.table.clone(), lane.condition());
    let sql = format!("SELECT * FROM {table} WHERE {condition}");
    let rows = match connection.sql(&sql)? {
        Some(csv) => read_rows(&csv, lane)
            .map_err(|why| Stop::Failed(format!("{table} {:?}: {why}", lane.client)))?,
        None => Rows::new(),
    };
    let fate = lane.settle(rows).map_err(Stop::Failed)?;
    check_totals(connection, lane)?;
    Ok(fate)
}

/// Asks for count and sum, which come from metrics and not from rows.
fn check_totals(connection: &mut Connection, lane: &Lane) -> Result<(), Stop> {
    let numbers: Vec<u64> = lane.rows.values().filter_map(|row| row[0].map(u64::from)).collect();
    if numbers.is_empty() {
        return Ok(());
    }
    let (table, condition) = (&lane.table, lane.condition());
    let sql = format!("SELECT count(*), count(f0), sum(f0) FROM {table} WHERE {condition}");
    let answer = connection.sql(&sql)?.unwrap_or_default();
    let wanted = format!("{},{},{}", lane.rows.len(), numbers.len(), numbers.iter().sum::<u64>());
    match answer.lines().nth(1) {
        Some(line) if line == wanted => Ok(()),
        _ => Err(Stop::Failed(format!("{sql}: {answer:?} instead of {wanted}"))),
    }
}

/// Checks that there are no tables and no rows but those of the lanes, which are settled, and of the table of records.
///
/// # Errors
/// As [`check_lane`].
pub fn check_nothing_else<'a>(
    connection: &mut Connection,
    lanes: impl Iterator<Item = &'a Lane> + Clone,
) -> Result<(), Stop> {
    let tables = connection.sql("SHOW TABLES")?.unwrap_or_default();
    for table in tables.lines().skip(1).filter_map(|line| line.split(',').next()) {
        if table == records::TABLE {
            continue;
        }
        let own = lanes.clone().filter(|lane| lane.table == table);
        let wanted: usize = own.map(|lane| lane.rows.len()).sum();
        let is_known = lanes.clone().any(|lane| lane.table == table);
        let answer = connection.sql(&format!("SELECT count(*) FROM {table}"))?.unwrap_or_default();
        if !is_known || answer.lines().nth(1) != Some(wanted.to_string().as_str()) {
            return Err(Stop::Failed(format!(
                "table {table}: {answer:?}, and {wanted} rows should be there"
            )));
        }
    }
    Ok(())
}

fn read_rows(csv: &str, lane: &Lane) -> Result<Rows, String> {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut rows = Rows::new();
    for line in lines {
        let (mut sensor, mut time_ns, mut row) = (None, None, Row::default());
        let mut room = "";
        for (name, text) in header.iter().zip(line.split(',')) {
            match *name {
                "time" => time_ns = time_of(text),
                "sensor" => sensor = sensor_of(text),
                "room" => room = text,
                "client" if lane.client.as_deref() == Some(text) => {}
                name => {
                    let wrong = || format!("{name} is {text:?} in {line:?}");
                    let field = field_of(name).ok_or_else(wrong)?;
                    if !text.is_empty() {
                        row[field] = Some(from_csv(field, text).ok_or_else(wrong)?);
                    }
                }
            }
        }
        let (Some(sensor), Some(time_ns)) = (sensor, time_ns) else {
            return Err(format!("{line:?} has no sensor or no time"));
        };
        if room != room_of(sensor).unwrap_or_default() {
            return Err(format!("{line:?} is of another sensor"));
        }
        if rows.insert((sensor, time_ns), row).is_some() {
            return Err(format!("{line:?} is there twice"));
        }
    }
    Ok(rows)
}
