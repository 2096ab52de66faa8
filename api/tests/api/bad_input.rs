//! Every kind of bad input gets a clear refusal of its own and changes nothing.

use crate::world::{ADMIN, BLUE, RED, World, document, json_request, request};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

struct Case {
    what: &'static str,
    request: Request<Body>,
    status: u16,
    kind: &'static str,
    /// Field, and a part of the expectation; empty if the problem names no field.
    field: &'static str,
    expected: &'static str,
}

/// Returns a valid document with one value replaced at a path of keys; unchanged for `null` with an
/// empty path.
fn with(path: &[&str], value: Value) -> Value {
    let mut whole = document("bad");
    let mut place = &mut whole;
    for key in path {
        place = &mut place[*key];
    }
    *place = value;
    whole
}

fn job(what: &'static str, document: Value, field: &'static str, expected: &'static str) -> Case {
    let request = json_request(Method::POST, RED, "/api/v1/jobs", &document);
    Case {
        what,
        request,
        status: 422,
        kind: "invalid-job",
        field,
        expected,
    }
}

fn plain(what: &'static str, request: Request<Body>, status: u16, kind: &'static str) -> Case {
    Case {
        what,
        request,
        status,
        kind,
        field: "",
        expected: "",
    }
}

fn typed(content_type: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = request(Method::POST, RED, "/api/v1/jobs", body.into());
    request
        .headers_mut()
        .insert("content-type", content_type.parse().expect("a header"));
    request
}

fn parameter(what: &'static str, path: &str, field: &'static str, expected: &'static str) -> Case {
    let request = request(Method::GET, RED, path, Body::empty());
    Case {
        what,
        request,
        status: 400,
        kind: "invalid-parameter",
        field,
        expected,
    }
}

fn model(model: Value) -> Value {
    with(&["engine", "model"], model)
}

fn documents() -> Vec<Case> {
    let mut surprise = document("bad");
    surprise["surprise"] = json!(1);
    let mut nameless = document("bad");
    nameless.as_object_mut().expect("an object").remove("name");
    vec![
        job(
            "unknown field",
            surprise,
            "surprise",
            "no such field; one of version, name",
        ),
        job(
            "unknown field inside",
            with(
                &["scale", "workers"],
                json!({"min": 1, "max": 2, "step": 1}),
            ),
            "scale.workers.step",
            "min",
        ),
        job(
            "unknown field in a tagged object",
            model(json!({"kind": "mlp", "hidden": [8], "depth": 3})),
            "engine.model.depth",
            "hidden",
        ),
        job("missing field", nameless, "name", "required"),
        job(
            "missing end",
            with(&["stop"], json!({})),
            "stop",
            "at least one of epochs",
        ),
        job(
            "wrong version",
            with(&["version"], json!("muster/v9")),
            "version",
            "muster/v1",
        ),
        job(
            "no version",
            with(&["version"], Value::Null),
            "version",
            "muster/v1",
        ),
        job("a list", json!(["a"]), "the document", "an object"),
        job(
            "an id for a name",
            with(&["name"], json!("019a0000-0000-7000-8000-000000000001")),
            "name",
            "no UUID",
        ),
        job(
            "more workers than there are numbers",
            with(&["scale", "workers", "max"], json!(5_000_000_000_u64)),
            "scale.workers.max",
            "at most 4294967295",
        ),
        job(
            "a name for an origin",
            with(&["from"], json!({"job": "nope"})),
            "from.job",
            "a job's id",
        ),
        job(
            "bad name",
            with(&["name"], json!("Not A Label")),
            "name",
            "a-z",
        ),
        job(
            "a number for a name",
            with(&["name"], json!(7)),
            "name",
            "a string",
        ),
        job(
            "negative workers",
            with(&["scale", "workers", "min"], json!(-1)),
            "scale.workers.min",
            "0 or more",
        ),
        job(
            "no workers",
            with(&["scale", "workers", "min"], json!(0)),
            "scale.workers.min",
            "1 to 1024",
        ),
        job(
            "min above max",
            with(&["scale", "workers"], json!({"min": 3, "max": 2})),
            "scale.workers.max",
            "at least min (3)",
        ),
        job(
            "fractional workers",
            with(&["scale", "workers", "min"], json!(1.5)),
            "scale.workers.min",
            "whole number",
        ),
        job(
            "unknown data set",
            with(&["engine", "dataset", "name"], json!("imagenet")),
            "engine.dataset.name",
            "fashion-mnist",
        ),
        job(
            "unknown model",
            model(json!({"kind": "transformer", "hidden": [8]})),
            "engine.model.kind",
            "mlp",
        ),
        job(
            "text for a width",
            model(json!({"kind": "mlp", "hidden": ["wide"]})),
            "engine.model.hidden[0]",
            "0 or more",
        ),
        job(
            "unknown consistency",
            with(&["exchange"], json!({"consistency": {"kind": "magic"}})),
            "exchange.consistency.kind",
            "bsp",
        ),
        job(
            "staleness out of range",
            with(
                &["exchange"],
                json!({"consistency": {"kind": "ssp", "staleness": 0}}),
            ),
            "exchange.consistency.staleness",
            "1 to 64",
        ),
        job(
            "no batch",
            with(&["engine", "batch"], json!(0)),
            "engine.batch",
            "1 to",
        ),
        job(
            "learning rate below 0",
            with(
                &["engine", "optimizer"],
                json!({"kind": "sgd", "learning_rate": -0.1}),
            ),
            "engine.optimizer.learning_rate",
            "above 0",
        ),
        job(
            "priority out of range",
            with(&["priority"], json!(101)),
            "priority",
            "-100 to 100",
        ),
        job(
            "labels that are no object",
            with(&["labels"], json!("team")),
            "labels",
            "an object",
        ),
        job(
            "too many retries",
            with(&["retries"], json!(101)),
            "retries",
            "0 to 100",
        ),
        job(
            "a list for a document",
            json!([]),
            "the document",
            "an object",
        ),
    ]
}

fn bodies() -> Vec<Case> {
    let mut keyed = json_request(Method::POST, RED, "/api/v1/jobs", &document("bad"));
    keyed
        .headers_mut()
        .insert("idempotency-key", "".parse().expect("a header"));
    let yaml = serde_norway_document("nmae: bad\n");
    vec![
        plain(
            "broken JSON",
            typed("application/json", "{\"version\": "),
            400,
            "malformed-body",
        ),
        plain(
            "no body",
            typed("application/json", ""),
            400,
            "malformed-body",
        ),
        plain(
            "JSON and more",
            typed("application/json", format!("{} x", document("bad"))),
            400,
            "malformed-body",
        ),
        plain(
            "broken YAML",
            typed("application/yaml", "a: [1,\nb: }"),
            400,
            "malformed-body",
        ),
        Case {
            what: "unknown field in YAML",
            request: typed("application/yaml", yaml),
            status: 422,
            kind: "invalid-job",
            field: "nmae",
            expected: "no such field; did you mean name? one of version",
        },
        Case {
            what: "no version in YAML",
            request: typed(
                "application/yaml",
                serde_norway_document("").replace("version: \"muster/v1\"", "version:"),
            ),
            status: 422,
            kind: "invalid-job",
            field: "version",
            expected: "muster/v1",
        },
        Case {
            what: "no number in YAML",
            request: typed(
                "application/yaml",
                serde_norway_document("priority: .nan\n"),
            ),
            status: 422,
            kind: "invalid-job",
            field: "priority",
            expected: "a finite number",
        },
        Case {
            what: "a word that reads as another number in YAML",
            request: typed(
                "application/yaml",
                "version: muster/v1\nname: own\ncommand: { argv: [run, 0x1F] }\n",
            ),
            status: 422,
            kind: "invalid-job",
            field: "command.argv[1]",
            expected: "in quotes",
        },
        Case {
            what: "a list in YAML",
            request: typed("application/yaml", "- a\n"),
            status: 422,
            kind: "invalid-job",
            field: "the document",
            expected: "an object",
        },
        plain(
            "YAML nested too deep",
            typed("application/yaml", format!("a: {}", "[".repeat(1_000_000))),
            400,
            "malformed-body",
        ),
        plain(
            "YAML with too many aliases",
            typed(
                "application/yaml",
                format!(
                    "a: &a [{}]\nb: [{}]\n",
                    "1,".repeat(5_000),
                    "*a,".repeat(5_000)
                ),
            ),
            400,
            "malformed-body",
        ),
        Case {
            what: "a label twice",
            request: typed(
                "application/json",
                document("bad")
                    .to_string()
                    .replace(r#""team":"bad""#, r#""team":"bad","team":"bad""#),
            ),
            status: 422,
            kind: "invalid-job",
            field: "labels.team",
            expected: "one value",
        },
        Case {
            what: "a NUL in a label",
            request: typed(
                "application/json",
                document("bad")
                    .to_string()
                    .replace(r#""team":"bad""#, r#""team":"b\u0000d""#),
            ),
            status: 422,
            kind: "invalid-job",
            field: "labels.team",
            expected: "without NUL",
        },
        plain(
            "no content type",
            request(
                Method::POST,
                RED,
                "/api/v1/jobs",
                document("bad").to_string().into(),
            ),
            415,
            "unsupported-media-type",
        ),
        plain(
            "a form",
            typed("application/x-www-form-urlencoded", "name=bad"),
            415,
            "unsupported-media-type",
        ),
        plain(
            "10 MB",
            typed("application/json", vec![b' '; 10 << 20]),
            413,
            "body-too-large",
        ),
        Case {
            what: "empty key",
            request: keyed,
            status: 400,
            kind: "invalid-parameter",
            field: "Idempotency-Key",
            expected: "1 to 255",
        },
    ]
}

fn serde_norway_document(extra: &str) -> String {
    // JSON is YAML in flow style, and must not be mixed with block style.
    let mut text = String::from(extra);
    for (key, value) in document("bad").as_object().expect("an object") {
        text.push_str(&format!("{key}: {value}\n"));
    }
    text
}

fn get(token: &str, path: &str) -> Request<Body> {
    request(Method::GET, token, path, Body::empty())
}

fn post(token: &str, path: &str) -> Request<Body> {
    request(Method::POST, token, path, Body::empty())
}

fn addresses(foreign: &str, ended: &str) -> Vec<Case> {
    let jobs = "/api/v1/jobs";
    vec![
        plain("no token", get("", jobs), 401, "unauthenticated"),
        plain("bad token", get("guessed", jobs), 401, "unauthenticated"),
        plain("unknown path", get(RED, "/api/v1/jbos"), 404, "not-found"),
        plain(
            "unknown path outside",
            get("", "/api/v2/jobs"),
            404,
            "not-found",
        ),
        plain(
            "wrong method",
            request(Method::PUT, RED, jobs, Body::empty()),
            405,
            "method-not-allowed",
        ),
        plain(
            "a name for an id",
            get(RED, "/api/v1/jobs/my-job"),
            404,
            "not-found",
        ),
        plain(
            "unknown job",
            get(RED, "/api/v1/jobs/00000000-0000-7000-8000-000000000000"),
            404,
            "not-found",
        ),
        plain(
            "someone else's job",
            get(BLUE, &format!("{jobs}/{foreign}")),
            404,
            "not-found",
        ),
        plain(
            "cancel someone else's",
            post(BLUE, &format!("{jobs}/{foreign}/cancel")),
            404,
            "not-found",
        ),
        plain(
            "someone else's log",
            get(BLUE, &format!("{jobs}/{foreign}/logs")),
            404,
            "not-found",
        ),
        plain(
            "someone else's stream",
            get(BLUE, &format!("{jobs}/{foreign}/stream")),
            404,
            "not-found",
        ),
        plain(
            "delete a job that goes on",
            request(
                Method::DELETE,
                RED,
                &format!("{jobs}/{foreign}"),
                Body::empty(),
            ),
            409,
            "wrong-phase",
        ),
        plain(
            "pause an ended job",
            post(RED, &format!("{jobs}/{ended}/pause")),
            409,
            "wrong-phase",
        ),
        plain(
            "resume an ended job",
            post(RED, &format!("{jobs}/{ended}/resume")),
            409,
            "wrong-phase",
        ),
        plain(
            "model of a waiting job",
            get(RED, &format!("{jobs}/{foreign}/model")),
            409,
            "wrong-phase",
        ),
        plain(
            "unknown checkpoint",
            get(
                RED,
                &format!("{jobs}/{foreign}/checkpoints/7/files/manifest.json"),
            ),
            404,
            "not-found",
        ),
        plain(
            "unknown task",
            get(RED, &format!("{jobs}/{foreign}/logs?task=worker-9")),
            404,
            "not-found",
        ),
        plain(
            "member drains",
            post(RED, "/api/v1/nodes/node-a/drain"),
            403,
            "forbidden",
        ),
        plain(
            "member lists tenants",
            get(RED, "/api/v1/tenants"),
            403,
            "forbidden",
        ),
        plain(
            "unknown node",
            post(ADMIN, "/api/v1/nodes/node-z/drain"),
            404,
            "not-found",
        ),
        parameter(
            "unknown parameter",
            "/api/v1/jobs?color=red",
            "color",
            "one of id, phase",
        ),
        parameter(
            "page too long",
            "/api/v1/jobs?limit=501",
            "limit",
            "1 to 500",
        ),
        parameter(
            "page of nothing",
            "/api/v1/jobs?limit=0",
            "limit",
            "1 to 500",
        ),
        parameter(
            "unknown phase",
            "/api/v1/jobs?phase=sleeping",
            "phase",
            "queued",
        ),
        parameter("id of nothing", "/api/v1/jobs?id=first", "id", "a UUID"),
        parameter(
            "too many ids",
            &format!("/api/v1/jobs?{}", "id=0&".repeat(501)),
            "id",
            "500 at most",
        ),
        parameter(
            "label without value",
            "/api/v1/jobs?label=team",
            "label",
            "key=value",
        ),
        parameter(
            "broken cursor",
            "/api/v1/jobs?continue=here",
            "continue",
            "page before",
        ),
        parameter(
            "limit twice",
            "/api/v1/jobs?limit=1&limit=2",
            "limit",
            "one value",
        ),
        parameter(
            "broken event cursor",
            "/api/v1/stream?after=yesterday",
            "after",
            "cursor",
        ),
        Case {
            what: "parameter where none is taken",
            request: get(RED, "/api/v1/me?verbose=1"),
            status: 400,
            kind: "invalid-parameter",
            field: "verbose",
            expected: "no parameter",
        },
    ]
}

fn invalid_body(
    what: &'static str,
    request: Request<Body>,
    field: &'static str,
    expected: &'static str,
) -> Case {
    Case {
        what,
        request,
        status: 422,
        kind: "invalid-body",
        field,
        expected,
    }
}

fn administration() -> Vec<Case> {
    vec![
        invalid_body(
            "bad tenant name",
            json_request(
                Method::POST,
                ADMIN,
                "/api/v1/tenants",
                &json!({"name": "Red Team"}),
            ),
            "name",
            "a-z",
        ),
        invalid_body(
            "nothing to change",
            json_request(Method::PATCH, ADMIN, "/api/v1/tenants/red", &json!({})),
            "gpu_quota",
            "required",
        ),
        invalid_body(
            "negative quota",
            json_request(
                Method::PATCH,
                ADMIN,
                "/api/v1/tenants/red",
                &json!({"gpu_quota": -1}),
            ),
            "gpu_quota",
            "0 or more",
        ),
        invalid_body(
            "huge quota",
            json_request(
                Method::PATCH,
                ADMIN,
                "/api/v1/tenants/red",
                &json!({"gpu_quota": 4_000_000_000_u32}),
            ),
            "gpu_quota",
            "1000000",
        ),
        invalid_body(
            "no share at all",
            json_request(
                Method::PATCH,
                ADMIN,
                "/api/v1/tenants/red",
                &json!({"weight": 0}),
            ),
            "weight",
            "0.001 to 1000",
        ),
        invalid_body(
            "unknown access",
            json_request(
                Method::POST,
                ADMIN,
                "/api/v1/tokens",
                &json!({"name": "t", "access": "root"}),
            ),
            "access",
            "member",
        ),
        invalid_body(
            "token of the past",
            json_request(
                Method::POST,
                RED,
                "/api/v1/tokens",
                &json!({"name": "t", "expires_at": "2001-01-01T00:00:00Z"}),
            ),
            "expires_at",
            "a time to come",
        ),
        invalid_body(
            "token for an unknown tenant",
            json_request(
                Method::POST,
                ADMIN,
                "/api/v1/tokens",
                &json!({"name": "t", "tenant": "green"}),
            ),
            "tenant",
            "name of a tenant",
        ),
        plain(
            "tenant's name taken",
            json_request(
                Method::POST,
                ADMIN,
                "/api/v1/tenants",
                &json!({"name": "blue"}),
            ),
            409,
            "name-taken",
        ),
        plain(
            "unknown tenant",
            json_request(
                Method::PATCH,
                ADMIN,
                "/api/v1/tenants/green",
                &json!({"gpu_quota": 1}),
            ),
            404,
            "not-found",
        ),
        plain(
            "member makes an admin token",
            json_request(
                Method::POST,
                RED,
                "/api/v1/tokens",
                &json!({"name": "t", "access": "admin"}),
            ),
            403,
            "forbidden",
        ),
        plain(
            "member makes another's token",
            json_request(
                Method::POST,
                RED,
                "/api/v1/tokens",
                &json!({"name": "t", "user": "ada"}),
            ),
            403,
            "forbidden",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_clearly_and_changes_nothing() {
    let world = World::new().await;
    let waiting = world.submit("waiting").await.to_string();
    let ended = world.submit("ended").await;
    assert_eq!(
        world
            .send(request(
                Method::POST,
                RED,
                &format!("/api/v1/jobs/{ended}/cancel"),
                Body::empty()
            ))
            .await
            .status,
        202
    );
    world
        .step(ended, 0, muster_model::plan::Action::Cancel)
        .await;
    let before = world.everything().await;
    let mut cases = documents();
    cases.extend(bodies());
    cases.extend(addresses(&waiting, &ended.to_string()));
    cases.extend(administration());
    assert!(cases.len() >= 60);
    for case in cases {
        let answer = world.send(case.request).await;
        let text = format!("{}: {}", case.what, answer.text());
        assert_eq!(answer.status.as_u16(), case.status, "{text}");
        let problem = answer.problem();
        assert_eq!(
            problem.kind,
            format!("urn:muster:problem:{}", case.kind),
            "{text}"
        );
        assert!(!problem.detail.is_empty(), "{text}");
        assert_eq!(
            answer.header("www-authenticate").is_empty(),
            case.status != 401,
            "{text}"
        );
        if !case.field.is_empty() {
            let error = problem
                .errors
                .iter()
                .find(|error| error.field == case.field)
                .unwrap_or_else(|| panic!("{text}"));
            assert!(error.expected.contains(case.expected), "{text}");
            assert!(!error.value.is_empty(), "{text}");
        }
        assert_eq!(world.everything().await, before, "{}", case.what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_phase_is_refused_with_the_expected_ones() {
    let world = World::new().await;
    let job = world.submit("waiting").await;
    let problem = world
        .delete(RED, &format!("/api/v1/jobs/{job}"))
        .await
        .problem();
    assert!(
        problem.detail.contains("queued")
            && problem.detail.contains("succeeded, failed or cancelled"),
        "{problem}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn token_above_its_rate_gets_retry_after() {
    let limits = muster_api::config::ClientLimits {
        requests_per_s: 1,
        requests_burst: 3,
        ..Default::default()
    };
    let world = World::with(limits).await;
    for _ in 0..3 {
        assert_eq!(world.get(RED, "/api/v1/me").await.status, 200);
    }
    let answer = world.get(RED, "/api/v1/me").await;
    assert_eq!(answer.status, 429);
    assert!(answer.problem().kind.ends_with("too-many-requests"));
    assert!(
        answer
            .header("retry-after")
            .parse::<u64>()
            .is_ok_and(|seconds| seconds >= 1)
    );
    assert_eq!(
        world.get(BLUE, "/api/v1/me").await.status,
        200,
        "one token's haste is not another's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn error_names_the_value_as_it_was_written() {
    let world = World::new().await;
    let said = async |path: &[&str], value: Value| {
        let answer = world.post(RED, "/api/v1/jobs", &with(path, value)).await;
        answer.problem().errors.remove(0).to_string()
    };
    assert_eq!(
        said(&["version"], Value::Null).await,
        "version is null; expected muster/v1"
    );
    let rate = said(&["engine", "optimizer", "learning_rate"], json!(1e308)).await;
    assert!(rate.contains(" is 1e308; "), "{rate}");
    let endless = serde_norway_document("priority: .inf\n");
    let endless = world
        .send(typed("application/yaml", endless))
        .await
        .problem();
    assert!(endless.detail.contains("priority is .inf; "), "{endless}");
    let unknown = world.get(RED, "/api/v1/jbos").await.problem();
    assert!(unknown.detail.contains("at /api/v1/jbos;"), "{unknown}");
    let command = json!({"version": "muster/v1", "name": "own", "command": {"argv": ["true"]}});
    let made: Value = world.post(RED, "/api/v1/jobs", &command).await.json();
    let model = format!("/api/v1/jobs/{}/model", made["id"].as_str().expect("an id"));
    let model = world.get(RED, &model).await.problem();
    assert!(model.detail.contains("MUSTER_CHECKPOINT_DIR"), "{model}");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_may_begin_with_a_byte_order_mark() {
    let world = World::new().await;
    let text = format!("\u{feff}{}", document("marked"));
    for content_type in ["application/json", "application/yaml"] {
        let answer = world.send(typed(content_type, text.clone())).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}
