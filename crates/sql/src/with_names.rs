//! Names of `WITH` that hide others of the same name.
//!
//! DataFusion refuses a name of `WITH` that a query around it has, too. It gets one that no other has, and the tables that it
//! stands for are called as before.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, TableAlias, TableFactor, VisitorMut,
};
use tidefall_types::Error;

use crate::ast::plain;
use crate::walk::walk_mut;

/// Gives hidden names others.
#[derive(Default)]
pub(crate) struct WithNames {
    /// The names of the queries around the one that is visited, and its own.
    around: Vec<Vec<String>>,
    renamed: usize,
}

impl VisitorMut for WithNames {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.around.push(tables.map(|table| plain(&table.alias.name)).collect());
        ControlFlow::Continue(())
    }

    // Queries within others come first: what they hide from these has another name then.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.around.pop();
        let count = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        for at in 0..count {
            self.rename(query, at)?;
        }
        ControlFlow::Continue(())
    }
}

impl WithNames {
    /// Renames one of the tables that a query has by `WITH`, if a query around it has the name.
    fn rename(&mut self, query: &mut Query, at: usize) -> ControlFlow<Error> {
        let Some(mut with) = query.with.take() else { return ControlFlow::Continue(()) };
        let name = plain(&with.cte_tables[at].alias.name);
        if self.around.iter().flatten().any(|hidden| *hidden == name) {
            self.renamed += 1;
            let new = Ident::with_quote('"', format!("__with_{}", self.renamed));
            with.cte_tables[at].alias.name = new.clone();
            let mut table = Table { name, new };
            // Its own query does not know it yet.
            let first = if with.recursive { at } else { at + 1 };
            for later in &mut with.cte_tables[first..] {
                walk_mut(&mut later.query, &mut table)?;
            }
            walk_mut(query, &mut table)?;
        }
        query.with = Some(with);
        ControlFlow::Continue(())
    }
}

/// A table with another name.
struct Table {
    name: String,
    new: Ident,
}

impl VisitorMut for Table {
    type Break = Error;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return ControlFlow::Continue(());
        };
        if let [part] = name.0.as_slice()
            && let Some(old) = part.as_ident()
            && plain(old) == self.name
        {
            let (explicit, columns) = (true, Vec::new());
            let old = TableAlias { explicit, name: old.clone(), columns, at: None };
            alias.get_or_insert(old);
            *name = ObjectName::from(vec![self.new.clone()]);
        }
        ControlFlow::Continue(())
    }
}
