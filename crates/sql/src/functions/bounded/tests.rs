use std::collections::BTreeSet;

use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::SessionContext;

use super::*;

/// Functions that make no more than a few times what they are given, and who looked at them. A new function of
/// DataFusion belongs here or among [`GROWING`].
const STEADY: &str = "
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh cot degrees exp factorial floor gcd isnan iszero lcm
    ln log log10 log2 nanvl pi power radians random round signum sin sinh sqrt tan tanh trunc
    arrow_cast arrow_field arrow_metadata arrow_try_cast arrow_typeof cast_to_type coalesce file_row_index get_field
    greatest input_file_name least nullif nvl nvl2 try_cast_to_type union_extract union_tag version with_metadata
    current_date current_time date_bin date_part date_trunc from_unixtime make_date make_time now to_date to_local_time
    time_bucket to_time to_timestamp to_timestamp_micros to_timestamp_millis to_timestamp_nanos to_timestamp_seconds to_unixtime
    ascii bit_length chr contains decode encode ends_with lower octet_length split_part starts_with to_hex upper
    uuid character_length find_in_set initcap left reverse right substr substr_index translate
    regexp_count regexp_instr regexp_like regexp_match
    array_add array_any_value array_avg array_compact array_dims array_distance array_distinct array_element array_except
    array_has array_intersect array_length array_max array_min array_ndims
    array_normalize array_pop_back array_pop_front array_position array_positions array_product array_remove
    array_remove_all array_remove_n array_reverse array_scale array_slice array_sort array_subtract array_sum
    cardinality cosine_distance empty flatten inner_product map_entries map_extract map_keys map_values string_to_array
";

#[test]
fn every_function_is_known_to_grow_or_not() {
    let context = SessionContext::new();
    crate::functions::register(&context);
    let mut known: BTreeSet<&str> = STEADY.split_whitespace().collect();
    known.extend(cfg!(debug_assertions).then_some("panic_where"));
    for (name, _) in GROWING {
        assert!(known.insert(name), "{name} is in both lists");
        let function = context.udf(name).expect(name);
        assert!(function.inner().is::<Bounded>(), "{name} has no limit");
        for alias in function.aliases() {
            let function = context.udf(alias).expect(alias);
            assert!(function.inner().is::<Bounded>(), "{alias} has no limit");
        }
    }
    let there: Vec<Arc<ScalarUDF>> =
        context.udfs().iter().map(|name| context.udf(name).expect(name)).collect();
    let there: BTreeSet<&str> = there.iter().map(|function| function.name()).collect();
    let unknown: Vec<_> = there.difference(&known).collect();
    assert!(unknown.is_empty(), "can these make more than they are given? {unknown:?}");
    let gone: Vec<_> = known.difference(&there).collect();
    assert!(gone.is_empty(), "these are not there any more: {gone:?}");
}
