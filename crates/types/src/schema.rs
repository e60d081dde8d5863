//! Tables: their columns, types and options.

use arrow_schema::{DataType, FieldRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::{Error, FieldId, NS_PER_DAY, NS_PER_HOUR, Result, TableId, TagId};

/// The type of a field, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // The names say it all.
pub enum FieldType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Bool,
    /// UTF-8 text.
    Text,
    /// Nanoseconds since 1970 UTC.
    Timestamp,
}

/// The name of a type as SQL has it, also of those that no column of a table has: `TIMESTAMP` whatever its unit and zone,
/// `DATE`, `TIME`, `INTERVAL`, `DECIMAL(10,2)`, `DOUBLE[]` for a list and `STRUCT("a" BIGINT)`. Tags are `TEXT`. What SQL has no name
/// for has that of Arrow.
pub fn sql_type_name(arrow: &DataType) -> String {
    match arrow {
        DataType::Timestamp(..) => "TIMESTAMP".to_owned(),
        DataType::Date32 | DataType::Date64 => "DATE".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".to_owned(),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".to_owned(),
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => format!("DECIMAL({digits},{scale})"),
        DataType::Dictionary(_, values) => sql_type_name(values),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => format!("{}[]", sql_type_name(item.data_type())),
        DataType::Struct(fields) => {
            let part = |field: &FieldRef| {
                format!("{:?} {}", field.name(), sql_type_name(field.data_type()))
            };
            format!("STRUCT({})", fields.iter().map(part).collect::<Vec<_>>().join(", "))
        }
        other => match FieldType::from_arrow(other) {
            Some(field) => field.sql_name().to_owned(),
            None => other.to_string(),
        },
    }
}

impl FieldType {
    /// The Arrow type that values of this field have in memory.
    pub fn arrow(self) -> DataType {
        match self {
            Self::I8 => DataType::Int8,
            Self::I16 => DataType::Int16,
            Self::I32 => DataType::Int32,
            Self::I64 => DataType::Int64,
            Self::U8 => DataType::UInt8,
            Self::U16 => DataType::UInt16,
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
            Self::F32 => DataType::Float32,
            Self::F64 => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Nanosecond, None),
        }
    }

    /// The field type that stores an Arrow type without loss, if there is one.
    pub fn from_arrow(arrow: &DataType) -> Option<Self> {
        Some(match arrow {
            DataType::Int8 => Self::I8,
            DataType::Int16 => Self::I16,
            DataType::Int32 => Self::I32,
            DataType::Int64 => Self::I64,
            DataType::UInt8 => Self::U8,
            DataType::UInt16 => Self::U16,
            DataType::UInt32 => Self::U32,
            DataType::UInt64 => Self::U64,
            DataType::Float32 => Self::F32,
            DataType::Float64 => Self::F64,
            DataType::Boolean => Self::Bool,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Timestamp(TimeUnit::Nanosecond, None) => Self::Timestamp,
            _ => return None,
        })
    }

    /// The name that SQL uses for it, as `DESCRIBE` prints it.
    pub const fn sql_name(self) -> &'static str {
        match self {
            Self::I8 => "TINYINT",
            Self::I16 => "SMALLINT",
            Self::I32 => "INTEGER",
            Self::I64 => "BIGINT",
            Self::U8 => "TINYINT UNSIGNED",
            Self::U16 => "SMALLINT UNSIGNED",
            Self::U32 => "INTEGER UNSIGNED",
            Self::U64 => "BIGINT UNSIGNED",
            Self::F32 => "REAL",
            Self::F64 => "DOUBLE",
            Self::Bool => "BOOLEAN",
            Self::Text => "TEXT",
            Self::Timestamp => "TIMESTAMP",
        }
    }

    /// The type that SQL calls so: the names of [`FieldType::sql_name`] and their usual synonyms, whatever the case.
    pub fn from_sql_name(name: &str) -> Option<Self> {
        let words: Vec<String> = name.split_whitespace().map(str::to_uppercase).collect();
        Some(match words.join(" ").as_str() {
            "TINYINT" | "INT1" => Self::I8,
            "SMALLINT" | "INT2" => Self::I16,
            "INTEGER" | "INT" | "INT4" => Self::I32,
            "BIGINT" | "INT8" => Self::I64,
            "TINYINT UNSIGNED" => Self::U8,
            "SMALLINT UNSIGNED" => Self::U16,
            "INTEGER UNSIGNED" | "INT UNSIGNED" => Self::U32,
            "BIGINT UNSIGNED" => Self::U64,
            "REAL" | "FLOAT" | "FLOAT4" => Self::F32,
            "DOUBLE" | "DOUBLE PRECISION" | "FLOAT8" => Self::F64,
            "BOOLEAN" | "BOOL" => Self::Bool,
            "TEXT" | "VARCHAR" | "STRING" => Self::Text,
            "TIMESTAMP" | "DATETIME" => Self::Timestamp,
            _ => return None,
        })
    }

    /// All types.
    pub const ALL: [Self; 13] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::Text,
        Self::Timestamp,
    ];

    /// Whether it holds numbers, for which all block metrics are kept. Of timestamps they have least, greatest, first
    /// and last.
    pub const fn is_numeric(self) -> bool {
        !matches!(self, Self::Text | Self::Bool | Self::Timestamp)
    }

    /// Whether records can be asked for by it: its values have an order, as numbers and times do.
    pub const fn is_dimension(self) -> bool {
        !matches!(self, Self::Text | Self::Bool)
    }

    /// Whether it holds whole numbers alone, those below zero among them.
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Whether it holds whole numbers alone.
    pub const fn is_integer(self) -> bool {
        self.is_numeric() && !matches!(self, Self::F32 | Self::F64)
    }

    /// The type to which a field of numbers of this type is widened when numbers of another type come that it cannot hold:
    /// that which holds the numbers of both, or else those that are likely. None if there is no other, and for what is not a
    /// number.
    pub const fn wider(self, came: Self) -> Option<Self> {
        use FieldType::{F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        if !self.is_numeric() || !came.is_numeric() {
            return None;
        }
        let wider = match (self, came) {
            (F32 | F64, _) | (_, F32 | F64) => F64,
            // Of both no type holds all numbers; what came is what lacks room.
            (U64, I8 | I16 | I32 | I64) => I64,
            (I8 | I16 | I32 | I64, U64) | (U8 | U16 | U32 | U64, U64) | (U64, U8 | U16 | U32) => {
                U64
            }
            (U32, U8 | U16 | U32) | (U8 | U16, U32) => U32,
            (U16, U8 | U16) | (U8, U16) => U16,
            (U8, U8) => U8,
            (I64 | U32, _) | (_, I64 | U32) => I64,
            (I32 | U16, _) | (_, I32 | U16) => I32,
            (I16 | U8, _) | (_, I16 | U8) => I16,
            _ => I8,
        };
        match wider as u8 == self as u8 {
            true => None,
            false => Some(wider),
        }
    }

    /// Bytes of one value in memory; an estimate for text.
    pub const fn width_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::Timestamp => 8,
            Self::Text => 24,
        }
    }
}

/// A field of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name, unique among the columns of the table.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: FieldType,
}

/// What a column of a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// The time of the reading: nanoseconds since 1970 UTC.
    Time,
    /// A tag: text that names the sensor.
    Tag(TagId),
    /// A field: what the sensor measures.
    Field(FieldId),
}

/// A column as SQL shows it, in the order of declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, unique in the table; case matters.
    pub name: String,
    /// What it is.
    pub kind: ColumnKind,
}

/// How a table keeps its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableOptions {
    /// Readings younger than this stay in the key-value model.
    pub kv_age_ns: i64,
    /// Readings younger than this stay in short columns; older ones go to long columns.
    pub short_age_ns: i64,
    /// The block interval: the unit of block metrics.
    pub block_ns: i64,
    /// Readings older than this are dropped.
    #[serde(default)]
    pub retention_ns: Option<i64>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            kv_age_ns: NS_PER_DAY,
            short_age_ns: 30 * NS_PER_DAY,
            block_ns: NS_PER_HOUR,
            retention_ns: None,
        }
    }
}

/// How rows of a table are told apart and laid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "String")]
pub enum TableKind {
    /// A series of readings for each sensor: identity is the tags and the time.
    #[default]
    Series,
    /// Records: rows without identity, which are asked for by boxes over some of their columns.
    Records,
}

impl TableKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Series, Self::Records];

    /// Its name, as `CREATE TABLE` and the manifest have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::Records => "records",
        }
    }

    /// The kind of this name, whatever the case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// Whether it is that of tables whose schema does not say, as earlier versions wrote it.
    #[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl TryFrom<String> for TableKind {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            format!(
                "a table is of the kind {name:?}, which this version does not know; open the database with the version of \
                 Tidefall that wrote it, or a newer one"
            )
        })
    }
}

/// A table. Columns are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// The table's id.
    pub id: TableId,
    /// The table's name; case matters.
    pub name: String,
    /// Its kind, which never changes.
    #[serde(default, skip_serializing_if = "TableKind::is_default")]
    pub kind: TableKind,
    /// All columns in the order in which they were declared or first seen.
    pub columns: Vec<Column>,
    /// The tags, by [`TagId`].
    pub tags: Vec<String>,
    /// The fields, by [`FieldId`].
    pub fields: Vec<Field>,
    /// The fields by which records are asked for, in the order of their declaration; none in series tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dimensions: Vec<FieldId>,
    /// The options.
    pub options: TableOptions,
}

/// The most dimensions of records: a row is tested in each that a box bounds.
pub const DIMENSIONS_MAX: usize = 16;

impl TableSchema {
    /// A series table with no column but its time, which is called `time_name`.
    pub fn new(id: TableId, name: impl Into<String>, time_name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            kind: TableKind::default(),
            columns: vec![Column { name: time_name.into(), kind: ColumnKind::Time }],
            tags: Vec::new(),
            fields: Vec::new(),
            dimensions: Vec::new(),
            options: TableOptions::default(),
        }
    }

    /// A table of records that has no column as yet.
    pub fn records(id: TableId, name: impl Into<String>) -> Self {
        let columns = Vec::new();
        Self { kind: TableKind::Records, columns, ..Self::new(id, name, "") }
    }

    /// The fields of a table of records by which it is asked for become these.
    ///
    /// # Errors
    /// `NotFound` for a name that no column has, `Invalid` for one that cannot be a dimension, that comes twice, or that are none or more than
    /// [`DIMENSIONS_MAX`].
    pub fn set_dimensions(&mut self, names: &[impl AsRef<str>]) -> Result<()> {
        if !(1..=DIMENSIONS_MAX).contains(&names.len()) {
            return Err(Error::invalid(format!(
                "table {}: records have from 1 to {DIMENSIONS_MAX} dimensions, not {}",
                self.name,
                names.len()
            )));
        }
        let mut dimensions = Vec::with_capacity(names.len());
        for name in names.iter().map(AsRef::as_ref) {
            let id = self.fields.iter().position(|field| field.name == name).ok_or_else(|| {
                Error::not_found(format!(
                    "table {} has no column {name:?} to be a dimension",
                    self.name
                ))
            })?;
            let ty = self.fields[id].ty;
            if !ty.is_dimension() {
                return Err(Error::invalid(format!(
                    "table {}: column {name:?} is of type {}; dimensions are numbers and times",
                    self.name,
                    ty.sql_name()
                )));
            }
            let id = FieldId(id as u16);
            if dimensions.contains(&id) {
                return Err(Error::invalid(format!(
                    "table {}: column {name:?} is a dimension twice",
                    self.name
                )));
            }
            dimensions.push(id);
        }
        self.dimensions = dimensions;
        Ok(())
    }

    /// The column called `name`.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The ids and types of all fields, in their order.
    pub fn typed_fields(&self) -> Vec<(FieldId, FieldType)> {
        let fields = self.fields.iter().enumerate();
        fields.map(|(id, field)| (FieldId(id as u16), field.ty)).collect()
    }

    /// The name of the time column.
    pub fn time_name(&self) -> &str {
        self.columns
            .iter()
            .find(|column| column.kind == ColumnKind::Time)
            .map_or("time", |column| column.name.as_str())
    }

    /// Adds a tag.
    ///
    /// # Errors
    /// `Conflict` when a column of that name exists.
    pub fn add_tag(&mut self, name: &str) -> Result<TagId> {
        self.check_free(name)?;
        let id = TagId(u16::try_from(self.tags.len()).map_err(|_| too_many(&self.name))?);
        self.tags.push(name.to_owned());
        self.columns.push(Column { name: name.to_owned(), kind: ColumnKind::Tag(id) });
        Ok(id)
    }

    /// Adds a field.
    ///
    /// # Errors
    /// `Conflict` when a column of that name exists.
    pub fn add_field(&mut self, name: &str, ty: FieldType) -> Result<FieldId> {
        self.check_free(name)?;
        let id = FieldId(u16::try_from(self.fields.len()).map_err(|_| too_many(&self.name))?);
        self.fields.push(Field { name: name.to_owned(), ty });
        self.columns.push(Column { name: name.to_owned(), kind: ColumnKind::Field(id) });
        Ok(id)
    }

    /// Takes back the columns behind the first `count`, which were added last.
    pub fn cut_back(&mut self, count: usize) {
        for column in self.columns.drain(count.min(self.columns.len())..) {
            match column.kind {
                ColumnKind::Time => {}
                ColumnKind::Tag(_) => drop(self.tags.pop()),
                ColumnKind::Field(_) => drop(self.fields.pop()),
            }
        }
    }

    /// The Arrow type in which SQL shows a column: nanosecond timestamps in UTC without a zone,
    /// dictionary-encoded text for tags, and the plain type for fields.
    pub fn arrow_type(&self, kind: ColumnKind) -> DataType {
        match kind {
            ColumnKind::Time => DataType::Timestamp(TimeUnit::Nanosecond, None),
            ColumnKind::Tag(_) => {
                DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8))
            }
            ColumnKind::Field(id) => self.fields[id.index()].ty.arrow(),
        }
    }

    /// The type of a column as SQL names it.
    pub fn sql_type(&self, column: &Column) -> &'static str {
        match column.kind {
            ColumnKind::Time => "TIMESTAMP",
            ColumnKind::Tag(_) => "TEXT",
            ColumnKind::Field(id) => self.fields[id.index()].ty.sql_name(),
        }
    }

    fn check_free(&self, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Error::invalid(format!(
                "table {}: a column needs a name, this one is empty",
                self.name
            )));
        }
        match self.column(name) {
            Some(_) => Err(Error::conflict(format!(
                "table {}: there is a column {name:?} already",
                self.name
            ))),
            None => Ok(()),
        }
    }
}

fn too_many(table: &str) -> Error {
    Error::limit(format!("table {table}: more than 65,536 tags or fields; use a tag instead"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_types_have_names_of_sql() {
        let list = DataType::new_list(DataType::Float64, true);
        let dictionary = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
        let parts = [("a", DataType::Int64), ("b", list.clone())];
        let parts = parts.map(|(name, ty)| arrow_schema::Field::new(name, ty, true));
        for (ty, name) in [
            (DataType::UInt64, "BIGINT UNSIGNED"),
            (DataType::LargeUtf8, "TEXT"),
            (dictionary, "TEXT"),
            (DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), "TIMESTAMP"),
            (DataType::Date32, "DATE"),
            (DataType::Time64(TimeUnit::Nanosecond), "TIME"),
            (DataType::Duration(TimeUnit::Nanosecond), "INTERVAL"),
            (DataType::Decimal128(10, 2), "DECIMAL(10,2)"),
            (DataType::new_list(list, true), "DOUBLE[][]"),
            (DataType::Struct(parts.to_vec().into()), "STRUCT(\"a\" BIGINT, \"b\" DOUBLE[])"),
            (DataType::Null, "Null"),
        ] {
            assert_eq!(sql_type_name(&ty), name);
        }
    }
}
