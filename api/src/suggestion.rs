//! Suggestions for names that a document does not have: the nearest valid name, or the field that
//! means the same as a field of another system.

use muster_model::text::similar;

/// Fields and values of other systems, with their place in Muster's documents.
const ELSEWHERE: [(&str, &str); 27] = [
    ("accelerators", "resources.worker.gpus"),
    ("args", "command.argv"),
    ("cpus", "resources.worker.cpu_milli"),
    ("entrypoint", "command.argv"),
    ("environment", "command.env"),
    ("environment_variables", "command.env"),
    ("envs", "command.env"),
    ("git_url", "command.git.url"),
    ("gpu", "resources.worker.gpus"),
    ("gpus", "resources.worker.gpus"),
    ("image", "pod.image"),
    ("max_restarts", "retries"),
    ("memory", "resources.worker.memory_bytes"),
    ("nodes", "scale.workers"),
    ("num_gpus", "resources.worker.gpus"),
    ("num_nodes", "scale.workers"),
    ("num_workers", "scale.workers"),
    ("replicas", "scale.workers"),
    ("repo", "command.git.url"),
    ("repository", "command.git.url"),
    ("requirements", "command.python.requirements"),
    ("run", "command.argv"),
    ("script", "command.argv"),
    ("setup", "command.python.requirements"),
    ("slots", "resources.worker.gpus"),
    ("transformer", "gpt"),
    ("workdir", "command.code"),
];

/// Returns what the author of the name may have meant, among the valid names and the fields of
/// other systems.
pub fn suggestion<'a>(name: &str, valid: &[&'a str]) -> Option<&'a str> {
    similar(name, valid.iter().copied()).or_else(|| {
        let lower = name.to_ascii_lowercase().replace('-', "_");
        let elsewhere = ELSEWHERE.iter().find(|(known, _)| *known == lower);
        elsewhere.map(|(_, place)| *place)
    })
}

/// Returns the end of the refusal for an unknown name: the nearest known one, or the command that
/// lists all.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, list: &str) -> String {
    similar(name, known).map_or_else(
        || format!("; `{list}` lists all"),
        |other| format!("; did you mean {other}?"),
    )
}

#[cfg(test)]
mod tests {
    use super::suggestion;

    #[test]
    fn fields_of_other_systems_are_recognised() {
        let top = [
            "version",
            "name",
            "labels",
            "command",
            "engine",
            "scale",
            "resources",
            "stop",
        ];
        for (name, expected) in [
            ("comand", Some("command")),
            ("entrypoint", Some("command.argv")),
            ("replicas", Some("scale.workers")),
            ("num-gpus", Some("resources.worker.gpus")),
            ("xyz", None),
        ] {
            assert_eq!(suggestion(name, &top), expected, "{name}");
        }
    }
}
