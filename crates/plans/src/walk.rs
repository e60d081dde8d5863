//! Walks through statements.
//!
//! What walks through all kinds of nodes is compiled for each visitor, into megabytes each time. So it is compiled once for all visitors
//! that look, and once for all that change something, and calls them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, ObjectName, OrderBy, OrderByExpr, Query, Select, SelectItem, Statement,
    TableFactor, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};

/// Takes a visitor to all parts of something; what it has ended the walk with, if it did.
pub fn walk<V: Visitor>(within: &impl Walked, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut ending = Ending { visitor, end: None };
    let walked = within.walked(&mut ending);
    ended(walked, ending.end)
}

/// As [`walk`], for a visitor that changes something.
pub fn walk_mut<V: VisitorMut>(within: &mut impl Walked, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut ending = Ending { visitor, end: None };
    let walked = within.walked_mut(&mut ending);
    ended(walked, ending.end)
}

/// Looks at all expressions within something, each before its parts.
pub fn visit_expressions<B>(
    within: &impl Walked,
    look: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk(within, &mut Expressions(look))
}

/// Changes all expressions within something, each behind its parts.
pub fn visit_expressions_mut<B>(
    within: &mut impl Walked,
    change: impl FnMut(&mut Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk_mut(within, &mut Expressions(change))
}

/// Looks at the names of all tables within something.
pub fn visit_relations<B>(
    within: &impl Walked,
    look: impl FnMut(&ObjectName) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk(within, &mut Relations(look))
}

fn ended<B>(walked: ControlFlow<()>, end: Option<B>) -> ControlFlow<B> {
    match (walked, end) {
        (ControlFlow::Break(()), Some(end)) => ControlFlow::Break(end),
        _ => ControlFlow::Continue(()),
    }
}

struct Expressions<F>(F);

impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Expressions<F> {
    type Break = B;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<B> {
        self.0(expr)
    }
}

impl<B, F: FnMut(&mut Expr) -> ControlFlow<B>> VisitorMut for Expressions<F> {
    type Break = B;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<B> {
        self.0(expr)
    }
}

struct Relations<F>(F);

impl<B, F: FnMut(&ObjectName) -> ControlFlow<B>> Visitor for Relations<F> {
    type Break = B;

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<B> {
        self.0(relation)
    }
}

/// A visitor, and with what it has ended the walk.
struct Ending<'a, V, B> {
    visitor: &'a mut V,
    end: Option<B>,
}

impl<V, B> Ending<'_, V, B> {
    fn note(&mut self, visited: ControlFlow<B>) -> ControlFlow<()> {
        match visited {
            ControlFlow::Break(end) => {
                self.end = Some(end);
                ControlFlow::Break(())
            }
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        }
    }
}

/// Where a walk can begin.
#[expect(missing_docs, reason = "these are `walk` and `walk_mut` as they are compiled")]
pub trait Walked {
    fn walked(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()>;
    fn walked_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()>;
}

macro_rules! walked {
    ($($node:ty),*) => {$(
        impl Walked for $node {
            fn walked(&self, visitor: &mut dyn Visitor<Break = ()>) -> ControlFlow<()> {
                Visit::visit(self, &mut Walk(visitor))
            }

            fn walked_mut(&mut self, visitor: &mut dyn VisitorMut<Break = ()>) -> ControlFlow<()> {
                VisitMut::visit(self, &mut WalkMut(visitor))
            }
        }
    )*};
}
walked!(
    Statement,
    Query,
    Select,
    SelectItem,
    GroupByExpr,
    OrderBy,
    OrderByExpr,
    Expr,
    Box<Query>,
    Vec<OrderByExpr>
);

struct Walk<'a>(&'a mut dyn Visitor<Break = ()>);

struct WalkMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

macro_rules! hand_on {
    ($($visit:ident: $node:ty,)*) => {
        impl<V: Visitor> Visitor for Ending<'_, V, V::Break> {
            type Break = ();
            $(fn $visit(&mut self, node: &$node) -> ControlFlow<()> {
                let visited = self.visitor.$visit(node);
                self.note(visited)
            })*
        }

        impl<V: VisitorMut> VisitorMut for Ending<'_, V, V::Break> {
            type Break = ();
            $(fn $visit(&mut self, node: &mut $node) -> ControlFlow<()> {
                let visited = self.visitor.$visit(node);
                self.note(visited)
            })*
        }

        impl Visitor for Walk<'_> {
            type Break = ();
            $(fn $visit(&mut self, node: &$node) -> ControlFlow<()> {
                self.0.$visit(node)
            })*
        }

        impl VisitorMut for WalkMut<'_> {
            type Break = ();
            $(fn $visit(&mut self, node: &mut $node) -> ControlFlow<()> {
                self.0.$visit(node)
            })*
        }
    };
}
hand_on! {
    pre_visit_query: Query,
    post_visit_query: Query,
    pre_visit_select: Select,
    post_visit_select: Select,
    pre_visit_relation: ObjectName,
    post_visit_relation: ObjectName,
    pre_visit_table_factor: TableFactor,
    post_visit_table_factor: TableFactor,
    pre_visit_expr: Expr,
    post_visit_expr: Expr,
    pre_visit_statement: Statement,
    post_visit_statement: Statement,
    pre_visit_value: ValueWithSpan,
    post_visit_value: ValueWithSpan,
}
