//! `when` and `payload` as CEL expressions over a row.
//!
//! Variables: `type`, `key`, `tenant`, `headers`, `body`, and for the body of a state change its
//! members `origin`, `state`, `trailers` and `input`. `body` is the parsed value where the content
//! type says JSON, `null` where the row has none, else bytes. Integers of 64 bits are exact; every
//! other number is a double. A member that is missing is an error; `has(body.x)` asks for it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use cel::{
    Context, Env, ExecutionError, ParseErrors, Program, Value,
    objects::{Key, Map},
};
use posthaste_core::{Body, Row, event::is_json, options::nearest};
use serde_json::Value as Json;

use super::{
    Condition, Payload,
    expression::{calls, exists, free_names, never_bool},
};

const EVENT: [&str; 5] = ["type", "key", "tenant", "headers", "body"];
/// The deepest JSON that the parser takes.
const DEEPEST: usize = 127;
/// What CEL offers, for the names of those who mistype it.
const FUNCTIONS: [&str; 16] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "has",
    "all",
    "exists",
    "exists_one",
    "map",
    "filter",
    "string",
    "int",
    "uint",
    "double",
    "bytes",
];
const STATE_CHANGE: [&str; 4] = ["origin", "state", "trailers", "input"];

/// Why a text is no expression over an event.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{expression:?}: {detail}")]
pub struct BadExpression {
    /// The expression.
    pub expression: String,
    /// What is wrong with it, and where.
    pub detail: String,
}

/// Compiles a `when`. It raises the message only if it gives exactly `true`; a result that is no
/// bool is an error.
///
/// # Errors
/// No CEL, a name that no event has, a function that does not exist, or a result that can't be a bool.
pub fn condition(expression: &str) -> Result<Condition, BadExpression> {
    let compiled = Compiled::new(expression)?;
    compiled.check_gives_bool()?;
    Ok(Arc::new(move |row| match compiled.evaluate(row)? {
        Value::Bool(raised) => Ok(raised),
        other => Err(compiled.failed(&format!("gives {}, not a bool", other.type_of()))),
    }))
}

/// Compiles a `payload`. Its value is sent as compact JSON with sorted members, so that every
/// attempt sends the same bytes.
///
/// # Errors
/// No CEL, a name that no event has, or a function that does not exist.
pub fn payload(expression: &str) -> Result<Payload, BadExpression> {
    let compiled = Compiled::new(expression)?;
    Ok(Arc::new(move |row| {
        let value = compiled.evaluate(row)?;
        let json = to_json(&value).map_err(|cause| compiled.failed(&cause))?;
        Ok(Bytes::from(json.to_string()))
    }))
}

struct Compiled {
    expression: String,
    program: Program,
    env: Arc<Env>,
    reads_event: Vec<&'static str>,
    reads_change: Vec<&'static str>,
}

impl Compiled {
    fn new(expression: &str) -> Result<Compiled, BadExpression> {
        let bad = |detail: String| BadExpression { expression: expression.to_owned(), detail };
        let env = Env::stdlib();
        let program = env.compile(expression).map_err(|errors| bad(positions(&errors)))?;
        let mut free = HashSet::new();
        free_names(program.expression(), &mut Vec::new(), &mut free);
        let known: Vec<&str> = EVENT.into_iter().chain(STATE_CHANGE).collect();
        let mut unknown: Vec<&str> = free.iter().copied().filter(|name| !known.contains(name)).collect();
        unknown.retain(|name| env.types().find_type(name).is_none());
        unknown.sort_unstable();
        if let Some(name) = unknown.first() {
            let meant = nearest(name, &known).map_or_else(|| known.join(", "), |name| format!("did you mean {name}?"));
            return Err(bad(format!("unknown name {name}; {meant}")));
        }
        let mut called = Vec::new();
        calls(program.expression(), &mut called);
        let env = Arc::new(env);
        if let Some(call) = called.into_iter().find(|call| !exists(&env, call)) {
            let name = &call.func_name;
            let meant = nearest(name, &FUNCTIONS).filter(|meant| meant != name);
            let meant = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            let arguments = call.args.len();
            return Err(bad(format!("there is no function {name} that takes {arguments} arguments{meant}")));
        }
        let reads = |names: &[&'static str]| names.iter().copied().filter(|name| free.contains(name)).collect();
        let (reads_event, reads_change) = (reads(&EVENT), reads(&STATE_CHANGE));
        Ok(Compiled { expression: expression.to_owned(), program, env, reads_event, reads_change })
    }

    /// Finds what would fail on every event.
    fn check_gives_bool(&self) -> Result<(), BadExpression> {
        let bad = |detail: String| Err(BadExpression { expression: self.expression.clone(), detail });
        if !self.reads_event.is_empty() || !self.reads_change.is_empty() {
            let gives = never_bool(self.program.expression());
            return gives.map_or(Ok(()), |what| bad(format!("gives {what}, and never a bool")));
        }
        match self.program.execute(&Context::with_env(Arc::clone(&self.env))) {
            Ok(Value::Bool(_)) => Ok(()),
            Ok(other) => bad(format!("always gives {}, not a bool", other.type_of())),
            Err(error) => bad(format!("always fails: {}", describe(&error))),
        }
    }

    fn evaluate(&self, row: &Row) -> Result<Value, String> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        let reads_body = self.reads_event.contains(&"body") || !self.reads_change.is_empty();
        let body = if reads_body { body(row).map_err(|cause| self.failed(&cause))? } else { Value::Null };
        for name in &self.reads_change {
            context.add_variable_from_value(*name, self.member(&body, name)?);
        }
        for name in &self.reads_event {
            let value = match *name {
                "type" => Value::from(row.event_type.as_str()),
                "key" => Value::from(row.key.as_deref()),
                "tenant" => Value::from(row.tenant.as_deref()),
                "headers" => Value::Map(Map::from(row.headers.clone().into_iter().collect::<HashMap<_, _>>())),
                _ => body.clone(),
            };
            context.add_variable_from_value(*name, value);
        }
        self.program.execute(&context).map_err(|error| self.failed(&describe(&error)))
    }

    fn member(&self, body: &Value, name: &str) -> Result<Value, String> {
        let Value::Map(map) = body else {
            return Err(self.failed(&format!("the body has no {name}: it is no JSON object")));
        };
        map.map.get(&Key::from(name)).cloned().ok_or_else(|| self.failed(&format!("the body has no {name}")))
    }

    fn failed(&self, cause: &str) -> String {
        format!("{:?}: {cause}", self.expression)
    }
}

fn body(row: &Row) -> Result<Value, String> {
    let Body::Bytes(bytes) = &row.body else { return Ok(Value::Null) };
    if !is_json(&row.content_type) {
        return Ok(Value::from(bytes.to_vec()));
    }
    too_deep(row).map_or(Ok(()), Err)?;
    serde_json::from_slice(bytes).map(to_cel).map_err(|error| format!("the body is not JSON: {error}"))
}

/// Why no expression can look into the body of `row`, whatever it asks for; `None` where one can. A parser
/// that followed any depth would let one event end the process.
pub(super) fn too_deep(row: &Row) -> Option<String> {
    let Body::Bytes(bytes) = &row.body else { return None };
    let depth = if is_json(&row.content_type) { depth(bytes) } else { 0 };
    let reason = || format!("the body is nested {depth} levels deep, {DEEPEST} are the most that can be looked into");
    (depth > DEEPEST).then(reason)
}

/// The deepest nesting of arrays and objects in a JSON text.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn to_cel(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::String(text) => Value::from(text),
        Json::Array(items) => Value::List(Arc::new(items.into_iter().map(to_cel).collect())),
        Json::Object(members) => {
            let members: HashMap<String, Value> =
                members.into_iter().map(|(name, value)| (name, to_cel(value))).collect();
            Value::Map(Map::from(members))
        }
        // An int wherever it is one: CEL has no arithmetic between int and uint.
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::Int(int),
            (None, Some(uint)) => Value::UInt(uint),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
    }
}

fn to_json(value: &Value) -> Result<Json, String> {
    match value {
        Value::List(items) => items.iter().map(to_json).collect::<Result<Vec<Json>, _>>().map(Json::Array),
        Value::Map(map) => {
            let mut members: Vec<(String, &Value)> =
                map.map.iter().map(|(key, value)| (key.to_string(), value)).collect();
            members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let members: Result<serde_json::Map<String, Json>, String> =
                members.into_iter().map(|(name, value)| Ok((name, to_json(value)?))).collect();
            members.map(Json::Object)
        }
        Value::Float(double) if !double.is_finite() => Err(format!("JSON has no {double}")),
        other => other.json().map_err(|_| format!("JSON has no {}", other.type_of())),
    }
}

/// The parser's errors on one line, each with where it is.
fn positions(errors: &ParseErrors) -> String {
    let texts = errors.errors.iter().map(|error| {
        let (line, column) = error.pos;
        format!("line {line}, column {column}: {}", error.msg)
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// The error without the values it happened on: they may be large, and are nobody's but the user's.
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(name) => format!("no member {name}"),
        ExecutionError::UndeclaredReference(name) => format!("unknown name or function {name}"),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::UnexpectedType { got, want } => format!("{got} where {want} is expected"),
        ExecutionError::InvalidArgumentCount { expected, actual } => {
            format!("{actual} arguments instead of {expected}")
        }
        ExecutionError::FunctionError { function, .. } => format!("{function} failed on its argument"),
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            format!("{operator} can't be applied to {} and {}", left.type_of(), right.type_of())
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("{} can't be compared with {}", left.type_of(), right.type_of())
        }
        ExecutionError::Overflow(operator, ..) => format!("{operator} overflows"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        _ => "can't be evaluated on this event".to_owned(),
    }
}

#[cfg(test)]
#[path = "cel_tests.rs"]
mod tests;
