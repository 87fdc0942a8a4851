"""The wheel holds all that the program needs, wherever it is unpacked."""

import subprocess
import sys
import zipfile
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
SHIPPED = ["images/cat.jpg", "images/LICENSES.md", "icons/patchreach.png", "icons/patchreach.svg"]


def test_the_wheel_finds_its_resources_and_is_the_same_program(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*build, "--wheel-dir", tmp_path, CHECKOUT], check=True, timeout=200)
    (wheel,) = tmp_path.glob("patchreach-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        names = archive.namelist()
    assert {f"viewer/resources/{name}" for name in SHIPPED} <= set(names)
    entry = next(name for name in names if name.endswith("entry_points.txt"))
    assert "patchreach = viewer.cli:main" in (tmp_path / "site" / entry).read_text()
    ask = (
        "import sys; sys.path.insert(0, 'site'); from viewer.shipped import resource; "
        f"print(*(resource(*name.split('/')).read_bytes()[:1] and name for name in {SHIPPED})); "
        "from viewer.cli import main; sys.exit(main(['--version']))"
    )
    told = subprocess.run(
        [sys.executable, "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.split("\n")[0].split() == SHIPPED
    assert told.stdout.split("\n")[1].startswith("patchreach 0.")
