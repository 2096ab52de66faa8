//! The training loop of every worker.

use super::chief::Chief;
use super::context::{ExitReason, WorkerContext};
use super::error::WorkerError;
use super::exchange::{ExchangeAnswer, ExchangeStart, WorkerExchange, WorkerStepError};
use super::hogwild::Hogwild;
use super::model::WorkerModel;
use super::peers::AllReduce;
use super::resume;
use super::servers::Servers;
use super::single_device::SingleDevice;
use super::suspension::SuspensionControl;
use super::task_set::worker_ids;
use crate::checkpoint::CheckpointStore;
use muster_comm::log;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::export::GRAPH_FILE;
use muster_model::pace::Doing;
use muster_model::spec::Topology;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Trains until training ends or cannot continue.
///
/// # Errors
/// [`WorkerError`]; [`WorkerError::is_retryable`] states whether a restart may succeed.
pub fn run(
    launch: &TaskLaunch,
    rank: u32,
    ctx: &WorkerContext<'_>,
) -> Result<ExitReason, WorkerError> {
    let mut model = WorkerModel::load(launch, rank, ctx)?;
    let store = CheckpointStore::open(
        ctx.checkpoint_root,
        launch.tenant_id,
        launch.job_id,
        launch.revision,
    )?
    .with_file(GRAPH_FILE, muster_compute::onnx::graph(&model.network));
    if rank > 0 {
        return follow(launch, rank, &mut model, ctx).or_else(WorkerStepError::ending);
    }
    let origin = launch.spec.from.map(|from| {
        let (place, tenant) = (ctx.checkpoint_root, launch.tenant_id);
        CheckpointStore::open(place, tenant, from.job, 0)
    });
    let depots = (&store, origin.transpose()?);
    let start = resume::start(launch, depots, &model, ctx.reporter)?;
    let exchange = match join(launch, rank, &mut model, ctx)? {
        Ok(exchange) => exchange,
        Err(ending) => {
            if ending == ExitReason::Interrupted {
                ctx.reporter
                    .report(&TaskReport::Interrupted { step: start.step })?;
            }
            return Ok(ending);
        }
    };
    let pacer = model.pacer.clone();
    let trained = thread::scope(|scope| {
        let _telling = pacer.tell(scope, ctx.reporter);
        lead(launch, &mut model, exchange, store, start, ctx)
    });
    trained.or_else(WorkerStepError::ending)
}

/// Joins the exchange that the job's document selects.
fn join<'a>(
    launch: &'a TaskLaunch,
    rank: u32,
    model: &mut WorkerModel,
    ctx: &'a WorkerContext<'a>,
) -> Result<Result<Box<dyn WorkerExchange + 'a>, ExitReason>, WorkerError> {
    if model.resident().is_some() {
        return Ok(Ok(Box::new(SingleDevice::join(launch, ctx))));
    }
    let network = &model.network;
    if let Some(threads) = launch.spec.engine().hogwild_threads {
        let hogwild = Hogwild::join(launch, threads, network, ctx)?;
        return Ok(Ok(Box::new(hogwild)));
    }
    Ok(match launch.spec.exchange.topology {
        Topology::AllReduce => AllReduce::join(launch, rank, network, ctx)?
            .map(|peers| Box::new(peers) as Box<dyn WorkerExchange>),
        Topology::ParameterServer => Servers::join(launch, rank, network, ctx)?
            .map(|servers| Box::new(servers) as Box<dyn WorkerExchange>),
    })
}

/// Rank 0: initialises the exchange, then trains as coordinator.
fn lead(
    launch: &TaskLaunch,
    model: &mut WorkerModel,
    mut exchange: Box<dyn WorkerExchange + '_>,
    store: CheckpointStore,
    start: ExchangeStart,
    ctx: &WorkerContext<'_>,
) -> Result<ExitReason, WorkerStepError> {
    exchange.begin(model, &start)?;
    let (mut step, is_copy) = (start.step, start.is_copy);
    let mut chief = Chief::new(launch, store, model, start, ctx)?;
    chief.ready(step, exchange.layout())?;
    if is_copy {
        chief.measure_origin(model)?;
    }
    if let Some(reason) = chief.over(step) {
        return chief.finish(model, exchange, reason);
    }
    chief.foresee(exchange.as_mut(), step, false);
    let mut suspensions = SuspensionControl::new(ctx);
    loop {
        if ctx.stop.is_set()
            && !(chief.gives_notice(exchange.as_mut(), step) && suspensions.may_go_on(model))
        {
            model.pacer.doing(Doing::Busy);
            return chief.leave(model, exchange, false);
        }
        exchange.hold(suspensions.wanted());
        match exchange.step(model, step)? {
            (ExchangeAnswer::Parameters { step: next, stats }, times) => {
                if !stats.loss_sum.is_finite() {
                    return Err(WorkerError::Diverged { step }.into());
                }
                step = next;
                model.pacer.stepped(step, times);
                model.pacer.doing(Doing::Busy);
                let over = chief.after_step(model, exchange.as_mut(), step, stats, times)?;
                model.pacer.doing(Doing::Waiting);
                // Before the end of training, which needs the other workers; they are suspended
                // now.
                if stats.hold > 0 {
                    chief.stand_still()?;
                    chief.go_on(suspensions.stand_still(model, stats.hold, step)?);
                    exchange.went_on();
                }
                if let Some(reason) = over {
                    model.pacer.doing(Doing::Busy);
                    return chief.finish(model, exchange, reason);
                }
            }
            (ExchangeAnswer::Interrupted { lost }, _) => {
                model.pacer.doing(Doing::Busy);
                return chief.leave(model, exchange, lost);
            }
            (ExchangeAnswer::Finished, _) => return Ok(ExitReason::Finished),
            (ExchangeAnswer::GaveUp, _) => return Ok(ExitReason::PeerLost),
        }
    }
}

/// Result of joining: the exchange and its first answer, or the end of the worker.
type JoinResult<'a> = Result<(Box<dyn WorkerExchange + 'a>, ExchangeAnswer), ExitReason>;

/// Other ranks: joins and waits for admission. Meanwhile other jobs may use the device.
fn join_exchange<'a>(
    launch: &'a TaskLaunch,
    rank: u32,
    model: &mut WorkerModel,
    suspensions: &mut SuspensionControl<'_>,
    ctx: &'a WorkerContext<'a>,
) -> Result<JoinResult<'a>, WorkerStepError> {
    model.give_memory()?;
    let is_in = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| suspensions.wait_outside(&is_in));
        let joined = join(launch, rank, model, ctx).map_err(WorkerStepError::from);
        let joined = joined.and_then(|joined| {
            Ok(match joined {
                Ok(mut exchange) => {
                    let answer = exchange.receive(model)?;
                    Ok((exchange, answer))
                }
                Err(ending) => Err(ending),
            })
        });
        is_in.store(true, Ordering::Release);
        watcher.thread().unpark();
        watcher.join().expect("a look does not panic")?;
        joined
    })
}

/// Other ranks: joins, then trains.
fn follow(
    launch: &TaskLaunch,
    rank: u32,
    model: &mut WorkerModel,
    ctx: &WorkerContext<'_>,
) -> Result<ExitReason, WorkerStepError> {
    let mut suspensions = SuspensionControl::new(ctx);
    let (exchange, answer) = match join_exchange(launch, rank, model, &mut suspensions, ctx)? {
        Ok(joined) => joined,
        Err(ending) => return Ok(ending),
    };
    let pacer = model.pacer.clone();
    thread::scope(|scope| {
        let _telling = pacer.tell(scope, ctx.reporter);
        follow_loop(launch, model, (exchange, answer), suspensions, ctx)
    })
}

/// Trains as an admitted worker.
fn follow_loop(
    launch: &TaskLaunch,
    model: &mut WorkerModel,
    (mut exchange, answer): (Box<dyn WorkerExchange + '_>, ExchangeAnswer),
    mut suspensions: SuspensionControl<'_>,
    ctx: &WorkerContext<'_>,
) -> Result<ExitReason, WorkerStepError> {
    let mut step = match answer {
        ExchangeAnswer::Parameters { step, stats } => {
            suspensions.come_in(model, stats.hold, step)?;
            step
        }
        other => return Ok(followed(other, exchange)),
    };
    log::line(format_args!("training from step {step}"));
    loop {
        // The coordinator's last checkpoint contains this worker's residual.
        let awaits_chief = exchange.needs_notice() && !ctx.stop.must_hurry();
        if ctx.stop.is_set()
            && !((awaits_chief || waits_to_be_let_go(launch, ctx)) && suspensions.may_go_on(model))
        {
            log::line(format_args!("stopped in order after step {step}"));
            exchange.goodbye();
            return Ok(ExitReason::Interrupted);
        }
        match exchange.step(model, step)? {
            (ExchangeAnswer::Parameters { step: next, stats }, times) => {
                step = next;
                model.pacer.stepped(step, times);
                suspensions.keep_word(step)?;
                if stats.hold > 0 {
                    suspensions.stand_still(model, stats.hold, step)?;
                }
            }
            (other, _) => return Ok(followed(other, exchange)),
        }
    }
}

/// Whether the newest task set lacks this worker and the job continues without it. The worker takes
/// part until the coordinator has changed the view. A peer without the new task set would take an
/// earlier goodbye as the end of the whole job. The wait ends shortly before the end of the grace
/// period.
fn waits_to_be_let_go(launch: &TaskLaunch, ctx: &WorkerContext<'_>) -> bool {
    !ctx.stop.must_hurry()
        && (ctx.peers)().is_some_and(|peers| {
            peers.revision > launch.revision && !worker_ids(&peers).contains(&launch.task_id)
        })
}

fn followed(answer: ExchangeAnswer, exchange: Box<dyn WorkerExchange + '_>) -> ExitReason {
    exchange.goodbye();
    match answer {
        ExchangeAnswer::Finished => ExitReason::Finished,
        ExchangeAnswer::Interrupted { lost: false } | ExchangeAnswer::GaveUp => {
            ExitReason::Interrupted
        }
        ExchangeAnswer::Interrupted { lost: true } | ExchangeAnswer::Parameters { .. } => {
            ExitReason::PeerLost
        }
    }
}
