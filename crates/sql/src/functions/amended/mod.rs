//! Aggregates of floats, where those of DataFusion lose readings beside a NaN or an infinity, or are not exact,
//! and counts of what is distinct, which take memory or time without need; everything else is left to them.
//!
//! - Extremes of groups: compared as if nothing were above or below a NaN, whatever came before one is
//!   forgotten. Here NaN is the greatest number, as everywhere in SQL.
//! - Sums and means over a window that slides: subtracting what leaves it leaves NaN behind for good, and
//!   rounding errors pile up. Here nothing is subtracted, see [`SlidingSum`].
//! - Variances, correlations and regressions over such a window: the same, see [`SlidingMoments`].
//! - Percentiles and medians: see `percentile.rs`.
//! - Distinct texts that are counted by group: see `distinct.rs`; distinct integers and times: see `distinct_values/`;
//!   distinct structs and lists: see `distinct_rows.rs`.
//! - Correlations by group: sums of squares leave no digits where values are large beside their differences. Here
//!   each group has the accumulator of a question without groups.
//! - Lists and texts that are collected: over a window they take the square of its memory, as do long extremes, see
//!   `collected.rs`.
//! - Extremes of intervals are those of their lengths, see `spans.rs`; those of structs and lists are those of `ORDER BY`, see
//!   `rows.rs`.
//! - Sums, means and percentiles of times and spans, which DataFusion has not or lets wrap, see `times.rs`.
//! - Means of whole numbers, of which DataFusion makes floats first, see `whole_mean.rs`.
//! - What cannot forget is computed anew for each place of a window that slides, see `anew.rs`.
//! - Over windows all of them can be stopped, and their memory is charged, see `over.rs`.
//! - All of them answer with floats in their one form: infinity less infinity is NaN with a sign elsewhere.

mod anew;
mod centroids;
mod collected;
mod distinct;
mod distinct_rows;
mod distinct_values;
mod moments;
mod outcome;
mod over;
mod percentile;
mod rows;
mod sliding;
mod spans;
mod times;
mod whole_mean;

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::ArrowPrimitiveType;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, IntervalUnit,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunctionParams,
};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs, TypeSignature,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use anew::Anew;
use centroids::check_centroids;
use collected::{Collected, Repeated, Whole};
use distinct::{DistinctTexts, text_type};
use distinct_rows::DistinctRows;
use distinct_values::DistinctValues;
pub(crate) use distinct_values::{NUMBERED_BYTES, is_value_type};
use moments::{SlidingMoments, Statistic};
use outcome::InOneForm;
use over::Over;
pub(crate) use over::amend_window;
use percentile::{Frame, Part};
use rows::{ExtremeRow, ExtremeRows};
use sliding::SlidingSum;
use spans::ExtremeSpan;
use times::{Question, Times};
use whole_mean::{WholeMean, WholeMeans};

use super::nested_order::has_ordered_parts;

/// The names of the aggregates that may answer with a float of their own making, of the one that counts texts, of those
/// that collect what they are given, and of those that cannot forget it.
pub(super) const NAMES: [&str; 33] = [
    "count",
    "min",
    "max",
    "sum",
    "avg",
    "percentile_cont",
    "median",
    "stddev",
    "stddev_pop",
    "var",
    "var_pop",
    "covar_samp",
    "covar_pop",
    "corr",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "array_agg",
    "string_agg",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "approx_distinct",
    "any_value",
];

/// What is amended in a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Amendment {
    Count,
    Min,
    Max,
    Sum,
    Mean,
    /// The second argument says which part of the values lies below the answer.
    Percentile,
    Median,
    /// How much is answered over a window.
    Collect,
    /// Nothing but the form of its answers.
    Form,
}

/// A function of DataFusion, amended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Amended {
    inner: AggregateUDF,
    amendment: Amendment,
    signature: Signature,
    /// Of a call over windows that are whole partitions.
    whole: Option<Whole>,
    /// It is called over windows, which others may stop.
    is_over: bool,
}

/// Whether values of a type may be long.
fn may_be_long(data_type: &DataType) -> bool {
    !data_type.is_primitive() && !data_type.is_null() && *data_type != DataType::Boolean
}

/// A signature that takes more than before.
fn with_more(plain: &Signature, more: Vec<TypeSignature>) -> Signature {
    if more.is_empty() {
        return plain.clone();
    }
    let mut all = match &plain.type_signature {
        TypeSignature::OneOf(known) => known.clone(),
        only => vec![only.clone()],
    };
    all.extend(more);
    Signature { type_signature: TypeSignature::OneOf(all), ..plain.clone() }
}

impl Amended {
    /// The amended form of one of [`NAMES`].
    pub(super) fn of(inner: &AggregateUDF) -> Self {
        let amendment = match inner.name() {
            "count" => Amendment::Count,
            "min" => Amendment::Min,
            "max" => Amendment::Max,
            "sum" => Amendment::Sum,
            "avg" => Amendment::Mean,
            "percentile_cont" => Amendment::Percentile,
            "median" => Amendment::Median,
            "array_agg" | "string_agg" => Amendment::Collect,
            _ => Amendment::Form,
        };
        let mut more = times::takes(amendment);
        if amendment == Amendment::Mean {
            more.push(whole_mean::takes());
        }
        let signature = with_more(inner.signature(), more);
        Self { inner: inner.clone(), amendment, signature, whole: None, is_over: false }
    }

    fn inner(&self) -> &Arc<dyn AggregateUDFImpl> {
        self.inner.inner()
    }

    /// The part of the values below the answer, if that is what the function is about.
    fn part(&self, args: &AccumulatorArgs<'_>) -> Result<Option<Part>> {
        match self.amendment {
            Amendment::Median if is_float(args.return_type()) => Ok(Some(Part::HALF)),
            Amendment::Percentile if is_float(args.return_type()) => Part::of(args).map(Some),
            _ => Ok(None),
        }
    }

    /// The type of the texts, if distinct ones are counted.
    fn distinct_texts<'a>(&self, args: &AccumulatorArgs<'a>) -> Option<&'a DataType> {
        self.distinct_type(args).and_then(text_type)
    }

    /// The type of the integers or times, if distinct ones are counted.
    fn distinct_values<'a>(&self, args: &AccumulatorArgs<'a>) -> Option<&'a DataType> {
        self.distinct_type(args).filter(|data_type| is_value_type(data_type))
    }

    /// The type of what is counted, if that is what is distinct.
    fn distinct_type<'a>(&self, args: &AccumulatorArgs<'a>) -> Option<&'a DataType> {
        match (self.amendment, args.expr_fields) {
            (Amendment::Count, [field]) if args.is_distinct => Some(field.data_type()),
            _ => None,
        }
    }

    /// The type of the whole numbers, if it is their mean.
    fn whole_mean_of<'a>(&self, of: Option<&'a FieldRef>) -> Option<&'a DataType> {
        let of = of.filter(|_| self.amendment == Amendment::Mean)?.data_type();
        (of.is_integer() || of.is_null()).then_some(of)
    }

    /// The type of the answer about times or spans that are added up or ordered, if the function does so.
    fn type_of_times(&self, of: Option<&DataType>) -> Option<DataType> {
        of.and_then(|of| times::answer_type(self.amendment, of))
    }

    /// What adds up or orders times or spans, if that is what the function is about.
    fn times(&self, args: &AccumulatorArgs<'_>, frame: Frame) -> Result<Option<Times>> {
        let of = args.expr_fields.first().map(|field| field.data_type());
        let Some(data_type) = self.type_of_times(of) else { return Ok(None) };
        let question = match self.amendment {
            Amendment::Sum => Question::Sum,
            Amendment::Mean => Question::Mean,
            Amendment::Percentile => Question::Percentile(Part::of(args)?),
            _ => Question::Percentile(Part::HALF),
        };
        Ok(Some(Times::new(question, frame, data_type)))
    }

    /// How an extreme stands to other values, if the function finds one.
    fn wanted(&self) -> Option<Ordering> {
        match self.amendment {
            Amendment::Min => Some(Ordering::Less),
            Amendment::Max => Some(Ordering::Greater),
            _ => None,
        }
    }

    /// What finds extremes of what DataFusion orders in another way, if that is what the function is about.
    fn extreme(&self, data_type: &DataType, slides: bool) -> Result<Option<Box<dyn Accumulator>>> {
        let Some(wanted) = self.wanted() else { return Ok(None) };
        Ok(match data_type {
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Some(Box::new(ExtremeSpan::new(wanted, slides)))
            }
            nested if has_ordered_parts(nested) => {
                Some(Box::new(ExtremeRow::new(wanted, slides, nested)?))
            }
            _ => None,
        })
    }

    /// What DataFusion has for windows that slide, or what is computed anew for each of their places.
    fn sliding(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let anew = Anew::new(&self.inner, &args);
        let plain = self.inner().create_sliding_accumulator(args)?;
        Ok(if plain.supports_retract_batch() { plain } else { Box::new(anew) })
    }

    fn collected(&self, plain: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        Box::new(Collected::new(self.inner().name(), plain))
    }

    fn amended_sliding(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        check_centroids(self.name(), &args)?;
        if let Some(part) = self.part(&args)? {
            return Ok(percentile::of_one(
                part,
                args.return_type(),
                Frame::Slides(args.is_distinct),
            ));
        }
        if let Some(extreme) = self.extreme(args.return_type(), true)? {
            return Ok(extreme);
        }
        if let Some(times) = self.times(&args, Frame::Slides(args.is_distinct))? {
            return Ok(Box::new(times));
        }
        if let Some(of) = self.whole_mean_of(args.expr_fields.first()) {
            return Ok(Box::new(WholeMean::new(of, Frame::Slides(args.is_distinct))));
        }
        let is_double =
            args.expr_fields.iter().all(|field| field.data_type() == &DataType::Float64);
        let statistic = Statistic::of(self.inner.name());
        let statistic = statistic.filter(|_| is_double && !args.is_distinct);
        let is_float = is_float(args.return_type());
        let plain: Box<dyn Accumulator> = match self.amendment {
            Amendment::Sum if is_double && !args.is_distinct => Box::new(SlidingSum::new(false)),
            Amendment::Mean if is_double && !args.is_distinct => Box::new(SlidingSum::new(true)),
            Amendment::Collect => self.collected(self.sliding(args)?),
            _ => match statistic {
                Some(statistic) => Box::new(SlidingMoments::new(statistic)),
                None => self.sliding(args)?,
            },
        };
        Ok(if is_float { Box::new(InOneForm(plain)) } else { plain })
    }

    fn amended(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        check_centroids(self.name(), &args)?;
        if let Some(part) = self.part(&args)? {
            return Ok(percentile::of_one(
                part,
                args.return_type(),
                Frame::Grows(args.is_distinct),
            ));
        }
        if let Some(times) = self.times(&args, Frame::Grows(args.is_distinct))? {
            return Ok(Box::new(times));
        }
        if let Some(of) = self.whole_mean_of(args.expr_fields.first()) {
            return Ok(Box::new(WholeMean::new(of, Frame::Grows(args.is_distinct))));
        }
        if let Some(rows) = self.distinct_type(&args).map(DistinctRows::new).transpose()?.flatten()
        {
            return Ok(Box::new(rows));
        }
        let (is_float, is_long) = (is_float(args.return_type()), may_be_long(args.return_type()));
        let plain = match self.extreme(args.return_type(), false)? {
            Some(extreme) => extreme,
            None => self.inner().accumulator(args)?,
        };
        Ok(match (self.amendment, &self.whole) {
            (_, Some(whole)) if is_long => {
                Box::new(Repeated::new(self.inner().name(), plain, whole.clone()))
            }
            (Amendment::Collect, _) => self.collected(plain),
            _ if is_float => Box::new(InOneForm(plain)),
            _ => plain,
        })
    }

    /// An accumulator that can be stopped, over windows.
    fn watched(&self, plain: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        if self.is_over { Box::new(Over::new(plain)) } else { plain }
    }

    fn extremes<T>(&self, data_type: &DataType) -> Option<Box<dyn GroupsAccumulator>>
    where
        T: ArrowPrimitiveType + Send,
        T::Native: Float,
    {
        let (wanted, start) = match self.amendment {
            Amendment::Min => (Ordering::Less, T::Native::GREATEST),
            Amendment::Max => (Ordering::Greater, T::Native::LEAST),
            _ => return None,
        };
        let keep = move |best: &mut T::Native, new: T::Native| {
            if new.order(*best) == wanted {
                *best = new;
            }
        };
        let accumulator = PrimitiveGroupsAccumulator::<T, _>::new(data_type, keep);
        Some(Box::new(accumulator.with_starting_value(start)))
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Floats in SQL's order: NaN is the greatest, and equal to itself.
trait Float: Copy {
    const LEAST: Self;
    const GREATEST: Self;
    fn order(self, other: Self) -> Ordering;
}

macro_rules! floats {
    ($($ty:ty),*) => {$(
        impl Float for $ty {
            const LEAST: Self = Self::NEG_INFINITY;
            const GREATEST: Self = Self::NAN;

            fn order(self, other: Self) -> Ordering {
                self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }
        }
    )*};
}
floats!(f32, f64);

impl AggregateUDFImpl for Amended {
    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        check_centroids(self.name(), &args)?;
        if let Some(part) = self.part(&args)? {
            return Ok(percentile::of_groups(part, args.return_type()));
        }
        if let Some(text_type) = self.distinct_texts(&args) {
            return Ok(Box::new(DistinctTexts::new(text_type)));
        }
        if let Some(data_type) = self.distinct_values(&args) {
            return Ok(Box::new(DistinctValues::new(data_type)));
        }
        if let Some(wanted) = self.wanted()
            && has_ordered_parts(args.return_type())
        {
            return Ok(Box::new(ExtremeRows::new(wanted, args.return_type())?));
        }
        if self.whole_mean_of(args.expr_fields.first()).is_some() {
            return Ok(Box::new(WholeMeans::default()));
        }
        let extremes = match args.return_type() {
            DataType::Float32 => self.extremes::<Float32Type>(args.return_type()),
            DataType::Float64 => self.extremes::<Float64Type>(args.return_type()),
            _ => None,
        };
        match extremes {
            Some(extremes) => Ok(extremes),
            None => {
                let is_float = is_float(args.return_type());
                let plain = self.inner().create_groups_accumulator(args)?;
                Ok(if is_float { Box::new(InOneForm(plain)) } else { plain })
            }
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        Ok(self.watched(self.amended_sliding(args)?))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(self.watched(self.amended(args)?))
    }
    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        match self.amendment {
            // It would become the extreme of DataFusion.
            Amendment::Percentile => None,
            _ => self.inner().simplify(),
        }
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner().supports_within_group_clause()
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner().supports_null_handling_clause()
    }

    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.type_of_times(types.first()) {
            Some(data_type) => Ok(data_type),
            None => self.inner().return_type(types),
        }
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        match self.type_of_times(fields.first().map(|field| field.data_type())) {
            Some(data_type) => Ok(Arc::new(Field::new(self.name(), data_type, true))),
            None => self.inner().return_field(fields),
        }
    }

    fn is_nullable(&self) -> bool {
        self.inner().is_nullable()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner().coerce_types(types)
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_display_name(params)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if let Some(of) = self.whole_mean_of(args.input_fields.first()) {
            return Ok(whole_mean::state_fields(args.name, of, args.is_distinct));
        }
        match self.type_of_times(args.input_fields.first().map(|field| field.data_type())) {
            Some(_) => Ok(times::state_fields(self.amendment, args.name, args.is_distinct)),
            None => self.inner().state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        // That of `corr` takes sums of squares from one another, which leaves few digits or none.
        let is_exact = self.inner().name() != "corr";
        let of = args.expr_fields.first().map(|field| field.data_type());
        let of_rows = self.wanted().is_some() && has_ordered_parts(args.return_type());
        let is_other = !matches!(self.extreme(args.return_type(), false), Ok(None))
            || self.type_of_times(of).is_some();
        of_rows
            || self.distinct_texts(&args).is_some()
            || self.distinct_values(&args).is_some()
            || (is_exact && !is_other && self.inner().groups_accumulator_supported(args))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner().order_sensitivity()
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_ordered: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let told = self.inner.clone().with_beneficial_ordering(is_ordered)?;
        Ok(told.map(|inner| Arc::new(Self { inner, ..Self::clone(&self) }) as _))
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        // It would count spans, to multiply them with others.
        let of = literal.as_literal().map(ScalarValue::data_type);
        match self.type_of_times(of.as_ref()) {
            Some(_) => Ok(None),
            None => self.inner().simplify_expr_op_literal(function, arg, op, literal, arg_is_left),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner().reverse_expr() {
            ReversedUDAF::Reversed(other) if self.is_over => {
                let other = Self { whole: self.whole.clone(), is_over: true, ..Self::of(&other) };
                ReversedUDAF::Reversed(Arc::new(AggregateUDF::new_from_impl(other)))
            }
            other => other,
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner().is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner().value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner().default_value(data_type)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        // Of no values most give NULL, which stands at one end of an order: rows begin with it, or end.
        match self.inner().default_value(data_type) {
            Ok(nothing) if !nothing.is_null() => self.inner().set_monotonicity(data_type),
            _ => SetMonotonicity::NotMonotonic,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }
}
