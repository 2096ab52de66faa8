//! Self-contained page about several runs: no script, no font, no external resource.

use super::cdf::{CdfCurve, cdf};
use super::svg::{Escaped, THEME};
use crate::compare::{
    CompareError, PolicyComparison, PolicySummary, RecordedRun, labels, title_of,
};
use crate::measure::{Summary, TenantSummary};
use crate::run::JobRun;
use std::fmt::Write as _;

const STYLE: &str = "\
body{margin:0 auto;max-width:1180px;padding:24px 20px 60px;background:var(--paper);color:var(--ink);\
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
h1{font-size:26px;margin:8px 0}h2{font-size:19px;margin:36px 0 8px}p{max-width:75ch}.soft{color:var(--soft)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:8px 0}\
th,td{padding:5px 12px 5px 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th{color:var(--soft);font-weight:600;font-size:13px;vertical-align:bottom;white-space:normal;max-width:110px}th:first-child,td:first-child{text-align:left}\
td.best{font-weight:700}svg{max-width:100%;height:auto}details{margin:8px 0}summary{cursor:pointer}\
dt{font-weight:600}dd{margin:0 0 8px;color:var(--soft);max-width:80ch}";

/// Column of the table: name, text and comparison value; a smaller value is better.
type Column = (
    &'static str,
    fn(&PolicySummary) -> String,
    fn(&PolicySummary) -> Option<f64>,
);

/// Completion times.
const TIMES: &[Column] = &[
    (
        "mean JCT (s)",
        |s| whole(s.avg_jct_s),
        |s| Some(s.avg_jct_s),
    ),
    ("of the best", |s| format!("{:.3}", s.to_best), |_| None),
    (
        "of the bound",
        // Policies with another freedom have another bound, so no value is the best.
        |s| format!("{:.2}", s.distance_to_bound),
        |_| None,
    ),
    ("median (s)", |s| whole(s.p50_jct_s), |s| Some(s.p50_jct_s)),
    ("p90 (s)", |s| whole(s.p90_jct_s), |s| Some(s.p90_jct_s)),
    ("p99 (s)", |s| whole(s.p99_jct_s), |s| Some(s.p99_jct_s)),
    (
        "makespan (s)",
        |s| whole(s.makespan_s),
        |s| Some(s.makespan_s),
    ),
    ("unfinished", |s| s.unfinished.to_string(), |_| None),
];

/// Costs and fairness.
const COSTS: &[Column] = &[
    ("GPU-hours", |s| whole(s.gpu_hours), |s| Some(s.gpu_hours)),
    (
        "GPUs in use",
        |s| format!("{:.0} %", s.utilisation * 100.0),
        |_| None,
    ),
    ("restarts", |s| whole(s.restarts), |s| Some(s.restarts)),
    (
        "finish-time ratio, mean",
        |s| format!("{:.2}", s.fairness_mean),
        |s| Some(s.fairness_mean),
    ),
    (
        "largest",
        |s| format!("{:.2}", s.fairness_max),
        |s| Some(s.fairness_max),
    ),
    (
        "decision, mean (ms)",
        |s| format!("{:.3}", s.decision_mean_ms),
        |s| Some(s.decision_mean_ms),
    ),
    (
        "p99 (ms)",
        |s| format!("{:.3}", s.decision_p99_ms),
        |s| Some(s.decision_p99_ms),
    ),
    (
        "longest (ms)",
        |s| format!("{:.3}", s.decision_max_ms),
        |s| Some(s.decision_max_ms),
    ),
];

/// Curves of every policy over all jobs of the comparison's workloads.
#[must_use]
pub fn curves(runs: &[RecordedRun], comparison: &PolicyComparison) -> Vec<CdfCurve> {
    let curves = comparison.policies.iter().map(|standing| {
        let jobs: Vec<&JobRun> = runs
            .iter()
            .filter(|recorded| recorded.run.policy == standing.policy)
            .filter(|recorded| comparison.workloads.contains(&recorded.run.workload))
            .flat_map(|recorded| &recorded.run.jobs)
            .collect();
        let ended = jobs.iter().filter_map(|job| {
            let finished_s = job.finished_s?;
            Some(finished_s - job.submitted_s)
        });
        CdfCurve {
            name: standing.policy.clone(),
            values_s: ended.collect(),
            unfinished: jobs.iter().filter(|job| job.finished_s.is_none()).count(),
        }
    });
    curves.collect()
}

/// Returns the page as HTML.
///
/// # Errors
/// [`CompareError`] if the runs are not comparable.
pub fn report(runs: &[RecordedRun]) -> Result<String, CompareError> {
    let summaries: Vec<Summary> = runs
        .iter()
        .map(|recorded| Summary::of(&recorded.run, &recorded.rules))
        .collect();
    let comparison = PolicyComparison::of(&summaries)?;
    let mut page = head(&comparison, &summaries);
    page.push_str("<h2>Completion times</h2>\n");
    standings(&mut page, &comparison, TIMES);
    page.push_str("<div class=\"scroll\">");
    page.push_str(&cdf(
        "Completion times of all workloads together",
        &curves(runs, &comparison),
    ));
    page.push_str("</div>\n");
    page.push_str("<h2>Use, fairness and decisions</h2>\n");
    standings(&mut page, &comparison, COSTS);
    workloads(&mut page, runs, &comparison, &summaries);
    tenants(&mut page, &summaries);
    page.push_str(GLOSSARY);
    page.push_str("</body></html>\n");
    Ok(page)
}

fn head(comparison: &PolicyComparison, summaries: &[Summary]) -> String {
    let rules = summaries.first().map_or("", |s| s.rules.as_str());
    let jobs: usize = comparison
        .workloads
        .iter()
        .filter_map(|name| summaries.iter().find(|s| s.workload == *name))
        .map(|s| s.jobs)
        .sum();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
content=\"width=device-width,initial-scale=1\"><title>Scheduling policies compared</title><style>{THEME}{STYLE}</style></head>\n\
<body><h1>Scheduling policies compared</h1>\n<p class=\"soft\">{} on {} with {jobs} jobs, under the rules of {}. Means are \
over the workloads; the best of each column is bold.</p>\n",
        count(comparison.policies.len(), "policy", "policies"),
        count(comparison.workloads.len(), "workload", "workloads"),
        Escaped(rules)
    );
    if !comparison.left_out.is_empty() {
        let names = comparison.left_out.join(", ");
        page.push_str("<p class=\"soft\">Left out, because not every policy ran them: ");
        page.push_str(&Escaped(&names).to_string());
        page.push_str(".</p>\n");
    }
    page
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn standings(page: &mut String, comparison: &PolicyComparison, columns: &[Column]) {
    let header: Vec<&str> = columns.iter().map(|column| column.0).collect();
    open_table(page, "policy", &header);
    // A policy with unfinished jobs is never the best.
    let complete = comparison.policies.iter().filter(|s| s.unfinished == 0);
    for standing in &comparison.policies {
        let cells = columns.iter().map(|(_, text, value)| {
            let least = complete.clone().filter_map(value);
            let least = least.fold(f64::INFINITY, f64::min);
            let is_best = standing.unfinished == 0
                && value(standing).is_some_and(|own| own <= least)
                && comparison.policies.len() > 1;
            (text(standing), is_best)
        });
        row(page, &standing.policy, cells);
    }
    page.push_str("</table></div>\n");
}

/// Mean completion time by workload and policy, and the curves of each workload.
fn workloads(
    page: &mut String,
    runs: &[RecordedRun],
    comparison: &PolicyComparison,
    summaries: &[Summary],
) {
    page.push_str("<h2>Mean completion time by workload (s)</h2>\n");
    let policies: Vec<&str> = comparison
        .policies
        .iter()
        .map(|standing| standing.policy.as_str())
        .collect();
    let mut header = policies.clone();
    header.extend(["bound", "jobs"]);
    open_table(page, "workload", &header);
    let names: Vec<&str> = comparison.workloads.iter().map(String::as_str).collect();
    for (label, workload) in labels(&names).iter().zip(&comparison.workloads) {
        let of_workload = summaries.iter().filter(|s| s.workload == *workload);
        let least = of_workload.clone().map(|s| s.avg_jct_s);
        let least = least.fold(f64::INFINITY, f64::min);
        let mut cells: Vec<(String, bool)> = policies
            .iter()
            .filter_map(|policy| of_workload.clone().find(|s| s.policy == *policy))
            .map(|s| {
                (
                    whole(s.avg_jct_s),
                    s.avg_jct_s <= least && policies.len() > 1,
                )
            })
            .collect();
        // Classes of policies have different bounds; the lowest one is valid for all.
        let bound = of_workload.clone().map(|s| s.bound_s);
        let bound = bound.fold(f64::INFINITY, f64::min);
        let jobs = of_workload.map(|s| s.jobs).max().unwrap_or(0);
        cells.extend([(whole(bound), false), (jobs.to_string(), false)]);
        row(page, label, cells.into_iter());
    }
    page.push_str("</table></div>\n");
    if comparison.workloads.len() < 2 {
        return;
    }
    for workload in &comparison.workloads {
        let mut only = comparison.clone();
        only.workloads = vec![workload.clone()];
        let name = Escaped(title_of(workload));
        put(
            page,
            format_args!("<details><summary>Curves of {name}</summary><div class=\"scroll\">"),
        );
        page.push_str(&cdf(title_of(workload), &curves(runs, &only)));
        page.push_str("</div></details>\n");
    }
}

/// Table of tenants; empty if every run has one tenant.
fn tenants(page: &mut String, summaries: &[Summary]) {
    if summaries.iter().all(|summary| summary.tenants.len() < 2) {
        return;
    }
    page.push_str("<h2>Tenants</h2>\n");
    let header = [
        "policy",
        "tenant",
        "jobs",
        "mean JCT (s)",
        "GPU-hours",
        "mean finish-time ratio",
    ];
    open_table(page, "workload", &header);
    for summary in summaries {
        for tenant in &summary.tenants {
            let cells = tenant_cells(summary, tenant).map(|text| (text, false));
            row(page, title_of(&summary.workload), cells.into_iter());
        }
    }
    page.push_str("</table></div>\n");
}

fn tenant_cells(summary: &Summary, tenant: &TenantSummary) -> [String; 6] {
    [
        summary.policy.clone(),
        tenant.tenant.clone(),
        tenant.jobs.to_string(),
        whole(tenant.avg_jct_s),
        format!("{:.1}", tenant.gpu_hours),
        format!("{:.2}", tenant.finish_time_ratio),
    ]
}

fn open_table(page: &mut String, first: &str, header: &[&str]) {
    put(
        page,
        format_args!("<div class=\"scroll\"><table><tr><th>{first}</th>"),
    );
    for name in header {
        put(page, format_args!("<th>{}</th>", Escaped(name)));
    }
    page.push_str("</tr>\n");
}

/// Cells, each with whether it is the best of its column.
fn row(page: &mut String, name: &str, cells: impl Iterator<Item = (String, bool)>) {
    put(page, format_args!("<tr><td>{}</td>", Escaped(name)));
    for (text, is_best) in cells {
        let class = if is_best { " class=\"best\"" } else { "" };
        put(page, format_args!("<td{class}>{}</td>", Escaped(&text)));
    }
    page.push_str("</tr>\n");
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn put(page: &mut String, what: std::fmt::Arguments<'_>) {
    let Ok(()) = page.write_fmt(what) else {
        unreachable!("a String takes whatever is written");
    };
}

const GLOSSARY: &str = "<h2>What the figures mean</h2>\n<dl>\
<dt>JCT</dt><dd>Job completion time: from submission to end, waiting and restarts included.</dd>\
<dt>Bound</dt><dd>No policy of the same freedom (to choose the number of GPUs, the batch size) has a lower mean on this workload and \
cluster. The largest of three: every job alone on the empty cluster; shortest remaining work first on one machine as fast as all GPUs \
together; and that machine's least mean busy times plus half the fastest run.</dd>\
<dt>Finish-time ratio</dt><dd>A job's completion time over what it would take with a fair share of the cluster to itself, one part of as \
many as there were jobs on average during its life (Themis). Below 1 it was better off here.</dd>\
<dt>Decision</dt><dd>Wall-clock time of one decision on one core, estimates included.</dd>\
<dt>Unfinished</dt><dd>Jobs that had not ended when the run was given up; they count with their time until then.</dd></dl>\n";

#[cfg(test)]
mod tests {
    use super::report;
    use crate::compare::RecordedRun;
    use crate::testing::{ran, run};

    fn recorded(policy: &str, workload: &str, jct_s: f64) -> RecordedRun {
        let mut of = run(1, vec![ran(0.0, jct_s), ran(0.0, jct_s * 2.0)]);
        policy.clone_into(&mut of.policy);
        workload.clone_into(&mut of.workload);
        of.jobs[1].tenant = "<b>".to_owned();
        RecordedRun {
            rules: "pollux".to_owned(),
            run: of,
        }
    }

    #[test]
    fn report_loads_nothing_and_escapes_names() {
        let page = report(&[
            recorded("fifo", "one", 30.0),
            recorded("fifo", "two", 30.0),
            recorded("mu<ster", "one", 20.0),
            recorded("mu<ster", "two", 10.0),
        ])
        .expect("comparable");
        // The curves of all workloads, and of each workload.
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("<details>").count(), 2);
        assert!(page.contains("mu&lt;ster") && page.contains("&lt;b&gt;"));
        assert!(!page.contains("mu<ster") && !page.contains("<b>"));
        for loads in ["<script", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(loads), "{loads}");
        }
        assert!(page.contains("<td class=\"best\">22</td>"), "{page}");
        assert!(page.contains("prefers-color-scheme:dark"));
    }
}
