"""Runs Optuna on the functions of functions.rs and prints one line per result.

usage: optuna_peer.py best SAMPLER BUDGET FIRST_SEED LAST_SEED [FUNCTION...]
       optuna_peer.py throughput SAMPLER TRIALS
       optuna_peer.py rounds SAMPLER TRIALS STORAGE
       optuna_peer.py beside SAMPLER STORAGE SEED
       optuna_peer.py asked SAMPLER TRIALS SEEDS

`best` prints a line `sampler function seed best` per seed. `throughput` prints milliseconds per
trial. `rounds` prints `ready` when the storage holds TRIALS trials. Each input line is then a
number of asks and tells; the answer is their wall and CPU milliseconds. `beside` does the same in
an existing study. `asked` searches the function of contest.rs with one study per seed: it prints the
parameters of each trial as a line of JSON and reads the value as the answer.
"""

import datetime
import json
import math
import sys
import time
import warnings

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")

HEIGHTS = [1.0, 1.2, 3.0, 3.2]
A = [[10.0, 3.0, 17.0, 3.5, 1.7, 8.0], [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
     [3.0, 3.5, 1.7, 10.0, 17.0, 8.0], [17.0, 8.0, 0.05, 10.0, 0.1, 14.0]]
P = [[0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886], [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
     [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650], [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381]]


def branin(t):
    x, y = t.suggest_float("x0", -5.0, 10.0), t.suggest_float("x1", 0.0, 15.0)
    bent = y - 5.1 / (4.0 * math.pi**2) * x * x + 5.0 / math.pi * x - 6.0
    return bent * bent + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * math.cos(x) + 10.0


def hartmann6(t):
    x = [t.suggest_float(f"x{i}", 0.0, 1.0) for i in range(6)]
    return -sum(h * math.exp(-sum(A[i][j] * (x[j] - P[i][j]) ** 2 for j in range(6))) for i, h in enumerate(HEIGHTS))


def rosenbrock10(t):
    x = [t.suggest_float(f"x{i}", -5.0, 10.0) for i in range(10)]
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(9))


def mixed(t):
    kind = t.suggest_categorical("kind", ["linear", "tree", "net"])
    if kind == "linear":
        rest = 0.35 + 0.02 * (math.log10(t.suggest_float("penalty", 1e-6, 1.0, log=True)) + 3.0) ** 2
    elif kind == "tree":
        depth = (t.suggest_int("depth", 1, 20) - 7.0) / 10.0
        rest = 0.18 + 0.3 * depth * depth + 0.2 * (t.suggest_float("share", 0.1, 1.0) - 0.7) ** 2
    else:
        rate = math.log10(t.suggest_float("rate", 1e-5, 1.0, log=True)) + 2.5
        width = math.log2(t.suggest_int("width", 8, 1024, log=True)) - 7.0
        activation = t.suggest_categorical("activation", ["relu", "tanh", "gelu", "selu"])
        rest = 0.1 + 0.06 * (rate + 0.15 * width) ** 2 + 0.01 * width * width
        rest += {"relu": 0.02, "tanh": 0.06, "gelu": 0.0, "selu": 0.04}[activation]
    return rest + {"none": 0.08, "unit": 0.0, "rank": 0.03}[t.suggest_categorical("scaling", ["none", "unit", "rank"])]


FUNCTIONS = {f.__name__: f for f in (branin, hartmann6, rosenbrock10, mixed)}


def sampler(name, seed):
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed, deterministic_objective=True)
    if name == "cma_es":
        return optuna.samplers.CmaEsSampler(seed=seed)
    raise SystemExit(f"no sampler {name}")


def best(name, budget, first, last, functions):
    for seed in range(first, last + 1):
        for function in functions or FUNCTIONS:
            study = optuna.create_study(sampler=sampler(name, seed))
            study.optimize(FUNCTIONS[function], n_trials=budget)
            print(name, function, seed, repr(study.best_value), flush=True)


FLOATS = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(6)}


def filled(name, trials):
    """Returns a study of Hartmann-6 in memory with `trials` finished trials in the whole space."""
    study = optuna.create_study(sampler=sampler(name, 1))
    random = optuna.samplers.RandomSampler(seed=1)._rng.rng
    for _ in range(trials):
        params = {name: random.uniform() for name in FLOATS}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=FLOATS, value=random.uniform()))
    return study


def filled_in(name, trials, address):
    """Returns the same study in a database. Fills the tables at once: single trials are slow."""
    from optuna.storages._rdb.models import TrialModel, TrialParamModel, TrialValueModel

    storage = optuna.storages.RDBStorage(address)
    study = optuna.create_study(sampler=sampler(name, 1), storage=storage)
    random = optuna.samplers.RandomSampler(seed=1)._rng.rng
    now = datetime.datetime.now()
    first = {"study_id": study._study_id, "state": optuna.trial.TrialState.COMPLETE, "datetime_start": now, "datetime_complete": now}
    written = {x: optuna.distributions.distribution_to_json(domain) for x, domain in FLOATS.items()}
    with storage.engine.begin() as connection:
        connection.execute(TrialModel.__table__.insert(), [{**first, "number": n} for n in range(trials)])
        ids = [row[0] for row in connection.execute(TrialModel.__table__.select().order_by(TrialModel.number))]
        params = [
            {"trial_id": id, "param_name": x, "param_value": random.uniform(), "distribution_json": written[x]} for id in ids for x in FLOATS
        ]
        connection.execute(TrialParamModel.__table__.insert(), params)
        finite = TrialValueModel.TrialValueType.FINITE
        values = [{"trial_id": id, "objective": 0, "value": random.uniform(), "value_type": finite} for id in ids]
        connection.execute(TrialValueModel.__table__.insert(), values)
    return optuna.load_study(study_name=study.study_name, sampler=sampler(name, 1), storage=storage)


def ask_and_tell(study):
    """Returns wall and CPU milliseconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    trial = study.ask()
    study.tell(trial, hartmann6(trial))
    return (time.perf_counter() - wall) * 1000.0, (time.process_time() - cpu) * 1000.0


def throughput(name, trials):
    """Returns the median CPU milliseconds of ten asks and tells."""
    study = filled(name, trials)
    times = sorted(ask_and_tell(study)[1] for _ in range(10))
    print("throughput", name, trials, times[5], flush=True)


def answer(study):
    print("ready", flush=True)
    for line in sys.stdin:
        costs = [ask_and_tell(study) for _ in range(int(line))]
        print(sum(wall for wall, _ in costs), sum(cpu for _, cpu in costs), flush=True)


def rounds(name, trials, storage):
    study = filled_in(name, trials, storage)
    assert len(study.get_trials(deepcopy=False)) == trials
    answer(study)


def beside(name, address, seed):
    storage = optuna.storages.RDBStorage(address)
    [summary] = optuna.get_all_study_summaries(storage)
    study = optuna.load_study(study_name=summary.study_name, sampler=sampler(name, seed), storage=storage)
    study.get_trials(deepcopy=False)
    answer(study)


TRAINED = {
    "rate": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
    "momentum": optuna.distributions.FloatDistribution(0.0, 0.98),
    "decay": optuna.distributions.FloatDistribution(1e-6, 0.03, log=True),
    "width": optuna.distributions.IntDistribution(8, 64, log=True),
}


def asked(name, trials, seeds):
    for seed in range(seeds):
        study = optuna.create_study(sampler=sampler(name, seed), direction="maximize")
        for _ in range(trials):
            trial = study.ask(TRAINED)
            print(json.dumps(trial.params), flush=True)
            study.tell(trial, float(input()))


if __name__ == "__main__":
    what, name, *rest = sys.argv[1:]
    if what == "best":
        best(name, int(rest[0]), int(rest[1]), int(rest[2]), rest[3:])
    elif what == "throughput":
        throughput(name, int(rest[0]))
    elif what == "rounds":
        rounds(name, int(rest[0]), rest[1])
    elif what == "beside":
        beside(name, rest[0], int(rest[1]))
    elif what == "asked":
        asked(name, int(rest[0]), int(rest[1]))
    else:
        raise SystemExit(f"no {what}")
