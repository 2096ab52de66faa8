//! The list of all routes.

use crate::state::ApiState;
use crate::{
    auth, cluster, code, family, health, history, job, layers, metrics, node, openapi, priority,
    question, remote, round, schedule, secret, study, template, tenant, token, user, web,
};
use axum::Router;
use axum::routing::get;
use utoipa::openapi::OpenApi as Document;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Prefix of all routes for users. A breaking change gets another prefix.
const BASE: &str = "/api/v1";

/// Returns the router with all routes.
pub fn router(app: &ApiState) -> Router {
    let (users, _) = users().split_for_parts();
    let users = users
        .fallback(web::unknown_path)
        .layer(axum::middleware::from_fn_with_state(
            app.clone(),
            auth::authenticate,
        ));
    let router = Router::new()
        .nest(BASE, users)
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::serve::show))
        .route("/openapi.json", get(openapi_json))
        .fallback(web::page);
    layers::around(router, app).with_state(app.clone())
}

/// Returns the description of the routes under `/api/v1`.
pub fn described() -> Document {
    OpenApiRouter::<ApiState>::new()
        .nest(BASE, users())
        .into_openapi()
}

fn users() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(job::submit::submit, job::list::list))
        .routes(routes!(job::get::get, job::edit::edit, job::delete::delete))
        .routes(routes!(job::cancel::cancel))
        .routes(routes!(job::suspend::suspend))
        .routes(routes!(job::continue_job::continue_job))
        .routes(routes!(job::pause::pause))
        .routes(routes!(job::resume::resume))
        .routes(routes!(job::tasks::tasks))
        .routes(routes!(job::events::events))
        .routes(routes!(job::explain::explain))
        .routes(routes!(job::forecast::forecast))
        .routes(routes!(job::forecast::accuracy))
        .routes(routes!(question::plan::plan))
        .routes(routes!(question::what_if::what_if))
        .routes(routes!(job::progress::progress))
        .routes(routes!(job::metrics::metrics))
        .routes(routes!(job::metrics::points))
        .routes(routes!(job::metrics::export))
        .routes(routes!(job::logs::logs))
        .routes(routes!(job::follow_logs::follow_logs))
        .routes(routes!(job::stream::stream))
        .routes(routes!(job::checkpoints::checkpoints))
        .routes(routes!(job::download::checkpoint_file))
        .routes(routes!(job::checkpoints::archive))
        .routes(routes!(job::artifacts::artifacts))
        .routes(routes!(job::artifacts::content))
        .routes(routes!(job::artifact_archive::archive))
        .routes(routes!(job::download::model))
        .routes(routes!(remote::open::open))
        .routes(routes!(code::get::get, code::put::put))
        .routes(routes!(code::get::archive))
        .routes(routes!(schedule::list::list))
        .routes(routes!(
            schedule::list::get,
            schedule::set::set,
            schedule::delete::delete
        ))
        .routes(routes!(schedule::pause::pause))
        .routes(routes!(schedule::pause::resume))
        .routes(routes!(schedule::run::run))
        .routes(routes!(template::list::list))
        .routes(routes!(
            template::list::get,
            template::set::set,
            template::delete::delete
        ))
        .routes(routes!(template::submit::submit))
        .routes(routes!(secret::list::list))
        .routes(routes!(secret::set::set, secret::delete::delete))
        .routes(routes!(study::create::create, study::list::list))
        .routes(routes!(study::get::get, study::delete::delete))
        .routes(routes!(study::steer::pause))
        .routes(routes!(study::steer::resume))
        .routes(routes!(study::steer::extend))
        .routes(routes!(study::steer::cancel))
        .routes(routes!(study::trials::trials))
        .routes(routes!(study::best::best))
        .routes(routes!(study::export::export))
        .routes(routes!(study::ask::ask))
        .routes(routes!(study::ask::tell))
        .routes(routes!(study::propose::propose))
        .routes(routes!(cluster::stream))
        .routes(routes!(history::recent))
        .routes(routes!(node::list::list))
        .routes(routes!(node::get::get, node::remove::remove))
        .routes(routes!(node::join::join))
        .routes(routes!(node::reset::reset))
        .routes(routes!(node::drain::drain))
        .routes(routes!(node::uncordon::uncordon))
        .routes(routes!(node::notice::notice))
        .routes(routes!(tenant::list::list, tenant::create::create))
        .routes(routes!(tenant::change::change, tenant::delete::delete))
        .routes(routes!(priority::list::list))
        .routes(routes!(priority::set::set, priority::delete::delete))
        .routes(routes!(family::list::list))
        .routes(routes!(family::forget::forget))
        .routes(routes!(round::list::list))
        .routes(routes!(round::get::get))
        .routes(routes!(
            token::list::list,
            token::create::create,
            token::revoke_user::revoke_user
        ))
        .routes(routes!(token::revoke::revoke))
        .routes(routes!(token::me::me))
        .routes(routes!(user::list::list))
}

async fn openapi_json() -> impl axum::response::IntoResponse {
    (
        [(axum::http::header::CONTENT_TYPE, "application/json")],
        openapi::text(),
    )
}
