use crate::bounds::{
    ExpansionCounter, MAX_BLANKS, MAX_DEPTH, MAX_DIRECTIVES, MAX_EXPANDED_BYTES, MAX_NODES,
};
use crate::events::YamlEventParser;
use crate::{DocumentError, Excess, json, yaml};
use serde_json::{Value, json};

/// Maximum size of a request's body.
const TEXT_BYTES: usize = 1 << 20;

fn excess(text: &str) -> Excess {
    match yaml(text.as_bytes()) {
        Err(DocumentError::Excess(excess)) => excess,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was read: {:.100}", text),
    }
}

/// Returns the number of events of a text, up to its end or the first excess.
fn events_read(text: &str) -> usize {
    let mut walk = ExpansionCounter::default();
    let _ = walk.run(YamlEventParser::new(text));
    walk.events
}

fn repeated(before: &str, piece: &str, bytes: usize) -> String {
    format!(
        "{before}{}",
        piece.repeat((bytes - before.len()) / piece.len())
    )
}

#[test]
fn deep_nesting_is_refused_after_reading_its_first_levels() {
    let lookahead = 1024;
    for (before, piece) in [
        ("a: ", "["),
        ("a: ", "{"),
        ("a: ", "[{b: "),
        ("", "- "),
        ("", "? "),
        ("a: ", "{? "),
        ("a: ", "[? "),
        ("", "- ? "),
        ("a: ", "!!seq ["),
        ("a: ", "[ \n"),
        ("a: ", "[ # [ \n"),
    ] {
        let (half, whole) = (
            repeated(before, piece, TEXT_BYTES / 2),
            repeated(before, piece, TEXT_BYTES),
        );
        assert!(matches!(excess(&whole), Excess::Depth { .. }), "{piece}");
        let events = events_read(&whole);
        assert_eq!(events, events_read(&half), "{piece}");
        assert!(events <= lookahead, "{piece}: {events} events");
    }
    let indented: String = (0..1_400)
        .map(|at| format!("{}a:\n", " ".repeat(at)))
        .collect();
    assert!(matches!(excess(&indented), Excess::Depth { line: 65 }));
}

#[test]
fn events_are_linear_in_the_length_of_flat_text() {
    for (before, piece) in [
        ("", "a\n"),
        ("", "a: &a b\n"),
        ("", "- &a b\n"),
        ("a: |\n", " b\n"),
        ("a: ", "'b' \n "),
        ("a: [", "b: c, "),
        ("a: [", "? b : c, "),
        ("a: {", "b, "),
        ("a: \"", "\\x41"),
        ("a: ", "!b"),
        ("a: &", "b"),
        ("a: *", "b"),
        ("", "#\n"),
        ("", "---\n"),
        ("", "...\n"),
        ("", "\u{feff}"),
        ("a: \"", "b \n"),
        ("a: >\n", " b\n\n"),
    ] {
        let text = repeated(before, piece, TEXT_BYTES);
        // Only termination matters, not the result.
        let _ = yaml(text.as_bytes());
        let events = events_read(&text);
        assert!(
            events <= text.len().min(2 * MAX_NODES + 10),
            "{piece}: {events} events"
        );
    }
}

/// Aliases of one text of 1,000 characters.
fn texts(count: usize) -> String {
    let long = "z".repeat(1_000);
    let aliases: String = (0..count).map(|at| format!("f{at}: *s\n")).collect();
    format!("f: &s {long}\n{aliases}")
}

/// Lists of one item each, nested by aliases.
fn deep(levels: usize) -> String {
    let text: String = (1..levels)
        .map(|at| format!("a{at}: &a{at} [*a{}]\n", at - 1))
        .collect();
    format!("a0: &a0 [1]\n{text}")
}

#[test]
fn aliases_expand_only_up_to_the_bounds() {
    // 25 kB that stand for 25 million values.
    let list = "1,".repeat(5_000);
    let aliases = "*a,".repeat(5_000);
    let quadratic = format!("a: &a [{list}]\nb: [{aliases}]\n");
    assert!(matches!(excess(&quadratic), Excess::Nodes { .. }));
    let mut billion = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for at in 1..12 {
        let below = format!("*a{},", at - 1).repeat(10);
        billion.push_str(&format!("a{at}: &a{at} [{below}]\n"));
    }
    assert!(matches!(excess(&billion), Excess::Nodes { .. }));
    let bytes = yaml(texts(4_000).as_bytes()).expect("within the bounds");
    assert_eq!(bytes["f3999"].as_str().map(str::len), Some(1_000));
    let count = MAX_EXPANDED_BYTES / 1_000;
    assert!(matches!(excess(&texts(count)), Excess::Bytes { .. }));
    assert!(yaml(deep(MAX_DEPTH - 1).as_bytes()).is_ok());
    assert!(matches!(excess(&deep(MAX_DEPTH)), Excess::Depth { .. }));
    let tags = format!(
        "%TAG !a! tag:{}\n---\n{}",
        "b".repeat(9_000),
        "- !a!c d\n".repeat(1_000)
    );
    assert!(matches!(excess(&tags), Excess::Bytes { .. }));
}

fn has_too_many_blanks(text: &str) -> bool {
    matches!(excess(text), Excess::Blanks { .. })
}

#[test]
fn text_with_quadratic_parser_time_is_refused() {
    for blank in [" ", "\n", "\r\n", "\n ", "\u{2028}"] {
        let run = repeated("", blank, TEXT_BYTES / 2);
        let words = "b ".repeat(TEXT_BYTES / 4);
        for (before, after) in [
            ("a: c", ""),
            ("a: \"c", "\""),
            ("a: 'c", "'"),
            ("a: |\n  c", ""),
        ] {
            assert!(
                has_too_many_blanks(&format!("{before}{run}{words}{after}")),
                "{before} {blank:?}"
            );
        }
    }
    let few = " ".repeat(MAX_BLANKS);
    assert_eq!(
        yaml(format!("a:{few}b").as_bytes()).expect("read"),
        json!({ "a": "b" })
    );
    let directives: String = (0..60_000).map(|at| format!("%TAG !{at}! x\n")).collect();
    let directives = format!("{directives}---\na: b\n");
    assert_eq!(
        excess(&directives),
        Excess::Directives {
            line: MAX_DIRECTIVES + 1
        }
    );
    let second = format!("a: b\n...\n{directives}");
    assert!(matches!(excess(&second), Excess::Directives { .. }));
    assert_eq!(excess("a: b\n---\nc: d\n"), Excess::Documents { line: 2 });
}

#[test]
fn ordinary_anchors_and_aliases_are_resolved() {
    let text = "\
%YAML 1.2
---
size: &size { memory_bytes: 1024, cpu_milli: 500 }
resources:
  worker: *size
  ps_shard: *size
argv: &argv [python, &script train.py]
again: *argv
script: *script
note: |
  % no directive
text: !!str 7
";
    let expected = json!({
        "size": { "memory_bytes": 1024, "cpu_milli": 500 },
        "resources": {
            "worker": { "memory_bytes": 1024, "cpu_milli": 500 },
            "ps_shard": { "memory_bytes": 1024, "cpu_milli": 500 }
        },
        "argv": ["python", "train.py"], "again": ["python", "train.py"], "script": "train.py",
        "note": "% no directive\n", "text": "7"
    });
    assert_eq!(yaml(text.as_bytes()).expect("YAML"), expected);
    let again: Value = serde_norway::from_str(text).expect("YAML");
    assert_eq!(again, expected);
}

#[test]
fn ambiguous_alias_is_refused() {
    // The reader would resolve *a to 3.
    let twice = "a: &a 1\nb: &a 2\nc: &c 3\nd: *a\n";
    assert_eq!(excess(twice), Excess::Anchor { line: 2 });
    assert_eq!(excess("a: &a [&a 1]\n"), Excess::Anchor { line: 1 });
    assert_eq!(excess("a: &a\n- *a\n"), Excess::Recursion { line: 2 });
    let unknown = yaml(b"a: *b\n").expect_err("an unknown anchor").to_string();
    assert!(unknown.contains("unknown anchor"), "{unknown}");
}

#[test]
fn yaml_and_json_give_the_same_value() {
    let expected = json!({ "name": "a", "n": 1, "x": -0.5, "none": null, "list": [true, "no"] });
    let block = "name: a\nn: 1\nx: -0.5\nnone:\nlist:\n- true\n- no\n";
    let text = expected.to_string();
    for marked in ["", "\u{feff}"] {
        let with = |text: &str| format!("{marked}{text}").into_bytes();
        assert_eq!(yaml(&with(block)).expect("YAML"), expected);
        assert_eq!(yaml(&with(&text)).expect("JSON"), expected);
        assert_eq!(json(&with(&text)).expect("JSON"), expected);
        assert_eq!(json(&with(&format!("{text}\n"))).expect("JSON"), expected);
    }
    assert_eq!(yaml(b"").expect("nothing"), Value::Null);
}

#[test]
fn unsupported_value_is_refused_by_its_field() {
    type Read = fn(&[u8]) -> Result<Value, DocumentError>;
    let formats: [(&str, Read); 2] = [("json", json), ("yaml", yaml)];
    for (text, message) in [
        (
            r#"{"a": 1, "a": 2}"#,
            "a is given twice; expected one value (line 1)",
        ),
        (
            "{\"a\": {\"b\": [1,\n{\"c\": 1, \"c\": 1}]}}",
            "a.b[1].c is given twice; expected one value (line 2)",
        ),
        (
            r#"{"a": ["b\u0000c"]}"#,
            r#"a[0] is "b\0c"; expected a text without NUL (U+0000) (line 1)"#,
        ),
        (
            r#"{"a": {"b\u0000": 1}}"#,
            r#"a is "b\0"; expected a name without NUL (U+0000) (line 1)"#,
        ),
        (
            r#"{"\u0000": 1}"#,
            r#"the document is "\0"; expected a name without NUL (U+0000) (line 1)"#,
        ),
        (
            r#""\u0000""#,
            r#"the document is "\0"; expected a text without NUL (U+0000) (line 1)"#,
        ),
    ] {
        for (format, read) in formats {
            let error = read(text.as_bytes()).expect_err(text).to_string();
            assert_eq!(error, message, "{format}: {text}");
        }
    }
    for (text, message) in [
        (
            "stop:\n  epochs: .nan\n",
            "stop.epochs is .nan; expected a finite number (line 2)",
        ),
        (
            "stop:\n  epochs: -.inf\n",
            "stop.epochs is -.inf; expected a finite number (line 2)",
        ),
        (
            "seed: 18446744073709551616\n",
            "seed is 18446744073709551616; expected a whole number from -9223372036854775808 to 18446744073709551615 (line 1)",
        ),
        (
            "a: \"b\\0\"\n",
            r#"a is "b\0"; expected a text without NUL (U+0000) (line 1)"#,
        ),
    ] {
        assert_eq!(yaml(text.as_bytes()).expect_err(text).to_string(), message);
    }
    assert!(matches!(
        json(b"{\"a\": \"\xff\"}"),
        Err(DocumentError::NotUtf8 { offset: 7 })
    ));
    assert!(matches!(
        yaml(b"a: \xff"),
        Err(DocumentError::NotUtf8 { offset: 3 })
    ));
    assert!(matches!(
        json(b"{\"a\": \"\0\"}"),
        Err(DocumentError::Json(_))
    ));
    assert!(matches!(yaml(b"a: \0b"), Err(DocumentError::Yaml(_))));
    assert!(matches!(json(b"{} x"), Err(DocumentError::Json(_))));
    assert!(matches!(
        json(&b"[".repeat(TEXT_BYTES)),
        Err(DocumentError::Json(_))
    ));
}
