//! Rows of an answer as bytes: JSON, lines of JSON, CSV, or Arrow's stream.

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use tidefall_sql::{JsonRows, JsonShape, UniqueValues, write_csv, write_csv_header};
use tidefall_types::{Error, Result, sql_type_name};

use crate::parts::Parts;

/// How times are written: as [`tidefall_types::format_time`] does, in UTC.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.fZ";

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    JsonLines,
    Csv,
    Arrow,
}

impl Format {
    /// The format that the parameter `format` names, or else of those in `Accept` that are known the
    /// one that is liked best, the first of equals; JSON when none is.
    ///
    /// # Errors
    /// `Invalid` when the parameter names none.
    pub(crate) fn choose(parameter: Option<&str>, headers: &HeaderMap) -> Result<Self> {
        match parameter {
            Some("json") => return Ok(Self::Json),
            Some("ndjson" | "jsonl") => return Ok(Self::JsonLines),
            Some("csv") => return Ok(Self::Csv),
            Some("arrow") => return Ok(Self::Arrow),
            Some(other) => {
                return Err(Error::invalid(format!(
                    "format {other:?} is unknown: use json, ndjson, csv or arrow"
                )));
            }
            None => {}
        }
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let known = |part: &str| {
            let name = part.split(';').next().unwrap_or_default().trim();
            Some(match name.to_ascii_lowercase().as_str() {
                "application/json" => Self::Json,
                "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                    Self::JsonLines
                }
                "text/csv" | "application/csv" => Self::Csv,
                "application/vnd.apache.arrow.stream" => Self::Arrow,
                _ => return None,
            })
        };
        let liked = accept.split(',').map(|part| (quality(part), part)).filter(|(q, _)| *q > 0.0);
        let liked = liked.filter_map(|(quality, part)| Some((quality, known(part)?)));
        let best = liked.reduce(|best, next| if next.0 > best.0 { next } else { best });
        Ok(best.map_or(Self::Json, |(_, format)| format))
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// How much a part of `Accept` is liked, from 0 for not at all to 1.
fn quality(part: &str) -> f32 {
    part.split(';')
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(1.0)
}

/// Turns batches into bytes, piece by piece.
pub(crate) struct Encoder {
    /// What is written, but for Arrow, whose writer has it.
    out: Parts,
    rows: usize,
    /// Those of them that were taken.
    rows_taken: usize,
    writer: Writer,
}

enum Writer {
    Json(JsonRows),
    JsonLines(JsonRows),
    /// With the lines of a batch, while they are made.
    Csv(Vec<u8>),
    Arrow(Box<StreamWriter<Parts>>, UniqueValues),
}

impl Encoder {
    /// Begins an answer with the columns of `schema`.
    ///
    /// # Errors
    /// `Unsupported` when a type cannot be written, `Invalid` when names are not to be told apart.
    pub(crate) fn start(format: Format, schema: &Schema) -> Result<Self> {
        let mut out = Parts::default();
        let writer = match format {
            Format::Json => {
                out.extend(&json_head(schema)?);
                Writer::Json(JsonRows::new(JsonShape::Lists, schema, Some(TIME_FORMAT))?)
            }
            Format::JsonLines => {
                Writer::JsonLines(JsonRows::new(JsonShape::Lines, schema, Some(TIME_FORMAT))?)
            }
            Format::Csv => {
                // The header is written with the schema, so that an answer without rows has one.
                let mut lines = Vec::new();
                write_csv_header(&mut lines, schema);
                out.extend(&lines);
                Writer::Csv(lines)
            }
            Format::Arrow => {
                let writer = StreamWriter::try_new(Parts::default(), schema).map_err(unwritable)?;
                Writer::Arrow(Box::new(writer), UniqueValues::new(schema.fields().len()))
            }
        };
        Ok(Self { out, rows: 0, rows_taken: 0, writer })
    }

    /// Adds what comes next; says whether more may follow, which is not so behind the end.
    ///
    /// # Errors
    /// That of what comes next; `Unsupported` when a type or a value cannot be written.
    pub(crate) fn add(&mut self, next: Option<Result<RecordBatch>>) -> Result<bool> {
        match next {
            Some(batch) => self.write(&batch?).map(|()| true),
            None => self.finish().map(|()| false),
        }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        match &mut self.writer {
            Writer::Json(rows) | Writer::JsonLines(rows) => rows.write(&mut self.out, batch)?,
            Writer::Csv(lines) => {
                lines.clear();
                write_csv(lines, batch, Some(TIME_FORMAT))?;
                self.out.extend(lines);
            }
            Writer::Arrow(writer, unique) => {
                writer.write(&unique.apply(batch)?).map_err(unwritable)?;
            }
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    /// Ends the answer; nothing is left that could fail in practice.
    fn finish(&mut self) -> Result<()> {
        match &mut self.writer {
            Writer::Json(_) => self.out.extend(b"]}\n"),
            Writer::Arrow(writer, _) => writer.finish().map_err(unwritable)?,
            Writer::JsonLines(_) | Writer::Csv(_) => {}
        }
        Ok(())
    }

    /// The bytes that are waiting to be taken.
    pub(crate) fn len(&self) -> usize {
        match &self.writer {
            Writer::Arrow(writer, _) => writer.get_ref().len(),
            _ => self.out.len(),
        }
    }

    /// Takes the bytes that were written since the last time, and says how many rows were.
    pub(crate) fn take(&mut self) -> (usize, Parts) {
        let rows = self.rows - std::mem::replace(&mut self.rows_taken, self.rows);
        let parts = std::mem::take(match &mut self.writer {
            Writer::Arrow(writer, _) => writer.get_mut(),
            _ => &mut self.out,
        });
        (rows, parts)
    }
}

fn unwritable(error: ArrowError) -> Error {
    Error::unsupported(format!("the answer cannot be written in this format: {error}"))
}

fn json_head(schema: &Schema) -> Result<Vec<u8>> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let types: Vec<String> =
        schema.fields().iter().map(|field| sql_type_name(field.data_type())).collect();
    let text = |list: serde_json::Result<String>| {
        list.map_err(|error| Error::invalid(format!("the names of the columns: {error}")))
    };
    let names = text(serde_json::to_string(&names))?;
    let types = text(serde_json::to_string(&types))?;
    Ok(format!("{{\"columns\":{names},\"types\":{types},\"rows\":[\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Float64Type, UInt32Type};
    use arrow_array::{
        ArrayRef, DictionaryArray, Float64Array, ListArray, TimestampNanosecondArray,
        TimestampSecondArray,
    };
    use arrow_ipc::reader::StreamReader;
    use arrow_schema::Field;

    use super::*;

    fn batch() -> RecordBatch {
        let host: DictionaryArray<UInt32Type> =
            vec![Some("a"), None, Some("q\"x,y")].into_iter().collect();
        let time = TimestampNanosecondArray::from(vec![0, 1_500_000_000, -1]);
        let value = Float64Array::from(vec![Some(1.5), Some(f64::NAN), None]);
        RecordBatch::try_from_iter_with_nullable([
            ("host", Arc::new(host) as ArrayRef, true),
            ("time", Arc::new(time) as ArrayRef, true),
            ("value", Arc::new(value) as ArrayRef, true),
        ])
        .unwrap()
    }

    fn encode(format: Format, batches: &[RecordBatch]) -> Vec<u8> {
        let mut encoder = Encoder::start(format, &batch().schema()).unwrap();
        batches.iter().for_each(|batch| encoder.write(batch).unwrap());
        encoder.finish().unwrap();
        let (rows, bytes) = encoder.take();
        assert_eq!(rows, batches.iter().map(RecordBatch::num_rows).sum::<usize>());
        assert_eq!(encoder.take().0, 0);
        bytes.into_whole()
    }

    #[test]
    fn json_has_columns_types_and_rows() {
        let bytes = encode(Format::Json, &[batch().slice(0, 2), batch().slice(2, 1)]);
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "columns": ["host", "time", "value"],
                "types": ["TEXT", "TIMESTAMP", "DOUBLE"],
                "rows": [
                    ["a", "1970-01-01T00:00:00Z", 1.5],
                    [null, "1970-01-01T00:00:01.500Z", null],
                    ["q\"x,y", "1969-12-31T23:59:59.999999999Z", null],
                ],
            })
        );
        let empty: serde_json::Value = serde_json::from_slice(&encode(Format::Json, &[])).unwrap();
        assert_eq!(empty["rows"], serde_json::json!([]));
    }

    #[test]
    fn lines_csv_and_arrow_hold_the_same_rows() {
        let lines = String::from_utf8(encode(Format::JsonLines, &[batch()])).unwrap();
        assert_eq!(
            lines.lines().next(),
            Some(r#"{"host":"a","time":"1970-01-01T00:00:00Z","value":1.5}"#)
        );
        assert_eq!(lines.lines().count(), 3);
        let csv = String::from_utf8(encode(Format::Csv, &[batch(), batch()])).unwrap();
        assert_eq!(csv.lines().count(), 7);
        assert!(csv.starts_with("host,time,value\na,1970-01-01T00:00:00Z,1.5\n"), "{csv}");
        assert!(csv.contains("\"q\"\"x,y\",1969-12-31T23:59:59.999999999Z,\n"), "{csv}");
        assert_eq!(encode(Format::Csv, &[]), b"host,time,value\n");
        let arrow = encode(Format::Arrow, &[batch(), batch()]);
        let back: Vec<_> =
            StreamReader::try_new(&*arrow, None).unwrap().map(|batch| batch.unwrap()).collect();
        assert_eq!(back.len(), 2);
        assert_eq!(back[0].column(0), batch().column(0));
    }

    #[test]
    fn columns_of_one_name_differ_in_objects_and_keep_theirs_elsewhere() {
        let one = batch().column(2).slice(0, 1);
        let field = |name| Field::new(name, one.data_type().clone(), true);
        let schema = Schema::new(vec![field("v"), field("v")]);
        let batch = RecordBatch::try_new(schema.into(), vec![one.clone(), one.clone()]).unwrap();
        let text = |format| {
            let mut encoder = Encoder::start(format, &batch.schema()).unwrap();
            encoder.write(&batch).unwrap();
            String::from_utf8(encoder.take().1.into_whole()).unwrap()
        };
        assert_eq!(text(Format::JsonLines), "{\"v\":1.5,\"v_1\":1.5}\n");
        assert!(text(Format::Json).starts_with("{\"columns\":[\"v\",\"v\"]"));
        assert_eq!(text(Format::Csv), "v,v\n1.5,1.5\n");
    }

    #[test]
    fn a_time_that_cannot_be_written_is_an_error_in_every_text() {
        let far = Arc::new(TimestampSecondArray::from(vec![i64::MAX])) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("t", far)]).unwrap();
        for format in [Format::Json, Format::JsonLines, Format::Csv] {
            let mut encoder = Encoder::start(format, &batch.schema()).unwrap();
            let error = encoder.write(&batch).unwrap_err();
            assert_eq!(error.kind(), tidefall_types::ErrorKind::Unsupported);
            assert!(error.message().contains(&i64::MAX.to_string()), "{error}");
        }
    }

    #[test]
    fn csv_has_lists_as_text() {
        let list = vec![Some(vec![Some(1.5), None]), None];
        let list = ListArray::from_iter_primitive::<Float64Type, _, _>(list);
        let batch = RecordBatch::try_from_iter([("list", Arc::new(list) as ArrayRef)]).unwrap();
        let mut encoder = Encoder::start(Format::Csv, &batch.schema()).unwrap();
        encoder.write(&batch).unwrap();
        assert_eq!(
            String::from_utf8(encoder.take().1.into_whole()).unwrap(),
            "list\n\"[1.5, null]\"\n\"\"\n"
        );
    }

    #[test]
    fn the_type_that_is_liked_best_is_chosen() {
        let choose = |accept: &str| {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            Format::choose(None, &headers).unwrap()
        };
        assert_eq!(choose("*/*"), Format::Json);
        assert_eq!(choose("text/html, Text/CSV, application/json"), Format::Csv);
        assert_eq!(choose("text/html, text/csv;q=0.9, application/json"), Format::Json);
        assert_eq!(choose("text/csv;q=0, application/x-ndjson;q=0.1"), Format::JsonLines);
        assert_eq!(choose("application/vnd.apache.arrow.stream"), Format::Arrow);
        assert_eq!(Format::choose(Some("ndjson"), &HeaderMap::new()), Ok(Format::JsonLines));
        assert!(Format::choose(Some("xml"), &HeaderMap::new()).is_err());
    }
}
