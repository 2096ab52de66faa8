//! What differs for a program that runs in an image.

use super::error::CommandError;
use crate::environment::is_of_loader;
use crate::image::ImageInfo;
use crate::task_file::TaskFile;
use muster_model::assignment::TaskReport;
use muster_model::error_chain::chain;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Folders in the view of an image with the libraries and programs of the GPU driver.
const DRIVER_LIBRARIES: &str = "/.muster/nvidia/lib64";
const DRIVER_PROGRAMS: &str = "/.muster/nvidia/bin";

pub(super) fn read(path: &Path) -> Result<ImageInfo, CommandError> {
    TaskFile::large(path)
        .read()
        .and_then(|info| info.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(CommandError::read(path))
}

/// Adds the image's variables for the dynamic loader, which were left out so far, and the folders
/// of the GPU driver, after those of the image and the job.
pub(super) fn complete(image: &ImageInfo, variables: &mut BTreeMap<String, String>) {
    for (name, value) in image.env.iter().filter(|(name, _)| is_of_loader(name)) {
        let value = value.clone();
        variables.entry(name.clone()).or_insert(value);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    for (name, inherited, folder) in [
        ("LD_LIBRARY_PATH", "", DRIVER_LIBRARIES),
        ("PATH", &path, DRIVER_PROGRAMS),
    ] {
        if Path::new(folder).is_dir() {
            let before = variables.get(name).map_or(inherited, String::as_str);
            let folders = match before {
                "" => folder.to_owned(),
                before => format!("{before}:{folder}"),
            };
            variables.insert(name.to_owned(), folders);
        }
    }
}

/// Returns the report of a program that could not be started. What the image lacks, it lacks on
/// each node.
pub(super) fn failure(image: &ImageInfo, error: &CommandError) -> TaskReport {
    let is_of_image = matches!(
        error,
        CommandError::NoProgram { .. }
            | CommandError::NoProgramAt { .. }
            | CommandError::WorkingFolder { .. }
            | CommandError::NoPip
    );
    TaskReport::Failed {
        message: format!("in image {}: {}", image.image, chain(error)),
        retryable: error.is_retryable() && !is_of_image,
        lacks: error.lacks().filter(|_| !is_of_image),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> ImageInfo {
        ImageInfo {
            image: "r.io/x:1".to_owned(),
            digest: "sha256:00".to_owned(),
            env: [("LD_LIBRARY_PATH", "/opt/lib"), ("PATH", "/opt/bin")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            working_dir: None,
            bytes: 1,
        }
    }

    #[test]
    fn loader_variables_of_image_are_below_those_of_job() {
        let mut variables = BTreeMap::new();
        complete(&image(), &mut variables);
        assert_eq!(variables["LD_LIBRARY_PATH"], "/opt/lib");
        variables.insert("LD_LIBRARY_PATH".to_owned(), "/own".to_owned());
        complete(&image(), &mut variables);
        assert_eq!(variables["LD_LIBRARY_PATH"], "/own");
    }

    #[test]
    fn program_that_image_lacks_fails_the_job() {
        let missing = CommandError::NoProgramAt {
            field: "command.argv",
            path: "/bin/x".into(),
        };
        let TaskReport::Failed {
            message,
            retryable,
            lacks,
        } = failure(&image(), &missing)
        else {
            panic!("a failure");
        };
        assert!(message.starts_with("in image r.io/x:1: "), "{message}");
        assert!(!retryable && lacks.is_none());
    }
}
