#!/usr/bin/env python3
"""Takes the pictures of `sheaf top` in docs/img from a farm that runs.

Usage: tools/top-pictures.py [SHEAF [FOLDER]]   (default: target/ci/sheaf docs/img)

Starts 3 ICNs, 3 FLPs and 5 EPNs on this machine, kills one EPN and takes `sheaf top` at 80 x 24 and 200 x 50, then
ends the run and takes it again. Needs tmux, and rsvg-convert (librsvg2-bin) with the font DejaVu Sans Mono.
"""

import html
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

SIZES = [(80, 24), (200, 50)]
CELL_W, CELL_H, PAD = 8.43, 18, 12
COLORS = ["#30363d", "#f06c6c", "#7ee06a", "#f0c35e", "#6ca8f0", "#c78af0", "#5cc9e0", "#dfe3e8"]
INK, PAPER, DIM = "#dfe3e8", "#12161c", "#8a919a"

FARM = """
[run]
flps = 3
epns = 5
[icn]
addresses = {icns}
[icn.ledger]
backend = "majority"
directory = "{folder}/verdicts-{{icn}}"
[flp]
hold_bytes = 67108864
rate_hz = 100.0
stf_bytes_max = 4194304
[flp.source]
kind = "generator"
bytes_mean = 200000
[epn.build]
capacity_bytes = 67108864
[icn.scheduler]
stf_bytes_max = 4194304
tf_bytes_max = 16777216
"""


def style(codes, now):
    """Returns the style that follows `now` by the codes of a `CSI … m`."""
    now, codes = dict(now), list(codes)
    while codes:
        code = codes.pop(0)
        if code == 0:
            now = {}
        elif code in (1, 2, 7):
            now[code] = True
        elif code == 22:
            now.pop(1, None), now.pop(2, None)
        elif code == 27:
            now.pop(7, None)
        elif code == 38 and codes[:1] == [5]:
            now["ink"] = COLORS[codes[1] % 8]
            codes = codes[2:]
        elif 30 <= code <= 37 or 90 <= code <= 97:
            now["ink"] = COLORS[code % 10]
        elif code == 39:
            now.pop("ink", None)
    return now


def svg(text, columns, lines):
    """Returns the screen that `tmux capture-pane -e` printed as a picture."""
    width, height = columns * CELL_W + 2 * PAD, lines * CELL_H + 2 * PAD
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        f'<g font-family="DejaVu Sans Mono" font-size="14" xml:space="preserve">'
    ]
    now = {}
    for row, line in enumerate(text.split("\n")[:lines]):
        column = 0
        for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
            if piece.startswith("\x1b["):
                now = style([int(code or 0) for code in piece[2:-1].split(";")], now)
                continue
            ink = now.get("ink", INK)
            if now.get(2):
                ink = DIM
            x, y = PAD + column * CELL_W, PAD + row * CELL_H
            wide = len(piece) * CELL_W
            if now.get(7):
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{CELL_H}" fill="{ink}"/>')
                ink = PAPER
            weight = ' font-weight="bold"' if now.get(1) else ""
            if piece.strip():
                # One element a run of characters, at its own column: no sum of rounding errors.
                for found in re.finditer(r"\S+", piece):
                    at = x + found.start() * CELL_W
                    word = html.escape(found.group())
                    out.append(f'<text x="{at:.1f}" y="{y + 14}" fill="{ink}"{weight}>{word}</text>')
            column += len(piece)
    return "\n".join(out + ["</g></svg>"])


def free_addresses(count):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    return [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]


def main():
    sheaf = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/ci/sheaf")
    images = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "docs/img")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("farm.toml", "w") as file:
            file.write(FARM.format(icns=free_addresses(3), folder=folder).replace("'", '"'))

        def start(role, index):
            words = [sheaf, "run", role, "--config", "farm.toml", "--index", str(index)]
            log = open(f"{role}-{index}.log", "w")
            return subprocess.Popen(words, stdout=log, stderr=log)

        nodes = [start("icn", index) for index in range(3)]
        nodes += [start("flp", index) for index in range(3)]
        epns = [start("epn", index) for index in range(5)]
        server = ["tmux", "-L", f"sheaf-top-{os.getpid()}", "-f", "/dev/null"]
        path = os.path.dirname(sheaf) + ":" + os.environ["PATH"]
        screens = {}
        for columns, lines in SIZES:
            screens[columns, lines] = name = f"top-{columns}x{lines}"
            size = ["-x", str(columns), "-y", str(lines)]
            # The server outlives a `top` that ends.
            command = f"env LANG=C.UTF-8 PATH='{path}' sheaf top --config farm.toml"
            subprocess.run(server + ["new-session", "-d", "-s", name] + size + [command], check=True)
            subprocess.run(server + ["set", "-g", "status", "off"], check=True)
            subprocess.run(server + ["resize-window", "-t", name] + size, check=True)

        def take(suffix):
            for (columns, lines), name in screens.items():
                words = server + ["capture-pane", "-e", "-p", "-t", name]
                text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
                target = os.path.join(images, name + suffix)
                with open("screen.svg", "w") as file:
                    file.write(svg(text, columns, lines))
                subprocess.run(["rsvg-convert", "screen.svg", "-o", target + ".png"], check=True)
                print(target + ".png")

        try:
            time.sleep(40)
            epns[3].kill()
            time.sleep(10)
            take("")
            subprocess.run([sheaf, "ctl", "stop", "--config", "farm.toml", "--allow-abandoned"], check=True)
            for node in nodes + epns:
                node.wait()
            time.sleep(13)
            take("-ended")
        finally:
            subprocess.run(server + ["kill-server"], check=False)
            for node in nodes + epns:
                node.kill()


main()
