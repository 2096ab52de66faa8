//! Suggestions for names that a document does not have: the nearest valid name, or the field that
//! means the same as a field of another system.

/// Similarity (Jaro-Winkler) from which on a name counts as a misspelling.
const SIMILAR: f64 = 0.85;

/// Fields and values of other systems, with their place in Muster's documents.
const ELSEWHERE: [(&str, &str); 24] = [
    ("accelerators", "resources.worker.gpus"),
    ("args", "command.argv"),
    ("cpus", "resources.worker.cpu_milli"),
    ("entrypoint", "command.argv"),
    ("environment", "command.env"),
    ("environment_variables", "command.env"),
    ("envs", "command.env"),
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
    let lower = name.to_ascii_lowercase().replace('-', "_");
    let similarity = |known: &str| {
        // `batchsize` is nearer to `batch` than its letters say.
        let is_longer = known.len() >= 4 && lower.starts_with(known);
        if is_longer {
            1.0
        } else {
            strsim::jaro_winkler(&lower, known)
        }
    };
    let nearest = valid
        .iter()
        .map(|known| (similarity(known), *known))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((similarity, known)) = nearest
        && similarity >= SIMILAR
    {
        return Some(known);
    }
    let elsewhere = ELSEWHERE.iter().find(|(known, _)| *known == lower);
    elsewhere.map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::suggestion;

    #[test]
    fn misspelled_and_foreign_names_are_recognised() {
        let engine = [
            "model",
            "dataset",
            "optimizer",
            "batch",
            "batch_rule",
            "seed",
        ];
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
        for (name, valid, expected) in [
            ("batchsize", &engine[..], Some("batch")),
            ("optimiser", &engine, Some("optimizer")),
            ("data_set", &engine, Some("dataset")),
            ("learning_rate", &engine, None),
            ("comand", &top, Some("command")),
            ("entrypoint", &top, Some("command.argv")),
            ("replicas", &top, Some("scale.workers")),
            ("num-gpus", &top, Some("resources.worker.gpus")),
            ("xyz", &top, None),
            ("x", &[], None),
        ] {
            assert_eq!(suggestion(name, valid), expected, "{name}");
        }
    }
}
