"""The policy my-policy: which EPN gets the next timeframe (TF)."""

import sheaf


class MyPolicy:
    """Chooses the EPN with the most free memory."""

    def __init__(self, seed: int) -> None:
        """Begins a run. A policy that draws lots draws them from `seed`: equal seeds give equal choices."""

    def choose(self, job: sheaf.Job, targets: sheaf.Targets) -> int | None:
        """Returns the id of a target whose `fits` is True; None if there is none. Must not wait: the ICN does."""
        fitting = [target for target in targets if target.fits]
        best = max(fitting, key=lambda target: (target.free_bytes, -target.id), default=None)
        return None if best is None else best.id


# The one registration: the name stands for the policy in farm files, experiments and on command lines of this program.
sheaf.register_policy("my-policy", MyPolicy)


def main() -> None:
    """Runs the command line of `sheaf`, with the policy."""
    sheaf.main()


if __name__ == "__main__":
    main()
