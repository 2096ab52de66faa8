//! Files that are no job documents are told apart before anything is sent.

mod server;

use server::Server;
use std::fs;

#[test]
fn an_empty_file_and_a_study_are_named_as_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::new([]);
    for (text, says) in [
        ("", "is empty; expected a document"),
        ("# nothing\n\n", "is empty; expected a document"),
        ("version: muster/v1\nkind: study\n", "muster study create "),
    ] {
        let path = folder.path().join("document.yaml");
        fs::write(&path, text).expect("our own folder");
        let (code, said) = server.muster(&["submit", path.to_str().expect("text")]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(server.asked("POST"), Vec::<String>::new());
}
