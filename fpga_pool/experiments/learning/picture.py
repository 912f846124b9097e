"""A picture of a training."""

from pathlib import Path

from fpga_pool.experiments.learning.training import Progress


def draw(progress: Progress, path: Path) -> None:
    """Draw losses, the objective of the generations, and the responses of what was validated."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (losses, costs, validations) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    losses.plot([100 * (i + 1) for i in range(len(progress.losses))], progress.losses)
    losses.set(title="Supervised start", xlabel="steps, both rounds", ylabel="Huber loss")
    costs.plot(range(1, len(progress.costs) + 1), [-cost for cost in progress.costs])
    costs.set(title="Evolution", xlabel="generation", ylabel="reward: -(log mean + 0.5 log p95)")
    names = [name for name, *_ in progress.validations]
    validations.axhline(1.0, color="grey", linewidth=0.8)
    validations.plot(names, [each[2] for each in progress.validations], marker="o", label="mean")
    validations.plot(names, [each[3] for each in progress.validations], marker="s", label="p95")
    validations.set(title="Validation", ylabel="response / that without corrections (ECT)")
    validations.tick_params(axis="x", rotation=60)
    validations.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
