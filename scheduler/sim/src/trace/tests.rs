use super::{Problem, Work, read};

const POLLUX: &str = "name,time,application,num_replicas,batch_size\n\
a-0,107,cifar10,6,2048\nb-1,110.5,bert,12,384\n";

#[test]
fn a_pollux_workload_reads_as_it_stands() {
    let workload = read("w.csv", "w", POLLUX).expect("a right file");
    assert_eq!(workload.jobs.len(), 2);
    let job = &workload.jobs[1];
    assert_eq!((job.name.as_str(), job.kind.as_str()), ("b-1", "bert"));
    assert_eq!((job.submitted_s, job.gpus), (110.5, 12));
    assert_eq!(job.work, Work::Training { batch: 384 });
}

#[test]
fn a_wrong_value_is_named_with_its_place_and_what_would_be_right() {
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
        matches!(&error.problem, Problem::Column { column, .. } if column == "batch"),
        "{error}"
    );
    let text = "name,time,application,num_replicas\na,1,bert,2\n";
    let error = read("w.csv", "w", text).expect_err("missing");
    assert!(
        matches!(&error.problem, Problem::Missing { column, .. } if column == "batch_size"),
        "{error}"
    );
}
