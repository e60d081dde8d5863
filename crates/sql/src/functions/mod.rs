//! Functions for readings beyond those of DataFusion.
//!
//! `counters.rs`, `histogram.rs`, `interpolate.rs` and `time_bucket.rs` compute something new; `date_bin.rs` and
//! `date_trunc.rs` have bins at the ends of time; `amended/` mends what goes wrong beside a NaN or is not exact,
//! `plain.rs` what answers with numbers in a dictionary, `bounded/` and `windows.rs` what can make more than it is given, `years.rs` what has no row for years that end beyond the range of
//! times, `span_parts.rs` what is told of spans, `decades.rs` what is told of years, `arrays.rs` what texts are among times, `fault.rs` a fault for tests. What DataFusion can say already, only longer, is put into its words before a statement is planned
//! (`short_forms.rs`), so that it is optimised, and answered from metrics, like the long form.

mod alike;
mod amended;
mod arrays;
mod between;
pub(crate) mod bounded;
mod counters;
mod date_bin;
mod date_trunc;
mod decades;
#[cfg(debug_assertions)]
mod fault;
mod first_known;
mod forward;
mod histogram;
mod inner_names;
mod interpolate;
mod listed;
mod nested_order;
mod plain;
mod short_forms;
mod span_parts;
pub(crate) mod time_bucket;
mod windows;
mod years;

use std::sync::Arc;

use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};

use alike::Alike;
use amended::Amended;
pub(crate) use amended::{NUMBERED_BYTES, amend_window, is_value_type};
use arrays::MakeArray;
pub(crate) use between::amend as between;
use date_bin::DateBin;
use date_trunc::DateTrunc;
pub(crate) use date_trunc::{is_truncated, truncated};
pub(crate) use first_known::amend as first_known;
pub(crate) use inner_names::InnerNames;
pub(crate) use listed::amend as listed;
pub(crate) use nested_order::{EXTREMES, amend as nested_order};
use plain::Plain;
pub(crate) use short_forms::{SHORT_FORMS, ShortForms};
use time_bucket::TimeBucket;
use windows::{Answers, Window};
use years::Years;
pub(crate) use years::with_whole_years;

/// Functions that statements are rewritten with, and that nobody calls.
pub(crate) const INNER: [&str; 2] = ["named", "panic_where"];

/// Makes all functions known.
pub(crate) fn register(context: &SessionContext) {
    for function in [counters::INCREASE, counters::RATE] {
        context.register_udaf(AggregateUDF::new_from_impl(function));
    }
    context.register_udaf(AggregateUDF::new_from_impl(histogram::Histogram));
    #[cfg(debug_assertions)]
    context.register_udf(ScalarUDF::new_from_impl(fault::PanicWhere::new()));
    let interpolate = Arc::new(WindowUDF::new_from_impl(interpolate::Interpolate));
    let interpolate = Window { inner: interpolate, answers: Answers::Plain };
    context.register_udwf(WindowUDF::new_from_impl(interpolate));
    for name in amended::NAMES {
        if let Ok(inner) = context.udaf(name) {
            context.register_udaf(AggregateUDF::new_from_impl(Amended::of(&inner)));
        }
    }
    for name in alike::NAMES {
        if let Ok(inner) = context.udf(name) {
            context.register_udf(ScalarUDF::new_from_impl(Alike(inner)));
        }
    }
    for name in plain::NAMES {
        if let Ok(inner) = context.udf(name) {
            context.register_udf(ScalarUDF::new_from_impl(Plain(inner)));
        }
    }
    for (name, answers) in windows::FUNCTIONS {
        if let Ok(inner) = context.udwf(name) {
            context.register_udwf(WindowUDF::new_from_impl(Window { inner, answers }));
        }
    }
    if let Ok(inner) = context.udf(arrays::NAME) {
        context.register_udf(ScalarUDF::new_from_impl(MakeArray(inner)));
    }
    for name in bounded::names() {
        if let Some(bounded) = context.udf(name).ok().and_then(|inner| bounded::bounded(&inner)) {
            context.register_udf(bounded);
        }
    }
    if let Ok(date_part) = context.udf(years::NAME) {
        context.register_udf(ScalarUDF::new_from_impl(Years(date_part)));
    }
    if let Ok(inner) = context.udf(date_trunc::NAME) {
        context.register_udf(ScalarUDF::new_from_impl(DateTrunc(inner)));
    }
    if let Ok(inner) = context.udf(date_bin::NAME) {
        let date_bin = Arc::new(ScalarUDF::new_from_impl(DateBin(inner)));
        context.register_udf(date_bin.as_ref().clone());
        context.register_udf(ScalarUDF::new_from_impl(TimeBucket(date_bin)));
    }
}
