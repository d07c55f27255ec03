"""Reads files of many versions of LMDB, of pages of all sizes, by every way that lmdbio has.

    python tests/older/run.py [--versions A,B,...] [--pages N,M,...] [--stories TEXT]
                               [--sources FOLDER] [--samples]

The sources of LMDB come with py-lmdb: ``pip download`` fetches those versions of it (named as
there) into ``--sources``, unless they are there; a C compiler builds a writer (writer.c) with each
LMDB; each writes the databases of stories.py, which judging.py reads. ``--samples`` writes the
files in ``samples`` instead.

Ends with 1 when anything is not read as it was written, a history was not found that should be, or
an LMDB could write nothing.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from judging import judge
from stories import SAMPLES, STORIES, Story

HERE = Path(__file__).resolve().parent
#: Each brought another LMDB, from 0.9.6 on; 3.0.0 has both formats. Two are left out that damage
#: databases: 0.9.9 (0.76) fails at ordinary puts, 0.9.11 (0.78 to 0.82) miscounts duplicates.
VERSIONS = "0.63,0.70,0.77,0.84,0.88,0.94,1.0.0,1.1.1,1.2.1,1.5.1,1.7.5,2.3.0,3.0.0"
#: Below, no system has pages, and LMDB 0.9.9 to 0.9.29 splits them by rules that are not modelled.
REPLAYED_BYTES_MIN = 4096
#: Format v1 takes pages of 32 KiB at most.
PAGES = "512,4096,8192,16384,32768,65536"
PAGES_MAX = {"0": 32768, "1": 65536}


def fetch(version: str, sources: Path, folder: Path) -> list[Path]:
    """The folders with the sources of LMDB in a version of py-lmdb."""
    packed_file = sources / f"lmdb-{version}.tar.gz"
    if not packed_file.exists():
        # Without isolation, because old ones ask for cffi before they say that they need it.
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        pip += ["--no-binary", ":all:", "--no-build-isolation", "--dest", str(sources)]
        subprocess.run([*pip, f"lmdb=={version}"], check=True)
    with tarfile.open(packed_file) as packed:
        packed.extractall(folder, filter="data")
    return sorted(found.parent for found in (folder / f"lmdb-{version}").glob("lib*/mdb.c"))


def build(source: Path, folder: Path) -> Path:
    """A writer, named after the LMDB that it is of."""
    header = (source / "lmdb.h").read_text(errors="replace")
    parts = re.findall(r"define MDB_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)", header)
    program = folder / ".".join(parts[:3])
    compiler = os.environ.get("CC", "cc").split()
    paths = [f"-I{source}", f"-I{source / 'py-lmdb'}"]
    command = [*compiler, "-O2", "-w", *paths, str(HERE / "writer.c"), "-o", str(program)]
    subprocess.run([*command, "-pthread"], check=True)
    return program


def try_one(writer: Path, page_bytes: int, story: Story) -> tuple[str, list[str]]:
    """Return the outcome in a word, and what is wrong."""
    with tempfile.TemporaryDirectory(prefix="lmdbio-older-") as folder:
        file = Path(folder) / "data.mdb"
        try:
            story.write(writer, file, page_bytes)
        except RuntimeError as e:  # old ones run into faults of their own
            print(f"not written: {e}")
            return "not written", []
        try:
            verdict = judge(file, page_bytes, story)
        except Exception as e:
            return "failed", [repr(e)]
    if story.replays and not verdict.rule and page_bytes >= REPLAYED_BYTES_MIN:
        verdict.wrong.append("no history was found")
    return verdict.rule or "other forms", verdict.wrong


def write_samples(writers: list[Path]) -> None:
    by_version = {writer.name: writer for writer in writers}
    (HERE / "samples").mkdir(exist_ok=True)
    for sample in SAMPLES:
        with tempfile.TemporaryDirectory(prefix="lmdbio-older-") as folder:
            file = Path(folder) / "data.mdb"
            sample.story.write(by_version[sample.lmdb], file, sample.page_bytes)
            packed = lzma.compress(file.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
        (HERE / "samples" / sample.file).write_bytes(packed)
        print(f"{sample.file}: {len(packed):,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--versions", default=VERSIONS, help="of py-lmdb")
    parser.add_argument("--pages", default=PAGES, help="sizes in bytes")
    parser.add_argument("--stories", default="", help="those with this text in their names")
    parser.add_argument("--sources", type=Path, help="keeps what is downloaded")
    parser.add_argument("--samples", action="store_true", help="write the samples")
    asked = parser.parse_args()
    stories = [story for story in STORIES if asked.stories in story.name]
    sizes = [int(size) for size in asked.pages.split(",")]
    console, wrong = Console(), 0
    folder = Path(tempfile.mkdtemp(prefix="lmdbio-older-"))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    try:
        writers = [
            build(source, folder)
            for version in asked.versions.split(",")
            for source in fetch(version, asked.sources or folder, folder)
        ]
        if asked.samples:
            write_samples(writers)
            return 0
        table = Table("LMDB", "pages", "files", "replayed", "by the rules")
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("", total=len(writers) * len(sizes) * len(stories))
            for writer in writers:
                for size in sizes:
                    progress.update(task, description=f"{writer.name}, {size}")
                    if size > PAGES_MAX[writer.name[0]]:
                        progress.advance(task, len(stories))
                        continue
                    came: Counter[str] = Counter()
                    for story in stories:
                        word, faults = try_one(writer, size, story)
                        came[word] += 1
                        wrong += len(faults)
                        for fault in faults:
                            console.print(f"WRONG {writer.name}, {size}, {story.name}: {fault}")
                        progress.advance(task)
                    rules = {word: n for word, n in sorted(came.items()) if word.isupper()}
                    files = came.total() - came["not written"]
                    wrong += files == 0
                    told = ", ".join(f"{word} {n}" for word, n in rules.items())
                    row = writer.name, f"{size:,}", str(files), str(sum(rules.values())), told
                    table.add_row(*row)
        console.print(table)
    finally:
        shutil.rmtree(folder)
    print(f"{wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
