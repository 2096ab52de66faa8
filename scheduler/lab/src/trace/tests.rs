use super::common::{HistoryJob, write};
use super::{TraceError, TraceProblem, TraceWork, file, read};
use crate::traces;
use std::path::Path;

const POLLUX: &str = "name,time,application,num_replicas,batch_size\n\
a-0,107,cifar10,6,2048\nb-1,110.5,bert,12,384\n";

#[test]
fn pollux_workload_is_read() {
    let workload = read("w.csv", "w", POLLUX).expect("a right file");
    assert_eq!(workload.jobs.len(), 2);
    let job = &workload.jobs[1];
    assert_eq!((job.name.as_str(), job.kind.as_str()), ("b-1", "bert"));
    assert_eq!((job.submitted_s, job.gpus), (110.5, 12));
    assert_eq!(job.work, TraceWork::Training { batch: 384 });
}

#[test]
fn wrong_value_error_names_place_and_expected_value() {
    let text = POLLUX.replace("bert,12", "bert,0");
    let error = read("w.csv", "w", &text).expect_err("no GPU");
    assert_eq!(
        error.to_string(),
        "w.csv, line 3: column num_replicas is \"0\"; expected a whole number, 1 to 1000000"
    );
}

#[test]
fn unknown_and_missing_columns_are_refused() {
    let error = read("w.csv", "w", &POLLUX.replace("batch_size", "batch")).expect_err("unknown");
    assert!(
        matches!(&error.problem, TraceProblem::Column { column, .. } if column == "batch"),
        "{error}"
    );
    let text = "name,time,application,num_replicas\na,1,bert,2\n";
    let error = read("w.csv", "w", text).expect_err("missing");
    assert!(
        matches!(&error.problem, TraceProblem::Missing { column, .. } if column == "batch_size"),
        "{error}"
    );
}

fn refused(text: &str) -> TraceError {
    read("t.csv", "t", text).expect_err(text)
}

const COMMON: &str = "job_id,vc,submit_s,gpus,duration_s,status\n\
p1,7f04ca,0,8,2240194,unknown\np2,6214e9,235696,0.46,,Pending\n";

#[test]
fn common_trace_has_tenants_gpu_parts_and_unknown_work() {
    let workload = read("t.csv", "t", COMMON).expect("a right file");
    let [first, second] = &workload.jobs[..] else {
        panic!("two jobs: {workload:?}");
    };
    assert_eq!((first.tenant.as_str(), first.gpus), ("7f04ca", 8));
    assert_eq!(
        first.work,
        TraceWork::Seconds {
            seconds: 2_240_194.0
        }
    );
    assert_eq!((second.gpus, second.gpu_share), (1, 0.46));
    assert_eq!(second.work, TraceWork::Unknown);
    assert_eq!(second.status.as_deref(), Some("Pending"));
}

#[test]
fn gavel_and_alibaba_columns_are_read_and_checked() {
    let gavel = "job_id,vc,submit_s,gpus,duration_s,status,job_type,total_steps\n\
g0,0e4a51,0,1,,unknown,\"Transformer (batch size 128)\",95121\n";
    let job = &read("g.csv", "g", gavel).expect("a right file").jobs[0];
    assert_eq!(job.kind, "Transformer (batch size 128)");
    assert_eq!(job.work, TraceWork::Steps { steps: 95_121 });
    let both = gavel.replace(",,unknown", ",10,unknown");
    assert!(refused(&both).to_string().contains("beside a duration_s"));

    let openb = "job_id,vc,submit_s,gpus,duration_s,status,num_gpu,gpu_milli,gpu_spec\n\
o,LS,0,0.46,10,Running,1,460,V100M16|V100M32\n";
    let job = &read("o.csv", "o", openb).expect("a right file").jobs[0];
    assert_eq!(job.gpu_spec, ["V100M16", "V100M32"]);
    let apart = openb.replace("460", "500");
    assert!(
        refused(&apart)
            .to_string()
            .contains("num_gpu * gpu_milli / 1000 is 0.5")
    );
}

#[test]
fn tiresias_list_is_read() {
    let text = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n\
1,8,30,133,vgg11,147,23\n";
    let job = &read("60.csv", "60", text).expect("a right file").jobs[0];
    assert_eq!(
        (job.kind.as_str(), job.gpus, job.submitted_s),
        ("vgg11", 8, 30.0)
    );
    assert_eq!(job.work, TraceWork::Seconds { seconds: 147.0 });
}

#[test]
fn wrong_rows_are_refused_with_their_line() {
    for (wrong, line, tells) in [
        (COMMON.replace("8,2240194", "1.5,2240194"), 2, "whole GPUs"),
        (COMMON.replace("p1", "p2"), 3, "line 2 has it already"),
        (COMMON.replace("p1", ""), 2, "not empty"),
        (COMMON.replace("2240194", "-1"), 2, "at least 0"),
        (COMMON.replace("235696", "NaN"), 3, "at least 0"),
        (COMMON.replace("2240194", "inf"), 2, "at least 0"),
        (
            COMMON.replace(",unknown", ""),
            2,
            "has 5 fields; the header has 6",
        ),
        (
            COMMON.replace("job_id,vc", "job_id,job_id"),
            1,
            "there twice",
        ),
        ("a,b\n1,2\n".to_owned(), 1, "or a common job trace: job_id"),
        (
            "job_id,vc,submit_s,gpus,duration_s,status\n".to_owned(),
            1,
            "at least one job",
        ),
        (String::new(), 1, "at least one job"),
    ] {
        let error = refused(&wrong);
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(tells), "{error}");
    }
}

#[test]
fn history_written_as_trace_reads_back_equal() {
    let past = HistoryJob {
        id: "a,\"b\"".to_owned(),
        tenant: "team".to_owned(),
        submitted_s: 1.5,
        gpus: 4,
        status: "succeeded".to_owned(),
        kind: "mlp".to_owned(),
        started_s: Some(2.0),
        finished_s: Some(12.3456),
        gpu_kinds: vec!["A100*".to_owned(), "H100".to_owned()],
    };
    let waits = HistoryJob {
        id: "c".to_owned(),
        started_s: None,
        finished_s: None,
        gpu_kinds: Vec::new(),
        ..past.clone()
    };
    let text = write(&[past, waits]);
    let jobs = read("h.csv", "h", &text).expect("our own schema").jobs;
    assert_eq!((jobs[0].name.as_str(), jobs[0].gpus), ("a,\"b\"", 4));
    assert_eq!(jobs[0].work, TraceWork::Seconds { seconds: 10.346 });
    assert_eq!((jobs[0].kind.as_str(), jobs[0].submitted_s), ("mlp", 1.5));
    assert_eq!(jobs[0].gpu_spec, ["A100*", "H100"]);
    assert_eq!(jobs[1].work, TraceWork::Unknown);
    assert_eq!(jobs[1].gpu_spec, Vec::<String>::new());
}

/// Returns the number of jobs of a trace.
fn jobs(path: &Path) -> usize {
    let text = file::read_text(path).unwrap();
    let name = path.display().to_string();
    read(&name, &name, &text).unwrap().jobs.len()
}

#[test]
fn committed_traces_are_read_whole() {
    for (path, expected) in [
        ("pollux/workloads-0.5/workload-1.csv", 80),
        ("pollux/workloads-1.0/workload-1.csv", 160),
        ("pollux/workloads-1.5/workload-1.csv", 240),
        ("pollux/workloads-2.0/workload-6.csv", 320),
        ("pollux/workloads-untuned/workload-1.csv", 160),
        ("gavel/philly_vc_0e4a51.csv", 1_181),
        ("tiresias/60_job.csv", 60),
    ] {
        assert_eq!(jobs(&traces::committed(path)), expected, "{path}");
    }
}

#[test]
#[ignore = "needs MUSTER_TRACES: the traces of Sia, Philly and Alibaba"]
fn traces_outside_the_repository_are_read_whole() {
    for (path, expected) in [
        ("sia/workloads-newtrace/workload-1.csv", 960),
        ("sia/workloads-rate-50/workload-1.csv", 400),
        ("clusters/philly_2017-09_2017-10.csv", 52_849),
        ("clusters/alibaba_openb_default.csv", 8_152),
    ] {
        assert_eq!(jobs(&traces::outside(path)), expected, "{path}");
    }
    // A file of nodes is not a trace of jobs.
    let path = "clusters/alibaba_openb_nodes.csv";
    let text = file::read_text(&traces::outside(path)).unwrap();
    assert!(read(path, path, &text).is_err());
}
