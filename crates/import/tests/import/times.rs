//! Which column is the time, and how it is read, in small files as people have them.

use std::sync::Arc;

use tidefall_import::{CsvOptions, LocalZone, ParsedBatch, TimeFormat, TimeSource, read_csv};
use tidefall_types::{FieldType, Result, TableId, TableSchema, format_time};

use crate::input;

/// The times of a file as they are read, and the notes on the choice; or the error.
fn times(text: &str, options: &CsvOptions) -> Result<(Vec<String>, Vec<String>)> {
    let reader = read_csv(input(text), options)?;
    let notes = reader.schema().notes.clone();
    let mut found = Vec::new();
    for batch in reader {
        let ParsedBatch { batch, bad, .. } = batch?;
        found.extend(batch.time.iter().map(|time_ns| format_time(*time_ns).replace(":00Z", "")));
        found.extend(bad.into_iter().map(|bad| format!("line {}: {}", bad.line, bad.reason)));
    }
    Ok((found, notes))
}

#[track_caller]
fn found_in(text: &str, options: &CsvOptions, expected: &str) {
    match times(text, options) {
        Ok((found, _)) => assert_eq!(found.join(" "), expected, "in {text:?}"),
        Err(error) => panic!("{error} in {text:?}"),
    }
}

#[track_caller]
fn found(text: &str, expected: &str) {
    found_in(text, &CsvOptions::default(), expected);
}

#[track_caller]
fn refused_in(text: &str, options: &CsvOptions, expected: &[&str]) {
    match times(text, options) {
        Ok(found) => panic!("{found:?} was read from {text:?}"),
        Err(error) => {
            assert!(expected.iter().all(|part| error.message().contains(part)), "{error}");
            assert!(!error.message().contains("Pattern("), "{error}");
        }
    }
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    refused_in(text, &CsvOptions::default(), expected);
}

fn by(columns: &[&str]) -> CsvOptions {
    let columns = columns.iter().map(|&column| column.to_owned()).collect();
    CsvOptions { time: TimeSource::Columns(columns), ..CsvOptions::default() }
}

fn by_format(columns: &[&str], format: &str) -> CsvOptions {
    CsvOptions { time_format: Some(TimeFormat::from_name(format).unwrap()), ..by(columns) }
}

#[test]
fn text_with_a_time_of_day_is_better_than_anything_else() {
    let instants = "2024-01-01T05:00 2024-01-01T06:00";
    found("Time,Date_Time,v\n0,2024-01-01 05:00,1\n1,2024-01-01 06:00,2\n", instants);
    found(
        "date,logged at,v\n2024-01-01,2024-01-01 05:00,1\n2024-01-01,2024-01-01 06:00,2\n",
        instants,
    );
    found("timestamp,when\n0,2024-01-01T05:00Z\n1,2024-01-01T06:00Z\n", instants);
    found("year,month,day,at,v\n2024,1,1,01/13/2024 05:00,1\n", "2024-01-13T05:00");
    // Names choose among equals, and the caller hears of it.
    let text = "loaded,time,v\n2024-02-01 00:00,2024-01-01 05:00,1\n";
    let (times, notes) = times(text, &CsvOptions::default()).unwrap();
    assert_eq!(times, ["2024-01-01T05:00"]);
    assert_eq!(notes, ["the time is \"time\", not \"loaded\"; --time NAME chooses"]);
}

/// The time was whatever tells the most, so that rows of different times replaced each other.
#[test]
fn a_column_that_is_called_the_time_is_it() {
    let days = "2024-01-01T00:00 2024-01-02T00:00";
    let calibrated = "2023-12-01 08:00:00";
    let text =
        format!("time,v,calibrated_at\n2024-01-01,1,{calibrated}\n2024-01-02,2,{calibrated}\n");
    found(&text, days);
    let (_, notes) = times(&text, &CsvOptions::default()).unwrap();
    assert_eq!(notes, ["the time is \"time\", not \"calibrated_at\"; --time NAME chooses"]);
    let minutes = "2024-01-01T00:00 2024-01-01T00:01";
    for name in ["time", "Timestamp", "ts", "DateTime", "date_time"] {
        let created = "2024-02-01T08:00:00Z";
        found(
            &format!("created,{name},v\n{created},1704067200,1\n{created},1704067260,2\n"),
            minutes,
        );
    }
    found("Date,Time,stored,v\n13/01/2024,5:00,2024-02-01 08:00,1\n", "2024-01-13T05:00");
    // Its form is not guessed because another column has a better one.
    refused("time,stored,v\n03/04/2024,2024-02-01 08:00,1\n", &["\"%d/%m/%Y\" or \"%m/%d/%Y\""]);
    // What cannot be the time of a row is not.
    let hours = "2024-01-01T05:00 2024-01-01T06:00";
    found("time,at,v\n0.5,2024-01-01 05:00,1\n1.5,2024-01-01 06:00,2\n", hours);
    found("Time,at,v\n05:00,2024-01-01 05:00,1\n06:00,2024-01-01 06:00,2\n", hours);
    // Two columns that are called so and disagree, or a date that is not that of the time beside it.
    refused(
        "time,timestamp,v\n1704067200,2024-02-01 08:00,1\n1704067260,2024-02-01 08:00,2\n",
        &["\"timestamp\" or \"time\"", "say which with --time"],
    );
    found(
        "time,timestamp,v\n1704085200,2024-01-01 05:00,1\n1704088800,2024-01-01 06:00,2\n",
        hours,
    );
    refused(
        "date,stored,v\n2024-01-01,2024-02-01 08:00,1\n2024-01-02,2024-02-01 08:00,2\n",
        &["\"stored\" or \"date\"", "say which with --time"],
    );
}

#[test]
fn small_numbers_are_no_times() {
    refused("time,v\n0,1\n1,2\n0,3\n", &["\"time\" (\"0\", \"1\", \"0\") are no times"]);
    refused(
        "Date,Time,v\n2024-01-01,0,1\n2024-01-01,1,2\n2024-01-01,0,3\n",
        &["Date with or without \"Time\" (\"0\", \"1\"", "--time-columns Date,Time", "--time Date"],
    );
    refused_in("t,v\n0,1\n60,2\n", &by(&["t"]), &["\"t\" (\"0\", \"60\")", "--time-format s"]);
    found_in("t,v\n0,1\n60,2\n", &by_format(&["t"], "s"), "1970-01-01T00:00 1970-01-01T00:01");
    refused("time,v\nfirst,1\nsecond,2\n", &["\"time\" (\"first\", \"second\") are no times"]);
    refused_in("s,v\nfirst,1\n", &by(&["s"]), &["\"s\" (\"first\") are no times in a form"]);
}

#[test]
fn numbers_since_1970_are_told_by_their_size() {
    found("ts,v\n1704067200,1\n1704067260,2\n", "2024-01-01T00:00 2024-01-01T00:01");
    found("ts,v\n1704067200.25,1\n", "2024-01-01T00:00:00.250Z");
    found("epoch_ms,v\n1704067200000,1\n", "2024-01-01T00:00");
    found("unix_us,v\n1704067200000000,1\n", "2024-01-01T00:00");
    found("unix_ns,v\n1704067200000000000,1\n", "2024-01-01T00:00");
    found("timestamp,v\n-1577923200,1\n-1577836800,2\n", "1920-01-01T00:00 1920-01-02T00:00");
    found("timestamp,v\n-2208988800000,1\n", "1900-01-01T00:00");
    // Names are needed, or none at all, since other numbers are as large.
    refused(
        "country,population\nIN,1400000000\n",
        &["\"population\" may count seconds since 1970"],
    );
    found("1704067200,1.5\n1704067260,1.6\n", "2024-01-01T00:00 2024-01-01T00:01");
    refused(
        "event_ms,local_ms,v\n1704067200000,1704067200001,1\n",
        &["\"event_ms\", \"local_ms\"", "say which with --time"],
    );
    // Too near to 1970 to be told from other numbers.
    refused("time,v\n86400,1\n90000,2\n", &["are no times"]);
    found_in("n,v\n1704067200,1\n", &by(&["n"]), "2024-01-01T00:00");
}

#[test]
fn dates_and_times_of_day_come_together() {
    let instants = "2024-01-01T05:00 2024-01-01T06:30";
    found("Date;Time;v\n2024-01-01;05:00:00;1\n2024-01-01;06:30:00;2\n", instants);
    found("Date,Time,v\n13/01/2024,5:00,1\n", "2024-01-13T05:00");
    found("v,Time,Date\n1,05.00.00,13.01.2024\n", "2024-01-13T05:00");
    found(
        "date,time,v\n2024-01-01,5:00 AM,1\n2024-01-01,06:30 pm,2\n",
        "2024-01-01T05:00 2024-01-01T18:30",
    );
    found("start_time,start_date,end_date,v\n05:00,2024-01-01,2025-01-01,1\n", "2024-01-01T05:00");
    found("date,time,v\n2024-01-01 00:00:00,05:00,1\n", "2024-01-01T05:00");
    found("date,hour,v\n2024-01-01,5,1\n2024-01-01,24,2\n", "2024-01-01T05:00 2024-01-02T00:00");
    found("date,hour,minute,v\n2024-01-01,5,0,1\n2024-01-01,6,30,2\n", instants);
    found(
        "DATE,TIME,v\n20240101,0500,1\n20240101,0630,2\n20240101,1200,2\n",
        "2024-01-01T05:00 2024-01-01T06:30 2024-01-01T12:00",
    );
    found("year,month,day,time,v\n2024,1,1,05:00,1\n2024,1,1,06:30,2\n", instants);
    found("Datum;Uhrzeit;Wert\n13.01.2024;05:00;1\n", "2024-01-13T05:00");
    // A day of hours is one, and is said to be.
    let hours: String = (0..24).map(|hour| format!("2024-01-01,{hour},1\n")).collect();
    let text = format!("Date,Time,v\n{hours}");
    let (found_times, notes) = times(&text, &CsvOptions::default()).unwrap();
    assert_eq!(found_times.len(), 24);
    assert_eq!(notes, ["the time is \"Date\" with \"Time\", \"Time\" as the hour of the day"]);
    let text = format!("dteday,hr,v\n{hours}").replace(",1\n", ",72\n");
    assert_eq!(times(&text, &CsvOptions::default()).unwrap().0[23], "2024-01-01T23:00");
    found("date,hr,v\n2024-01-01,72,1\n", "2024-01-01T00:00");
    // Who says so is believed.
    found_in(
        "Date,Time,v\n2024-01-01,0,1\n2024-01-01,1,2\n",
        &by(&["Date", "Time"]),
        "2024-01-01T00:00 2024-01-01T01:00",
    );
    found_in("d,h,m,v\n2024-01-01,5,0,1\n", &by(&["d", "h", "m"]), "2024-01-01T05:00");
    found_in("Date,Time,v\n2024-01-01,0,1\n", &by(&["Date"]), "2024-01-01T00:00");
    refused_in(
        "Date,Time,v\n2024-01-01,86399,1\n",
        &by(&["Date", "Time"]),
        &["make no time together"],
    );
    // A time of day that is something else is left alone.
    found("date,sunrise,v\n2024-01-01,08:12,1\n", "2024-01-01T00:00");
}

#[test]
fn dates_are_read_in_many_forms() {
    found("station,DATE,v\nUSW,18690101,1\nUSW,18690102,2\n", "1869-01-01T00:00 1869-01-02T00:00");
    found(
        "USW00094728,18690101,TMAX,-17\nUSW00094728,18690102,TMAX,-28\n",
        "1869-01-01T00:00 1869-01-02T00:00",
    );
    found("date,v\n202401,1\n202402,2\n", "2024-01-01T00:00 2024-02-01T00:00");
    found("date,v\n2024-01,1\n2024-02,2\n", "2024-01-01T00:00 2024-02-01T00:00");
    found("date,v\n2024-W05-3,1\n2025-W01-1,2\n", "2024-01-31T00:00 2024-12-30T00:00");
    found("date,v\n2024-W05,1\n2020-W53,2\n", "2024-01-29T00:00 2020-12-28T00:00");
    found("time,v\n20240101T050000Z,1\n", "2024-01-01T05:00");
    found("time,v\n2024010105,1\n2024010106,2\n", "2024-01-01T05:00 2024-01-01T06:00");
    found("time,v\n202401010500,1\n", "2024-01-01T05:00");
    found("time,v\n\"Mon, 01 Jan 2024 05:00:00 +0100\",1\n", "2024-01-01T04:00");
    found("time,v\nMon Jan  1 05:00:00 2024,1\n", "2024-01-01T05:00");
    found("time,v\n01/Jan/2024:05:00:00 +0000,1\n", "2024-01-01T05:00");
    found("time,v\n2024-01-01 05:00:00 UTC,1\n", "2024-01-01T05:00");
    found("time,v\n2024/1/5 3:04,1\n", "2024-01-05T03:04");
    found("date,v\n1/13/24 5:00 PM,1\n", "2024-01-13T17:00");
    found("date,v\n\"Jan 13, 2024\",1\n", "2024-01-13T00:00");
    found("Datum;v\n13.01.24 05:00;1\n", "2024-01-13T05:00");
    // What reads versions and codes, too, is a time only where the name says so.
    refused("release,v\n1.2.24,1\n13.2.24,2\n", &["\"release\"", "may be times: --time release"]);
}

#[test]
fn day_and_month_are_not_guessed() {
    refused(
        "date,v\n03/04/2020,1\n05/06/2020,2\n",
        &["\"date\" (\"03/04/2020\"", "\"%d/%m/%Y\" or \"%m/%d/%Y\"", "--time-format"],
    );
    refused("date,v\n03/04/20,1\n", &["say the time format"]);
    // One value tells, also one of another form behind its date.
    found(
        "time,v\n1/2/2023 1:05 PM,1\n1/3/2023 12:00 AM,2\n12/31/2023 12:59:59 PM,3\n",
        "2023-01-02T13:05 2023-01-03T00:00 line 4: time: \"12/31/2023 12:59:59 PM\" is not a time of the form \
         \"%m/%d/%Y %I:%M %p\": AM or PM is missing",
    );
    found(
        "time,v\n1/2/2023 01:05,1\n31/1/2023,2\n1/4/2023 2:05,3\n",
        "2023-02-01T01:05 2023-04-01T02:05 line 3: time: \"31/1/2023\" is not a time of the form \
         \"%d/%m/%Y %H:%M\": the hour is missing",
    );
    refused("time,v\n1/2/2023 1:05 PM,1\n1/3/2023 12:59:59 PM,3\n", &["or \"%m/%d/%Y"]);
    let mut text = String::from("date,v\n");
    (0..5_000).for_each(|row| {
        text.push_str(if row == 4_321 { "04/13/2020,1\n" } else { "03/04/2020,1\n" })
    });
    let (times, _) = times(&text, &CsvOptions::default()).unwrap();
    assert_eq!((times.len(), times[0].as_str()), (5_000, "2020-03-04T00:00"));
}

#[test]
fn years_are_years() {
    let years = "1950-01-01T00:00 1951-01-01T00:00";
    found_in("year,v\n1950,1\n1951,2\n", &by(&["year"]), years);
    found_in("y,v\n1950.0,1\n1951.0,2\n", &by(&["y"]), years);
    found("country,Year,v\nFR,1950,1\nFR,1951,2\n", years);
    found("year,month,v\n1950,1,1\n1950,2,2\n", "1950-01-01T00:00 1950-02-01T00:00");
    found("Year,Month,Day,v\n1950,Jan,2,1\n1950,Sept,3,1\n", "1950-01-02T00:00 1950-09-03T00:00");
    found("year,month,day,hour,v\n1950,1,2,24,1\n", "1950-01-03T00:00");
    found_in("year,month,v\n1950,1,1\n", &by(&["year", "month"]), "1950-01-01T00:00");
    let (_, notes) = times("t,v\n1950,1\n1951,2\n", &by(&["t"])).unwrap();
    assert_eq!(notes, ["the numbers of \"t\" are taken for years"]);
    refused(
        "year,doy,v\n2024,60,1\n2024,61,2\n",
        &["year with or without \"doy\"", "--time-columns year,doy"],
    );
    found_in("year,doy,v\n2024,60,1\n", &by_format(&["year", "doy"], "%Y %j"), "2024-02-29T00:00");
    refused("year,day,v\n2024,1,1\n2024,2,2\n", &["year with or without \"day\""]);
    refused("time,v\n1950,1\n1951,2\n", &["\"time\" may be years: --time time"]);
}

#[test]
fn days_of_spreadsheets_are_read_when_they_are_told() {
    refused(
        "date,v\n45292,1\n45292.25,2\n",
        &["days as spreadsheets count them", "--time-format excel"],
    );
    refused_in("d,v\n45292.25,1\n", &by(&["d"]), &["days as spreadsheets count them", "excel"]);
    let excel = by_format(&["d"], "excel");
    found_in("d,v\n45292,1\n45292.25,2\n", &excel, "2024-01-01T00:00 2024-01-01T06:00");
    // A third of a day has no end of decimals.
    found_in("d,v\n45292.3333333333,1\n61,2\n", &excel, "2024-01-01T08:00 1900-03-01T00:00");
    found_in(
        "d,v\n45292,1\n3,2\n",
        &excel,
        "2024-01-01T00:00 line 3: time: \"3\" is not a time: expected days since 1899-12-30, from 61 on",
    );
}

#[test]
fn lines_above_the_header_are_suspected() {
    let text = "Station: North\n\ntime,v,w\n2024-01-01,1,2\n2024-01-02,1,2\n";
    refused(text, &["most lines have 3 columns: --skip-lines 2 passes over"]);
    found_in(
        text,
        &CsvOptions { skip_lines: 2, ..CsvOptions::default() },
        "2024-01-01T00:00 2024-01-02T00:00",
    );
}

#[test]
fn a_table_knows_its_time() {
    let mut table = TableSchema::new(TableId(0), "t", "stamp");
    table.add_field("event_ms", FieldType::I64).unwrap();
    let options = CsvOptions { table: Some(Arc::new(table)), ..CsvOptions::default() };
    found_in("time,stamp,v\n2024-01-01 05:00,2024-01-02,1\n", &options, "2024-01-02T00:00");
    found_in("event_ms,local_ms,v\n1704067200000,1704067260000,1\n", &options, "2024-01-01T00:01");
    found_in("event_ms,v\n1704067200000,1\n", &options, "2024-01-01T00:00");
}

/// Local times with summer time came in as if they were UTC.
#[test]
fn local_times_are_instants_by_the_zone_that_is_told() {
    let read = |text: &str, options: CsvOptions| {
        let zone = Some(LocalZone::from_name("Europe/Berlin").unwrap());
        let parsed = read_csv(input(text), &CsvOptions { zone, ..options }).unwrap();
        let parsed: Vec<ParsedBatch> = parsed.map(|batch| batch.unwrap()).collect();
        let times =
            parsed.iter().flat_map(|batch| batch.batch.time.iter().map(|t| format_time(*t)));
        let bad: Vec<u64> =
            parsed.iter().flat_map(|batch| batch.bad.iter().map(|bad| bad.line)).collect();
        (times.collect::<Vec<_>>(), bad, parsed.iter().map(|batch| batch.twice).sum::<u64>())
    };
    let winter = "2024-01-15T11:00:00Z".to_owned();
    let first_of_both = "2024-10-27T00:30:00Z".to_owned();
    let expected = (vec![winter.clone(), first_of_both.clone()], vec![3], 1);
    for text in [
        "time,v\n2024-01-15 12:00,1\n2024-03-31 02:30,2\n2024-10-27 02:30,3\n",
        "time,v\n15.01.2024 12:00,1\n31.03.2024 02:30,2\n27.10.2024 02:30,3\n",
        "date,time,v\n2024-01-15,12:00,1\n2024-03-31,02:30,2\n2024-10-27,02:30,3\n",
        "date,time,v\n15.01.2024,12:00,1\n31.03.2024,02:30,2\n27.10.2024,02:30,3\n",
        "year,month,day,hour,minute,v\n2024,1,15,12,0,1\n2024,3,31,2,30,2\n2024,10,27,2,30,3\n",
    ] {
        assert_eq!(read(text, CsvOptions::default()), expected, "{text}");
    }
    // What names a zone, or counts from 1970, is a moment anywhere.
    let zoned = "time,v\n2024-01-15T11:00:00Z,1\n2024-10-27 02:30:00+02:00,3\n";
    assert_eq!(
        read(zoned, CsvOptions::default()),
        (vec![winter.clone(), first_of_both.clone()], vec![], 0)
    );
    let zoned = "time,v\n15.01.2024 11:00 +0000,1\n27.10.2024 02:30 +0200,3\n";
    let format = Some(TimeFormat::from_name("%d.%m.%Y %H:%M %z").unwrap());
    let options = CsvOptions { time_format: format, ..CsvOptions::default() };
    assert_eq!(read(zoned, options), (vec![winter.clone(), first_of_both], vec![], 0));
    assert_eq!(
        read("time,v\n1705316400,1\n", CsvOptions::default()).0,
        std::slice::from_ref(&winter)
    );
    for (text, format) in [
        ("time,v\n15.01.2024 11:00 UTC,1\n", "%d.%m.%Y %H:%M %Z"),
        ("time,v\n15.01.2024 11:00 gmt,1\n", "%d.%m.%Y %H:%M %Z"),
        ("time,v\n15.01.2024 11:00 UTC,1\n", "%d.%m.%Y %H:%M UTC"),
        ("time,v\n20240115110000Z,1\n", "%Y%m%d%H%M%SZ"),
        ("time,v\n15.01.2024 06:00 America/New_York,1\n", "%d.%m.%Y %H:%M %Z"),
        // In German, Z ends the name of a zone, too, which is that of the clocks there.
        ("time,v\n15.01.2024 12:00 MEZ,1\n", "%d.%m.%Y %H:%M MEZ"),
    ] {
        let format = Some(TimeFormat::from_name(format).unwrap());
        let options = CsvOptions { time_format: format, ..CsvOptions::default() };
        assert_eq!(read(text, options).0, std::slice::from_ref(&winter), "{text}");
    }
}
