"""A study of Optuna: options of diskhop.train by their validation; trials that fall behind end early.

pip install optuna
python examples/optuna_study.py DATASET [TRIALS]
"""

import sys
from typing import Any

import optuna

import diskhop

dataset = diskhop.open_dataset(sys.argv[1])


class Prune(diskhop.Callback):
    """Reports each epoch's validation, and ends the run of a trial that is worse than the median."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def epoch_done(self, record: dict[str, Any]) -> bool:
        self.trial.report(record["valid"], record["epoch"])
        return self.trial.should_prune()


def objective(trial: optuna.Trial) -> float:
    run = diskhop.train(
        dataset,
        model=trial.suggest_categorical("model", ["sage", "gcn"]),
        hidden=trial.suggest_categorical("hidden", [16, 64]),
        lr=trial.suggest_float("lr", 1e-3, 1e-1, log=True),
        dropout=trial.suggest_float("dropout", 0.0, 0.7),
        fanout="5,5",
        epochs=4,
        memory="200MB",
        seed=0,
        callbacks=[Prune(trial)],
    )
    return max(epoch["valid"] for epoch in run.result["epochs"])


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=int(sys.argv[2]) if len(sys.argv) > 2 else 10)
result = study.best_value
print(f"best validation {result:.4f} with {study.best_params}")
