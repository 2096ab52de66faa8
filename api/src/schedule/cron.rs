//! Cron expressions of five fields, as in crontab(5): minute, hour, day of the month, month and day
//! of the week.

use jiff::civil::{Date, DateTime};
use std::ops::RangeInclusive;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const EVERY_HOUR: u64 = (1 << 24) - 1;

/// Expectation in the error for an expression that is not valid.
pub const EXPECTED: &str = "minute (0-59), hour (0-23), day of month (1-31), month (1-12 or jan-dec) and day of week \
     (0-7 or sun-sat) with *, lists, ranges and steps such as 0,30 8-18/2 * * mon-fri, or @hourly, @daily, @weekly, @monthly or @yearly";

/// A parsed expression. Bit `n` of a field stands for its value `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether one of both day fields begins with `*`. Otherwise a day of either field matches.
    needs_both_days: bool,
}

impl Cron {
    /// Returns the expression; `None` if it is not valid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fields = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            fields => fields,
        };
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let &[minute, hour, day, month, weekday] = fields.as_slice() else {
            return None;
        };
        let weekdays = field(weekday, 0..=7, &DAYS)?;
        Some(Self {
            minutes: field(minute, 0..=59, &[])?,
            hours: field(hour, 0..=23, &[])?,
            days: field(day, 1..=31, &[])?,
            months: field(month, 1..=12, &MONTHS)?,
            // 0 and 7 are both Sunday.
            weekdays: weekdays | (weekdays >> 7),
            needs_both_days: day.starts_with('*') || weekday.starts_with('*'),
        })
    }

    /// Whether all hours match, so that the expression describes an interval.
    #[must_use]
    pub fn is_every_hour(&self) -> bool {
        self.hours == EVERY_HOUR
    }

    /// Returns the first matching minute at or after `start`, on the day `last` at the latest.
    #[must_use]
    pub fn first_from(&self, start: DateTime, last: Date) -> Option<DateTime> {
        let mut date = start.date();
        let (mut hour, mut minute) = (start.hour(), start.minute());
        while date <= last {
            if self.has_day(date) {
                while hour < 24 {
                    if has(self.hours, hour) {
                        let rest = self.minutes >> minute;
                        if rest != 0 {
                            let minute = minute + i8::try_from(rest.trailing_zeros()).ok()?;
                            return Some(date.at(hour, minute, 0, 0));
                        }
                    }
                    (hour, minute) = (hour + 1, 0);
                }
            }
            date = date.tomorrow().ok()?;
            (hour, minute) = (0, 0);
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let is_day = if self.needs_both_days {
            day && weekday
        } else {
            day || weekday
        };
        is_day && has(self.months, date.month())
    }
}

fn has(field: u64, value: i8) -> bool {
    (field >> value) & 1 == 1
}

/// Returns the values of a field: parts with commas between.
fn field(text: &str, values: RangeInclusive<u8>, names: &[&str]) -> Option<u64> {
    text.split(',').try_fold(0, |all, part| {
        Some(all | self::part(part, values.clone(), names)?)
    })
}

/// Returns the values of `*`, `a`, `a-b`, `*/n`, `a/n` or `a-b/n`.
fn part(text: &str, values: RangeInclusive<u8>, names: &[&str]) -> Option<u64> {
    let (range, step) = match text.split_once('/') {
        Some((range, step)) => (range, Some(number(step)?)),
        None => (text, None),
    };
    let (first, last) = if range == "*" {
        // Sunday counts once, or a step would meet it twice.
        let last = if names == DAYS { 6 } else { *values.end() };
        (*values.start(), last)
    } else if let Some((first, last)) = range.split_once('-') {
        (value(first, &values, names)?, value(last, &values, names)?)
    } else {
        let first = value(range, &values, names)?;
        // As in crontab(5), `a/n` extends to the largest value.
        let last = if step.is_some() { *values.end() } else { first };
        (first, last)
    };
    let step = step.unwrap_or(1);
    if first > last || step == 0 {
        return None;
    }
    let all = (first..=last).step_by(usize::from(step));
    Some(all.fold(0, |all, value| all | 1 << value))
}

fn value(text: &str, values: &RangeInclusive<u8>, names: &[&str]) -> Option<u8> {
    let lower = text.to_ascii_lowercase();
    let found = match names.iter().position(|name| *name == lower) {
        Some(at) => u8::try_from(at).ok()? + values.start(),
        None => number(text)?,
    };
    values.contains(&found).then_some(found)
}

/// Parses digits only: `str::parse` would accept a sign.
fn number(text: &str) -> Option<u8> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn first(cron: &str, from: DateTime) -> Option<DateTime> {
        let cron = Cron::parse(cron).expect(cron);
        cron.first_from(from, from.date().saturating_add(jiff::Span::new().years(8)))
    }

    #[test]
    fn fields_match_as_in_crontab() {
        // A Thursday.
        let from = date(2026, 1, 1).at(10, 17, 0, 0);
        for (cron, expected) in [
            ("* * * * *", from),
            ("*/15 * * * *", date(2026, 1, 1).at(10, 30, 0, 0)),
            ("5/20 * * * *", date(2026, 1, 1).at(10, 25, 0, 0)),
            ("0,10 8-12/2 * * *", date(2026, 1, 1).at(12, 0, 0, 0)),
            ("0 3 * * *", date(2026, 1, 2).at(3, 0, 0, 0)),
            ("@daily", date(2026, 1, 2).at(0, 0, 0, 0)),
            ("@hourly", date(2026, 1, 1).at(11, 0, 0, 0)),
            ("@weekly", date(2026, 1, 4).at(0, 0, 0, 0)),
            ("0 0 * * 7", date(2026, 1, 4).at(0, 0, 0, 0)),
            ("0 0 * * Sat-7", date(2026, 1, 3).at(0, 0, 0, 0)),
            ("0 0 * * mon-fri", date(2026, 1, 2).at(0, 0, 0, 0)),
            ("@monthly", date(2026, 2, 1).at(0, 0, 0, 0)),
            ("@yearly", date(2027, 1, 1).at(0, 0, 0, 0)),
            ("0 0 29 FEB *", date(2028, 2, 29).at(0, 0, 0, 0)),
            // With both day fields, either matches; with `*` in one, both must.
            ("0 0 20 * mon", date(2026, 1, 5).at(0, 0, 0, 0)),
            ("0 0 */2 * mon", date(2026, 1, 5).at(0, 0, 0, 0)),
            ("0 0 */2 * tue", date(2026, 1, 13).at(0, 0, 0, 0)),
        ] {
            assert_eq!(first(cron, from), Some(expected), "{cron}");
        }
        assert_eq!(first("0 0 30 2 *", from), None);
    }

    #[test]
    fn invalid_expressions_are_refused() {
        for cron in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "5-3 * * * *",
            "*/0 * * * *",
            "+1 * * * *",
            "-1 * * * *",
            "1,,2 * * * *",
            "* * * mon *",
            "@reboot",
            "@every 5m",
            "1/300 * * * *",
        ] {
            assert_eq!(Cron::parse(cron), None, "{cron}");
        }
    }
}
