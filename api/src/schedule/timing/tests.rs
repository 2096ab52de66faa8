use super::*;
use time::format_description::well_known::Rfc3339;

fn at(text: &str) -> OffsetDateTime {
    OffsetDateTime::parse(text, &Rfc3339).expect(text)
}

fn timing(cron: &str, zone: &str) -> Timing {
    Timing::parse(cron, zone).expect("valid")
}

/// Returns the next planned times in UTC, without seconds.
fn times(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let timing = timing(cron, zone);
    let next = |time: &OffsetDateTime| timing.next_after(*time);
    std::iter::successors(next(&at(after)), next)
        .take(count)
        .map(|time| time.format(&Rfc3339).expect("a time")[5..16].to_owned())
        .collect()
}

#[test]
fn planned_times_follow_the_zone() {
    let after = "2026-07-01T00:00:00Z";
    assert_eq!(times("0 3 * * *", "UTC", after, 1), ["07-01T03:00"]);
    let berlin = times("0 3 * * *", "Europe/Berlin", after, 2);
    assert_eq!(berlin, ["07-01T01:00", "07-02T01:00"]);
    assert_eq!(
        times("0 3 * * *", "Asia/Kolkata", after, 1),
        ["07-01T21:30"]
    );
    // The planned time itself is not after it.
    let at_it = "2026-07-01T03:00:00Z";
    assert_eq!(times("0 3 * * *", "UTC", at_it, 1), ["07-02T03:00"]);
}

#[test]
fn skipped_local_time_runs_at_the_next_instant() {
    // On 29 March 2026 Berlin goes from 02:00 to 03:00, at 01:00 UTC.
    let after = "2026-03-28T12:00:00Z";
    let half_past = times("30 2 * * *", "Europe/Berlin", after, 3);
    assert_eq!(half_past, ["03-29T01:00", "03-30T00:30", "03-31T00:30"]);
    let first = times("0 2 * * *", "Europe/Berlin", after, 2);
    assert_eq!(first, ["03-29T01:00", "03-30T00:00"]);
    // Several skipped times, and the first existing one, are one job.
    let several = times("*/20 2,3 * * *", "Europe/Berlin", after, 3);
    assert_eq!(several, ["03-29T01:00", "03-29T01:20", "03-29T01:40"]);
    let unaffected = times("30 3 * * *", "Europe/Berlin", after, 1);
    assert_eq!(unaffected, ["03-29T01:30"]);
}

#[test]
fn repeated_local_time_runs_once() {
    // On 25 October 2026 Berlin goes from 03:00 to 02:00, at 01:00 UTC.
    let after = "2026-10-24T12:00:00Z";
    let once = times("30 2 * * *", "Europe/Berlin", after, 2);
    assert_eq!(once, ["10-25T00:30", "10-26T01:30"]);
    let both = times("0 2,3 * * *", "Europe/Berlin", after, 3);
    assert_eq!(both, ["10-25T00:00", "10-25T02:00", "10-26T01:00"]);
    // Also if the search begins within the repeated hour.
    let within = "2026-10-25T01:10:00Z";
    assert_eq!(
        times("30 2 * * *", "Europe/Berlin", within, 1),
        ["10-26T01:30"]
    );
}

#[test]
fn intervals_ignore_changes_of_the_clock() {
    let spring = times("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:10:00Z", 3);
    assert_eq!(spring, ["03-29T00:30", "03-29T01:00", "03-29T01:30"]);
    let autumn = times("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:10:00Z", 4);
    assert_eq!(
        autumn,
        ["10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"]
    );
    // Lord Howe goes back by half an hour, at 15:00 UTC on 4 April 2026.
    let half = times(
        "15 * * * *",
        "Australia/Lord_Howe",
        "2026-04-04T14:00:00Z",
        3,
    );
    assert_eq!(half, ["04-04T14:15", "04-04T15:45", "04-04T16:45"]);
}

#[test]
fn expression_without_a_date_has_no_time() {
    let never = timing("0 0 31 2 *", "Europe/Berlin");
    assert_eq!(never.next_after(at("2026-01-01T00:00:00Z")), None);
    let leap = times("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1);
    assert_eq!(leap, ["02-29T00:00"], "2100 is no leap year");
}

#[test]
fn newest_due_time_is_found_after_a_long_downtime() {
    let planned = at("2026-01-01T03:00:00Z");
    for (cron, now, expected) in [
        ("0 3 * * *", "2026-01-01T03:00:00Z", "2026-01-01T03:00:00Z"),
        ("0 3 * * *", "2026-01-01T03:00:20Z", "2026-01-01T03:00:00Z"),
        ("0 3 * * *", "2026-01-05T02:59:59Z", "2026-01-04T03:00:00Z"),
        ("* * * * *", "2027-01-05T02:59:59Z", "2027-01-05T02:59:00Z"),
        ("0 3 1 * *", "2026-05-20T00:00:00Z", "2026-05-01T03:00:00Z"),
    ] {
        let found = timing(cron, "UTC").newest_due(planned, at(now));
        assert_eq!(found, at(expected), "{cron} at {now}");
    }
}

#[test]
fn wrong_fields_are_named() {
    let errors = Timing::parse("61 * * * *", "Europe/Berlim").expect_err("both are wrong");
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["cron", "time_zone"]);
    let (cron, zone) = (format!("* * * * {}", "1,".repeat(200)), "x".repeat(65));
    let errors = Timing::parse(&cron, &zone).expect_err("both are too long");
    let expected = errors.iter().map(|error| error.expected.as_str());
    let limits = ["at most 200 characters", "at most 64 characters"];
    assert!(expected.eq(limits), "{errors:?}");
}

#[test]
fn local_times_name_the_zone() {
    let timing = timing("0 3 * * *", "Europe/Berlin");
    let local = timing.local(at("2026-03-29T01:00:00Z"));
    assert_eq!(local, "2026-03-29 03:00 CEST");
}
