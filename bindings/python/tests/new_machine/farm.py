"""A farm over three networks: readouts in Python, analyses in C++. One of three EPNs is killed; no TF may be lost.

Runs as root on a machine where the packages are installed, in an empty folder that belongs to USER, who runs the nodes:

    python3 farm.py USER

Each network is a namespace. Draws when each TF was analysed into farm.png, and prints what was found as JSON.
"""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import matplotlib

import readout

TFS = 400
# More than three analyses can do, so that each EPN has TFs that wait.
RATE_HZ = 150
# Behind so many TFs of its analysis this EPN is killed.
KILLED, BEHIND = 1, 50
FLPS = ["10.77.0.20", "10.77.0.21"]
EPNS = ["10.77.0.30", "10.77.0.31", "10.77.0.32"]
NETWORKS = {"control": ["10.77.0.10"], "readout": FLPS, "processing": EPNS}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def connect() -> None:
    """Makes the networks, and a bridge in the first one that connects them."""
    for name in NETWORKS:
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    ip("-n", "control", "link", "add", "bridge", "type", "bridge")
    ip("-n", "control", "link", "set", "bridge", "up")
    for name, addresses in NETWORKS.items():
        ip("-n", "control", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("-n", "control", "link", "set", f"to-{name}", "master", "bridge", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        for address in addresses:
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")


class Farm:
    """The processes of the farm, each in its network, and as an ordinary user."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def command(self, network: str, words: list[str]) -> list[str]:
        run_as = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
        return ["nsenter", f"--net=/run/netns/{network}", *run_as, *words]

    def run(self, *words: str) -> str:
        command = self.command("control", list(words))
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def start(self, name: str, network: str, *words: str) -> subprocess.Popen[str]:
        command = self.command(network, list(words))
        with Path(f"log/{name}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes[name] = process
        return process

    def node(self, role: str, index: int, network: str, address: str) -> None:
        events = ["--events", f"log/{role}-{index}.events"]
        words = ["sheaf", "run", role, "--config", "farm/farm.toml", "--index", str(index), "--listen", address, *events]
        assert self.start(f"{role}-{index}", network, *words).stdout.readline(), f"{role}:{index} does not listen"

    def end(self, name: str) -> list[str]:
        """Waits for the end of a process, which must be a success. Returns what it has printed."""
        told, _ = self.processes[name].communicate(timeout=120)
        ended = self.processes[name].returncode
        assert ended == 0, f"{name}: {ended}\n{Path(f'log/{name}.log').read_text()}"
        return told.splitlines()


def configure(farm: Farm) -> None:
    places = ["--icn-host", "10.77.0.10", "--flp-hosts", ",".join(FLPS), "--epn-hosts", ",".join(EPNS)]
    farm.run("sheaf", "init", "farm", "--yes", *places, "--source", "program", "--sink", "shm:epn-{epn}")
    file = Path("farm/farm.toml")
    text = file.read_text()
    for table, keys in [
        ("run", f"timeframes = {TFS}"),
        ("icn", 'delivery = "at-least-once"'),
        ("epn", 'ack = "processed"'),
    ]:
        assert text.count(f"\n[{table}]\n") == 1, text
        text = text.replace(f"\n[{table}]\n", f"\n[{table}]\n{keys}\n")
    file.write_text(
        f'{text}\n[icn.scheduler]\nmode = "paced"\npaced_rate_hz = {RATE_HZ}\nstf_bytes_max = 1048576\n'
        "tf_bytes_max = 2097152\n\n[flp]\nhold_bytes = 67108864\nstf_bytes_max = 1048576\n\n"
        "[epn.build]\ncapacity_bytes = 67108864\n"
    )
    farm.run("sheaf", "config", "check", str(file))


def draw(seen: list[list[tuple[int, int, float]]], killed_at: float) -> None:
    """Draws when the analysis of each EPN had finished each TF."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    begin = min(at for of_epn in seen for _, _, at in of_epn)
    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for epn, of_epn in enumerate(seen):
        tfs, _, times = zip(*of_epn, strict=True)
        axes.plot([at - begin for at in times], tfs, linestyle="", marker="ox^"[epn], markersize=3, label=f"EPN {epn}")
    axes.axvline(killed_at - begin, color="grey", linewidth=0.8, linestyle="--", label=f"EPN {KILLED} is killed")
    axes.set_xlabel("time / s")
    axes.set_ylabel("TF whose analysis ends")
    axes.legend()
    figure.savefig("farm.png", dpi=130)


def main() -> None:
    connect()
    farm = Farm(sys.argv[1])
    farm.run("mkdir", "log")
    configure(farm)
    farm.node("icn", 0, "control", "10.77.0.10:7000")
    for epn, address in enumerate(EPNS):
        farm.node("epn", epn, "processing", f"{address}:7100")
        farm.start(f"analysis-{epn}", "processing", "./analysis", f"shm:epn-{epn}")
    for flp in range(len(FLPS)):
        farm.start(f"readout-{flp}", "readout", sys.executable, "readout.py", str(flp))
    analysis = farm.processes[f"analysis-{KILLED}"]
    before = [analysis.stdout.readline() for _ in range(BEHIND)]
    farm.processes[f"epn-{KILLED}"].send_signal(signal.SIGKILL)
    killed_at = time.time()

    for name in ["readout-0", "readout-1", "icn-0"]:
        farm.end(name)
    lines = []
    for epn in range(len(EPNS)):
        if epn == KILLED:
            told, _ = analysis.communicate(timeout=120)
            lines.append([line.strip() for line in before] + told.splitlines())
        else:
            farm.end(f"epn-{epn}")
            lines.append(farm.end(f"analysis-{epn}"))
    seen = [[(int(tf), int(total), float(at)) for tf, total, at in map(str.split, of_epn)] for of_epn in lines]

    expected = {
        tf: sum(int(readout.samples(flp, tf).sum(dtype="uint64")) for flp in range(len(FLPS))) for tf in range(TFS)
    }
    counts: Counter[int] = Counter()
    for tf, total, _ in (row for of_epn in seen for row in of_epn):
        assert expected[tf] == total, f"TF {tf} has the sum {total}, expected {expected[tf]}"
        counts[tf] += 1
    draw(seen, killed_at)
    books = json.loads(farm.run("sheaf", "data", "verify", "log", "--json", "-"))
    print(
        json.dumps(
            {
                "by_epn": [len(of_epn) for of_epn in seen],
                "lost": TFS - len(counts),
                "twice": sum(count > 1 for count in counts.values()),
                "books": books,
            }
        )
    )


if __name__ == "__main__":
    main()
