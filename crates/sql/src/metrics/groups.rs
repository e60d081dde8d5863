//! Which sensors count into which group.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, UInt32Array};
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

use super::node::Question;
use super::spec::Group;
use crate::pushdown::{evaluate, select_sensors};

/// The sensors of a question in the order of their groups.
#[derive(Debug, Clone)]
pub(super) struct Grouped {
    /// The sensors, group after group.
    pub(super) sensors: Arc<[u32]>,
    /// The group of each of them; rises without gaps.
    pub(super) groups: Arc<[u32]>,
    /// The number of groups.
    pub(super) count: u32,
    /// For each group column that looks at tags, its value for each group.
    pub(super) values: Vec<ArrayRef>,
}

impl Grouped {
    /// Finds the sensors of a question and groups them. Groups are ordered by their values, nulls
    /// last, the first column first.
    pub(super) fn of(question: &Question) -> Result<Self> {
        let sensors = select_sensors(&question.view, &question.conditions)?;
        let exprs = question.groups.iter().filter_map(|group| match group {
            Group::Tags(expr) => Some(expr.clone()),
            Group::Bin(_) => None,
        });
        let (exprs, time): (Vec<Expr>, _) = (exprs.collect(), &question.conditions.time);
        let (sensors, columns) = evaluate(&question.view, sensors, &exprs, time)?;
        if columns.is_empty() || sensors.is_empty() {
            let count = u32::from(!sensors.is_empty());
            let groups = vec![0; sensors.len()].into();
            return Ok(Self { sensors: sensors.into(), groups, count, values: columns });
        }
        let order = SortOptions { descending: false, nulls_first: false };
        let fields = columns
            .iter()
            .map(|column| SortField::new_with_options(column.data_type().clone(), order))
            .collect();
        let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
        let mut by_group: Vec<u32> = (0..sensors.len() as u32).collect();
        by_group.sort_by(|&a, &b| rows.row(a as usize).cmp(&rows.row(b as usize)));
        let mut groups: Vec<u32> = Vec::with_capacity(by_group.len());
        let mut firsts: Vec<u32> = Vec::new();
        for &at in &by_group {
            let new = match firsts.last() {
                Some(&first) => rows.row(first as usize) != rows.row(at as usize),
                None => true,
            };
            if new {
                firsts.push(at);
            }
            groups.push(firsts.len() as u32 - 1);
        }
        let count = firsts.len() as u32;
        let firsts = UInt32Array::from(firsts);
        let values =
            columns.iter().map(|column| Ok(take(column, &firsts, None)?)).collect::<Result<_>>()?;
        let sensors = by_group.iter().map(|&at| sensors[at as usize]).collect();
        Ok(Self { sensors, groups: groups.into(), count, values })
    }
}
