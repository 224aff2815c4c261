//! JSON Schemas that strangers wrote, applied within bounds.
//!
//! A schema comes from a hosted server and the arguments from a client; together they may be made
//! to cost. A regular expression can backtrack, a chain of `anyOf` over `$ref` doubles with each
//! link, a recursive `$ref` doubles with each level of the arguments. No deadline helps in the
//! middle of a synchronous check, so the cost is bounded beforehand:
//!
//! * The schema is read as a graph of subschemas. For each level of the arguments, the most work
//!   that one value there can cause is computed once, when the schema is compiled
//!   ([`Schema::compile`]): what applies to the same value is added up, what applies to its
//!   children is carried one level down.
//! * A check multiplies that by what the arguments hold on each level, and by nothing else. Over
//!   the budget the arguments are not checked, and the caller is told so.
//! * `$ref` stays inside the schema, regular expressions have Rust's semantics (no backtracking),
//!   and the sizes of both are limited. `format` is an annotation and not checked.

mod cost;
mod limits;
mod quoted;
mod simple;
mod words;

use colibri_text::brief;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use super::strict_json::{Exact, shown_pointer};
use cost::Graph;
pub use limits::SchemaError;
use limits::{
    BUDGET, COMPILE_STACK, MAX_BYTES, MAX_LEVELS, MAX_NESTED, MAX_PATTERN, MAX_PATTERNS, MAX_SHOWN,
    MAX_UNQUOTED, PATTERN_SIZE, refuse,
};
use simple::SimpleSchema;

/// A schema that can be applied within bounds.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    /// The most work that one unit of the arguments causes, by level; levels beyond the last cause
    /// none.
    work: Vec<u64>,
    /// The longest chain of subschemas that apply to one and the same value.
    chain: usize,
    /// True if arrays are compared item by item, which looks at everything below them again.
    unique: bool,
    /// True if there are alternatives: an error then tells of each of them, with a copy of the
    /// value.
    alternatives: bool,
    simple: Option<SimpleSchema>,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// The arguments fit.
    Fits,
    /// They do not: where and why, in words for whoever made the call, without long values.
    Unfit(String),
    /// To find out would cost too much.
    TooCostly,
}

impl Schema {
    /// Compiles a schema. The dialect is the one that `$schema` names, else 2020-12 (MCP
    /// 2025-11-25, "JSON Schema Usage").
    ///
    /// Takes milliseconds for a schema made to be slow; meant for when definitions are learned, not
    /// for calls.
    ///
    /// # Errors
    /// Not an object, more than one reader can agree on, over one of the limits, an unknown
    /// dialect, a `$ref` that is not a JSON pointer into the same schema, `$dynamicRef`, a schema
    /// that applies itself to the same value, a regular expression that Rust does not have
    /// (look-around, back references), anything the dialect's own schema refuses.
    pub fn compile(raw: &[u8]) -> Result<Schema, SchemaError> {
        if raw.len() > MAX_BYTES {
            return refuse(format!("the schema is longer than {MAX_BYTES} bytes"));
        }
        let exact =
            Exact::read(raw).map_err(|inexact| SchemaError(format!("the schema has {inexact}")))?;
        if exact.levels.len() > MAX_LEVELS {
            return refuse(format!(
                "the schema is nested deeper than {MAX_LEVELS} levels"
            ));
        }
        Schema::build(exact.value)
    }

    pub(super) fn build(value: Value) -> Result<Schema, SchemaError> {
        let draft = dialect(&value)?;
        scan(&value, true, &mut 0)?;
        let graph = Graph::of(&value)?;
        let (work, chain) = graph.work()?;
        let (unique, alternatives) = (graph.unique, graph.alternatives);
        let simple = SimpleSchema::of(&value)
            .filter(|_| chain.saturating_mul(SimpleSchema::MAX_DEPTH) <= MAX_NESTED);
        // Compiling recurses along the references, and a worker's stack is small.
        let compile = move || {
            jsonschema::options()
                .with_draft(draft)
                .offline()
                .should_validate_formats(false)
                .with_pattern_options(
                    PatternOptions::regex()
                        .size_limit(PATTERN_SIZE)
                        .dfa_size_limit(PATTERN_SIZE),
                )
                .build(&value)
                .map_err(|error| {
                    SchemaError(format!(
                        "not a schema that can be applied: {}",
                        told(&error)
                    ))
                })
        };
        let thread = std::thread::Builder::new()
            .name("schema".to_owned())
            .stack_size(COMPILE_STACK);
        let compiled = thread
            .spawn(compile)
            .map_err(|error| SchemaError(format!("no thread to compile it: {error}")))?;
        let Ok(validator) = compiled.join() else {
            return refuse("the schema cannot be compiled");
        };
        Ok(Schema {
            validator: validator?,
            work,
            chain,
            unique,
            alternatives,
            simple,
        })
    }

    /// The most work that a check of these arguments can cause, in units.
    fn cost(&self, arguments: &Exact) -> u64 {
        let below = |level: usize| {
            arguments.levels[level..]
                .iter()
                .fold(0, |sum: u64, n| sum.saturating_add(*n))
        };
        let cost = (0..arguments.levels.len().min(self.work.len())).map(|level| {
            let units = if self.unique {
                // Up to fifteen items are compared each with each, more are hashed.
                below(level).saturating_mul(8)
            } else {
                arguments.levels[level]
            };
            self.work[level].saturating_mul(units)
        });
        cost.fold(0, u64::saturating_add)
    }

    /// True if arguments as they are written surely fit: what [`Schema::check`] would say, without
    /// a copy of them. `false` says nothing.
    pub(super) fn surely_fits(&self, arguments: &[u8]) -> bool {
        let Some(simple) = &self.simple else {
            return false;
        };
        // Each value, key and 16 bytes of text takes a byte at least.
        let work = self.work.iter().max().copied().unwrap_or_default();
        work.saturating_mul(arguments.len() as u64) <= BUDGET && simple.surely_fits(arguments)
    }

    /// Checks arguments.
    pub fn check(&self, arguments: &Exact) -> Fit {
        let cost = self.cost(arguments);
        if cost > BUDGET || self.chain.saturating_mul(arguments.levels.len()) > MAX_NESTED {
            return Fit::TooCostly;
        }
        if self.validator.is_valid(&arguments.value) {
            return Fit::Fits;
        }
        let why = (self.can_explain(arguments))
            .then(|| self.validator.validate(&arguments.value).err())
            .flatten()
            .map(|error| told(&error));
        Fit::Unfit(why.unwrap_or_else(|| "it is too large to say where".to_owned()))
    }

    /// True if arguments that [`Schema::check`] found not to fit would, were their strings that
    /// spell a number or a boolean where the schema wants one those values.
    pub(super) fn fits_unquoted(&self, arguments: &Exact) -> bool {
        units(arguments) <= MAX_UNQUOTED
            && self.can_explain(arguments)
            && quoted::fits_unquoted(&self.validator, &arguments.value)
    }

    /// True if the errors of these arguments can be had within bounds.
    fn can_explain(&self, arguments: &Exact) -> bool {
        !self.alternatives || self.cost(arguments).saturating_mul(units(arguments)) <= 4 * BUDGET
    }
}

/// The number of units in arguments, on all levels.
fn units(arguments: &Exact) -> u64 {
    arguments
        .levels
        .iter()
        .fold(0, |sum: u64, n| sum.saturating_add(*n))
}

/// The place and the reason, without the value, in bounds, with nothing that moves a cursor.
fn told(error: &jsonschema::ValidationError<'_>) -> String {
    let at = shown_pointer(error.instance_path().as_str());
    format!("{at}: {}", brief(&words::reason(error), MAX_SHOWN))
}

fn dialect(schema: &Value) -> Result<Draft, SchemaError> {
    let Some(named) = schema.get("$schema") else {
        return Ok(Draft::Draft202012);
    };
    let named = named.as_str().unwrap_or_default();
    let plain = named
        .strip_prefix("https")
        .or(named.strip_prefix("http"))
        .unwrap_or_default();
    match plain.trim_end_matches('#') {
        "://json-schema.org/draft/2020-12/schema" => Ok(Draft::Draft202012),
        "://json-schema.org/draft/2019-09/schema" => Ok(Draft::Draft201909),
        "://json-schema.org/draft-07/schema" => Ok(Draft::Draft7),
        "://json-schema.org/draft-06/schema" => Ok(Draft::Draft6),
        "://json-schema.org/draft-04/schema" => Ok(Draft::Draft4),
        _ => refuse("its dialect ($schema) is not known here"),
    }
}

/// Looks through the whole text, reachable or not, for what would make a name mean something else
/// than it says.
fn scan(value: &Value, top: bool, patterns: &mut usize) -> Result<(), SchemaError> {
    match value {
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| scan(item, false, patterns)),
        Value::Object(map) => {
            for (key, value) in map {
                match key.as_str() {
                    "$dynamicRef" | "$recursiveRef" if value.is_string() => {
                        return refuse(format!("{key} is not supported"));
                    }
                    "$id" | "id" if !top && value.is_string() => {
                        return refuse(
                            "a part of the schema has an $id of its own, which is not supported",
                        );
                    }
                    "pattern" if value.is_string() => {
                        count_pattern(value.as_str().unwrap_or_default(), patterns)?
                    }
                    "patternProperties" => {
                        for pattern in value.as_object().into_iter().flat_map(Map::keys) {
                            count_pattern(pattern, patterns)?;
                        }
                    }
                    _ => {}
                }
                scan(value, false, patterns)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn count_pattern(pattern: &str, patterns: &mut usize) -> Result<(), SchemaError> {
    *patterns += 1;
    if *patterns > MAX_PATTERNS || pattern.len() > MAX_PATTERN {
        return refuse(format!(
            "more than {MAX_PATTERNS} regular expressions, or one longer than {MAX_PATTERN} bytes"
        ));
    }
    Ok(())
}

/// Refuses keywords that nothing applies, so that a typing error in a contract cannot make it say
/// less than was meant.
pub(super) fn every_keyword_applies(schema: &Value) -> Result<(), SchemaError> {
    match Graph::of(schema)?.unknown {
        Some(keyword) => refuse(format!(
            "\"{keyword}\" is not a keyword that is checked here"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::limits::{MAX_CHAIN, MAX_SUBSCHEMAS};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn schema(value: Value) -> Schema {
        Schema::compile(value.to_string().as_bytes()).unwrap()
    }

    fn fit(schema: &Schema, arguments: &str) -> Fit {
        schema.check(&Exact::read(arguments.as_bytes()).unwrap())
    }

    fn refused(value: Value) -> String {
        Schema::compile(value.to_string().as_bytes()).unwrap_err().0
    }

    fn unfit(schema: &Schema, arguments: &str) -> String {
        match fit(schema, arguments) {
            Fit::Unfit(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_the_place_and_not_the_value() {
        let schema = schema(
            json!({"type":"object","required":["title"],"additionalProperties":false,
            "properties":{"title":{"type":"string","maxLength":5},"n":{"type":"integer"},"l":{"items":{"enum":["a","b"]}},
            "p":{"pattern":"^a+$"}}}),
        );
        assert_eq!(
            fit(&schema, r#"{"title":"abc","n":3,"l":["a"]}"#),
            Fit::Fits
        );
        assert!(unfit(&schema, "{}").contains("\"title\" is a required property"));
        assert!(unfit(&schema, r#"{"title":"x","l":["a","c"]}"#).starts_with("/l/1: "));
        let secret = format!(r#"{{"title":"hunter2{}"}}"#, "x".repeat(10_000));
        let why = unfit(&schema, &secret);
        assert!(
            why.starts_with("/title: ") && !why.contains("hunter2") && why.len() < 500,
            "{why}"
        );
        let why = unfit(
            &schema,
            &format!(r#"{{"title":"x","\u001b[2J{}":1}}"#, "y".repeat(9_000)),
        );
        assert!(!why.contains('\u{1b}') && why.len() < 1_000, "{why}");
    }

    #[test]
    fn dialects_are_those_that_the_schema_names() {
        let tuple = json!({"properties":{"a":{"items":[{"type":"string"}]}}});
        let mut seven = tuple.clone();
        seven["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        assert!(matches!(fit(&schema(seven), r#"{"a":[1]}"#), Fit::Unfit(_)));
        assert!(
            Schema::compile(tuple.to_string().as_bytes()).is_err(),
            "2020-12 has no list of items"
        );
        assert!(refused(json!({"$schema":"https://example.org/mine"})).contains("dialect"));
        assert!(refused(json!({"$schema":7})).contains("dialect"));
    }

    #[test]
    fn references_stay_inside() {
        let inside = schema(
            json!({"$defs":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/s"},"b":{"$ref":"#"}}}),
        );
        assert_eq!(fit(&inside, r#"{"a":"x","b":{"a":"y"}}"#), Fit::Fits);
        assert!(unfit(&inside, r#"{"b":{"b":{"a":1}}}"#).starts_with("/b/b/a"));
        for reference in [
            "http://127.0.0.1:1/s",
            "https://json-schema.org/draft/2020-12/schema",
            "file:///etc/passwd",
            "other.json",
            "#anchor",
            "#/%24defs/s",
            "",
            "//host/x#/a",
        ] {
            assert!(
                refused(json!({"$defs":{"s":{}},"properties":{"a":{"$ref":reference}}}))
                    .contains("$ref"),
                "{reference}"
            );
        }
        assert!(refused(json!({"properties":{"a":{"$ref":"#/nowhere"}}})).contains("nowhere"));
        assert!(refused(json!({"$dynamicRef":"#x"})).contains("$dynamicRef"));
        assert!(refused(json!({"$defs":{"a":{"$id":"http://x/","$ref":"#"}}})).contains("$id"));
    }

    #[test]
    fn a_schema_that_never_ends_is_refused() {
        for endless in [
            json!({"$ref":"#"}),
            json!({"allOf":[{"$ref":"#"}]}),
            json!({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}),
            json!({"propertyNames":{"$ref":"#"}}),
        ] {
            assert!(refused(endless).contains("itself"));
        }
    }

    /// `n` links, each of which applies the next one twice to the same value, or to a member of it.
    fn doubling(n: usize, link: impl Fn(Value) -> Value) -> Value {
        let mut defs = Map::new();
        for i in 0..n {
            defs.insert(
                format!("d{i}"),
                link(json!({"$ref":format!("#/$defs/d{}", i + 1)})),
            );
        }
        defs.insert(format!("d{n}"), json!({"type":"string"}));
        json!({"$defs":defs,"properties":{"a":{"$ref":"#/$defs/d0"}}})
    }

    #[test]
    fn schemas_that_double_are_not_evaluated() {
        let bomb = doubling(60, |next| json!({"anyOf":[next, next]}));
        let compiled = Schema::compile(bomb.to_string().as_bytes());
        // Whether refused or compiled: no evaluation of 2^60 steps happens.
        if let Ok(schema) = compiled {
            assert_eq!(fit(&schema, r#"{"a":1}"#), Fit::TooCostly);
        }
        let harmless = schema(doubling(6, |next| json!({"anyOf":[next, next]})));
        assert_eq!(fit(&harmless, r#"{"a":"x"}"#), Fit::Fits);
        assert!(matches!(fit(&harmless, r#"{"a":1}"#), Fit::Unfit(_)));

        let deep = schema(
            json!({"$defs":{"n":{"anyOf":[{"type":"string"},{"properties":{"a":{"$ref":"#/$defs/n"}},"minProperties":9},
            {"properties":{"a":{"$ref":"#/$defs/n"}},"minProperties":9}]}},"$ref":"#/$defs/n"}),
        );
        assert!(matches!(fit(&deep, r#"{"a":{"a":1}}"#), Fit::Unfit(_)));
        let nested = format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60));
        assert_eq!(fit(&deep, &nested), Fit::TooCostly);
    }

    #[test]
    fn a_recursive_schema_applies_to_deep_arguments() {
        let tree = schema(
            json!({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"c":{"type":"array","items":{"$ref":"#/$defs/n"}}}}},
            "$ref":"#/$defs/n"}),
        );
        let nested = format!(
            "{}{{\"v\":\"x\"}}{}",
            "{\"v\":1,\"c\":[".repeat(20),
            "]}".repeat(20)
        );
        assert!(unfit(&tree, &nested).contains("/v"));
    }

    #[test]
    fn the_deepest_check_fits_the_stack() {
        let chain = schema(
            json!({"$defs":{"n":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"}),
        );
        let four = schema(
            json!({"$defs":{"n":{"allOf":[{"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"},"b":{"type":"null"}}}]}]}},
            "$ref":"#/$defs/n"}),
        );
        let nested = |levels: usize, last: &str| {
            format!("{}{last}{}", "{\"a\":".repeat(levels), "}".repeat(levels))
        };
        assert_eq!(fit(&chain, &nested(128, "1")), Fit::Fits);
        assert_eq!(fit(&four, &nested(128, "1")), Fit::TooCostly);
        assert!(unfit(&four, &nested(126, "{\"b\":1}")).starts_with("/a/a/"));
    }

    #[test]
    fn the_longest_chain_of_references_compiles() {
        let long = schema(doubling(MAX_CHAIN / 2 - 2, |next| json!({"allOf":[next]})));
        assert_eq!(fit(&long, r#"{"a":"x"}"#), Fit::Fits);
        assert!(unfit(&long, r#"{"a":1}"#).starts_with("/a: "));
    }

    #[test]
    fn a_missing_argument_is_named_beside_a_large_one() {
        let schema =
            schema(json!({"required":["path"],"properties":{"content":{"type":"string"}}}));
        let large = json!({"content":"x".repeat(1 << 20)}).to_string();
        assert!(unfit(&schema, &large).contains("\"path\" is a required property"));
    }

    #[test]
    fn unevaluated_nested_branches_are_within_the_bound() {
        let mut branch =
            json!({"properties":{"x":{"type":"string"}},"unevaluatedProperties":false});
        for _ in 0..18 {
            branch = json!({"anyOf":[branch.clone()],"unevaluatedProperties":false});
        }
        let small =
            schema(json!({"properties":{"a":{"type":"integer"}},"unevaluatedProperties":false}));
        assert_eq!(fit(&small, r#"{"a":1}"#), Fit::Fits);
        assert!(matches!(fit(&small, r#"{"b":1}"#), Fit::Unfit(_)));
        if let Ok(schema) = Schema::compile(branch.to_string().as_bytes()) {
            assert_eq!(fit(&schema, r#"{"x":1,"y":2}"#), Fit::TooCostly);
        }
    }

    #[test]
    fn huge_schemas_are_refused() {
        let many: Vec<Value> = (0..MAX_SUBSCHEMAS).map(|n| json!({"const":n})).collect();
        assert!(refused(json!({"anyOf":many})).contains("subschemas"));
        assert!(refused(json!({"description":"x".repeat(MAX_BYTES)})).contains("bytes"));
        let chain = doubling(MAX_CHAIN, |next| next);
        assert!(refused(chain).contains("one inside the other"));
        let mut deep = json!({});
        for _ in 0..MAX_LEVELS {
            deep = json!({"not":deep});
        }
        assert!(refused(deep).contains("levels"));
        let patterns: Vec<Value> = (0..=MAX_PATTERNS)
            .map(|n| json!({"pattern":format!("{n}")}))
            .collect();
        assert!(refused(json!({"anyOf":patterns})).contains("regular expressions"));
        assert!(Schema::compile(br#"{"type":"object","type":"string"}"#).is_err());
        assert!(Schema::compile(b"true").is_err() && Schema::compile(b"").is_err());
        assert!(Schema::compile(br#"{"type":"objekt"}"#).is_err());
    }

    #[test]
    fn a_large_enum_against_many_values_is_not_evaluated() {
        let options: Vec<u32> = (0..20_000).collect();
        let schema = schema(json!({"properties":{"a":{"items":{"enum":options}}}}));
        assert_eq!(fit(&schema, r#"{"a":[19999,1]}"#), Fit::Fits);
        let many: Vec<u32> = vec![19_999; 5_000];
        assert_eq!(fit(&schema, &json!({"a":many}).to_string()), Fit::TooCostly);
    }

    #[test]
    fn regular_expressions_cannot_be_catastrophic() {
        let classic = schema(json!({"properties":{"a":{"pattern":"^(a+)+$"}}}));
        let text = format!(r#"{{"a":"{}!"}}"#, "a".repeat(50_000));
        assert!(matches!(fit(&classic, &text), Fit::Unfit(_)));
        for pattern in [
            "(?=a)b",
            "(a)\\1",
            "(?<!a)b",
            "((a{1000}){1000}){1000}",
            "^.{0,404600}$",
            "(",
        ] {
            assert!(
                Schema::compile(json!({"pattern":pattern}).to_string().as_bytes()).is_err(),
                "{pattern}"
            );
        }
        // Such as defeat the lazy DFA are counted with all their states.
        let states = schema(json!({"properties":{"a":{"pattern":"(x+x+)+y|[ab]*a[ab]{200}$"}}}));
        let text = format!(r#"{{"a":"{}"}}"#, "ab".repeat(500_000));
        assert_eq!(fit(&states, &text), Fit::TooCostly);
        let plain =
            schema(json!({"properties":{"a":{"pattern":"^feature/[A-Za-z0-9._/-]{1,100}$"}}}));
        assert_eq!(fit(&plain, r#"{"a":"feature/x"}"#), Fit::Fits);
    }

    #[test]
    fn equal_items_deep_down_are_within_the_bound() {
        let unique = schema(json!({"properties":{"a":{"uniqueItems":true}}}));
        assert!(matches!(fit(&unique, r#"{"a":[[1],[1]]}"#), Fit::Unfit(_)));
        assert_eq!(fit(&unique, r#"{"a":[[1],[2]]}"#), Fit::Fits);
    }

    proptest! {
        #[test]
        fn agrees_with_the_validator_within_the_bound(
            kind in prop::sample::select(vec!["string", "integer", "object", "array", "null"]),
            value in prop_oneof![Just(json!("x")), Just(json!(1)), Just(json!({})), Just(json!([])), Just(json!(null))],
            negate in any::<bool>(),
        ) {
            let inner = json!({"type":kind});
            let text = json!({"properties":{"a": if negate { json!({"not":inner}) } else { inner }}});
            let wanted = jsonschema::is_valid(&text, &json!({"a":value}));
            let found = fit(&schema(text), &json!({"a":value}).to_string());
            prop_assert_eq!(found == Fit::Fits, wanted);
        }

        #[test]
        fn never_panics(bytes in r#"\{("[$a-zO]{1,6}":[\[\]{}",a-z0-9:]{0,12},?){0,3}\}"#) {
            let _ = Schema::compile(bytes.as_bytes());
        }
    }
}
