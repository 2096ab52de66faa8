//! `muster simulate` and `muster compare` as a user calls them: the program on files, without a
//! server.

#[path = "../../../scheduler/lab/tests/traces/mod.rs"]
mod traces;

use muster_lab::trace::file::read_text;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs the program with an empty environment: no home, server or token.
fn muster(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .output()
        .expect("the program starts")
}

fn json(output: &Output) -> Value {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).expect("nothing but JSON")
}

fn refused(folder: &Path, arguments: &[&str], tells: &[&str]) {
    let output = muster(folder, arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert!(output.stdout.is_empty());
    for part in tells {
        assert!(told.contains(part), "{arguments:?}: {part:?} not in {told}");
    }
}

/// Writes profiles of one application, and two workloads. A step takes one second on every shape,
/// an epoch has 100 steps and a job two epochs.
fn toy() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect(name);
    write(
        "applications.csv",
        "app,init_batch_size,max_batch_size,min_local_bsz,max_local_bsz,max_epochs,validated_batch_sizes\n\
toy,32,128,8,64,2,bs:32|128\n",
    );
    let mut validation =
        "app,batch_size,epoch,progress,iteration,metric,grad_sqr,grad_var\n".to_owned();
    for batch in [32, 128] {
        for (epoch, steps) in [(0, 100), (1, 200)] {
            validation.push_str(&format!("toy,{batch},{epoch},{steps},{steps},,1.0,3.0\n"));
        }
    }
    write("validation.csv", &validation);
    let mut placements =
        "app,placement,num_nodes,num_replicas,local_bsz,step_time,sync_time\n".to_owned();
    let mut sizes = "app,num_nodes,num_replicas,local_bsz,step_time,sync_time\n".to_owned();
    for (placement, nodes, replicas) in [
        ("1", 1, 1),
        ("2", 1, 2),
        ("11", 2, 2),
        ("12", 2, 3),
        ("22", 2, 4),
    ] {
        for batch in [8, 64] {
            placements.push_str(&format!(
                "toy,{placement},{nodes},{replicas},{batch},1.0,0.1\n"
            ));
            sizes.push_str(&format!("toy,{nodes},{replicas},{batch},1.0,0.1\n"));
        }
    }
    write("placements.csv", &placements);
    write("throughput_table.csv", &sizes);
    let header = "name,time,application,num_replicas,batch_size";
    write(
        "one.csv",
        &format!("{header}\ntoy-0,10,toy,1,32\ntoy-1,70,toy,4,32\n"),
    );
    write("two.csv", &format!("{header}\ntoy-0,0,toy,2,32\n"));
    folder
}

const TOY: [&str; 6] = [
    "simulate",
    "--profiles",
    ".",
    "--cluster",
    "2x2",
    "--policy",
];

/// toy-0 waits for the tick at 60, starts in 30 s and runs for 200 s: it ends at 290, after 280 s.
/// All four GPUs are free for toy-1 at the tick at 300, so it ends at 530, after 460 s.
#[test]
fn simulated_times_follow_the_rules() {
    let folder = toy();
    let arguments = [&TOY[..], &["tiresias", "--workload", "one.csv", "--json"]].concat();
    let output = muster(folder.path(), &arguments);
    assert!(output.stderr.is_empty(), "no bar where nobody looks");
    let runs = json(&output);
    let [run] = &runs.as_array().expect("an array")[..] else {
        panic!("one run: {runs}");
    };
    assert_eq!(run["policy"], "tiresias");
    assert_eq!(run["workload"], "one.csv");
    assert_eq!(run["rules"], "pollux");
    assert_eq!((&run["jobs"], &run["unfinished"]), (&2.into(), &0.into()));
    assert_eq!(run["avg_jct_s"], 370.0);
    assert_eq!(run["p50_jct_s"], 370.0);
    assert_eq!(run["makespan_s"], 530.0);
    assert_eq!(run["restarts"], 0);
    // The work of a rigid job is its GPUs times its run: 1 * 200 and 4 * 200 GPU-seconds. Each GPU
    // is held 30 s longer.
    let gpu_hours = run["gpu_hours"].as_f64().expect("a number");
    assert!(
        (gpu_hours - 5.0 * 230.0 / 3600.0).abs() < 1e-9,
        "{gpu_hours}"
    );
    let bound_s = run["bound_s"].as_f64().expect("a number");
    assert!(bound_s > 200.0 && bound_s <= 370.0, "{bound_s}");
    assert!(run["decision_ms"]["max"].as_f64() >= run["decision_ms"]["mean"].as_f64());
    assert!(run["fairness"]["max"].as_f64() >= Some(1.0));
}

#[test]
fn runs_keep_argument_order_and_can_be_drawn_and_compared() {
    let folder = toy();
    let path = |name: &str| folder.path().join(name);
    let rest = [
        "tiresias,fifo",
        "--workload",
        "two.csv",
        "one.csv",
        "--json",
        "--gantt",
        "g.svg",
        "--runs",
        "runs.json",
    ];
    let runs = json(&muster(folder.path(), &[&TOY[..], &rest].concat()));
    let order: Vec<_> = runs
        .as_array()
        .expect("an array")
        .iter()
        .map(|run| (run["workload"].as_str(), run["policy"].as_str()))
        .collect();
    let pair = |workload, policy| (Some(workload), Some(policy));
    assert_eq!(
        order,
        [
            pair("two.csv", "tiresias"),
            pair("two.csv", "fifo"),
            pair("one.csv", "tiresias"),
            pair("one.csv", "fifo"),
        ]
    );
    let svg = fs::read_to_string(path("g-one-tiresias.svg")).expect("a picture of each run");
    // The second job spans both nodes.
    assert_eq!(svg.matches("<rect class=\"bar").count(), 3, "{svg}");

    let arguments = [
        "compare",
        "runs.json",
        "--json",
        "--html",
        "r.html",
        "--svg",
        "c.svg",
    ];
    let comparison = json(&muster(folder.path(), &arguments));
    assert_eq!(comparison["workloads"].as_array().map(Vec::len), Some(2));
    assert_eq!(comparison["policies"][0]["policy"], "tiresias");
    let of_two = runs[0]["avg_jct_s"].as_f64().expect("a number");
    assert_eq!(
        comparison["policies"][0]["avg_jct_s"].as_f64(),
        Some(f64::midpoint(of_two, 370.0))
    );
    let page = fs::read_to_string(path("r.html")).expect("a page");
    assert!(page.contains("tiresias") && page.ends_with("</html>\n"));
    assert!(
        fs::read_to_string(path("c.svg"))
            .expect("curves")
            .contains("class=\"curve\"")
    );

    // Output of `--json` can be compared as well, but contains no curves.
    fs::write(path("measures.json"), runs.to_string()).expect("a file");
    let same = json(&muster(
        folder.path(),
        &["compare", "measures.json", "--json"],
    ));
    assert_eq!(same, comparison);
    refused(
        folder.path(),
        &["compare", "measures.json", "--html", "r.html"],
        &["measures.json", "--runs"],
    );
}

#[test]
fn run_with_a_time_limit_counts_unfinished_jobs() {
    let folder = toy();
    let rest = [
        "tiresias",
        "--workload",
        "one.csv",
        "--json",
        "--until",
        "300",
    ];
    let runs = json(&muster(folder.path(), &[&TOY[..], &rest].concat()));
    assert_eq!(runs[0]["unfinished"], 1);
    // Mean of 280 s for the ended job and 230 s until the end for the other one.
    assert_eq!(runs[0]["avg_jct_s"], 255.0);
    refused(
        folder.path(),
        &[
            &TOY[..],
            &["tiresias", "--workload", "one.csv", "--until", "0"],
        ]
        .concat(),
        &["--until", "above 0"],
    );
}

#[test]
fn tables_are_printed_without_json() {
    let folder = toy();
    let rest = ["tiresias", "--workload", "one.csv", "two.csv"];
    let output = muster(folder.path(), &[&TOY[..], &rest].concat());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("WORKLOAD  POLICY    MEAN JCT"), "{text}");
    assert!(text.contains("one       tiresias  370"), "{text}");
    assert!(text.contains("means over 2 workloads"), "{text}");
}

#[test]
fn wrong_argument_is_named_with_the_expected_form() {
    let folder = toy();
    let here = folder.path();
    let with = |rest: &[&'static str]| [&TOY[..], rest].concat();
    refused(
        here,
        &with(&["tiresia", "--workload", "one.csv"]),
        &["tiresia", "tiresias, "],
    );
    refused(
        here,
        &with(&["tiresias", "--workload", "none.csv"]),
        &["none.csv"],
    );
    refused(here, &with(&["tiresias"]), &["--workload"]);
    refused(
        here,
        &[
            "simulate",
            "--profiles",
            ".",
            "--workload",
            "one.csv",
            "--policy",
            "fifo",
            "--cluster",
            "2by2",
        ],
        &["2by2", "16x4"],
    );
    refused(
        here,
        &[
            "simulate",
            "--profiles",
            "nowhere",
            "--workload",
            "one.csv",
            "--policy",
            "fifo",
            "--cluster",
            "2x2",
        ],
        &["nowhere", "--profiles"],
    );
    let text = fs::read_to_string(here.join("one.csv")).expect("written above");
    fs::write(
        here.join("bad.csv"),
        text.replace("toy,4,32", "toy,four,32"),
    )
    .expect("a file");
    refused(
        here,
        &with(&["fifo", "--workload", "bad.csv"]),
        &[
            "bad.csv, line 3",
            "num_replicas",
            "\"four\"",
            "whole number",
        ],
    );
    fs::write(here.join("other.csv"), text.replace("70,toy", "70,other")).expect("a file");
    refused(
        here,
        &with(&["fifo", "--workload", "other.csv"]),
        &["other", "toy"],
    );
    let live = |policy: &'static str, more: &'static [&'static str]| {
        let what = ["simulate", "--workload", "one.csv", "--cluster", "2x2"];
        [&what, &["--policy", policy][..], more].concat()
    };
    refused(here, &live("fifo", &[]), &["--rules pollux", "--profiles"]);
    refused(
        here,
        &live("fifo", &["--rules", "live"]),
        &["profiled application", "--profiles"],
    );
    refused(
        here,
        &live("muster-fixed", &["--rules", "live"]),
        &["muster-fixed", "no variants"],
    );
    refused(
        here,
        &with(&["fifo", "--workload", "one.csv", "--turns", "60"]),
        &["--turns", "--rules live"],
    );
    refused(
        here,
        &live("fifo", &["--rules", "live", "--packing"]),
        &["--turns"],
    );
    refused(here, &["compare"], &["muster compare [OPTIONS] <FILE>..."]);
    refused(
        here,
        &["compare", "one.csv"],
        &["one.csv", "no list of results"],
    );
}

#[test]
fn published_results_are_reproduced() {
    let folder = traces::committed("pollux");
    let published = read_text(&folder.join("published_jct.csv")).expect("a file");
    let times: Vec<f64> = published
        .lines()
        .filter_map(|line| line.strip_prefix("0.5,1,tiresias,"))
        .filter_map(|rest| rest.split(',').nth(1)?.parse().ok())
        .collect();
    assert_eq!(times.len(), 80);
    let mean_s = times.iter().sum::<f64>() / times.len() as f64;
    let arguments = [
        "simulate",
        "--profiles",
        ".",
        "--workload",
        "workloads-0.5/workload-1.csv.zst",
        "--cluster",
        "16x4",
        "--policy",
        "tiresias",
        "--json",
    ];
    let runs = json(&muster(&folder, &arguments));
    assert_eq!(runs[0]["workload"], "workloads-0.5/workload-1.csv");
    let ours_s = runs[0]["avg_jct_s"].as_f64().expect("a number");
    assert!(
        (ours_s / mean_s - 1.0).abs() < 1e-3,
        "{ours_s} and {mean_s}"
    );
}
