"""The sink my-sink: what becomes of the timeframes (TFs) of an EPN."""

from pathlib import Path

import sheaf


class MySink:
    """Writes each TF to a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, tf: sheaf.Tf) -> None:
        """Takes one TF. When this returns the EPN releases it, so it is in its place then.

        A TF whose sink was killed before that comes again. It replaces its file, so it is not there twice.
        """
        new = self.folder / f"{tf.id}.new"
        with new.open("wb") as file:
            for part in tf.parts:
                file.write(part.data)
        # A reader sees all of a TF or nothing of it.
        new.rename(self.folder / f"{tf.id}.tf")


def tfs_in(folder: Path) -> list[int]:
    """Returns the TFs that a reader finds in a folder."""
    return [int(file.stem) for file in folder.glob("*.tf")]


def main() -> None:
    """Takes the TFs of an EPN: `my-sink shm:/run/sheaf/epn-0 FOLDER`."""
    # The one registration: each TF goes to an object of this class.
    sheaf.run_sink(MySink)


if __name__ == "__main__":
    main()
