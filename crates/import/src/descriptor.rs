//! Record descriptors (MDDS, listing 1): XML that says which fields the rows of a stream have, in which order and of which types, and by which of them
//! they are asked for. The rows themselves come as bytes, one field behind the other without gaps, numbers with the least byte first:
//!
//! ```xml
//! <description>
//!   <struct>
//!     <field name="vendor" type="char" array_len=4/>
//!     <field name="pickup_datetime" type="epoch_t"/>
//!     <field name="pickup_latitude" type="float"/>
//!   </struct>
//!   <indexing-dimensions><field name="pickup_latitude"/></indexing-dimensions>
//! </description>
//! ```

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use tidefall_types::{Error, FieldColumn, FieldType, NS_PER_SECOND, Result, TableId, TableSchema};

/// Bytes of a text at most.
const CHARS_MAX: usize = u16::MAX as usize;

/// Of which fields rows consist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    fields: Vec<Described>,
    dimensions: Vec<String>,
}

/// A field of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    name: String,
    kind: Kind,
}

/// What the bytes of a field mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A text of so many bytes at most, which ends at a zero byte.
    Chars(usize),
    /// Seconds since 1970 UTC.
    Epoch,
    /// A number, or a truth value.
    Plain(FieldType),
}

/// The types, by their names in C.
const KINDS: [(&str, Kind); 13] = [
    ("char", Kind::Chars(1)),
    ("epoch_t", Kind::Epoch),
    ("bool", Kind::Plain(FieldType::Bool)),
    ("int8_t", Kind::Plain(FieldType::I8)),
    ("int16_t", Kind::Plain(FieldType::I16)),
    ("int32_t", Kind::Plain(FieldType::I32)),
    ("int64_t", Kind::Plain(FieldType::I64)),
    ("uint8_t", Kind::Plain(FieldType::U8)),
    ("uint16_t", Kind::Plain(FieldType::U16)),
    ("uint32_t", Kind::Plain(FieldType::U32)),
    ("uint64_t", Kind::Plain(FieldType::U64)),
    ("float", Kind::Plain(FieldType::F32)),
    ("double", Kind::Plain(FieldType::F64)),
];

impl Kind {
    fn column(self) -> FieldType {
        match self {
            Self::Chars(_) => FieldType::Text,
            Self::Epoch => FieldType::Timestamp,
            Self::Plain(ty) => ty,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Chars(bytes) => bytes,
            Self::Epoch => size_of::<i64>(),
            Self::Plain(FieldType::Bool) => 1,
            Self::Plain(ty) => ty.width_bytes(),
        }
    }
}

/// Where in the document a field stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Fields,
    Dimensions,
}

impl Part {
    fn of(element: &str) -> Option<Self> {
        match element {
            "struct" => Some(Self::Fields),
            "indexing-dimensions" => Some(Self::Dimensions),
            _ => None,
        }
    }
}

impl Descriptor {
    /// Of the text of a descriptor. Values of attributes may stand without quotes, and elements of other names are passed over.
    ///
    /// # Errors
    /// `Invalid` for what is no XML, for fields without a name or a type, of a type that is none, or that come twice.
    pub fn parse(xml: &str) -> Result<Self> {
        let mut found = Self { fields: Vec::new(), dimensions: Vec::new() };
        let (mut reader, mut part) = (Reader::from_str(xml), None);
        loop {
            let event = reader.read_event().map_err(|error| {
                let line = line_at(xml, reader.error_position());
                Error::invalid(format!("line {line} of the descriptor: {error}"))
            })?;
            let line = || line_at(xml, reader.buffer_position());
            match event {
                Event::Start(element) | Event::Empty(element)
                    if element.name().as_ref() == "field" =>
                {
                    let of_line = |error: Error| {
                        Error::invalid(format!(
                            "line {} of the descriptor: {}",
                            line(),
                            error.message()
                        ))
                    };
                    match part {
                        Some(Part::Fields) => found.add_field(&element).map_err(of_line)?,
                        Some(Part::Dimensions) => {
                            found.dimensions.push(
                                Attributes::of(&element)
                                    .and_then(Attributes::name)
                                    .map_err(of_line)?,
                            );
                        }
                        None => {
                            return Err(of_line(Error::invalid(
                                "a field stands in <struct> or in <indexing-dimensions>",
                            )));
                        }
                    }
                }
                Event::Start(element) => {
                    part = Part::of(element.name().as_ref()).or(part);
                }
                Event::End(element) if Part::of(element.name().as_ref()).is_some() => part = None,
                Event::Eof => break,
                _ => {}
            }
        }
        if found.fields.is_empty() {
            return Err(Error::invalid("the descriptor has no <field> in a <struct>"));
        }
        // What is wrong with names and dimensions is found here.
        found.schema("described")?;
        Ok(found)
    }

    fn add_field(&mut self, element: &BytesStart<'_>) -> Result<()> {
        let attributes = Attributes::of(element)?;
        let Attributes { ty, length, .. } = &attributes;
        let ty = ty.as_deref().ok_or_else(|| Error::invalid("a field without a type"))?;
        let known = KINDS.iter().find(|(name, _)| *name == ty).map(|(_, kind)| *kind);
        let kind = known.ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            Error::invalid(format!("a field of type {ty:?}; types are {}", names.join(", ")))
        })?;
        let kind = match (kind, length) {
            (kind, None) => kind,
            (Kind::Chars(_), Some(text)) => match text.parse() {
                Ok(bytes @ 1..=CHARS_MAX) => Kind::Chars(bytes),
                _ => {
                    return Err(Error::invalid(format!(
                        "array_len={text:?}: a text has from 1 to {CHARS_MAX} bytes"
                    )));
                }
            },
            _ => return Err(Error::invalid(format!("array_len is for char, not for {ty}"))),
        };
        let name = attributes.name()?;
        self.fields.push(Described { name, kind });
        Ok(())
    }

    /// The table that its rows fit into.
    ///
    /// # Errors
    /// `Invalid` for names that columns cannot have or that come twice, and for dimensions that cannot be some.
    pub fn schema(&self, table: &str) -> Result<TableSchema> {
        let mut schema = TableSchema::records(TableId(0), table);
        for Described { name, kind } in &self.fields {
            schema.add_field(name, kind.column())?;
        }
        schema.set_dimensions(&self.dimensions)?;
        Ok(schema)
    }

    /// How many bytes a row has.
    pub fn row_bytes(&self) -> usize {
        self.fields.iter().map(|field| field.kind.bytes()).sum()
    }

    /// The columns of some rows; the first of them is number `first` of its file, counted from 1.
    ///
    /// # Errors
    /// `Invalid` for bytes that are not whole rows, a text that is no UTF-8, a truth value that is neither 0 nor 1, and a time that is out of range.
    pub fn columns(&self, bytes: &[u8], first: u64) -> Result<Vec<FieldColumn>> {
        let row_bytes = self.row_bytes();
        if !bytes.len().is_multiple_of(row_bytes) {
            return Err(Error::invalid(format!(
                "the last row has {} bytes, and a row of the descriptor has {row_bytes}",
                bytes.len() % row_bytes
            )));
        }
        let mut offset = 0;
        let columns = self.fields.iter().map(|Described { name, kind }| {
            let of_field = offset..offset + kind.bytes();
            offset = of_field.end;
            let values = bytes.chunks_exact(row_bytes).map(|row| &row[of_field.clone()]);
            let values = decode(*kind, values).map_err(|(row, why)| {
                Error::invalid(format!("row {}, field {name}: {why}", first + row as u64))
            });
            Ok(FieldColumn { name: name.clone(), values: values? })
        });
        columns.collect()
    }
}

/// The column of the bytes of each row; which row is wrong, and why.
fn decode<'a>(
    kind: Kind,
    rows: impl Iterator<Item = &'a [u8]>,
) -> std::result::Result<ArrayRef, (usize, String)> {
    macro_rules! plain {
        ($array:ty, $native:ty) => {
            Arc::new(<$array>::from_iter_values(
                rows.map(|bytes| <$native>::from_le_bytes(array(bytes))),
            ))
        };
    }
    Ok(match kind {
        Kind::Chars(_) => {
            let mut texts = StringBuilder::new();
            for (row, bytes) in rows.enumerate() {
                let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                match std::str::from_utf8(&bytes[..end]) {
                    Ok(text) => texts.append_value(text),
                    Err(_) => return Err((row, "a text that is no UTF-8".into())),
                }
            }
            Arc::new(texts.finish())
        }
        Kind::Epoch => {
            let times = rows.enumerate().map(|(row, bytes)| {
                let seconds = i64::from_le_bytes(array(bytes));
                let why = || (row, format!("{seconds} s since 1970 is no time that there is here"));
                seconds.checked_mul(NS_PER_SECOND).ok_or_else(why)
            });
            let times: Vec<i64> = times.collect::<std::result::Result<_, _>>()?;
            Arc::new(TimestampNanosecondArray::from(times))
        }
        Kind::Plain(FieldType::Bool) => {
            let truths = rows.enumerate().map(|(row, bytes)| match bytes {
                [0] => Ok(false),
                [1] => Ok(true),
                other => Err((row, format!("{other:?} is neither 0 nor 1"))),
            });
            Arc::new(BooleanArray::from(truths.collect::<std::result::Result<Vec<_>, _>>()?))
        }
        Kind::Plain(FieldType::I8) => plain!(Int8Array, i8),
        Kind::Plain(FieldType::I16) => plain!(Int16Array, i16),
        Kind::Plain(FieldType::I32) => plain!(Int32Array, i32),
        Kind::Plain(FieldType::I64 | FieldType::Timestamp) => plain!(Int64Array, i64),
        Kind::Plain(FieldType::U8) => plain!(UInt8Array, u8),
        Kind::Plain(FieldType::U16) => plain!(UInt16Array, u16),
        Kind::Plain(FieldType::U32) => plain!(UInt32Array, u32),
        Kind::Plain(FieldType::U64) => plain!(UInt64Array, u64),
        Kind::Plain(FieldType::F32) => plain!(Float32Array, f32),
        Kind::Plain(FieldType::F64 | FieldType::Text) => plain!(Float64Array, f64),
    })
}

/// The bytes of a number, of which there are as many.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    all.copy_from_slice(bytes);
    all
}

/// What is said of a field.
#[derive(Default)]
struct Attributes {
    name: Option<String>,
    ty: Option<String>,
    length: Option<String>,
}

impl Attributes {
    fn of(element: &BytesStart<'_>) -> Result<Self> {
        let mut all = Self::default();
        for attribute in element.html_attributes() {
            let attribute =
                attribute.map_err(|error| Error::invalid(format!("an attribute: {error}")))?;
            let place = match attribute.key.as_ref() {
                "name" => &mut all.name,
                "type" => &mut all.ty,
                "array_len" => &mut all.length,
                _ => continue,
            };
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map_err(|error| Error::invalid(format!("an attribute: {error}")))?;
            *place = Some(value.into_owned());
        }
        Ok(all)
    }

    fn name(self) -> Result<String> {
        self.name.ok_or_else(|| Error::invalid("a field without a name"))
    }
}

fn line_at(text: &str, position: u64) -> usize {
    let end = usize::try_from(position).unwrap_or(usize::MAX).min(text.len());
    text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const TAXI: &str = r#"<?xml version="1.0"?>
<description typeid="..."> <!-- UUID -->
<struct>
  <field name="vendor" type="char" array_len=4/>
  <field name="at" type="epoch_t"/>
  <field name="n" type="uint8_t"/>
  <field name="lat" type="float"/>
  <field name="paid" type="bool"></field>
</struct>
<indexing-dimensions>
  <field name="lat"/>
  <field name="at"/>
</indexing-dimensions>
</description>"#;

    fn row(vendor: &[u8; 4], seconds: i64, n: u8, lat: f32, paid: u8) -> Vec<u8> {
        [&vendor[..], &seconds.to_le_bytes(), &[n], &lat.to_le_bytes(), &[paid]].concat()
    }

    #[test]
    fn a_descriptor_says_what_rows_are() {
        let taxi = Descriptor::parse(TAXI).unwrap();
        assert_eq!(taxi.row_bytes(), 18);
        let schema = taxi.schema("trips").unwrap();
        let types: Vec<FieldType> = schema.fields.iter().map(|field| field.ty).collect();
        use FieldType::{Bool, F32, Text, Timestamp, U8};
        assert_eq!(types, [Text, Timestamp, U8, F32, Bool]);
        let names = schema.dimensions.iter().map(|id| &*schema.fields[id.index()].name);
        assert_eq!(names.collect::<Vec<_>>(), ["lat", "at"]);
        let rows = [row(b"VTS\0", 1, 7, 40.5, 1), row(b"CMTX", -2, 0, -1.0, 0)].concat();
        let columns = taxi.columns(&rows, 1).unwrap();
        let shown = |at: usize| format!("{:?}", columns[at].values.slice(0, 2).to_data());
        assert!(shown(0).contains("86, 84, 83, 67, 77, 84, 88"), "{}", shown(0));
        let times: &TimestampNanosecondArray = columns[1].values.as_any().downcast_ref().unwrap();
        assert_eq!(times.values()[..], [1_000_000_000, -2_000_000_000]);
        let floats: &Float32Array = columns[3].values.as_any().downcast_ref().unwrap();
        assert_eq!(floats.values()[..], [40.5, -1.0]);
        assert!(taxi.columns(&[], 1).unwrap().iter().all(|column| column.values.is_empty()));
    }

    #[test]
    fn wrong_rows_are_named() {
        let taxi = Descriptor::parse(TAXI).unwrap();
        let good = row(b"VTS\0", 1, 7, 40.5, 1);
        for (bad, expected) in [
            (row(b"\xff\0\0\0", 1, 7, 1.0, 1), "row 12, field vendor: a text that is no UTF-8"),
            (row(b"a\0\0\0", i64::MAX, 7, 1.0, 1), "row 12, field at: 9223372036854775807 s"),
            (row(b"a\0\0\0", 1, 7, 1.0, 2), "row 12, field paid: [2] is neither"),
        ] {
            let error = taxi.columns(&[good.clone(), bad].concat(), 11).unwrap_err();
            assert!(error.message().starts_with(expected), "{error}");
        }
        let error = taxi.columns(&good[1..], 1).unwrap_err();
        assert!(error.message().contains("the last row has 17 bytes"), "{error}");
    }

    #[test]
    fn wrong_descriptors_are_refused() {
        for (from, to, expected) in [
            (
                "uint8_t",
                "uint9_t",
                "line 6 of the descriptor: a field of type \"uint9_t\"; types are char, epoch_t",
            ),
            ("array_len=4", "array_len=0", "line 4 of the descriptor: array_len=\"0\""),
            (
                "type=\"float\"",
                "type=\"float\" array_len=\"2\"",
                "line 7 of the descriptor: array_len is for char",
            ),
            (" type=\"epoch_t\"", "", "line 5 of the descriptor: a field without a type"),
            ("name=\"n\" ", "", "line 6 of the descriptor: a field without a name"),
            ("name=\"n\" ", "name=\"at\" ", "at"),
            (
                "<field name=\"lat\"/>",
                "<field name=\"vendor\"/>",
                "dimensions are numbers and times",
            ),
            ("</struct>", "</structure>", "line 9 of the descriptor"),
            ("<struct>", "", "line 4 of the descriptor: a field stands in <struct>"),
        ] {
            assert!(TAXI.contains(from));
            let error = Descriptor::parse(&TAXI.replacen(from, to, 1)).unwrap_err();
            assert!(error.message().contains(expected), "{to}: {error}");
        }
        for empty in ["", "taxi", "<description/>"] {
            let error = Descriptor::parse(empty).unwrap_err();
            assert!(error.message().contains("no <field>"), "{error}");
        }
    }

    /// Damaged text, as the fuzzer has it for longer.
    #[test]
    fn any_text_is_a_descriptor_or_an_error() {
        let mut rng = SmallRng::seed_from_u64(8);
        let mut read = 0;
        for _ in 0..20_000 {
            let mut bytes = TAXI.as_bytes().to_vec();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                match rng.random_range(0..3) {
                    0 => bytes[at] = b"</>=\"&a1 \n"[rng.random_range(0..10)],
                    1 if bytes.len() > 1 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at + 1),
                }
            }
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let Ok(descriptor) = Descriptor::parse(&text) else { continue };
            read += 1;
            assert!(descriptor.schema("t").is_ok() && descriptor.row_bytes() > 0);
        }
        assert!((100..19_000).contains(&read), "{read} were read");
    }
}
