//! The OpenAPI document, built from the descriptions of the handlers.

use crate::problem::ProblemKind;
use crate::routes;
use muster_model::view::{EventView, LogEnd, LogPiece, Opened, Problem, ProgressMessage};
use std::fmt::Write as _;
use utoipa::OpenApi as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as Document, Ref, ResponseBuilder};

const ABOUT: &str = "\
Muster schedules deep-learning training on a cluster of GPU nodes. Users submit job documents. The scheduler decides when and where jobs run.

**Requests** carry `Authorization: Bearer <token>`. A token belongs to a user of one tenant. It can see and change only that tenant's jobs; \
requests for other jobs answer 404. An administrator's request with the header `Muster-Tenant: <name>` acts for that tenant. \
Bodies are JSON, or YAML with `Content-Type: application/yaml`. Unknown fields and parameters are refused.

**Lists** have pages: `?limit=` (1 to 500, default 50) and `?continue=` with the `continue` of the previous page. It is null on the last page.

**Refusals** are `application/problem+json` (RFC 9457). `type` is stable. `errors` names each field, its value and the expected value. \
`instance` is the id of the request in the server's log. A refused request has changed nothing.

**Limits** are defaults that the server's configuration can change:
* 1 MiB per body, 128 MiB per code archive (413).
* Per token 500 requests a second and 1,000 at once; per tenant 2,000 and 4,000; per address without a valid token 10 and 100 (429 with `Retry-After`).
* 30 seconds until an answer begins, 10 minutes for a code archive (504).
* 1,024 open event streams, of which 256 of one tenant (429).
* 1 MiB of log per answer. A page of jobs or events ends early above 4 MiB.
* A YAML body has at most 64 levels. With its aliases expanded it has at most 100,000 values and 4 MiB of text.

`GET /me` shows the limits of the tenant. Administrators change them (403, `limit-exceeded`).

**Streams** are server-sent events. Comments keep an idle stream open. Every message has an `id:`. A client that reconnects \
with it in `Last-Event-ID` misses no message and receives none twice.

Kinds of problem:
";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Muster", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    tags(
        (name = "jobs", description = "Submit, watch and steer jobs"),
        (name = "studies", description = "Searches over parameters, whose trials are jobs"),
        (name = "streams", description = "Event streams"),
        (name = "nodes", description = "The machines of the cluster"),
        (name = "tenants", description = "Owners of jobs, with their quotas and limits"),
        (name = "priorities", description = "Ranges of job priorities, with their roles and tenants"),
        (name = "families", description = "Measured speeds that the jobs of a family share"),
        (name = "rounds", description = "Inputs and decisions of past scheduling rounds"),
        (name = "secrets", description = "Credentials for users' programs, stored encrypted"),
        (name = "schedules", description = "Jobs that are submitted at the times of a cron expression"),
        (name = "templates", description = "Job documents with parameters"),
        (name = "tokens", description = "Tokens and users"),
    ),
    components(schemas(Problem, EventView, Opened, ProgressMessage, LogPiece, LogEnd)),
)]
struct Base;

/// Returns the whole document.
#[must_use]
pub fn document() -> Document {
    let mut document = Base::openapi();
    document.merge(routes::described());
    let mut about = String::from(ABOUT);
    for (name, status, title) in ProblemKind::ALL.map(ProblemKind::facts) {
        let _ = writeln!(
            about,
            "* `urn:muster:problem:{name}` ({}): {title}",
            status.as_u16()
        );
    }
    document.info.description = Some(about);
    document.info.version = "1".to_owned();
    let components = document.components.get_or_insert_default();
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    components.add_security_scheme("bearer", bearer);
    document.security = Some(vec![SecurityRequirement::new(
        "bearer",
        Vec::<String>::new(),
    )]);
    for item in document.paths.paths.values_mut() {
        let operations: [&mut Option<Operation>; 5] = [
            &mut item.get,
            &mut item.post,
            &mut item.put,
            &mut item.patch,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            refusals(operation);
        }
    }
    document
}

/// Adds the common form of refusals to an operation.
fn refusals(operation: &mut Operation) {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .build();
    let response = ResponseBuilder::new()
        .description("A refusal")
        .content("application/problem+json", content)
        .build();
    operation
        .responses
        .responses
        .insert("default".to_owned(), response.into());
}

/// Returns the text of `api/openapi.json`.
#[must_use]
pub fn text() -> String {
    let mut text = document().to_pretty_json().expect("the document is JSON");
    text.push('\n');
    text
}
