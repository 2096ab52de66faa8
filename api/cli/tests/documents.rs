//! Files that are not job documents are refused before a request is sent.

mod server;

use server::Server;
use std::fs;

#[test]
fn empty_file_and_study_document_are_refused_by_kind() {
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
