//! The pod of a task: the administrator's template (image, volumes, service account, security), and
//! the fields that the executor sets (node, command, labels, resources).

use super::job_pod::{self, PathTaken};
use super::mount_allow_list::restrict_mount;
use super::mounts;
use crate::error::ExecutorError;
use crate::limits::TaskLimits;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Labels by which the executor finds its pods.
pub const GROUP_LABEL: &str = "muster.dev/group";
pub const NODE_LABEL: &str = "muster.dev/executor";
pub const TASK_LABEL: &str = "muster.dev/task";
/// Label with the value `engine` or `program`. Network policies admit only the engine's tasks to
/// the bucket.
const RUNS_LABEL: &str = "muster.dev/runs";
/// Service account that each namespace has. Without a token it has no rights.
const DEFAULT_ACCOUNT: &str = "default";
/// Variable with the pod's address, at which the task listens.
const HOST_VARIABLE: &str = "MUSTER_TASK_HOST";
/// Reference to that variable, which the kubelet expands.
pub const LISTEN_HOST: &str = "$(MUSTER_TASK_HOST)";
/// Time for the shim to write the outcome after the task's grace, in seconds.
const SHIM_GRACE_S: u64 = 5;

/// The parts that all pods of this executor have in common.
#[derive(Debug, Clone)]
pub struct Template {
    given: Pod,
    pub namespace: String,
    /// Kubernetes node of the pods.
    pub node: String,
    /// Name and group of this executor.
    pub executor: String,
    pub group: String,
    /// Service account of the built-in engine's tasks. Users' programs never receive it.
    pub engine_account: Option<String>,
    /// Extended resource of GPUs, if Kubernetes counts them.
    pub gpu_resource: Option<String>,
    /// Whether NVIDIA's runtime makes GPUs visible by index; not for CPU slots.
    pub has_gpus: bool,
    /// Path of the shim's program in the template's image.
    pub program: String,
    /// Path of the shim's program in the data folder, for other images. Empty until a job brings an
    /// image.
    pub shared_program: String,
    /// Data folder of the executor, at the same path in each pod.
    pub data: PathBuf,
    /// Checkpoint root at the same path in each pod; `None` for a bucket.
    pub checkpoints: Option<PathBuf>,
}

impl Template {
    /// Reads a pod in YAML with one container, which names the image.
    ///
    /// # Errors
    /// If it is not a pod, contains an unknown field, or sets a field that the executor sets.
    pub fn parse(text: &str) -> Result<Pod, TemplateError> {
        let written: Value = serde_norway::from_str(text).map_err(TemplateError::Yaml)?;
        let pod: Pod = serde_json::from_value(written.clone()).map_err(TemplateError::Pod)?;
        let understood = serde_json::to_value(&pod).expect("a pod is JSON");
        if let Some(path) = unknown(&written, &understood, "") {
            return Err(TemplateError::Unknown { path });
        }
        let Some(spec) = &pod.spec else {
            return Err(TemplateError::Containers { count: 0 });
        };
        let [container] = spec.containers.as_slice() else {
            let count = spec.containers.len();
            return Err(TemplateError::Containers { count });
        };
        if container.image.as_deref().unwrap_or_default().is_empty() {
            return Err(TemplateError::Image);
        }
        if container.command.is_some() || container.args.is_some() {
            return taken("spec.containers[0].command and args");
        }
        if pod.metadata.name.is_some() || pod.metadata.namespace.is_some() {
            return taken("metadata.name and namespace");
        }
        if spec.node_name.is_some() {
            return taken("spec.nodeName");
        }
        if spec.restart_policy.is_some() {
            return taken("spec.restartPolicy");
        }
        if spec.termination_grace_period_seconds.is_some() {
            return taken("spec.terminationGracePeriodSeconds");
        }
        Ok(pod)
    }

    /// # Errors
    /// If the file cannot be read or is not a valid template.
    pub fn read(path: &Path) -> Result<Pod, ExecutorError> {
        let text = std::fs::read_to_string(path).map_err(ExecutorError::read(path))?;
        Self::parse(&text).map_err(|source| ExecutorError::PodTemplate {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    #[must_use]
    pub fn new(given: Pod) -> Self {
        Self {
            given,
            namespace: String::new(),
            node: String::new(),
            executor: String::new(),
            group: String::new(),
            engine_account: None,
            gpu_resource: None,
            has_gpus: false,
            program: String::new(),
            shared_program: String::new(),
            data: PathBuf::new(),
            checkpoints: None,
        }
    }

    /// Returns the label selector of this executor's pods.
    #[must_use]
    pub fn selector(&self) -> String {
        format!(
            "{GROUP_LABEL}={},{NODE_LABEL}={}",
            self.group, self.executor
        )
    }

    /// Returns the pod that runs the shim of this task.
    ///
    /// # Errors
    /// [`PathTaken`] for a volume of the job's document.
    pub fn pod(
        &self,
        launch: &TaskLaunch,
        arguments: &[OsString],
        limits: TaskLimits,
    ) -> Result<Pod, PathTaken> {
        let mut pod = self.given.clone();
        pod.metadata = self.metadata(launch, pod.metadata);
        let mut spec = pod.spec.take().expect("a template has a spec");
        spec.node_name = Some(self.node.clone());
        spec.restart_policy = Some("Never".to_owned());
        spec.termination_grace_period_seconds =
            Some(grace_s(launch.grace_ms.max(launch.stop_grace_ms())));
        spec.enable_service_links.get_or_insert(false);
        self.identify(launch, &mut spec);
        let mut container = spec.containers.pop().expect("a template has a container");
        let of_data = mounts::of_data(&self.data, launch);
        restrict_mount(&mut spec, &mut container, &of_data);
        if let Some(root) = &self.checkpoints {
            let of_checkpoints = mounts::of_checkpoints(root, launch);
            restrict_mount(&mut spec, &mut container, &of_checkpoints);
        }
        job_pod::apply(&mut spec, &mut container, &launch.spec.pod)?;
        spec.containers = vec![self.container(launch, arguments, limits, container)];
        pod.spec = Some(spec);
        Ok(pod)
    }

    /// Returns the folders that must exist before the pod starts. The kubelet would create them for
    /// another user.
    #[must_use]
    pub fn checkpoint_folders(&self, launch: &TaskLaunch) -> Vec<PathBuf> {
        let Some(root) = &self.checkpoints else {
            return Vec::new();
        };
        let seen = mounts::of_checkpoints(root, launch).visible.into_iter();
        seen.map(|seen| root.join(seen.path)).collect()
    }

    /// Sets the pod's service account. The engine's account may have access to the checkpoints of
    /// all tenants, so no user code runs with it. The template's account is for users' programs.
    fn identify(&self, launch: &TaskLaunch, spec: &mut PodSpec) {
        let engine = self
            .engine_account
            .as_ref()
            .filter(|_| !runs_program(launch));
        if let Some(account) = engine.or(launch.service_account.as_ref()) {
            spec.service_account_name = Some(account.clone());
            spec.automount_service_account_token = Some(true);
        } else if !runs_program(launch) {
            spec.service_account_name = Some(DEFAULT_ACCOUNT.to_owned());
            spec.automount_service_account_token = Some(false);
        }
        spec.automount_service_account_token.get_or_insert(false);
    }

    fn metadata(&self, launch: &TaskLaunch, given: ObjectMeta) -> ObjectMeta {
        let runs = if runs_program(launch) {
            "program"
        } else {
            "engine"
        };
        let own = [
            ("app.kubernetes.io/managed-by", "muster-executor".to_owned()),
            (GROUP_LABEL, self.group.clone()),
            (NODE_LABEL, self.executor.clone()),
            (TASK_LABEL, launch.task_id.to_string()),
            ("muster.dev/job", launch.job_id.to_string()),
            ("muster.dev/tenant", launch.tenant_id.to_string()),
            ("muster.dev/revision", launch.revision.to_string()),
            ("muster.dev/role", launch.role.to_string()),
            (RUNS_LABEL, runs.to_owned()),
        ];
        let mut labels = given.labels.unwrap_or_default();
        labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
        ObjectMeta {
            name: Some(name(launch.task_id)),
            namespace: Some(self.namespace.clone()),
            labels: Some(labels),
            ..given
        }
    }

    fn container(
        &self,
        launch: &TaskLaunch,
        arguments: &[OsString],
        limits: TaskLimits,
        mut container: Container,
    ) -> Container {
        let program = match launch.spec.pod.image {
            Some(_) => &self.shared_program,
            None => &self.program,
        };
        container.command = Some(vec![escaped(program)]);
        let arguments = arguments.iter().map(|argument| {
            let text = argument.to_string_lossy();
            if text == LISTEN_HOST {
                return LISTEN_HOST.to_owned();
            }
            escaped(&text)
        });
        container.args = Some(arguments.collect());
        let mut variables = vec![EnvVar {
            name: HOST_VARIABLE.to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    api_version: None,
                    field_path: "status.podIP".to_owned(),
                }),
                ..EnvVarSource::default()
            }),
        }];
        variables.extend(container.env.take().unwrap_or_default());
        // If Kubernetes counts GPUs, the device plugin makes them visible, but only to pods with
        // GPUs. CUDA images request all GPUs by default.
        let is_counted = self.gpu_resource.is_some() && !self.has_gpus;
        if self.has_gpus || (is_counted && launch.gpus.is_empty()) {
            // The last variable of a name takes effect, also against that of the device plugin: the
            // plan chooses the GPUs.
            variables.push(EnvVar {
                name: "NVIDIA_VISIBLE_DEVICES".to_owned(),
                value: Some(visible(&launch.gpus)),
                value_from: None,
            });
        }
        container.env = Some(variables);
        let given = container.resources.take();
        container.resources = Some(self.resources(launch, limits, given));
        container
    }

    /// Returns the template's resources with those of the task: CPU and memory as requests, memory
    /// and GPUs as limits. The requests are the amounts that placement counts.
    fn resources(
        &self,
        launch: &TaskLaunch,
        of_task: TaskLimits,
        given: Option<ResourceRequirements>,
    ) -> ResourceRequirements {
        let mut resources = given.unwrap_or_default();
        let mut requests: BTreeMap<_, _> = resources.requests.take().unwrap_or_default();
        let mut limits = resources.limits.take().unwrap_or_default();
        let counted = launch.spec.resources.worker.demand();
        let cpu_milli = match launch.cpu_milli {
            0 => counted.cpu_milli.min(of_task.cpu_milli),
            stated => stated,
        };
        let memory_bytes = match launch.memory_bytes {
            0 => counted.memory_bytes.min(of_task.memory_bytes),
            stated => stated,
        };
        if cpu_milli > 0 {
            requests.insert("cpu".to_owned(), Quantity(format!("{cpu_milli}m")));
        }
        if memory_bytes > 0 {
            let (request, limit) = (memory_bytes.to_string(), of_task.memory_bytes.to_string());
            requests.insert("memory".to_owned(), Quantity(request));
            limits.insert("memory".to_owned(), Quantity(limit));
        }
        if let (Some(name), false) = (&self.gpu_resource, launch.gpus.is_empty()) {
            limits.insert(name.clone(), Quantity(launch.gpus.len().to_string()));
        }
        resources.requests = (!requests.is_empty()).then_some(requests);
        resources.limits = (!limits.is_empty()).then_some(limits);
        resources
    }
}

/// Returns the name of a task's pod. It is unique, so a task has at most one pod.
#[must_use]
pub fn name(task: TaskId) -> String {
    format!("muster-{task}")
}

fn taken(path: &str) -> Result<Pod, TemplateError> {
    Err(TemplateError::Taken { path: path.into() })
}

/// Whether the task runs a user's program and not the built-in engine.
fn runs_program(launch: &TaskLaunch) -> bool {
    launch.spec.command.is_some()
}

/// Whether this container runs the shim.
#[must_use]
pub fn is_of_task(container: &Container) -> bool {
    let mut variables = container.env.iter().flatten();
    variables.any(|variable| variable.name == HOST_VARIABLE)
}

/// Returns the pod's grace in whole seconds. It exceeds the task's grace, which the shim enforces.
fn grace_s(grace_ms: u64) -> i64 {
    i64::try_from(grace_ms.div_ceil(1_000) + SHIM_GRACE_S).unwrap_or(i64::MAX)
}

fn visible(gpus: &[u32]) -> String {
    if gpus.is_empty() {
        // NVIDIA's runtime treats an empty value as "all".
        return "void".to_owned();
    }
    let numbers: Vec<String> = gpus.iter().map(u32::to_string).collect();
    numbers.join(",")
}

/// Escapes a text in which the kubelet would expand variables.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

/// Returns the path of a field that the conversion to a pod has dropped.
fn unknown(written: &Value, understood: &Value, path: &str) -> Option<String> {
    match (written, understood) {
        (Value::Object(written), Value::Object(understood)) => {
            written.iter().find_map(|(name, value)| {
                let path = format!("{path}.{name}");
                match understood.get(name) {
                    Some(other) => unknown(value, other, &path),
                    // Null fields may be dropped.
                    None if value.is_null() => None,
                    None => Some(path.trim_start_matches('.').to_owned()),
                }
            })
        }
        (Value::Array(written), Value::Array(understood)) => written
            .iter()
            .zip(understood)
            .enumerate()
            .find_map(|(index, (one, other))| unknown(one, other, &format!("{path}[{index}]"))),
        _ => None,
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error("it is not YAML")]
    Yaml(#[source] serde_norway::Error),
    #[error("it is not a pod")]
    Pod(#[source] serde_json::Error),
    #[error("a pod has no field {path}")]
    Unknown { path: String },
    #[error("it has {count} containers in spec.containers; expected one, which runs the task")]
    Containers { count: usize },
    #[error("spec.containers[0].image is missing; expected an image with muster-executor in it")]
    Image,
    #[error("it sets {path}, which is the executor's to set; leave it out")]
    Taken { path: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn launch(gpus: &[u32]) -> TaskLaunch {
        let id = "00000000-0000-7000-8000-000000000001";
        serde_json::from_value(json!({
            "task_id": id, "job_id": id, "tenant_id": id, "revision": 3, "role": { "kind": "worker", "rank": 1 },
            "workers": 2, "ps_shards": 1, "gpus": gpus, "cpu_milli": 1_500, "memory_bytes": 1_000_000, "secret": "00",
            "spec": { "version": "muster/v1", "name": "x", "command": { "argv": ["true"] } },
            "resume_step": null, "trained_s": 0.0, "grace_ms": 2_500,
        }))
        .expect("a launch")
    }

    const LIMITS: TaskLimits = TaskLimits {
        cpu_milli: 1_500,
        memory_bytes: 1_000_000,
    };

    #[test]
    fn unstated_memory_is_limited_to_the_share_of_the_node() {
        let mut launch = launch(&[2]);
        (launch.cpu_milli, launch.memory_bytes) = (0, 0);
        let share = TaskLimits {
            cpu_milli: 8_000,
            memory_bytes: 64 << 30,
        };
        let pod = template(PLAIN).pod(&launch, &[], share).expect("no paths");
        let pod = serde_json::to_value(&pod).expect("JSON");
        let resources = &pod["spec"]["containers"][0]["resources"];
        let (request, limit) = (1_u64 << 30, 64_u64 << 30);
        assert_eq!(
            resources["requests"],
            json!({ "cpu": "100m", "memory": request.to_string() })
        );
        assert_eq!(
            resources["limits"],
            json!({ "memory": limit.to_string(), "nvidia.com/gpu": "1" })
        );
    }

    fn template(text: &str) -> Template {
        Template {
            namespace: "muster".to_owned(),
            node: "gpu-7.example".to_owned(),
            executor: "gpu-7-example".to_owned(),
            group: "pool".to_owned(),
            gpu_resource: Some("nvidia.com/gpu".to_owned()),
            has_gpus: true,
            program: "/bin/muster-executor".to_owned(),
            shared_program: "/data/programs/muster-executor".to_owned(),
            ..Template::new(Template::parse(text).expect("a template"))
        }
    }

    const PLAIN: &str = "
metadata: { labels: { team: vision } }
spec:
  runtimeClassName: nvidia
  containers:
    - name: task
      image: muster-executor:1
      env: [{ name: HF_HOME, value: /cache }]
";

    #[test]
    fn pod_has_its_node_gpus_and_labels() {
        let arguments = [
            "shim",
            "--listen-host",
            LISTEN_HOST,
            "--folder",
            "/a$(b)$$c",
        ];
        let pod = template(PLAIN)
            .pod(&launch(&[2, 5]), &arguments.map(OsString::from), LIMITS)
            .expect("it says nothing of paths");
        let pod = serde_json::to_value(&pod).expect("JSON");
        let spec = &pod["spec"];
        let container = &spec["containers"][0];
        assert_eq!(
            pod["metadata"]["name"],
            "muster-00000000-0000-7000-8000-000000000001"
        );
        let labels = &pod["metadata"]["labels"];
        assert_eq!(
            (&labels["muster.dev/role"], &labels["muster.dev/revision"]),
            (&json!("worker-1"), &json!("3"))
        );
        assert_eq!(labels["team"], "vision");
        assert_eq!(
            (&spec["nodeName"], &spec["restartPolicy"]),
            (&json!("gpu-7.example"), &json!("Never"))
        );
        assert_eq!(spec["terminationGracePeriodSeconds"], 3 + 5);
        assert_eq!(spec["runtimeClassName"], "nvidia");
        assert_eq!(container["command"], json!(["/bin/muster-executor"]));
        assert_eq!(
            container["args"],
            json!([
                "shim",
                "--listen-host",
                "$(MUSTER_TASK_HOST)",
                "--folder",
                "/a$$(b)$$$$c"
            ])
        );
        let resources = &container["resources"];
        assert_eq!(
            resources["limits"],
            json!({ "memory": "1000000", "nvidia.com/gpu": "2" })
        );
        assert_eq!(
            resources["requests"],
            json!({ "cpu": "1500m", "memory": "1000000" })
        );
        let variables = container["env"].as_array().expect("a list");
        let last = variables.last().expect("variables");
        assert_eq!(
            (&last["name"], &last["value"]),
            (&json!("NVIDIA_VISIBLE_DEVICES"), &json!("2,5"))
        );
        assert!(variables.iter().any(|one| one["name"] == "HF_HOME"));
        let none = template(PLAIN)
            .pod(&launch(&[]), &[], LIMITS)
            .expect("it says nothing of paths");
        let none = serde_json::to_value(&none).expect("JSON");
        let none = &none["spec"]["containers"][0];
        assert_eq!(
            none["env"][2]["value"], "void",
            "a task without GPUs sees none"
        );
        assert_eq!(none["resources"]["limits"].get("nvidia.com/gpu"), None);
    }

    #[test]
    fn pod_of_a_user_image_runs_the_shim_from_the_data_folder() {
        let mut launch = launch(&[]);
        launch.spec.pod.image = Some("r.io/trainer:3".to_owned());
        launch.service_account = Some("trainers".to_owned());
        let pod = template(PLAIN).pod(&launch, &[], LIMITS).expect("no paths");
        let spec = serde_json::to_value(pod.spec).expect("JSON");
        let container = &spec["containers"][0];
        assert_eq!(container["image"], "r.io/trainer:3");
        assert_eq!(
            container["command"],
            json!(["/data/programs/muster-executor"])
        );
        assert_eq!(
            (
                &spec["serviceAccountName"],
                &spec["automountServiceAccountToken"]
            ),
            (&json!("trainers"), &json!(true))
        );
        assert_eq!(spec["runtimeClassName"], "nvidia", "the rest is as in all");
    }

    /// Returns a pod's account, whether its token is mounted, and what the pod runs.
    fn account(template: &Template, launch: &TaskLaunch) -> (String, Option<bool>, String) {
        let pod = template.pod(launch, &[], LIMITS).expect("no paths");
        let labels = pod.metadata.labels.expect("labels");
        let spec = pod.spec.expect("a spec");
        (
            spec.service_account_name.unwrap_or_default(),
            spec.automount_service_account_token,
            labels[RUNS_LABEL].clone(),
        )
    }

    #[test]
    fn users_programs_never_run_as_the_engines_account() {
        let given = "spec: { serviceAccountName: trainers, automountServiceAccountToken: true, containers: [{ name: task, image: i }] }";
        let template = Template {
            engine_account: Some("engine".to_owned()),
            ..template(given)
        };
        let expected =
            |name: &str, token, runs: &str| (name.to_owned(), Some(token), runs.to_owned());
        let (mut program, mut trains) = (launch(&[]), engine(&json!({})));
        assert_eq!(
            account(&template, &program),
            expected("trainers", true, "program")
        );
        assert_eq!(
            account(&template, &trains),
            expected("engine", true, "engine")
        );
        // A tenant's own account replaces that of programs, not that of the engine.
        (program.service_account, trains.service_account) =
            (Some("own".to_owned()), Some("own".to_owned()));
        assert_eq!(
            account(&template, &program),
            expected("own", true, "program")
        );
        assert_eq!(
            account(&template, &trains),
            expected("engine", true, "engine")
        );
        let without = Template {
            engine_account: None,
            ..template
        };
        assert_eq!(account(&without, &trains), expected("own", true, "engine"));
        trains.service_account = None;
        assert_eq!(
            account(&without, &trains),
            expected("default", false, "engine")
        );
    }

    /// The mounts of the chart.
    const MOUNTED: &str = "
spec:
  containers:
    - name: task
      image: muster-executor:1
      volumeMounts:
        - { name: data, mountPath: /var/lib/muster }
        - { name: checkpoints, mountPath: /srv/checkpoints }
        - { name: datasets, mountPath: /srv/datasets, readOnly: true }
  volumes:
    - { name: data, hostPath: { path: /var/lib/muster-of-node } }
";

    fn mounts(launch: &TaskLaunch) -> Vec<Value> {
        let template = Template {
            data: "/var/lib/muster".into(),
            checkpoints: Some("/srv/checkpoints".into()),
            ..template(MOUNTED)
        };
        let pod = template.pod(launch, &[], LIMITS).expect("no paths");
        let pod = serde_json::to_value(&pod).expect("JSON");
        let mounts = pod["spec"]["containers"][0]["volumeMounts"].clone();
        mounts.as_array().expect("a list").clone()
    }

    fn engine(more: &Value) -> TaskLaunch {
        let mut launch = serde_json::to_value(launch(&[])).expect("JSON");
        launch["spec"] = json!({
            "version": "muster/v1", "name": "x",
            "engine": {
                "model": { "kind": "mlp", "hidden": [8] }, "dataset": { "name": "fashion-mnist" },
                "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 8,
            },
            "stop": { "steps": 1 },
        });
        let spec = launch["spec"].as_object_mut().expect("an object");
        spec.extend(more.as_object().expect("an object").clone());
        serde_json::from_value(launch).expect("a launch")
    }

    fn data(path: &str) -> Value {
        json!({ "name": "data", "mountPath": format!("/var/lib/muster/{path}"), "subPath": path })
    }

    fn read_only(mut mount: Value) -> Value {
        mount["readOnly"] = json!(true);
        mount
    }

    #[test]
    fn pod_mounts_its_own_folders_and_the_data_sets() {
        let id = "00000000-0000-7000-8000-000000000001";
        let other = "00000000-0000-7000-8000-000000000002";
        let checkpoints = |job: &str| json!({ "name": "checkpoints", "mountPath": format!("/srv/checkpoints/{id}/{job}"), "subPath": format!("{id}/{job}") });
        let datasets = read_only(json!({ "name": "datasets", "mountPath": "/srv/datasets" }));
        let no_data = json!({ "name": "hidden-data", "mountPath": "/var/lib/muster" });
        let no_checkpoints =
            json!({ "name": "hidden-checkpoints", "mountPath": "/srv/checkpoints" });
        let mut own = launch(&[]);
        assert_eq!(
            mounts(&own),
            [
                datasets.clone(),
                no_data.clone(),
                read_only(data("shown")),
                data(&format!("tasks/{id}")),
                no_checkpoints.clone(),
                checkpoints(id),
            ]
        );
        own.spec.pod.image = Some("r.io/trainer:3".to_owned());
        assert!(mounts(&own).contains(&read_only(data("programs"))));
        let from = json!({ "from": { "job": other, "step": 4 } });
        assert_eq!(
            mounts(&engine(&from)),
            [
                datasets,
                no_data,
                read_only(data("shown")),
                data(&format!("tasks/{id}")),
                data(&format!("sockets/{id}")),
                no_checkpoints,
                checkpoints(id),
                read_only(checkpoints(other)),
            ]
        );
    }

    #[test]
    fn checkpoint_folders_precede_the_pod() {
        let of_folder = Template {
            checkpoints: Some("/srv/checkpoints".into()),
            ..template(MOUNTED)
        };
        let id = "00000000-0000-7000-8000-000000000001";
        assert_eq!(
            of_folder.checkpoint_folders(&launch(&[])),
            [Path::new("/srv/checkpoints").join(id).join(id)]
        );
        let in_bucket = template(MOUNTED);
        assert!(in_bucket.checkpoint_folders(&launch(&[])).is_empty());
    }

    /// CUDA images request all GPUs by default.
    #[test]
    fn task_without_gpus_sees_none_with_a_device_plugin() {
        let counted = Template {
            has_gpus: false,
            ..template(PLAIN)
        };
        let [without, with] = [&[][..], &[0]].map(|gpus| {
            let pod = counted.pod(&launch(gpus), &[], LIMITS).expect("no paths");
            let pod = serde_json::to_value(pod).expect("JSON");
            let variables = pod["spec"]["containers"][0]["env"].clone();
            let variables = variables.as_array().expect("a list").clone();
            let mut found = variables.into_iter();
            found.find(|one| one["name"] == "NVIDIA_VISIBLE_DEVICES")
        });
        assert_eq!(without.expect("it is told so")["value"], "void");
        assert_eq!(with, None, "the device plugin says which");
    }

    #[test]
    fn invalid_template_is_rejected_by_field() {
        let wrong = [
            (
                "spec: { containers: [{ name: a, image: b, imagePolicy: c }] }",
                "a pod has no field spec.containers[0].imagePolicy",
            ),
            ("spec: { containers: [] }", "it has 0 containers"),
            ("spec: { containers: [{ name: a }] }", "image is missing"),
            (
                "spec: { nodeName: x, containers: [{ name: a, image: b }] }",
                "it sets spec.nodeName",
            ),
            (
                "spec: { containers: [{ name: a, image: b, args: [c] }] }",
                "command and args",
            ),
            ("spec: { containers: x }", "it is not a pod"),
        ];
        for (text, expected) in wrong {
            let error = Template::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
