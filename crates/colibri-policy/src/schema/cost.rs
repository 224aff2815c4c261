//! The cost of applying a schema, computed from the schema alone.

use std::collections::HashMap;

use colibri_text::brief;
use serde_json::{Map, Value};

use super::limits::{BUDGET, MAX_CHAIN, MAX_SUBSCHEMAS, PATTERN_SIZE, SchemaError, refuse};
use crate::strict_json::MAX_DEPTH;

/// Keywords whose value is one schema for the same value (or for the names of its members, which
/// count as part of it).
const SAME_ONE: &[&str] = &["not", "if", "then", "else", "propertyNames"];
/// Keywords whose value is a list of schemas for the same value.
const SAME_LIST: &[&str] = &["allOf", "anyOf", "oneOf"];
/// Keywords whose value has a schema for the same value in each member (`dependencies` may have
/// lists of names, too).
const SAME_MAP: &[&str] = &["dependentSchemas", "dependencies"];
/// Keywords whose value is a schema for every member.
const MEMBER_ONE: &[&str] = &["additionalProperties", "unevaluatedProperties"];
/// Keywords whose value is a schema, or before 2020-12 a list of schemas, for items.
const ITEM_ONE: &[&str] = &["items", "additionalItems", "unevaluatedItems", "contains"];
/// Keywords that look at the value alone.
const ASSERTIONS: &[&str] = &[
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
];
/// Keywords that only say something, and those that hold or name schemas.
const OTHERS: &[&str] = &[
    "$schema",
    "$id",
    "$ref",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "properties",
    "patternProperties",
    "prefixItems",
];

/// A subschema, and where it leads.
#[derive(Default)]
struct SchemaNode {
    /// The cost of its own for a unit of the value.
    weight: u64,
    same: Vec<usize>,
    /// Members' schemas of which only one applies to a member.
    member_one: Vec<usize>,
    /// Members' schemas that may apply besides.
    member_all: Vec<usize>,
    item_one: Vec<usize>,
    item_all: Vec<usize>,
}

/// The subschemas that can be reached from the first.
pub(super) struct Graph<'v> {
    root: &'v Value,
    nodes: Vec<SchemaNode>,
    known: HashMap<*const Value, usize>,
    pub(super) unique: bool,
    /// `anyOf` or `oneOf` is used.
    pub(super) alternatives: bool,
    /// `unevaluated…` finds out anew which members were evaluated, and applies branches a second
    /// time for it.
    unevaluated: bool,
    /// Keywords that are neither applied nor say anything, by the first place of one.
    pub(super) unknown: Option<String>,
}

impl<'v> Graph<'v> {
    pub(super) fn of(root: &'v Value) -> Result<Graph<'v>, SchemaError> {
        let mut graph = Graph {
            root,
            nodes: Vec::new(),
            known: HashMap::new(),
            unique: false,
            alternatives: false,
            unevaluated: false,
            unknown: None,
        };
        if !root.is_object() {
            return refuse("a schema must be an object");
        }
        graph.node(root, 0)?;
        Ok(graph)
    }

    fn node(&mut self, schema: &'v Value, entered: usize) -> Result<usize, SchemaError> {
        if let Some(known) = self.known.get(&std::ptr::from_ref(schema)) {
            return Ok(*known);
        }
        if self.nodes.len() >= MAX_SUBSCHEMAS || entered >= MAX_CHAIN {
            return refuse(format!(
                "more than {MAX_SUBSCHEMAS} subschemas, or more than {MAX_CHAIN} one inside the other"
            ));
        }
        let index = self.nodes.len();
        self.nodes.push(SchemaNode::default());
        self.known.insert(std::ptr::from_ref(schema), index);
        let mut node = SchemaNode {
            weight: 1,
            ..SchemaNode::default()
        };
        for (key, value) in schema.as_object().into_iter().flatten() {
            let name = key.as_str();
            let is_schema = value.is_object() || value.is_boolean();
            if SAME_ONE.contains(&name) && is_schema {
                node.same.push(self.node(value, entered + 1)?);
            } else if SAME_LIST.contains(&name) {
                self.alternatives |= name != "allOf";
                for branch in value.as_array().into_iter().flatten() {
                    node.same.push(self.node(branch, entered + 1)?);
                }
            } else if SAME_MAP.contains(&name) {
                for branch in value.as_object().into_iter().flat_map(Map::values) {
                    node.weight += 1 + branch.as_array().map_or(0, Vec::len) as u64;
                    if !branch.is_array() {
                        node.same.push(self.node(branch, entered + 1)?);
                    }
                }
            } else if name == "$ref" {
                let target = self.target(value)?;
                node.same.push(self.node(target, entered + 1)?);
            } else if name == "properties" {
                for member in value.as_object().into_iter().flat_map(Map::values) {
                    node.weight += 1;
                    node.member_one.push(self.node(member, entered + 1)?);
                }
            } else if name == "patternProperties" {
                for (pattern, member) in value.as_object().into_iter().flatten() {
                    node.weight = node.weight.saturating_add(pattern_weight(pattern));
                    node.member_all.push(self.node(member, entered + 1)?);
                }
            } else if MEMBER_ONE.contains(&name) {
                self.unevaluated |= name == "unevaluatedProperties";
                node.member_all.push(self.node(value, entered + 1)?);
            } else if name == "prefixItems" || (name == "items" && value.is_array()) {
                for item in value.as_array().into_iter().flatten() {
                    node.item_one.push(self.node(item, entered + 1)?);
                }
            } else if ITEM_ONE.contains(&name) {
                self.unevaluated |= name == "unevaluatedItems";
                node.item_all.push(self.node(value, entered + 1)?);
            } else if name == "pattern" {
                node.weight = node
                    .weight
                    .saturating_add(pattern_weight(value.as_str().unwrap_or_default()));
            } else if ASSERTIONS.contains(&name) {
                self.unique |= name == "uniqueItems";
                node.weight = node.weight.saturating_add(values(value));
            } else if !OTHERS.contains(&name) && self.unknown.is_none() {
                self.unknown = Some(brief(name, 60));
            }
        }
        self.nodes[index] = node;
        Ok(index)
    }

    fn target(&self, reference: &Value) -> Result<&'v Value, SchemaError> {
        let text = reference.as_str().unwrap_or_default();
        let pointer = text
            .strip_prefix('#')
            .filter(|rest| rest.is_empty() || rest.starts_with('/'));
        // A percent sign would have to be decoded the way the validator does.
        let Some(pointer) = pointer.filter(|pointer| !pointer.contains('%')) else {
            return refuse(
                "a $ref leads elsewhere than to a JSON pointer (#/…) of the same schema; nothing is fetched",
            );
        };
        match self.root.pointer(pointer) {
            Some(target) => Ok(target),
            None => refuse("a $ref leads nowhere"),
        }
    }

    /// The most work that a unit of the value on each level causes, and the longest chain of
    /// schemas for one value.
    pub(super) fn work(&self) -> Result<(Vec<u64>, usize), SchemaError> {
        let (order, chains) = self.order()?;
        // With `unevaluated…` a branch is applied, applied again, and searched for what it
        // evaluated.
        let again: u64 = if self.unevaluated { 3 } else { 1 };
        let mut work = Vec::new();
        let mut above = vec![0_u64; self.nodes.len()];
        for level in 0..=MAX_DEPTH {
            let mut here = vec![0_u64; self.nodes.len()];
            for &index in &order {
                let node = &self.nodes[index];
                let sum = |list: &[usize], of: &[u64]| {
                    list.iter()
                        .fold(0, |sum: u64, n| sum.saturating_add(of[*n]))
                };
                let most =
                    |list: &[usize]| list.iter().map(|n| above[*n]).max().unwrap_or_default();
                let same = sum(&node.same, &here);
                let own = if level == 0 {
                    node.weight
                } else {
                    let members =
                        most(&node.member_one).saturating_add(sum(&node.member_all, &above));
                    let items = most(&node.item_one).saturating_add(sum(&node.item_all, &above));
                    members.max(items)
                };
                here[index] = if level == 0 {
                    own.saturating_add(same.saturating_mul(again))
                } else {
                    own.saturating_add(same).saturating_mul(again)
                };
            }
            if here[0] == 0 {
                break;
            }
            work.push(here[0]);
            above = here;
        }
        if work.first().is_some_and(|first| *first > BUDGET) {
            return refuse("to apply it even to nothing would cost too much");
        }
        Ok((work, chains.into_iter().max().unwrap_or_default() + 1))
    }

    /// The nodes so that each comes after those that apply to the same value, and the length of the
    /// chain below each.
    fn order(&self) -> Result<(Vec<usize>, Vec<usize>), SchemaError> {
        #[derive(Clone, Copy, PartialEq)]
        enum VisitMark {
            New,
            Open,
            Done,
        }
        let mut marks = vec![VisitMark::New; self.nodes.len()];
        let mut chains = vec![0; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for start in 0..self.nodes.len() {
            let mut open = vec![(start, 0)];
            while let Some((index, next)) = open.pop() {
                if next == 0 {
                    if marks[index] == VisitMark::Done {
                        continue;
                    }
                    marks[index] = VisitMark::Open;
                }
                let same = &self.nodes[index].same;
                match same.get(next) {
                    Some(&inner) if marks[inner] == VisitMark::Open => {
                        return refuse("it refers to itself without going into the value");
                    }
                    Some(&inner) => {
                        open.push((index, next + 1));
                        open.push((inner, 0));
                    }
                    None => {
                        marks[index] = VisitMark::Done;
                        chains[index] = same
                            .iter()
                            .map(|inner| chains[*inner] + 1)
                            .max()
                            .unwrap_or_default();
                        order.push(index);
                    }
                }
            }
        }
        Ok((order, chains))
    }
}

/// Values in a piece of JSON, with a unit for each 16 bytes of text.
fn values(value: &Value) -> u64 {
    match value {
        Value::String(text) => 1 + text.len() as u64 / 16,
        Value::Array(items) => 1 + items.iter().map(values).sum::<u64>(),
        Value::Object(map) => {
            1 + map
                .iter()
                .map(|(key, value)| 1 + key.len() as u64 / 16 + values(value))
                .sum::<u64>()
        }
        _ => 1,
    }
}

/// The most states of a regular expression, which at worst are all looked at for each character.
/// Estimated from above: four for a character (a class of UTF-8 text), times every count in braces;
/// never more than fit into [`PATTERN_SIZE`].
fn pattern_weight(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|part| {
        let inside = part.split('}').next()?;
        inside
            .split(',')
            .filter_map(|count| count.trim().parse::<u64>().ok())
            .max()
    });
    let times = counts.fold(1_u64, |product, count| product.saturating_mul(count.max(1)));
    (4 * pattern.len() as u64)
        .saturating_mul(times)
        .min(PATTERN_SIZE as u64 / 16)
        + 1
}
