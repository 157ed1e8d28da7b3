"""Running a study on recorded trainings, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.runners.recording import Recording
from fairway.runners.virtual import Simulation, Simulator
from fairway.study import Study


def simulate(
    study: Study,
    recording: Recording,
    *,
    workers: int = 4,
    budget: float = 20.0,
    constraint_price: float | Mapping[str, float] = 1.94,
    staleness: float = 0.0,
) -> Simulation:
    """Run a study on a recording in virtual time, until the budget (seconds) is spent or the recording is used up.

    The study's terminator may end it before: no trial is begun any more, and those running finish.

    The sampler proposes, and the nearest recorded configuration not yet run is trained; `Random` draws uniformly from
    those left. `constraint_price` is the price of one check in mean steps, one number or one for each constraint. With
    `staleness` (seconds) each worker decides from a referee of its own, and they exchange reports so often, and where a
    trial begins or ends; without it they share one. A second call on the same study resumes
    with what was not run yet.

    >>> import fairway as fw, numpy as np
    >>> recording = fw.Recording(
    ...     space=fw.Space({"depth": fw.Int(1, 9)}), config=np.array([[3.0], [5.0]]), total_steps=np.array([2, 3]),
    ...     offset=np.array([0, 2, 4]), seconds=np.array([0.1, 0.1, 0.3, 0.3]),
    ...     metrics={"auc": np.array([0.6, 0.7, 0.7, 0.8]), "eod": np.array([0.1, 0.1, 0.2, 0.3])})
    >>> study = fw.Study(recording.space, fw.Maximize("auc"), [fw.AtMost("eod", 0.25)], seed=0)
    >>> fw.simulate(study, recording, workers=1, budget=5.0).ended
    'the recording is used up'
    >>> study.best.metrics
    {'auc': 0.7, 'eod': 0.2}
    """
    return Simulator(study.owner, recording, workers, budget, constraint_price, staleness).run()
