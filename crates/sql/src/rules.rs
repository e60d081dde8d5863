//! The rules by which statements are planned, and their order: DataFusion's, with ours among them.

use std::sync::Arc;

use datafusion::optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use crate::ambiguous::PushNamedFilters;
use crate::amend::{AmendAfter, AmendBefore};
use crate::asof::{AsOfFilters, AsOfJoins};
use crate::by_time::ReadByTime;
use crate::claims::{ModestFilters, ModestNodes};
use crate::cooperate::Cooperation;
use crate::correlated::CorrelatedSubqueries;
use crate::expansion::CheckExpansion;
use crate::filters::PushFilters;
use crate::grouped_join::GroupedJoins;
use crate::groupwise::Groupwise;
use crate::instead::PhysicalRule;
use crate::keys::KeysAsColumns;
use crate::marks::Marks;
use crate::metrics::{MetricsRule, OneGrouping};
use crate::null_keys::{self, SameKeys};
use crate::orders::{KeysOnce, SubqueryOrders};
use crate::planning::Timed;
use crate::projection::PushProjections;
use crate::records::TotalsRule;
use crate::regroup::ForgetfulGroupingSets;
use crate::repeat::BoundedRepeats;
use crate::same_windows::SameWindows;
use crate::sort::BoundedSorts;
use crate::tuple_keys::PartsOfTuples;
use crate::unnested::RepeatedKeys;
use crate::{orders, simplify, window_limits};

/// What puts a plan right before it is optimised.
pub(crate) fn analyzers() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> =
        vec![Arc::new(SubqueryOrders), Arc::new(AmendBefore), Arc::new(AsOfJoins)];
    rules.extend(Analyzer::new().rules);
    rules.push(Arc::new(AmendAfter));
    rules.push(Arc::new(CorrelatedSubqueries));
    // Behind it, as it makes some of what unnests.
    rules.push(Arc::new(RepeatedKeys));
    // Comes after whatever looks into subqueries: marks must not be looked at.
    rules.push(Arc::new(Marks));
    rules.push(Arc::new(CheckExpansion));
    rules.into_iter().map(|rule| Arc::new(Timed(rule)) as _).collect()
}

/// What makes a plan cheaper, where queries have so many bytes of memory.
pub(crate) fn optimizers(query_bytes: usize) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let known = Optimizer::new().rules.into_iter();
    let known = known.map(|rule| OneGrouping::instead_of(rule, query_bytes));
    let known = known.map(null_keys::instead_of).map(simplify::instead_of);
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        known.map(PushFilters::instead_of).collect();
    // Before projections come between the conditions and the joins.
    let filters = rules.iter().position(|rule| rule.name() == PushDownFilter::new().name());
    rules.insert(filters.map_or(rules.len(), |at| at + 1), Arc::new(AsOfFilters));
    // Before DataFusion looks for what is computed twice.
    let common = rules.iter().position(|rule| rule.name() == CommonSubexprEliminate::new().name());
    rules.insert(common.unwrap_or(rules.len()), Arc::new(SameWindows));
    rules.push(Arc::new(PartsOfTuples));
    rules.push(Arc::new(KeysOnce));
    rules.push(Arc::new(SameKeys::default()));
    rules.push(Arc::new(MetricsRule));
    rules.push(Arc::new(TotalsRule));
    rules.push(Arc::new(KeysAsColumns));
    rules.into_iter().map(|rule| Arc::new(Timed(rule)) as _).collect()
}

/// What makes a plan one that can be run in so many bytes of memory.
pub(crate) fn physical(query_bytes: usize) -> Vec<PhysicalRule> {
    let mut rules: Vec<PhysicalRule> = vec![Arc::new(ForgetfulGroupingSets)];
    // Aggregates are computed of rows or of metrics, never of what is thought of the rows of a node.
    let answers = AggregateStatistics::new();
    let known = PhysicalOptimizer::new().rules.into_iter();
    let known = known.filter(|rule| rule.name() != answers.name());
    let known = known.map(window_limits::instead_of).map(orders::instead_of);
    rules.extend(known.map(PushProjections::instead_of).map(PushNamedFilters::instead_of));
    insert_after(&mut rules, &JoinSelection::new(), ModestNodes);
    insert_before(&mut rules, &EnsureRequirements::new(), ModestFilters);
    // Filters that change stay with the nodes to which they are pushed: what makes new nodes comes before.
    let last = FilterPushdown::new_post_optimization();
    insert_before(&mut rules, &last, BoundedSorts { query_bytes });
    insert_before(&mut rules, &last, ReadByTime);
    insert_before(&mut rules, &last, GroupedJoins);
    insert_before(&mut rules, &last, Groupwise::default());
    insert_before(&mut rules, &last, BoundedRepeats);
    insert_before(&mut rules, &last, Cooperation);
    rules.into_iter().map(|rule| Arc::new(Timed(rule)) as _).collect()
}

fn insert_before(
    rules: &mut Vec<PhysicalRule>,
    anchor: &dyn PhysicalOptimizerRule,
    rule: impl PhysicalOptimizerRule + Send + Sync + 'static,
) {
    let at = place_of(rules, anchor);
    rules.insert(at, Arc::new(rule));
}

fn insert_after(
    rules: &mut Vec<PhysicalRule>,
    anchor: &dyn PhysicalOptimizerRule,
    rule: impl PhysicalOptimizerRule + Send + Sync + 'static,
) {
    let at = place_of(rules, anchor).saturating_add(1).min(rules.len());
    rules.insert(at, Arc::new(rule));
}

/// Where one of DataFusion's rules stands; behind all others if it knows that one no longer, which a test forbids.
fn place_of(rules: &[PhysicalRule], anchor: &dyn PhysicalOptimizerRule) -> usize {
    rules.iter().position(|rule| rule.name() == anchor.name()).unwrap_or(rules.len())
}

#[cfg(test)]
mod tests {
    use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
    use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
    use datafusion::optimizer::push_down_filter::PushDownFilter;
    use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
    use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
    use datafusion::physical_optimizer::limit_pushdown_past_window::LimitPushPastWindows;
    use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;

    use super::*;

    fn names(rules: &[PhysicalRule]) -> Vec<&str> {
        rules.iter().map(|rule| rule.name()).collect()
    }

    /// DataFusion has each rule beside which one of ours stands, or in whose place, as often as is thought here.
    #[test]
    fn anchors_are_there() {
        let known = PhysicalOptimizer::new().rules;
        let expected: [(&dyn PhysicalOptimizerRule, usize); 7] = [
            (&LimitPushPastWindows::new(), 1),
            (&AggregateStatistics::new(), 1),
            (&JoinSelection::new(), 1),
            (&EnsureRequirements::new(), 1),
            (&FilterPushdown::new(), 1),
            (&FilterPushdown::new_post_optimization(), 1),
            (&ProjectionPushdown::new(), 2),
        ];
        for (anchor, count) in expected {
            let found = known.iter().filter(|rule| rule.name() == anchor.name()).count();
            assert_eq!(found, count, "{} in {:?}", anchor.name(), names(&known));
        }
    }

    /// Likewise of the rules for logical plans beside which one of ours stands, or in whose place.
    #[test]
    fn replaced_rules_are_there() {
        let known = Optimizer::new().rules;
        for name in [
            PushDownFilter::new().name(),
            SingleDistinctToGroupBy::new().name(),
            ExtractEquijoinPredicate::new().name(),
            EliminateCrossJoin::new().name(),
            SimplifyExpressions::new().name(),
            CommonSubexprEliminate::new().name(),
        ] {
            assert_eq!(known.iter().filter(|rule| rule.name() == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn rules_stand_beside_their_anchors() {
        let rules = physical(0);
        let names = names(&rules);
        let (chosen, ensured) = (JoinSelection::new(), EnsureRequirements::new());
        let last = FilterPushdown::new_post_optimization();
        let groupwise = Groupwise::default();
        let made = [
            BoundedSorts { query_bytes: 0 }.name(),
            ReadByTime.name(),
            GroupedJoins.name(),
            groupwise.name(),
            BoundedRepeats.name(),
            Cooperation.name(),
            last.name(),
        ];
        for neighbours in [
            &[chosen.name(), ModestNodes.name()][..],
            &[ModestFilters.name(), ensured.name()],
            &made,
        ] {
            let is_there = names.windows(neighbours.len()).any(|found| found == neighbours);
            assert!(is_there, "{neighbours:?} in {names:?}");
        }
        assert!(!names.contains(&ProjectionPushdown::new().name()), "{names:?}");
        assert!(!names.contains(&AggregateStatistics::new().name()), "{names:?}");
    }
}
