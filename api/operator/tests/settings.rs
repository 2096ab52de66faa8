//! What the operator's flags say.

use clap::Parser as _;
use muster_operator::config::{Command, Flags, Run};

fn run(further: &[&str]) -> Result<Run, clap::Error> {
    let given = ["muster-operator", "run", "--token", "x"];
    match Flags::try_parse_from(given.iter().chain(further))?.command {
        Command::Run(run) => Ok(*run),
        Command::Crds => panic!("it was told to run"),
    }
}

#[test]
fn it_follows_everything_unless_it_is_told_whose() {
    let all = run(&[]).expect("right").scope();
    assert!(all.namespaces.is_empty() && all.tenants);
    let some = [
        "--namespace",
        "vision,speech",
        "--namespace",
        "text",
        "--tenants",
        "false",
    ];
    let some = run(&some).expect("right").scope();
    assert_eq!(some.namespaces, ["vision", "speech", "text"]);
    assert!(!some.tenants);
    for wrong in [
        ["--namespace", "Vision"],
        ["--namespace", "vision,"],
        ["--tenants", "some"],
    ] {
        assert!(run(&wrong).is_err(), "{wrong:?}");
    }
}
