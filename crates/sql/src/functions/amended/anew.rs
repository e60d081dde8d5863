//! Aggregates that cannot forget, over windows that slide: each window is computed anew.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

use crate::over::bytes_of;

/// A call of an aggregate, which makes accumulators of it.
#[derive(Debug)]
struct Call {
    function: AggregateUDF,
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Call {
    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.inner().accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

/// The rows of a window, of which an aggregate is computed when it is asked for.
#[derive(Debug)]
pub(super) struct Anew {
    call: Call,
    /// Stretches of rows with all their columns, in the order in which they came.
    rows: VecDeque<Vec<ArrayRef>>,
}

impl Anew {
    pub(super) fn new(function: &AggregateUDF, args: &AccumulatorArgs<'_>) -> Self {
        let call = Call {
            function: function.clone(),
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        };
        Self { call, rows: VecDeque::new() }
    }

    /// Makes one stretch of all rows.
    fn gather(&mut self) -> Result<()> {
        if self.rows.len() > 1 {
            let columns = 0..self.rows[0].len();
            let whole = columns.map(|at| {
                let parts: Vec<&dyn Array> = self.rows.iter().map(|part| &*part[at]).collect();
                concat(&parts)
            });
            let whole = whole.collect::<std::result::Result<_, _>>()?;
            self.rows = VecDeque::from([whole]);
        }
        Ok(())
    }
}

impl Accumulator for Anew {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.rows.push_back(columns.to_vec());
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let mut left = columns.first().map_or(0, Array::len);
        while left > 0
            && let Some(first) = self.rows.front_mut()
        {
            let rows = first.first().map_or(0, Array::len);
            if rows <= left {
                self.rows.pop_front();
            } else {
                for column in first {
                    *column = column.slice(left, rows - left);
                }
            }
            left = left.saturating_sub(rows);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.gather()?;
        let mut accumulator = self.call.accumulator()?;
        if let Some(columns) = self.rows.front() {
            accumulator.update_batch(columns)?;
        }
        accumulator.evaluate()
    }

    fn size(&self) -> usize {
        let columns = self.rows.iter().flatten();
        size_of_val(self) + columns.map(|column| bytes_of(column)).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(super::sliding::never_merged())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(super::sliding::never_merged())
    }
}
