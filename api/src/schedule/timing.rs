//! Planned times: a cron expression in a time zone.
//!
//! A time zone is a sequence of segments with a fixed offset from UTC. Within one the local time
//! has no gaps and no repetitions, so the expression is searched segment by segment.

use super::cron::{self, Cron};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Span, Timestamp};
use muster_model::spec::FieldError;
use std::sync::LazyLock;
use time::OffsetDateTime;

/// Longest time between two planned times; 29 February can be 8 years apart.
const HORIZON_YEARS: i16 = 8;
/// Maximum lengths, in characters.
const MAX_CRON: usize = 200;
const MAX_TIME_ZONE: usize = 64;
/// Windows in which the newest planned time is searched, so that years of missed minutes are not
/// enumerated.
const WINDOWS_H: [i64; 4] = [1, 24, 32 * 24, 366 * 24];

/// The zones that are compiled in, not those of the host: all API servers must agree.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Cron expression and time zone of a schedule.
#[derive(Debug, Clone)]
pub struct Timing {
    cron: Cron,
    zone: TimeZone,
}

impl Timing {
    /// # Errors
    /// One error for each wrong field.
    pub fn parse(cron: &str, time_zone: &str) -> Result<Self, Vec<FieldError>> {
        match (parsed_cron(cron), zone(time_zone)) {
            (Ok(cron), Ok(zone)) => Ok(Self { cron, zone }),
            (cron, zone) => Err(cron.err().into_iter().chain(zone.err()).collect()),
        }
    }

    /// Returns the first planned time after `after`; `None` if the expression matches no date.
    #[must_use]
    pub fn next_after(&self, after: OffsetDateTime) -> Option<OffsetDateTime> {
        self.next(timestamp(after)?).and_then(instant)
    }

    /// Returns the newest planned time at or before `now`. `planned` is one of them.
    #[must_use]
    pub fn newest_due(&self, planned: OffsetDateTime, now: OffsetDateTime) -> OffsetDateTime {
        let found = timestamp(planned).zip(timestamp(now));
        let found = found.and_then(|(planned, now)| self.newest(planned, now));
        found.and_then(instant).unwrap_or(planned)
    }

    /// Returns a time in the zone, such as `2026-03-29 03:00 CEST`.
    #[must_use]
    pub fn local(&self, at: OffsetDateTime) -> String {
        let zoned = timestamp(at).map(|at| at.to_zoned(self.zone.clone()));
        zoned.map_or_else(String::new, |at| {
            at.strftime("%Y-%m-%d %H:%M %Z").to_string()
        })
    }

    fn newest(&self, planned: Timestamp, now: Timestamp) -> Option<Timestamp> {
        for hours in WINDOWS_H {
            let window = now - SignedDuration::from_hours(hours);
            let mut found = None;
            let mut at = window.max(planned - SignedDuration::from_secs(1));
            while let Some(next) = self.next(at).filter(|next| *next <= now) {
                found = Some(next);
                at = next;
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Returns the first planned time after `after`.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let mut offset = self.zone.to_offset(after);
        let local = offset.to_datetime(after);
        let last = local.date().checked_add(Span::new().years(HORIZON_YEARS));
        let last = last.ok()?;
        let mut start = self.repeated_until(after).max(next_minute(local)?);
        let mut at = after;
        loop {
            let transition = self.zone.following(at).next();
            let found = self.cron.first_from(start, last);
            let found = found.and_then(|local| offset.to_timestamp(local).ok());
            if let Some(found) = found
                && transition
                    .as_ref()
                    .is_none_or(|next| found < next.timestamp())
            {
                return Some(found);
            }
            at = transition?.timestamp();
            let before = offset.to_datetime(at);
            offset = self.zone.to_offset(at);
            let begins = offset.to_datetime(at);
            if begins.date() > last {
                return None;
            }
            // Times that the clock leaves out: one job at the first instant after them. Intervals
            // need none: their next time follows.
            let skipped = self.cron.first_from(minute_from(before)?, last);
            if !self.cron.is_every_hour() && skipped.is_some_and(|local| local < begins) {
                return Some(at);
            }
            start = minute_from(begins.max(self.repeats_until(before)))?;
        }
    }

    /// Returns the local time until which `after` repeats local times that were planned before.
    fn repeated_until(&self, after: Timestamp) -> DateTime {
        let Some(begin) = self
            .zone
            .preceding(after + SignedDuration::from_nanos(1))
            .next()
        else {
            return DateTime::MIN;
        };
        let at = begin.timestamp();
        let before: Offset = self.zone.to_offset(at - SignedDuration::from_nanos(1));
        self.repeats_until(before.to_datetime(at))
    }

    /// Returns the local time from which a segment is searched. The segment before it ended at
    /// `before`. Intervals continue during repeated times; other expressions match each local time
    /// once.
    fn repeats_until(&self, before: DateTime) -> DateTime {
        if self.cron.is_every_hour() {
            DateTime::MIN
        } else {
            before
        }
    }
}

fn parsed_cron(cron: &str) -> Result<Cron, FieldError> {
    check_length("cron", cron, MAX_CRON)?;
    Cron::parse(cron).ok_or_else(|| wrong("cron", cron, cron::EXPECTED))
}

fn zone(time_zone: &str) -> Result<TimeZone, FieldError> {
    check_length("time_zone", time_zone, MAX_TIME_ZONE)?;
    ZONES.get(time_zone).map_err(|_| {
        let expected = "an IANA name of a time zone, such as UTC or Europe/Berlin";
        wrong("time_zone", time_zone, expected)
    })
}

fn wrong(field: &str, value: &str, expected: &str) -> FieldError {
    FieldError {
        field: field.to_owned(),
        value: format!("{value:?}"),
        expected: expected.to_owned(),
    }
}

fn check_length(field: &str, value: &str, most_chars: usize) -> Result<(), FieldError> {
    let chars = value.chars().count();
    if chars <= most_chars {
        return Ok(());
    }
    Err(FieldError {
        field: field.to_owned(),
        value: format!("a text of {chars} characters"),
        expected: format!("at most {most_chars} characters"),
    })
}

/// Returns the first whole minute after `local`.
fn next_minute(local: DateTime) -> Option<DateTime> {
    let minute = local.date().at(local.hour(), local.minute(), 0, 0);
    minute.checked_add(Span::new().minutes(1)).ok()
}

/// Returns the first whole minute at or after `local`.
fn minute_from(local: DateTime) -> Option<DateTime> {
    let minute = local.date().at(local.hour(), local.minute(), 0, 0);
    if minute == local {
        return Some(local);
    }
    next_minute(local)
}

fn timestamp(at: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_nanosecond(at.unix_timestamp_nanos()).ok()
}

fn instant(at: Timestamp) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(at.as_second()).ok()
}

#[cfg(test)]
mod tests;
