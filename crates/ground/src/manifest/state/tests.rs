use std::sync::Arc;

use tidefall_simulation::MemDisk;
use tidefall_store::{LocalIo, ObjectIo, names};
use tidefall_types::{ErrorKind, FieldType, TableKind};

use super::super::log::ManifestLog;
use super::super::object::{Kind, encode};
use super::*;

/// Each edit as the manifest has had it since format 4, ...
const EDITS: &str = concat!(
    r#"[{"begun":{"number":9,"from_version":1}},{"at":7},"#,
    r#"{"put_table":{"id":3,"name":"plant","columns":[{"name":"time","kind":"time"},{"name":"sensor","kind":{"tag":0}},"#,
    r#"{"name":"value","kind":{"field":0}}],"tags":["sensor"],"fields":[{"name":"value","type":"f64"}],"#,
    r#""options":{"kv_age_ns":86400000000000,"short_age_ns":2592000000000000,"block_ns":3600000000000,"retention_ns":null}}},"#,
    r#"{"add_object":[3,{"id":10,"model":"kv","last_seq":5,"last_delete":0,"is_distinct":false,"#,
    r#""time":{"first_ns":-4,"last_ns":8},"first_sensor":0,"last_sensor":6,"rows":100,"bytes":2000}]},"#,
    r#"{"add_object":[3,{"id":11,"writer":9,"model":"long","since_ns":6,"last_seq":7,"last_delete":4,"is_distinct":true,"#,
    r#""time":{"first_ns":1,"last_ns":2},"first_sensor":3,"last_sensor":4,"rows":5,"bytes":6}]},"#,
    r#"{"remove_object":[3,10]},"#,
    r#"{"add_sensors":[3,{"id":12,"first":0,"count":4,"bytes":44}]},"#,
    r#"{"replace_sensors":[3,{"id":13,"writer":9,"first":0,"count":7,"bytes":77}]},"#,
    r#"{"add_tombstone":[3,{"seq":2,"time":{"first_ns":0,"last_ns":1},"sensors":"00ff"}]},"#,
    r#"{"add_tombstone":[3,{"seq":6,"time":{"first_ns":0,"last_ns":1},"sensors":null}]},"#,
    r#"{"remove_tombstone":[3,2]},"#,
    r#"{"drained":[3,{"upto":5,"before_ns":9}]},"#,
    r#"{"drop_table":4},{"wal_from":5},{"log_end":8}]"#
);

/// Those of tables of records, since format 5.
const EDITS_OF_RECORDS: &str = concat!(
    r#"[{"put_table":{"id":5,"name":"trips","kind":"records","columns":[{"name":"lat","kind":{"field":0}}],"tags":[],"#,
    r#""fields":[{"name":"lat","type":"f64"}],"dimensions":[0],"#,
    r#""options":{"kv_age_ns":86400000000000,"short_age_ns":2592000000000000,"block_ns":3600000000000,"retention_ns":null}}},"#,
    r#"{"add_segment":[5,{"id":20,"writer":9,"since_ns":6,"last_seq":7,"last_delete":4,"rows":100,"bytes":2000,"#,
    r#""bounds":[[-4,8]]}]},"#,
    r#"{"add_segment":[5,{"id":21,"last_seq":9,"last_delete":0,"rows":1,"bytes":200,"bounds":[[1,1]]}]},"#,
    r#"{"remove_object":[5,21]},"#,
    r#"{"add_tombstone":[5,{"seq":10,"time":{"first_ns":-9223372036854775808,"last_ns":9223372036854775807},"#,
    r#""sensors":null,"boxes":[[[0,1]],[[5,9223372036854775807]]]}]}]"#
);

/// What is stored of the table that they are of.
const RECORDS: &str = concat!(
    r#""segments":{"20":{"id":20,"writer":9,"since_ns":6,"last_seq":7,"last_delete":4,"rows":100,"bytes":2000,"#,
    r#""bounds":[[-4,8]]}},"#,
    r#""tombstones":[{"seq":10,"time":{"first_ns":-9223372036854775808,"last_ns":9223372036854775807},"#,
    r#""sensors":null,"boxes":[[[0,1]],[[5,9223372036854775807]]]}]"#
);

/// ... and the state that all of them lead to.
const STATE: &str = concat!(
    r#"{"tables":{"3":{"schema":{"id":3,"name":"plant","columns":[{"name":"time","kind":"time"},"#,
    r#"{"name":"sensor","kind":{"tag":0}},{"name":"value","kind":{"field":0}}],"tags":["sensor"],"#,
    r#""fields":[{"name":"value","type":"f64"}],"options":{"kv_age_ns":86400000000000,"short_age_ns":2592000000000000,"#,
    r#""block_ns":3600000000000,"retention_ns":null}},"#,
    r#""objects":{"11":{"id":11,"writer":9,"model":"long","since_ns":6,"last_seq":7,"last_delete":4,"is_distinct":true,"#,
    r#""time":{"first_ns":1,"last_ns":2},"first_sensor":3,"last_sensor":4,"rows":5,"bytes":6}},"#,
    r#""sensors":[{"id":13,"writer":9,"first":0,"count":7,"bytes":77}],"#,
    r#""tombstones":[{"seq":6,"time":{"first_ns":0,"last_ns":1},"sensors":null}],"#,
    r#""drained":[{"upto":5,"before_ns":9}]}},"#,
    r#""next_table":4,"next_object":14,"wal_from":5,"log_end":8,"at_ns":7,"#,
    r#""replaced":{"objects/0000000000000010.kv":7,"objects/0000000000000012.sensors":7},"#,
    r#""writers":[{"number":9,"from_version":1}]}"#
);

fn state_after(edits: &[Edit]) -> State {
    let mut state = State::default();
    edits.iter().for_each(|edit| state.apply(edit));
    state
}

#[test]
fn edits_and_states_are_as_earlier_versions_wrote_them() {
    let edits: Vec<Edit> = serde_json::from_str(EDITS).unwrap();
    assert_eq!(serde_json::to_string(&edits).unwrap(), EDITS);
    let state = state_after(&edits);
    assert_eq!(serde_json::to_string(&state).unwrap(), STATE);
    assert_eq!(serde_json::from_str::<State>(STATE).unwrap(), state);
    let names: Vec<String> = state.tables.values().flat_map(TableState::object_names).collect();
    let expected =
        ["objects/0000000000000011-00000009.long", "objects/0000000000000013-00000009.sensors"];
    assert_eq!(names, expected);
}

#[test]
fn edits_and_states_of_records_stay_as_they_are() {
    let edits: Vec<Edit> = serde_json::from_str(EDITS_OF_RECORDS).unwrap();
    assert_eq!(serde_json::to_string(&edits).unwrap(), EDITS_OF_RECORDS);
    let state = state_after(&edits);
    let json = serde_json::to_string(&state).unwrap();
    assert!(json.contains(RECORDS), "{json}");
    assert_eq!(serde_json::from_str::<State>(&json).unwrap(), state);
    let names: Vec<String> = state.tables.values().flat_map(TableState::object_names).collect();
    assert_eq!(names, ["objects/0000000000000020-00000009.records"]);
    assert_eq!((state.next_object, state.tables[&TableId(5)].last_seq()), (22, Some(Seq(10))));
    assert!(state.records(TableId(5)).is_some() && state.series(TableId(5)).is_none());
}

#[test]
fn a_table_without_its_objects_is_refused() {
    let edits: Vec<Edit> = serde_json::from_str(EDITS_OF_RECORDS).unwrap();
    let records = serde_json::to_string(&state_after(&edits)).unwrap();
    for damaged in [
        records.replace(r#""segments""#, r#""objects""#),
        records.replace(r#""kind":"records","#, ""),
        STATE.replace(r#""sensors":[{"id""#, r#""segments":[{"id""#),
        STATE.replace(r#""objects":{"#, r#""objekts":{"#),
    ] {
        assert!(serde_json::from_str::<State>(&damaged).is_err(), "{damaged}");
    }
}

#[test]
fn a_schema_that_does_not_say_its_kind_is_that_of_a_series_table() {
    let mut schema = TableSchema::new(TableId(7), "plant", "time");
    schema.add_field("value", FieldType::F64).unwrap();
    let json = serde_json::to_string(&schema).unwrap();
    let with = |kind: &str| json.replacen('{', &format!("{{\"kind\":{kind:?},"), 1);
    assert_eq!(serde_json::from_str::<TableSchema>(&json).unwrap(), schema);
    assert_eq!(serde_json::from_str::<TableSchema>(&with("series")).unwrap(), schema);
    for kind in TableKind::ALL {
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
        assert_eq!(TableKind::from_name(&kind.name().to_uppercase()), Some(kind));
    }
}

#[test]
fn a_table_of_an_unknown_kind_is_refused_with_its_kind_and_what_to_do() {
    let of_heaps =
        |json: &str| json.replace(r#""name":"plant""#, r#""name":"plant","kind":"heaps""#);
    let edits = serde_json::from_str::<Vec<Edit>>(&of_heaps(EDITS)).unwrap_err();
    let state = serde_json::from_str::<State>(&of_heaps(STATE)).unwrap_err();
    for error in [edits.to_string(), state.to_string()] {
        assert!(error.contains("of the kind \"heaps\""), "{error}");
        assert!(error.contains("open the database with the version"), "{error}");
    }
    let disk = MemDisk::new();
    disk.place(&names::manifest_delta(1), &encode(Kind::Delta, 7, 1, of_heaps(EDITS).as_bytes()));
    let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open_read_only(Arc::new(disk)));
    let error = ManifestLog::<State>::open(io).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains(".delta: ") && error.message().contains("heaps"), "{error}");
}
