//! Schemas and payloads made to be expensive, and ordinary ones beside them that must still be accepted.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::meter::steps_taken;
use super::payload_check::{InPlaceSteps, PayloadCheck, STEPS_IN_PLACE, STEPS_IN_PLACE_PER_CALL, Unusable, Verdict};
use crate::job::Json;

/// 30 s: a few seconds are allowed, machines are slow, and without a bound it would be minutes.
const GENEROUS: Duration = Duration::from_secs(30);
const NESTED: usize = 100;
const LARGE: usize = 250_000;

#[track_caller]
fn compiled(schema: &Value) -> PayloadCheck {
    let began = Instant::now();
    let check = PayloadCheck::compile(schema).unwrap_or_else(|error| panic!("{error:?}"));
    assert!(began.elapsed() < GENEROUS, "compiling took {:?}", began.elapsed());
    check
}

/// On a thread like those of the pool.
fn verdict(schema: Value, payload: Value) -> Verdict {
    let thread = std::thread::Builder::new().stack_size(64 * 1024 * 1024).spawn(move || {
        let check = compiled(&schema);
        let payload = Json::of(&payload).unwrap();
        let began = Instant::now();
        let verdict = check.check(&payload).unwrap();
        assert!(began.elapsed() < GENEROUS, "checking took {:?}", began.elapsed());
        verdict
    });
    thread.unwrap().join().unwrap()
}

#[track_caller]
fn refused(schema: Value) -> String {
    let began = Instant::now();
    let refusal = PayloadCheck::compile(&schema).expect_err("it is far too expensive");
    assert!(began.elapsed() < GENEROUS, "refusing took {:?}", began.elapsed());
    match refusal {
        Unusable::TooExpensive(reason) => reason,
        Unusable::Invalid(reason) => panic!("not because of its price: {reason}"),
    }
}

fn rules() -> Value {
    let node = |name| {
        json!({"type": "object", "required": ["type", "child"], "properties": {
        "child": {"$ref": "#/$defs/rule"}, "type": {"const": name}}})
    };
    let leaf = json!({"type": "object", "required": ["type"], "properties": {"type": {"const": "leaf"}},
        "additionalProperties": false});
    json!({"$defs": {"rule": {"oneOf": [node("and"), node("or"), node("not"), leaf]}}, "$ref": "#/$defs/rule"})
}

fn rule(leaf: &str, depth: usize) -> Value {
    (0..depth).fold(json!({"type": leaf}), |child, _| json!({"child": child, "type": "not"}))
}

/// `a0` = `a1` and `a1`, `a1` = `a2` and `a2`, …
fn doubling(levels: usize, combined: impl Fn(Value) -> Value) -> Value {
    let mut definitions: Map<_, _> =
        (0..levels).map(|n| (format!("a{n}"), combined(json!({"$ref": format!("#/$defs/a{}", n + 1)})))).collect();
    definitions.insert(format!("a{levels}"), json!({"type": "number"}));
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

#[test]
fn a_tree_of_rules_is_accepted_and_a_wrong_leaf_is_found_where_it_is() {
    assert_eq!(verdict(rules(), rule("leaf", 11)), Verdict::Fits);
    assert_eq!(verdict(rules(), rule("leaf", NESTED)), Verdict::Fits);
    let Verdict::Misfit(errors) = verdict(rules(), rule("leef", 11)) else { panic!("it does not fit") };
    let location = format!("at {}/type:", "/child".repeat(11));
    assert!(errors.len() == 1 && errors[0].starts_with(&location), "{errors:?}");
}

#[test]
fn thousands_of_wrong_elements_are_one_error_of_three_hundred_characters_at_most() {
    let elements = vec![json!(0); LARGE / 2];
    let addresses =
        json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 50}]});
    let any = json!({"anyOf": [{"type": "string"}, {"type": "boolean"}, {"type": "null"}, {"type": "object"}]});
    for (schema, location) in [
        (json!({"properties": {"to": addresses}}), "at /to/0: fits none"),
        (json!({"properties": {"to": {"items": any}}}), "at /to/0: "),
        (json!({"properties": {"to": {"items": {"type": "string"}}}}), "at /to/0: 0 is not of type"),
        (json!({"properties": {"to": {"maxItems": 3}}}), "at /to: [0,0,"),
    ] {
        let Verdict::Misfit(errors) = verdict(schema, json!({"to": elements})) else { panic!("it does not fit") };
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with(location) && errors[0].chars().count() <= 300, "{errors:?}");
    }
}

#[test]
fn a_schema_that_doubles_with_every_reference_is_refused_whatever_it_is_made_of() {
    for reason in [
        refused(doubling(27, |next| json!({"allOf": [next, next]}))),
        refused(doubling(27, |next| json!({"anyOf": [next, next], "unevaluatedProperties": false}))),
        refused(doubling(27, |next| json!({"if": next, "then": next}))),
        refused(doubling(27, |next| json!({"dependentSchemas": {"a": next, "b": next}}))),
    ] {
        assert!(reason.contains("unfolds to more than 10000") && reason.contains("refer to"), "{reason}");
    }
    let hidden = doubling(27, |next| json!({"allOf": [next, next]})).to_string().replace("#/$defs", "#/%24defs");
    refused(serde_json::from_str(&hidden).unwrap());
    let named = json!({"$defs": (0..27).map(|n| (format!("d{n}"), json!({"$anchor": format!("a{n}"),
        "oneOf": [{"$ref": format!("#a{}", n + 1)}, {"$dynamicRef": format!("#a{}", n + 1)}]})))
        .chain([("last".into(), json!({"$anchor": "a27"}))]).collect::<Map<_, _>>(), "$ref": "#a0"});
    refused(named);
    // Ten levels are a thousand schemas: fine.
    assert_eq!(verdict(doubling(10, |next| json!({"allOf": [next, next]})), json!(1)), Verdict::Fits);
    // To different values of the payload they may lead as often as they like.
    let tree = doubling(27, |next| json!({"type": "object", "properties": {"a": next, "b": next}}));
    assert_eq!(verdict(tree, json!({"a": {}, "b": {}})), Verdict::Fits);
}

#[test]
fn a_schema_too_deep_too_large_or_with_too_many_patterns_is_refused_with_what_to_change() {
    let deep = (0..100).fold(json!({}), |inner, _| json!({"items": inner}));
    assert!(refused(deep).contains("move inner schemas to $defs"));
    assert!(refused(json!({"enum": (0..30_000).collect::<Vec<_>>()})).contains("20000"));
    let patterns: Map<_, _> = (0..101).map(|n| (format!("^{n}"), json!(true))).collect();
    assert!(refused(json!({"patternProperties": patterns})).contains("patterns"));
    let chain = doubling(2_000, |next| next);
    assert!(refused(chain).contains("refer to the last one directly"));
    assert!(refused(json!({"$ref": "https://example.org/other.json"})).contains("leads nowhere"));
    let own = json!({"$schema": "urn:mine", "$defs": {"mine": {"$id": "urn:mine", "oneOf": [{}, {}]}}});
    assert!(refused(own).contains("$schema"));
    let names: Map<_, _> = (0..600).map(|n| (format!("name-{n:04}"), json!(true))).collect();
    let patterns: Map<_, _> = (0..100).map(|n| (format!("x{n}(.*.){{100}}"), json!(true))).collect();
    assert!(refused(json!({"properties": names, "patternProperties": patterns})).contains("patternProperties"));
    let unevaluated: Vec<_> = (0..100).map(|_| json!({"$ref": "#/$defs/a0", "unevaluatedItems": false})).collect();
    let mut schema = doubling(10, |next| json!({"anyOf": [next, next]}));
    schema["properties"] = json!({"x": {"prefixItems": unevaluated}});
    assert!(refused(schema).contains("unevaluated"));
}

#[test]
fn a_chain_of_references_through_members_is_compiled_and_dropped_without_running_out_of_stack() {
    let thread = || std::thread::Builder::new();
    let chain = doubling(4_000, |next| json!({"properties": {"a": next}}));
    let compile = thread().stack_size(64 * 1024 * 1024).spawn(move || PayloadCheck::compile(&chain));
    let compiled = compile.unwrap().join().unwrap().unwrap();
    thread().stack_size(1024 * 1024).spawn(move || drop(compiled)).unwrap().join().unwrap();
}

#[test]
fn alternatives_on_every_level_of_a_nested_payload_end_within_bounds() {
    let twice = |keyword: &str, reference: &str| {
        json!({"$dynamicAnchor": "n", keyword: [
            {"properties": {"c": {reference: "#n"}}, "required": ["x"]},
            {"properties": {"c": {reference: "#n"}}, "required": ["y"]},
            {"properties": {"c": {reference: "#n"}}, "unevaluatedProperties": false}]})
    };
    let payload = (0..NESTED).fold(json!({}), |inner, _| json!({"c": inner, "x": 1, "y": 1, "z": 1}));
    for keyword in ["anyOf", "oneOf", "allOf"] {
        for reference in ["$ref", "$dynamicRef"] {
            verdict(twice(keyword, reference), payload.clone());
            assert_ne!(verdict(twice(keyword, reference), rule("z", NESTED)), Verdict::Fits);
        }
    }
    // Definitions that try each other in every order, without moving on in the payload.
    let each_other = |count: usize| {
        let definitions = (0..count).map(|n| {
            let others =
                (0..count).filter(|other| *other != n).map(|other| json!({"$ref": format!("#/$defs/d{other}")}));
            (format!("d{n}"), json!({"not": {"allOf": others.collect::<Vec<_>>()}}))
        });
        json!({"$defs": definitions.collect::<Map<_, _>>(), "$ref": "#/$defs/d0"})
    };
    verdict(each_other(8), json!({}));
    refused(each_other(16));
}

#[test]
fn keywords_that_compare_or_match_everything_with_everything_end_within_bounds() {
    let numbers = Value::Array(vec![json!(0); LARGE / 2]);
    let names = |count: usize| Value::Object((0..count).map(|n| (format!("p{n}"), json!(1))).collect());
    let patterns: Map<_, _> = (0..100).map(|n| (format!("x{n}y+z"), json!(true))).collect();
    let parts = |part: &dyn Fn(usize) -> Value| (0..100).map(part).collect::<Vec<_>>();
    // Distinct, but the same to a hash that only sees the leaves.
    let brackets = (0..1u32 << 13).map(|n| {
        (0..13).fold(json!([]), |inner, bit| if n >> bit & 1 == 1 { json!([inner]) } else { json!([inner, []]) })
    });
    let brackets = Value::Array(brackets.collect());
    for (schema, payload) in [
        (json!({"uniqueItems": true}), brackets),
        (
            json!({"anyOf": (0..9_000).map(|_| json!({"uniqueItems": true})).collect::<Vec<_>>()}),
            Value::Array(vec![Value::Null; 50_000]),
        ),
        (
            json!({"items": {"enum": (0..9_000).map(|n| json!([n])).collect::<Vec<_>>()}}),
            Value::Array(vec![json!([8_999]); 40_000]),
        ),
        (json!({"patternProperties": patterns}), names(20_000)),
        (
            json!({"allOf": parts(&|n| json!({"properties": {format!("p{n}"): true}})), "unevaluatedProperties": true}),
            names(20_000),
        ),
        (
            json!({"allOf": parts(&|n| json!({"contains": {"const": n}, "minContains": 0})), "unevaluatedItems": false}),
            numbers.clone(),
        ),
        (json!({"items": {"allOf": vec![true; 9_000]}}), numbers.clone()),
        (
            json!({"items": {"anyOf": parts(&|_| json!({"not": {"multipleOf": 1e-7}}))}}),
            Value::Array(vec![json!(1e308); 40_000]),
        ),
        (json!({"allOf": parts(&|n| json!({"propertyNames": {"pattern": format!("x{n}y+z|^p")}}))}), names(20_000)),
    ] {
        verdict(schema, payload);
    }
}

#[test]
fn patterns_take_time_by_the_length_of_the_text_or_are_refused() {
    let text = "a".repeat(LARGE);
    let misfit = verdict(json!({"pattern": "^(a+)+$"}), json!(format!("{text}b")));
    assert!(matches!(misfit, Verdict::Misfit(_)), "{misfit:?}");
    for pattern in ["^(a+)\\1$", "^(?=.*x)a*$", "(?<!a)b", "(a{1000}){1000}"] {
        match PayloadCheck::compile(&json!({"pattern": pattern})) {
            Err(Unusable::Invalid(reason)) => assert!(reason.contains("look-around"), "{reason}"),
            other => panic!("{pattern}: {other:?}"),
        }
    }
    // Every text makes this one remember more than it can.
    let bits: String =
        (0..LARGE).map(|n| if n.wrapping_mul(2_654_435_761) >> 13 & 1 == 0 { '0' } else { '1' }).collect();
    let slow = |length: usize| json!({"items": {"pattern": format!("1[01]{{{length}}}[^01]")}});
    assert_eq!(verdict(slow(1_000), json!([bits])), Verdict::TooExpensive);
    let pieces: Vec<_> = bits.as_bytes().chunks(4_000).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    assert_ne!(verdict(slow(1_000), json!(pieces)), Verdict::Fits);
    // Ordinary ones on ordinary texts.
    for pattern in
        ["^https?://", "^[A-Za-z0-9_.-]{1,255}$", "^\\p{L}+$", "^.{1,255}$", "^[^\\s@]+@[^\\s@]+\\.[^\\s@]+$"]
    {
        compiled(&json!({"pattern": pattern}));
    }
    let addresses: Vec<_> = (0..50).map(|n| format!("somebody.number.{n}@mail.example.org")).collect();
    assert_eq!(
        verdict(json!({"items": {"pattern": "^[^\\s@]+@[^\\s@]+\\.[^\\s@]+$"}}), json!(addresses)),
        Verdict::Fits
    );
}

#[test]
fn large_payloads_of_ordinary_schemas_are_accepted() {
    let numbers = Value::Array(vec![json!(0); LARGE / 2]);
    let any = json!({"anyOf": [{"type": "string"}, {"type": "boolean"}, {"type": "null"}, {"type": "integer"}]});
    assert_eq!(verdict(json!({"items": any}), numbers), Verdict::Fits);
    let orders: Vec<_> = (0..3_000)
        .map(|n| json!({"id": n, "name": format!("thing {n}"), "tags": ["a", "b"], "at": {"street": "x", "city": "y"}}))
        .collect();
    let order = json!({"type": "object", "required": ["id", "name"], "additionalProperties": false, "properties": {
        "id": {"type": "integer", "minimum": 0}, "name": {"type": "string", "minLength": 1, "maxLength": 100},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true},
        "at": {"$ref": "#/$defs/address"}}});
    let address = json!({"type": "object", "required": ["street", "city"], "properties": {
        "street": {"type": "string", "pattern": "^[a-z ]+$"}, "city": {"type": "string"}}});
    let schema = json!({"$defs": {"order": order, "address": address}, "items": {"$ref": "#/$defs/order"}});
    assert_eq!(verdict(schema, json!(orders)), Verdict::Fits);
    assert_eq!(
        verdict(json!({"type": "string", "minLength": 1, "maxLength": 1_000_000}), json!("é".repeat(LARGE / 2))),
        Verdict::Fits
    );
}

#[test]
fn equal_is_equal_by_value_as_json_schema_has_it() {
    let unique = || json!({"uniqueItems": true});
    for (payload, fits) in [
        (json!([1, 2, "1", true, null, [1], {"a": 1}, 0, false]), true),
        (json!([1, 1.0]), false),
        (json!([0, -0.0]), false),
        (json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]), false),
        (json!([[], [[]], [[], []], [[[]]]]), true),
        (json!([9007199254740993u64, 9007199254740992u64]), true),
    ] {
        assert_eq!(verdict(unique(), payload.clone()) == Verdict::Fits, fits, "{payload}");
    }
    let listed = json!({"enum": [1, {"a": [1, "x"]}, "text"]});
    for (payload, fits) in
        [(json!(1.0), true), (json!({"a": [1.0, "x"]}), true), (json!("tex"), false), (json!({}), false)]
    {
        assert_eq!(verdict(listed.clone(), payload.clone()) == Verdict::Fits, fits, "{payload}");
    }
}

#[test]
fn the_meter_changes_no_verdict() {
    let schemas = [
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 1}}}),
        json!({"type": ["array", "null"], "items": {"type": "number", "multipleOf": 0.5}, "uniqueItems": true}),
        json!({"additionalProperties": false, "patternProperties": {"^[ab]": {"maxLength": 1}}}),
        json!({"propertyNames": {"pattern": "^[a-b]$"}, "minProperties": 1, "maxProperties": 2}),
        json!({"contains": {"const": 1}, "minContains": 1, "maxContains": 2, "maxItems": 3}),
        json!({"prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": false}),
        json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"not": {"required": ["b"]}}}),
        json!({"anyOf": [{"enum": [1, "a", {"a": 1}, [1, 2]]}, {"type": "boolean"}], "not": {"const": true}}),
        json!({"oneOf": [{"type": "number"}, {"minimum": 2}, {"type": "string", "minLength": 2}]}),
        json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": {"type": "string"}}),
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"properties": {"a": {"type": "null"}}}}}),
        json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"a": {"$ref": "#/$defs/n"}}, "maxProperties": 2}}}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "maximum": 2}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"}),
    ];
    let plain = schemas.each_ref().map(|schema| jsonschema::validator_for(schema).unwrap());
    let metered = schemas.each_ref().map(compiled);
    let mut dice = fastrand::Rng::with_seed(28);
    let mut fitting = 0;
    for _ in 0..5_000 {
        let payload = anything(&mut dice, 3);
        for (n, (plain, metered)) in plain.iter().zip(&metered).enumerate() {
            let verdict = metered.check(&Json::of(&payload).unwrap()).unwrap();
            let fits = plain.is_valid(&payload);
            assert_eq!(verdict == Verdict::Fits, fits, "{payload} against {}: {verdict:?}", schemas[n]);
            fitting += usize::from(fits);
        }
    }
    assert!((10_000..60_000).contains(&fitting), "{fitting} of 70000 fit: nothing was compared");
}

fn anything(dice: &mut fastrand::Rng, depth: usize) -> Value {
    match dice.usize(..if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(dice.bool()),
        2 => json!(dice.i32(-1..4)),
        3 => json!(f64::from(dice.i32(-2..6)) / 2.0),
        4 => json!(["", "a", "b", "ab", "é", "a@b.c"][dice.usize(..6)]),
        5 => (0..dice.usize(..4)).map(|_| anything(dice, depth - 1)).collect(),
        _ => {
            let names = (0..dice.usize(..4)).map(|_| ["a", "b", "c", "ab"][dice.usize(..4)].to_owned());
            let names: Vec<_> = names.collect();
            Value::Object(names.into_iter().map(|name| (name, anything(dice, depth - 1))).collect())
        }
    }
}

#[test]
fn a_call_takes_a_bounded_number_of_steps_in_place_however_many_items_it_has() {
    let types = ["string", "boolean", "null", "integer"].map(|name| json!({"type": name}));
    let check = compiled(&json!({"items": {"anyOf": types}}));
    // 4 KiB of the last alternative, and none of them at the end: three passes, each to the end.
    let payload = Json::parse(format!("[{}{{}}]", "0,".repeat(2_040))).unwrap();
    let (mut call, before) = (InPlaceSteps::of_one_call(), steps_taken());
    let in_place = (0..1_000).filter(|_| check.check_in_place(&payload, &mut call).is_some()).count();
    let taken = steps_taken() - before;
    // The last one may have begun just before.
    assert!(taken <= STEPS_IN_PLACE_PER_CALL + 3 * STEPS_IN_PLACE, "{taken} steps in place");
    assert!(in_place < 1_000 && !call.take(3 * STEPS_IN_PLACE), "{in_place} of 1,000 were checked in place");
}
