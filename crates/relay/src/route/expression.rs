//! What a CEL expression shows before it is evaluated: the names and functions it uses, and whether it can
//! give a bool at all.

use std::{collections::HashSet, sync::Arc};

use cel::{
    Context, Env, IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr, operators},
};

/// What an expression gives whose outermost operation shows that it is no bool.
pub(super) fn never_bool(expression: &IdedExpr) -> Option<&'static str> {
    match &expression.expr {
        Expr::List(_) => Some("a list"),
        Expr::Map(_) => Some("a map"),
        Expr::Call(call) => match call.func_name.as_str() {
            operators::ADD => Some("a sum"),
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO | operators::NEGATE => {
                Some("a number")
            }
            "size" => Some("a size"),
            _ => None,
        },
        _ => None,
    }
}

/// Every call in `expression`, operators aside.
pub(super) fn calls<'e>(expression: &'e IdedExpr, found: &mut Vec<&'e CallExpr>) {
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => calls(&select.operand, found),
        Expr::Call(call) => {
            let is_operator = |c: char| !c.is_alphanumeric() && c != '_' && c != '.';
            if !call.func_name.contains(is_operator) {
                found.push(call);
            }
            call.target.as_deref().into_iter().chain(&call.args).for_each(|inner| calls(inner, found));
        }
        Expr::List(list) => list.elements.iter().for_each(|element| calls(element, found)),
        Expr::Map(map) => map.entries.iter().for_each(|entry| calls_of_entry(&entry.expr, found)),
        Expr::Struct(value) => value.entries.iter().for_each(|entry| calls_of_entry(&entry.expr, found)),
        Expr::Comprehension(loops) => {
            for inner in [&loops.iter_range, &loops.accu_init, &loops.loop_cond, &loops.loop_step, &loops.result] {
                calls(inner, found);
            }
        }
    }
}

fn calls_of_entry<'e>(entry: &'e EntryExpr, found: &mut Vec<&'e CallExpr>) {
    match entry {
        EntryExpr::StructField(field) => calls(&field.value, found),
        EntryExpr::MapEntry(entry) => {
            calls(&entry.key, found);
            calls(&entry.value, found);
        }
    }
}

/// Whether CEL has the function. The library tells only by refusing to let it be declared again.
pub(super) fn exists(env: &Arc<Env>, call: &CallExpr) -> bool {
    Context::with_env(Arc::clone(env)).add_function(&call.func_name, || true).is_err()
}

/// The names that `expression` takes from the event: all but those it binds itself.
pub(super) fn free_names<'e>(expression: &'e IdedExpr, bound: &mut Vec<&'e str>, free: &mut HashSet<&'e str>) {
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => {}
        Expr::Ident(name) => {
            if !bound.contains(&name.as_str()) {
                free.insert(name);
            }
        }
        Expr::Select(select) => free_names(&select.operand, bound, free),
        Expr::Call(call) => {
            call.target.as_deref().into_iter().chain(&call.args).for_each(|e| free_names(e, bound, free))
        }
        Expr::List(list) => list.elements.iter().for_each(|element| free_names(element, bound, free)),
        Expr::Map(map) => map.entries.iter().for_each(|entry| free_names_of_entry(&entry.expr, bound, free)),
        Expr::Struct(value) => value.entries.iter().for_each(|entry| free_names_of_entry(&entry.expr, bound, free)),
        Expr::Comprehension(loops) => {
            free_names(&loops.iter_range, bound, free);
            free_names(&loops.accu_init, bound, free);
            let outer = bound.len();
            bound.extend([loops.iter_var.as_str(), loops.accu_var.as_str()]);
            bound.extend(loops.iter_var2.as_deref());
            for inner in [&loops.loop_cond, &loops.loop_step, &loops.result] {
                free_names(inner, bound, free);
            }
            bound.truncate(outer);
        }
    }
}

fn free_names_of_entry<'e>(entry: &'e EntryExpr, bound: &mut Vec<&'e str>, free: &mut HashSet<&'e str>) {
    match entry {
        EntryExpr::StructField(field) => free_names(&field.value, bound, free),
        EntryExpr::MapEntry(entry) => {
            free_names(&entry.key, bound, free);
            free_names(&entry.value, bound, free);
        }
    }
}
