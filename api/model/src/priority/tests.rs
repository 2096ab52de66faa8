use super::*;

const RED: PriorityUser<'_> = PriorityUser {
    access: Access::Member,
    tenant: "red",
};
const BLUE: PriorityUser<'_> = PriorityUser {
    tenant: "blue",
    ..RED
};
const ADMIN: PriorityUser<'_> = PriorityUser {
    access: Access::Admin,
    ..RED
};

fn class(name: &str, fields: &str) -> PriorityClass {
    let document: PriorityClassDocument = serde_json::from_str(fields).expect("a class");
    document.named(name).expect("valid")
}

/// Two classes for members, of which one is for tenant red alone, and one for administrators.
fn classes() -> Vec<PriorityClass> {
    vec![
        class(
            "batch",
            r#"{ "lowest": -50, "highest": -1, "default": -20 }"#,
        ),
        class(
            "urgent",
            r#"{ "lowest": 10, "highest": 50, "tenants": ["red"] }"#,
        ),
        class(
            "repair",
            r#"{ "lowest": 90, "highest": 100, "roles": ["admin"] }"#,
        ),
    ]
}

fn refused(priority: Option<i32>, class: Option<&str>, user: PriorityUser<'_>) -> String {
    let refused = resolve(priority, class, &classes(), user);
    refused.expect_err("refused").to_string()
}

#[test]
fn class_gives_its_default_and_bounds_the_number() {
    let resolved = |priority, class| resolve(priority, class, &classes(), RED);
    assert_eq!(resolved(None, Some("batch")), Ok(-20));
    // The number nearest to 0 is the default of a class that states none.
    assert_eq!(resolved(None, Some("urgent")), Ok(10));
    assert_eq!(resolved(Some(50), Some("urgent")), Ok(50));
    for number in [0, 9, 51] {
        let expected =
            format!("priority is {number}; expected 10 to 50, the range of priority class urgent");
        assert_eq!(refused(Some(number), Some("urgent"), RED), expected);
    }
}

#[test]
fn number_alone_must_lie_in_a_usable_class() {
    let resolved = |priority| resolve(priority, None, &classes(), RED);
    for number in [-50, -1, 0, 10, 50] {
        assert_eq!(resolved(Some(number)), Ok(number));
    }
    assert_eq!(resolved(None), Ok(0));
    for number in [-51, 1, 9, 51, 95] {
        let expected = format!(
            "priority is {number}; expected 0, or a number of a priority class that members of \
             tenant red may use: batch (-50 to -1), urgent (10 to 50)"
        );
        assert_eq!(refused(Some(number), None, RED), expected);
    }
}

#[test]
fn allowed_ranges_hold_the_numbers_that_resolve() {
    let all = classes();
    for (classes, user) in [
        (&all[..], RED),
        (&all[..], BLUE),
        (&all[..], ADMIN),
        (&[], RED),
    ] {
        for class in [None, Some("batch"), Some("urgent"), Some("repair")] {
            let ranges = allowed(class, classes, user);
            for number in PRIORITY_RANGE {
                let within = ranges.iter().any(|range| range.contains(&number));
                let resolved = resolve(Some(number), class, classes, user).is_ok();
                assert_eq!(within, resolved, "{number} {class:?} {user:?}");
            }
        }
    }
}

#[test]
fn any_number_is_allowed_while_no_class_exists() {
    for number in [-100, 0, 100] {
        assert_eq!(resolve(Some(number), None, &[], RED), Ok(number));
    }
    let refused = resolve(None, Some("batch"), &[], RED).expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "priority_class is \"batch\"; expected no value: no priority class exists; `priority` \
         alone states the number"
    );
}

#[test]
fn class_is_for_its_roles_and_tenants() {
    let expected = "priority_class is \"urgent\"; expected a priority class that members of \
                    tenant blue may use: batch (-50 to -1)";
    assert_eq!(refused(None, Some("urgent"), BLUE), expected);
    assert!(refused(Some(20), None, BLUE).starts_with("priority is 20"));
    assert!(refused(None, Some("repair"), RED).starts_with("priority_class is \"repair\""));
    let resolved = |class| resolve(None, Some(class), &classes(), ADMIN);
    assert_eq!(resolved("repair"), Ok(90));
    assert_eq!(resolved("batch"), Ok(-20));
    // An administrator acts for a tenant too.
    let for_blue = PriorityUser {
        tenant: "blue",
        ..ADMIN
    };
    assert!(refused(None, Some("urgent"), for_blue).contains("administrators for tenant blue"));
    // A class that the user may not use still ends the use of any number.
    let repair = &classes()[2..];
    let refused = resolve(Some(5), None, repair, RED).expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "priority is 5; expected 0: there is no priority class that members of tenant red may use"
    );
}

#[test]
fn default_is_the_number_nearest_to_zero() {
    for (lowest, highest, default) in [(-50, -5, -5), (5, 50, 5), (-5, 5, 0)] {
        let fields = format!(r#"{{ "lowest": {lowest}, "highest": {highest} }}"#);
        assert_eq!(class("a", &fields).default, default);
    }
}

#[test]
fn wrong_class_is_refused_by_field() {
    let many: Vec<String> = (0..=MAX_CLASS_TENANTS).map(|n| format!("t{n}")).collect();
    let many = serde_json::json!({ "lowest": 0, "highest": 1, "tenants": many }).to_string();
    let long = "x".repeat(MAX_DESCRIPTION_CHARS + 1);
    let long = serde_json::json!({ "lowest": 0, "highest": 1, "description": long }).to_string();
    for (name, fields, field) in [
        ("Bad", r#"{ "lowest": 0, "highest": 1 }"#, "name"),
        ("a", r#"{ "lowest": -101, "highest": 1 }"#, "lowest"),
        ("a", r#"{ "lowest": 0, "highest": 101 }"#, "highest"),
        ("a", r#"{ "lowest": 2, "highest": 1 }"#, "highest"),
        (
            "a",
            r#"{ "lowest": 0, "highest": 1, "default": 2 }"#,
            "default",
        ),
        (
            "a",
            r#"{ "lowest": 0, "highest": 1, "roles": [] }"#,
            "roles",
        ),
        ("a", &many, "tenants"),
        ("a", &long, "description"),
    ] {
        let document: PriorityClassDocument = serde_json::from_str(fields).expect("a class");
        let errors = document.named(name).expect_err("refused");
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, [field]);
    }
}
