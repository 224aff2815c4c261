//! A table of the things that the published interfaces of models can make a provider fetch, run,
//! store or bill. The relay refuses each of them in every place of a request, however it is spelt,
//! unless the agent's entry allows it.

#[path = "ways_out/tables.rs"]
mod tables;

use colibri_model::{ModelAllow, ModelApi, ModelPermissions, ModelRequestKind, read_body};
use serde_json::Value;

use tables::{INTERFACES, Interface};

/// The things that requests with a body ask for.
const ASKS: [ModelRequestKind; 2] = [ModelRequestKind::Generate, ModelRequestKind::Count];

/// Addresses in spellings that some reader takes for one.
const ADDRESSES: [&str; 9] = [
    "https://evil.example/?secret",
    "//evil.example/x",
    "file:///etc/passwd",
    "gs://bucket/x",
    " data:image/png;base64,AA==",
    "data:text/uri-list,https://evil.example",
    "evil.example",
    "data:https://evil.example/,",
    "\u{feff}https://evil.example",
];

/// Schemas that refer to what is not in them.
const REFERENCES: [&str; 3] = [
    r#"{"$ref":"https://evil.example"}"#,
    r#"{"properties":{"a":{"$dynamicRef":"other.json"}}}"#,
    r#"{"items":{"$id":"https://evil.example","$ref":"other.json#/a"}}"#,
];

/// Values of any kind.
const VALUES: [&str; 9] = [
    "null", "true", "false", "0", "7", "\"\"", "\"x\"", "[]", "{}",
];

/// The most changes to a body.
const MAX_CHANGES: usize = 32;
/// The most bytes of a value that a change copies to another place.
const MAX_COPIED: usize = 2048;

/// The text that stands for a key or a value which is put into a body.
const HOLE: &str = "@@";

impl Interface {
    fn of(api: ModelApi) -> &'static Interface {
        let of = INTERFACES.iter().find(|interface| interface.api == api);
        of.expect("each interface has its table")
    }

    /// A body as it is sent where this is asked for; `None`: this interface has no such request.
    fn wrapped(&self, asks: ModelRequestKind, body: &str) -> Option<String> {
        match (asks, self.api) {
            (ModelRequestKind::Generate, _) | (ModelRequestKind::Count, ModelApi::Anthropic) => {
                Some(body.to_owned())
            }
            (ModelRequestKind::Count, ModelApi::Gemini) => Some(format!(
                r#"{{"contents":[{{"parts":[{{"text":"x"}}]}}],"generateContentRequest":{body}}}"#
            )),
            _ => None,
        }
    }

    /// The kinds that are the provider's alone, in full.
    fn provider_kinds(&self) -> impl Iterator<Item = String> {
        let kind_of = |element: &&str| json(element)["type"].as_str().map(str::to_owned);
        let kinds = self.elements.iter().filter_map(kind_of);
        kinds.filter(|kind| self.is_providers(kind))
    }

    /// True if a kind is one of the provider's alone, whatever else its object says.
    fn is_providers(&self, kind: &str) -> bool {
        let kind = plain(kind);
        self.kinds
            .iter()
            .any(|known| kind.starts_with(&plain(known)))
    }
}

/// A step of the way to a value: a key, or `#`; and the `type` of the object that stands there.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    name: String,
    kind: String,
}

impl Step {
    fn to(name: &str, value: &Value) -> Step {
        let kind = value
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Step {
            name: name.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

/// True if the way to a value is one of these places.
fn is_one_of(places: &[&str], way: &[Step]) -> bool {
    places.iter().any(|place| is_at(place, way))
}

fn is_at(place: &str, way: &[Step]) -> bool {
    let (is_whole, place) = place
        .strip_prefix('/')
        .map_or((false, place), |place| (true, place));
    let steps: Vec<&str> = place.split('/').collect();
    let is_long_enough = if is_whole {
        steps.len() == way.len()
    } else {
        steps.len() <= way.len()
    };
    is_long_enough
        && steps
            .iter()
            .rev()
            .zip(way.iter().rev())
            .all(|(wanted, step)| {
                let (name, kind) = wanted.split_once('<').unwrap_or((wanted, "*"));
                let kind = kind.trim_end_matches('>');
                is_same(name, &step.name)
                    && match kind.strip_suffix('*') {
                        Some(start) => step.kind.starts_with(start),
                        None => step.kind == kind,
                    }
            })
}

/// A key or kind as the loosest reader takes it.
fn plain(text: &str) -> String {
    let folded = colibri_wire::keys::fold(text);
    folded
        .chars()
        .filter(|letter| !matches!(letter, '_' | '-' | ' '))
        .collect()
}

fn is_same(key: &str, name: &str) -> bool {
    fn letters(text: &str) -> impl Iterator<Item = u8> {
        let bytes = text
            .bytes()
            .filter(|byte| !matches!(byte, b'_' | b'-' | b' ' | 0));
        bytes.map(|byte| byte.to_ascii_lowercase())
    }
    match key.is_ascii() && name.is_ascii() {
        // Most are, and folding takes its time.
        true => letters(key).eq(letters(name)),
        false => plain(key) == plain(name),
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// A name as lenient readers may take it for the same, as it stands in JSON.
fn spellings(name: &str) -> Vec<String> {
    let capitals = |is_first: bool| {
        let mut text = String::new();
        let mut is_capital = is_first;
        for letter in name.chars() {
            match letter {
                '_' => is_capital = true,
                letter if is_capital => {
                    text.extend(letter.to_uppercase());
                    is_capital = false;
                }
                letter => text.push(letter),
            }
        }
        text
    };
    let (first, rest) = name.split_at(1);
    let code = u32::from(first.as_bytes()[0]);
    vec![
        name.to_owned(),
        capitals(false),
        capitals(true),
        name.to_uppercase(),
        name.replace('_', "-"),
        name.replace('_', ""),
        format!("\\u{code:04x}{rest}"),
        format!("{}{rest}", char::from_u32(code + 0xfee0).unwrap_or(' ')),
        format!("{name}\\u0000"),
        format!("{name} "),
        name.replace('s', "ſ").replace('k', "\u{212a}"),
    ]
}

/// A pointer to a value, and the way to it.
type Place = (String, Vec<Step>);

/// A pointer to each value that the provider reads, with the way to it, in order; of what is the
/// agent's own, nothing.
fn places(interface: &Interface, value: &Value) -> Vec<Place> {
    fn collect(
        interface: &Interface,
        value: &Value,
        (at, way): (&str, &mut Vec<Step>),
        found: &mut Vec<Place>,
    ) {
        if is_one_of(interface.own, way) {
            return;
        }
        found.push((at.to_owned(), way.clone()));
        if is_one_of(interface.schemas, way) {
            return;
        }
        let mut deeper = |key: &str, step: Step, value: &Value| {
            way.push(step);
            collect(interface, value, (&format!("{at}/{key}"), &mut *way), found);
            way.pop();
        };
        match value {
            Value::Object(members) => members
                .iter()
                .for_each(|(key, value)| deeper(key, Step::to(key, value), value)),
            Value::Array(elements) => elements
                .iter()
                .enumerate()
                .for_each(|(index, value)| deeper(&index.to_string(), Step::to("#", value), value)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(interface, value, ("", &mut Vec::new()), &mut found);
    found
}

/// The same value with nothing beside the way to a place in it but the members of the objects on
/// that way below the first; and a pointer to the place.
fn pruned(value: &Value, place: &str) -> (Value, String) {
    fn prune(value: &Value, steps: &[&str], is_first: bool) -> (Value, String) {
        let Some((step, rest)) = steps.split_first() else {
            return (value.clone(), String::new());
        };
        let below = value.pointer(&format!("/{step}")).expect("a place");
        let (inner, at) = prune(below, rest, false);
        match value {
            Value::Array(_) => (Value::Array(vec![inner]), format!("/0{at}")),
            _ => {
                let mut object = if is_first {
                    Value::Object(Default::default())
                } else {
                    value.clone()
                };
                object[*step] = inner;
                (object, format!("/{step}{at}"))
            }
        }
    }
    let steps: Vec<&str> = place.split('/').skip(1).collect();
    prune(value, &steps, true)
}

/// Makes requests that must be refused where nothing is allowed out of one that passes, at one
/// place of it: each behind what is wrong with it.
fn requests(
    interface: &Interface,
    body: &Value,
    at: &str,
    way: &[Step],
    spelt: usize,
) -> Vec<(String, String)> {
    let mut requests = Vec::new();
    let mut with = |what: &str, change: &dyn Fn(&mut Value), new: &[String]| {
        let mut body = body.clone();
        change(body.pointer_mut(at).expect("a place"));
        let body = body.to_string();
        let quoted = format!("\"{HOLE}\"");
        requests.extend(new.iter().map(|new| {
            (
                format!("{at}: {what} {new}"),
                body.replacen(&quoted, new, 1),
            )
        }));
    };
    let quoted = |names: Vec<String>| -> Vec<String> {
        names
            .into_iter()
            .take(spelt)
            .map(|name| format!("\"{name}\""))
            .collect()
    };
    let key = way.last().map_or("", |step| &step.name);
    if is_one_of(interface.schemas, way) {
        for schema in REFERENCES {
            with(
                "schema",
                &|value: &mut Value| *value = json(schema),
                &[String::new()],
            );
        }
        return requests;
    }
    match body.pointer(at).expect("a place") {
        Value::Object(_) => {
            for (name, value, _) in interface.members {
                let put = |object: &mut Value| {
                    let members = object.as_object_mut().expect("an object");
                    members.retain(|key, _| !is_same(key, name));
                    members.insert(HOLE.to_owned(), json(value));
                };
                with(value, &put, &quoted(spellings(name)));
            }
            for kind in interface.provider_kinds() {
                let put = |object: &mut Value| object["type"] = HOLE.into();
                with("kind", &put, &quoted(spellings(&kind)));
            }
            // These may be words as well.
            if !["keep", "mediaResolution"].contains(&key) {
                with(
                    "text",
                    &|object: &mut Value| *object = ADDRESSES[0].into(),
                    &[String::new()],
                );
            }
        }
        Value::Array(_) => {
            let put = |list: &mut Value| list.as_array_mut().expect("a list").push(HOLE.into());
            let elements: Vec<String> = interface
                .elements
                .iter()
                .map(|element| (*element).to_owned())
                .collect();
            with("element", &put, &elements);
        }
        Value::String(_) if interface.data.contains(&key) => {
            for address in ADDRESSES {
                with(
                    address,
                    &|text: &mut Value| *text = address.into(),
                    &[String::new()],
                );
            }
        }
        Value::String(_) | Value::Null => {}
        // What is no text is not read as text.
        scalar => {
            let text = scalar.to_string();
            with(
                "text",
                &|value: &mut Value| *value = text.as_str().into(),
                &[String::new()],
            );
        }
    }
    requests
}

/// The requests of an interface that pass though they must not.
pub fn passing(api: ModelApi) -> Vec<String> {
    let interface = Interface::of(api);
    let nothing = ModelPermissions::default();
    let (mut passing, mut count) = (Vec::new(), 0);
    for asks in ASKS {
        // In each spelling where answers are asked for: what else there is has the same objects in
        // it.
        let spelt = if asks == ModelRequestKind::Generate {
            usize::MAX
        } else {
            2
        };
        for body in interface.bodies {
            let whole = json(body);
            for (place, way) in places(interface, &whole) {
                let (body, at) = pruned(&whole, &place);
                let Some(text) = interface.wrapped(asks, &body.to_string()) else {
                    break;
                };
                let passes = read_body(api, asks, &nothing, text.as_bytes());
                assert!(passes.is_ok(), "{text}: {}", passes.unwrap_err().message);
                for (what, body) in requests(interface, &body, &at, &way, spelt) {
                    let body = interface.wrapped(asks, &body).unwrap_or_default();
                    count += 1;
                    match read_body(api, asks, &nothing, body.as_bytes()) {
                        Ok(_) => passing.push(format!("{asks:?} {what}: {body}")),
                        Err(refusal) => {
                            assert!(refusal.message.starts_with("body"), "{}", refusal.message)
                        }
                    }
                }
            }
        }
    }
    assert!(count > 5_000, "a table with {count} requests");
    passing
}

/// The bodies of an interface that have something in each place, where this is asked for.
pub fn bodies(api: ModelApi, asks: ModelRequestKind) -> Vec<Value> {
    let interface = Interface::of(api);
    let bodies = interface.bodies.iter();
    bodies
        .filter_map(|body| Some(json(&interface.wrapped(asks, body)?)))
        .collect()
}

/// The ways out in a body of an interface.
fn ways_out(interface: &Interface, body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look(interface, body, &mut Vec::new(), &mut found);
    found
}

/// Looks for ways out in a value, by the keys and kinds of its objects, whatever stands beside
/// them.
fn look(interface: &Interface, value: &Value, way: &mut Vec<Step>, found: &mut Vec<String>) {
    if is_one_of(interface.own, way) {
        return;
    }
    if is_one_of(interface.schemas, way) {
        if let Some(reference) = reference(value) {
            found.push(format!("{way:?} refers to {reference}"));
        }
        return;
    }
    match value {
        Value::Object(members) => {
            let is_whole = |pattern: &&&str| has(&json(pattern), value);
            let never = interface.never.iter().filter(is_whole);
            found.extend(never.map(|never| format!("{way:?} is {never}")));
            if let Some((items, contents)) = interface.items
                && is_at(items, way)
                && is_known_by_id(value, contents)
            {
                found.push(format!("{way:?} is known by its id alone"));
            }
            for (key, value) in members {
                way.push(Step::to(key, value));
                if !is_one_of(interface.own, way) {
                    if let Some(why) = way_out(interface, key, value, way) {
                        found.push(format!("{way:?}: {why}: {value}"));
                    }
                    look(interface, value, way, found);
                }
                way.pop();
            }
        }
        Value::Array(elements) => {
            for value in elements {
                way.push(Step::to("#", value));
                look(interface, value, way, found);
                way.pop();
            }
        }
        _ => {}
    }
}

/// The reason for which a member is a way out, without what is in it.
fn way_out(interface: &Interface, key: &str, value: &Value, way: &[Step]) -> Option<&'static str> {
    let is_nothing = match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    if is_nothing {
        return None;
    }
    let text = value.as_str();
    if is_same(key, "type") && text.is_some_and(|kind| interface.is_providers(kind)) {
        return Some("a kind of the provider");
    }
    if ["media_type", "mime_type"]
        .iter()
        .any(|name| is_same(key, name))
        && text.is_some_and(names_others)
    {
        return Some("it names what is elsewhere");
    }
    if interface.data.iter().any(|name| is_same(key, name)) {
        let is_address = text.is_some_and(|text| !is_data(text));
        return is_address.then_some("an address");
    }
    let ways = interface
        .members
        .iter()
        .filter(|(name, ..)| is_same(key, name));
    let mut harmless = ways.clone().flat_map(|(.., harmless)| *harmless);
    let is_way = ways.clone().next().is_some() && !is_one_of(interface.harmless, way);
    (is_way && !harmless.any(|harmless| has(&json(harmless), value)))
        .then_some("a key of the table")
}

/// True if a value has all of a pattern: of an object its members, of a list no other elements but
/// `null`.
fn has(pattern: &Value, value: &Value) -> bool {
    match (pattern, value) {
        (Value::Object(pattern), Value::Object(value)) => pattern
            .iter()
            .all(|(key, pattern)| value.get(key).is_some_and(|value| has(pattern, value))),
        (Value::Array(patterns), Value::Array(values)) => values
            .iter()
            .all(|value| value.is_null() || patterns.iter().any(|pattern| has(pattern, value))),
        _ => pattern == value,
    }
}

/// Kinds of items that are nothing but their kind.
const ITEMS_WITHOUT_CONTENT: [&str; 3] = [
    "compaction_trigger",
    "configuration_update",
    "apply_patch_call_output",
];

fn is_known_by_id(item: &Value, contents: &[&str]) -> bool {
    let is_there = |key: &str| !item[key].is_null();
    let kind = item["type"].as_str().unwrap_or_default();
    is_there("id")
        && !ITEMS_WITHOUT_CONTENT.contains(&kind)
        && !contents.iter().any(|key| is_there(key))
}

/// The reference of a schema to what is not in it.
fn reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(members) => members.iter().find_map(|(key, value)| match value {
            Value::String(text) if ["$ref", "$dynamicRef", "$recursiveRef"].contains(&&**key) => {
                let is_elsewhere = !text.is_empty() && !text.starts_with('#');
                is_elsewhere.then_some(&**text)
            }
            value => reference(value),
        }),
        Value::Array(elements) => elements.iter().find_map(reference),
        _ => None,
    }
}

/// True if what has this media type is a list of addresses, or has some in it.
fn names_others(media_type: &str) -> bool {
    let media_type = media_type.to_lowercase();
    let kinds = ["svg", "mpegurl", "uri-list", "dash+xml", "smil", "://"];
    kinds.iter().any(|kind| media_type.contains(kind))
}

/// True if this is data, and no address: base64, or a `data:` URL.
fn is_data(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte);
    match text.split_once(',') {
        Some((head, _)) => head.to_lowercase().starts_with("data:") && !names_others(head),
        None => text.bytes().all(is_digit),
    }
}

/// A body of an interface with one change, as five bytes say. It often passes or nearly does, which
/// bytes that are taken for a body seldom do.
fn changed(interface: &Interface, body: &Value, change: &[u8]) -> Value {
    let [high, low, what, arg, spelling] =
        [0, 1, 2, 3, 4].map(|at| change.get(at).copied().unwrap_or_default());
    let nth = |list: &[&'static str], at: u8| list[usize::from(at) % list.len()];
    let mut body = body.clone();
    let places = places(interface, &body);
    let place =
        |high: u8, low: u8| &places[usize::from(u16::from_be_bytes([high, low])) % places.len()];
    let (at, way) = place(high, low);
    let other = body
        .pointer(&place(arg, spelling).0)
        .filter(|other| other.to_string().len() < MAX_COPIED);
    let other = other.cloned();
    let spelt = |name: &str| {
        let spellings = spellings(name);
        let spelt = &spellings[usize::from(spelling) % spellings.len()];
        json(&format!("\"{spelt}\""))
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let Some(value) = body.pointer_mut(at) else {
        return body;
    };
    let (name, sample, _) = interface.members[usize::from(arg) % interface.members.len()];
    match (what % 6, &mut *value) {
        (0, Value::Object(members)) => {
            members.insert(spelt(name), json(sample));
        }
        (0, Value::Array(list)) => list.push(json(nth(interface.elements, arg))),
        (0, text) => *text = nth(&ADDRESSES, arg).into(),
        (1, Value::Object(members)) => {
            let kinds: Vec<String> = interface.provider_kinds().collect();
            let kind = kinds
                .get(usize::from(arg) % kinds.len().max(1))
                .map_or("x", String::as_str);
            members.insert("type".to_owned(), spelt(kind).into());
        }
        (1 | 2, value) => *value = json(nth(&VALUES, arg)),
        (3, Value::Object(members)) => {
            let key = members
                .keys()
                .nth(usize::from(arg) % members.len().max(1))
                .cloned();
            key.and_then(|key| members.remove(&key));
        }
        (3, Value::Array(list)) => {
            list.truncate(usize::from(arg) % 4);
        }
        (4, value) if is_one_of(interface.schemas, way) => *value = json(nth(&REFERENCES, arg)),
        (_, value) => *value = other.unwrap_or_default(),
    }
    body
}

/// True if a body passes where nothing is allowed. It then has nothing of the table in it, in
/// whatever place.
fn passes(interface: &Interface, asks: ModelRequestKind, body: &[u8]) -> bool {
    let passes = |permits: &ModelPermissions| read_body(interface.api, asks, permits, body).is_ok();
    if !passes(&ModelPermissions::default()) {
        return false;
    }
    let all = ModelPermissions {
        allow: ModelAllow::ALL.to_vec(),
        ..ModelPermissions::default()
    };
    assert!(
        passes(&all),
        "what needs nothing passes where all is allowed"
    );
    let value: Value = serde_json::from_slice(body).expect("what passes is JSON");
    let found = ways_out(interface, &value);
    assert!(found.is_empty(), "{found:#?} in {value}");
    true
}

/// Judges a body, or those that come of changes to one that passes, of which those that still pass
/// are kept. `true`: it passes, or one of them does.
pub fn holds(data: &[u8]) -> bool {
    let Some((how, data)) = data.split_first() else {
        return false;
    };
    let interface = &INTERFACES[usize::from(how & 3)];
    let asks = ASKS[usize::from((how >> 2) & 3) % ASKS.len()];
    if how & 0x40 == 0 {
        return passes(interface, asks, data);
    }
    let Some((first, changes)) = data.split_first() else {
        return false;
    };
    let mut body = json(interface.bodies[usize::from(*first) % interface.bodies.len()]);
    let mut passed = false;
    for change in changes.chunks(5).take(MAX_CHANGES) {
        let next = changed(interface, &body, change);
        let text = interface.wrapped(asks, &next.to_string());
        if text.is_some_and(|text| passes(interface, asks, text.as_bytes())) {
            (body, passed) = (next, true);
        }
    }
    passed
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    holds(data);
}
