"""``lmdbio import``: folders, archives and tables become data sets, each sample once.

Goal: labels and order are those of torchvision's ImageFolder and of WebDataset, and the bytes as
they were; a killed import goes on exactly; a source that is damaged or has changed is refused by
name. Method: sources of all kinds, written by tarfile and pyarrow, and damaged; real processes,
killed at random moments.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import lmdbio
from lmdbio.errors import Error, MissingExtraError
from lmdbio.ingest.importing import import_samples
from tests.cli.test_cli import call
from tests.ingest.test_writer import content, names as names_in
from tests.support import databases, long_run

Pair = tuple[bytes, bytes]


def image(seed: object, length: int = 500) -> bytes:
    return b"\xff\xd8\xff\xe0" + databases.value(seed, length)


def folder(path: Path, names: Iterable[str], length: int = 500) -> Path:
    """Write images of these names, each of its own content."""
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(image(name, length))
    return path


def archive(path: Path, members: Iterable[Pair], mode: Any = "w", **options: Any) -> Path:
    """Write a tar archive with Python's own module."""
    with tarfile.open(path, mode, **options) as tar:
        for name, value in members:
            info = tarfile.TarInfo(name.decode())
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))
    return path


def members(count: int, start: int = 0) -> list[Pair]:
    return [
        (f"{number:06d}.{ending}".encode(), value)
        for number in range(start, start + count)
        for ending, value in (("jpg", image(number)), ("cls", b"%d" % (number % 7)))
    ]


def pairs(path: Path) -> list[Any]:
    content(path)  # sound, described, and nothing beside it
    return list(lmdbio.Records(path, layout="auto"))


# --- folders ---------------------------------------------------------------------------------

NAMES = ("b/2.png", "a/x/9.jpg", "a/10.JPEG", "a/2.jpg", "a-b/1.webp", "b/1.jpg", "a/x.txt")
#: As ImageFolder numbers and sorts them: classes by name, then folders, then names.
SORTED = ("a/10.JPEG", "a/2.jpg", "a/x/9.jpg", "a-b/1.webp", "b/1.jpg", "b/2.png")


def test_class_folders_are_sorted_and_numbered_as_imagefolder_does(tmp_path: Path) -> None:
    source = folder(tmp_path / "train", NAMES)
    report = import_samples([source], tmp_path / "set")
    labels = [b"0", b"0", b"0", b"1", b"2", b"2"]
    assert pairs(tmp_path / "set") == [*zip(map(image, SORTED), labels, strict=True)]
    assert dict(content(tmp_path / "set"))[b"classes"] == b'["a", "a-b", "b"]'
    assert (report.samples, report.resumed_samples, report.metadata) == (6, 0, (b"classes",))


def test_it_is_what_torchvision_finds(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    source = folder(tmp_path / "train", NAMES)
    import_samples([source], tmp_path / "set")
    found = datasets.ImageFolder(str(source)).samples
    assert pairs(tmp_path / "set") == [
        (Path(path).read_bytes(), b"%d" % label) for path, label in found
    ]


def test_images_without_classes_have_no_labels(tmp_path: Path) -> None:
    source = folder(tmp_path / "photos", ["2.jpg", "1.jpg", "notes.txt"])
    import_samples([source], tmp_path / "set")
    assert pairs(tmp_path / "set") == [image("1.jpg"), image("2.jpg")]


def test_a_loader_gives_pairs(tmp_path: Path) -> None:
    torch = pytest.importorskip("lmdbio.torch")
    import_samples([folder(tmp_path / "train", NAMES)], tmp_path / "set")
    loader = torch.Loader(
        tmp_path / "set",
        6,
        layout="auto",
        transform=lambda sample: (len(sample[0]), int(sample[1])),
    )
    ((lengths, labels),) = loader
    assert lengths.tolist() == [504] * 6 and labels.tolist() == [0, 0, 0, 1, 2, 2]


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    source = folder(tmp_path / "train", NAMES)
    done = call("import", source, tmp_path / "set", "--json")
    assert json.loads(done.output)["samples"] == 6
    assert "6\n" in call("import", source, tmp_path / "other").output
    with pytest.raises(FileExistsError, match=r"exists already"):
        call("import", source, tmp_path / "set")
    text = "ocr: 6 samples of 2 records each; num-samples, classes: no sample"
    assert text in call("info", tmp_path / "set").output


# --- archives --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar_is_read(tmp_path: Path, form: int) -> None:
    long = "d" * 90 + "/" + "e" * 60
    names = [f"{long}/{number}" for number in range(20)]
    if form != tarfile.USTAR_FORMAT:
        names += ["ü" * 200, "f" * 300]
    given = [
        (f"{name}.{ending}".encode(), value)
        for name in names
        for ending, value in (("jpg", image(name)), ("cls", b"3"), ("json", b"{}"))
    ]
    archive(tmp_path / "a.tar", given, format=form)
    import_samples([tmp_path / "a.tar"], tmp_path / "set")
    assert pairs(tmp_path / "set") == [(image(name), b"3") for name in names]


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    """Return a header whose fields are as given, and whose sum is right."""
    block = bytearray(tarfile.BLOCKSIZE)
    block[: len(name)], block[124 : 124 + len(size)], block[156:157] = name, size, kind
    block[257:265], block[148:156] = b"ustar\x0000", b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("large", [0, 1 << 20, (1 << 20) - 1536, 3 << 20])
def test_headers_that_other_programs_write_are_read(tmp_path: Path, large: int) -> None:
    value = image(7, 700)
    first = image(0, large)
    written = [
        (b"0.jpg", first, header(b"0.jpg", b"%011o\0" % len(first))),
        (b"1.jpg", value, header(b"1.jpg", b"%11o " % len(value))),
        (b"2.jpg", value, header(b"2.jpg\0left over", b"%012o" % len(value))),
        (b"3.jpg", value, header(b"3.jpg", b"%011o\0" % len(value), b"\0")),
        (b"4.jpg", value, header(b"4.jpg", b"%o \0" % len(value), b"7")),
        (b"5.jpg", value, header(b"5.jpg", b"\x80" + len(value).to_bytes(11, "big"))),
        (b"e" * 96 + b".jpg", value, header(b"e" * 96 + b".jpg", b"%011o\0" % len(value))),
        (b"7.jpg", b"", header(b"7.jpg", b"0")),
        (b"8.jpg", value, header(b"8.jpg", b"%011o\0" % len(value))),
    ]
    blocks = [head + data + bytes(-len(data) % 512) for _, data, head in written]
    (tmp_path / "a.tar").write_bytes(b"".join(blocks) + bytes(1024))
    import_samples([tmp_path / "a.tar"], tmp_path / "set")
    assert pairs(tmp_path / "set") == [data for _, data, _ in written]
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert [member.name.encode() for member in tar] == [name for name, _, _ in written]
    wrong = header(b"9.jpg", b"-0000000777\0") + bytes(512)
    (tmp_path / "a.tar").write_bytes(b"".join(blocks) + wrong + bytes(1024))
    with pytest.raises(Error, match=r"'8.jpg' is followed by no header of tar"):
        import_samples([tmp_path / "a.tar"], tmp_path / "other")


def test_shards_are_one_set_in_their_order(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    archive(shards / "1.tar", members(50, 50))
    archive(shards / "0.tar", members(50))
    (shards / "2.tar.gz").write_bytes(
        gzip.compress(archive(tmp_path / "2.tar", members(30, 100)).read_bytes())
    )
    archive(shards / "3.tar", [])
    import_samples([shards], tmp_path / "set")
    assert pairs(tmp_path / "set") == [(image(n), b"%d" % (n % 7)) for n in range(130)]


def test_members_are_named_and_others_passed_over(tmp_path: Path) -> None:
    given = [
        (b"__meta__/x.jpg", b"no"),
        (b"no-ending", b"no"),
        (b"d/0.PNG", b"image"),
        (b"d/0.seg.png", b"no"),
        (b"d/0.json", b'{"a": 1}'),
        (b"d/1.json", b"{}"),
        (b"d/1.jpg", b"other"),
    ]
    archive(tmp_path / "a.tar", given)
    import_samples([tmp_path / "a.tar"], tmp_path / "set", columns=["jpg;png", "json"])
    assert pairs(tmp_path / "set") == [(b"image", b'{"a": 1}'), (b"other", b"{}")]
    import_samples([tmp_path / "a.tar"], tmp_path / "two", columns=["json"])
    assert pairs(tmp_path / "two") == [b'{"a": 1}', b"{}"]


def link(path: Path, kind: bytes = tarfile.SYMTYPE) -> None:
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("0.jpg")
        info.type, info.linkname = kind, "elsewhere.jpg"
        tar.addfile(info)


def sparse(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("0.jpg")
        info.pax_headers = {"GNU.sparse.major": "1"}
        tar.addfile(info)


def broken(path: Path) -> None:
    archive(path, members(2))
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (
            lambda path: archive(path, [(b"0.npy", b""), (b"0.txt", b"")]),
            "has no image, but npy, txt",
        ),
        (lambda path: archive(path, [*members(2), (b"9.jpg", b"")]), "sample '9' has jpg of the"),
        (
            lambda path: archive(path, [(b"0.jpg", b""), (b"0.png", b"")]),
            "sample '0' has jpg, png",
        ),
        (lambda path: archive(path, members(1)[:1] * 2), "two members are called '000000.jpg'"),
        (lambda path: archive(path, []), "has no samples"),
        (lambda path: path.write_bytes(b""), "no end of archive"),
        (lambda path: path.write_bytes(b"no archive" * 100), "no header of tar"),
        (link, r"'0.jpg' is a link: write the archive with its content \(tar -h\)"),
        (
            lambda path: link(path, tarfile.LNKTYPE),
            r"with its content \(tar --hard-dereference\)",
        ),
        (sparse, "'0.jpg' is sparse: write the archive without tar -S"),
        (lambda path: path.write_bytes(archive(path, members(1)).read_bytes() * 2), "and more:"),
        (
            lambda path: archive(path, [*members(1)[:1], *members(2)[2:]]),
            "'000001.cls' is a label, and the first sample has none",
        ),
        (broken, "no header of tar: the archive is damaged"),
    ],
)
def test_bad_archives_are_refused_by_name(tmp_path: Path, write: Any, text: str) -> None:
    write(tmp_path / "a.tar")
    with pytest.raises((Error, ValueError), match=text) as caught:
        import_samples([tmp_path / "a.tar"], tmp_path / "set")
    assert f"{tmp_path}/a.tar" in str(caught.value)
    assert names_in(tmp_path) == ["a.tar"]


@pytest.mark.parametrize("ending", ["tar", "tgz"])
def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path: Path, ending: str) -> None:
    whole = archive(tmp_path / "whole.tar", members(3)).read_bytes()
    end = whole.rindex(b"5") + 512  # behind it there are zeros alone
    draw = random.Random(7)
    for size in [*draw.sample(range(end), long_run.cases(300)), 512, 1024, 1536]:
        cut = whole[:size] if ending == "tar" else gzip.compress(whole)[: size // 40]
        (tmp_path / f"a.{ending}").write_bytes(cut)
        with pytest.raises((Error, ValueError)):
            import_samples([tmp_path / f"a.{ending}"], tmp_path / "set")
        assert not (tmp_path / "set").exists()
        shutil.rmtree(tmp_path / "set.part", ignore_errors=True)


def test_a_compressed_archive_is_checked_to_its_end(tmp_path: Path) -> None:
    passed = [(b"0.jpg", image(0)), (b"0.npy", databases.value(0, 3 << 20)), (b"1.jpg", image(1))]
    whole = gzip.compress(archive(tmp_path / "whole.tar", passed).read_bytes(), 1)
    edge = archive(tmp_path / "edge.tar", [(b"0.jpg", bytes((1 << 20) - 1024))]).read_bytes()
    wrong = bytearray(gzip.compress(edge, 1))  # its zero block ends where the buffer does
    wrong[-8] ^= 1
    for number, (given, text) in enumerate(
        [
            (whole[: len(whole) // 2], "is followed by damage"),
            (whole * 2, "is followed by an end of archive, and more"),
            (wrong, "is followed by damage: CRC"),
        ]
    ):
        (tmp_path / f"{number}.tgz").write_bytes(given)
        with pytest.raises(Error, match=text):
            import_samples([tmp_path / f"{number}.tgz"], tmp_path / "set")


def test_a_first_shard_may_be_empty(tmp_path: Path) -> None:
    shards = [archive(tmp_path / "0.tar", []), archive(tmp_path / "1.tar", members(1))]
    assert import_samples(shards, tmp_path / "set").samples == 1


# --- tables ----------------------------------------------------------------------------------


def test_tables_of_hugging_face_are_imported(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for part in range(2):
        rows = range(part * 300, part * 300 + 300)
        images = [{"bytes": image(n), "path": None} for n in rows]
        table = arrow.table({"image": images, "label": [n % 5 for n in rows]})
        parquet.write_table(table, tmp_path / f"{part}.parquet", row_group_size=70)
    import_samples([tmp_path / "0.parquet", tmp_path / "1.parquet"], tmp_path / "set")
    assert pairs(tmp_path / "set") == [(image(n), b"%d" % (n % 5)) for n in range(600)]
    with pytest.raises(ValueError, match=r"0.parquet: has no column 'text', but image, label"):
        import_samples([tmp_path / "0.parquet"], tmp_path / "two", columns=["image", "text"])
    gap = arrow.table({"image": [b"", None], "label": [0, 1]})
    parquet.write_table(gap, tmp_path / "gap.parquet")
    with pytest.raises(ValueError, match=r"gap.parquet: 'image' of row 1 is empty"):
        import_samples([tmp_path / "0.parquet", tmp_path / "gap.parquet"], tmp_path / "two")
    shutil.rmtree(tmp_path / "two.part", ignore_errors=True)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" * 20)
    with pytest.raises(Error, match=r"bad.parquet"):
        import_samples([tmp_path / "bad.parquet"], tmp_path / "two")


def test_a_package_that_tables_take_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtraError, match=r"pip install 'lmdbio\[parquet\]'"):
        import_samples([tmp_path / "a.parquet"], tmp_path / "set")


# --- refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "given", "text"),
    [
        (["a/1.jpg", "b/x.txt"], ["."], "b: has no image"),
        (["x.txt"], ["."], "has no image .*, and no folder of a class"),
        (["a/1.jpg"], ["nowhere"], "No such file"),
        (["a/1.jpg", "2.jpg"], ["."], "has the image 2.jpg and the folder a"),
        (["a/1.jpg", "0.tar"], ["."], "has 0.tar and a: "),
        (["1.jpg", "0.tar"], ["."], "has 0.tar and 1.jpg: "),
        (["a/1.jpg", "b/1.jpg"], ["a", "b"], "one folder of images, or files of one kind"),
        (["a/1.jpg"], ["a/1.jpg"], "one folder of images, or files of one kind"),
    ],
)
def test_what_is_no_source_is_named(
    tmp_path: Path, names: list[str], given: list[str], text: str
) -> None:
    source = folder(tmp_path / "source", names)
    with pytest.raises((ValueError, OSError), match=text):
        import_samples([source / name for name in given], tmp_path / "set")
    assert names_in(tmp_path) == ["source"]


# --- continued -------------------------------------------------------------------------------

IMPORT = """if True:
    import sys
    from lmdbio.ingest.importing import import_samples
    print("begun", flush=True)
    report = import_samples(sys.argv[1:-1], sys.argv[-1], batch_bytes_max=500_000)
    print(report.resumed_samples)
"""


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", IMPORT, *map(str, arguments)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


def is_begun(part: Path) -> bool:
    """Return whether a part has samples that a next run goes on with."""
    note = part / "writing.json"
    return note.exists() and json.loads(note.read_bytes())["facts"] is not None


def kill_and_continue(source: Path, target: Path, wanted: list[Pair], kills: int) -> int:
    """Import a source, killed at so many random moments; return how many had committed some."""
    begun = time.monotonic()
    out, err = start(source, target).communicate()
    assert out == "0\n", err
    seconds = time.monotonic() - begun
    shutil.rmtree(target)
    seed = time.time_ns()
    print(f"seed {seed}, {seconds:.2f} s")
    draw, done, continued = random.Random(seed), 0, 0
    while done < kills or not continued:  # moments before a first commit say little
        process = start(source, target)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(0, 2 * seconds / kills))
        process.kill()
        err = process.communicate()[1]
        assert process.returncode in (0, -signal.SIGKILL), err
        if target.exists() and not (target / "writing.json").exists():
            assert pairs(target) == wanted  # it was whole
            shutil.rmtree(target)
            continue
        done, continued = done + 1, continued + is_begun(target.parent / "set.part")
    out, err = start(source, target).communicate()
    assert out.strip().isdigit(), err
    assert pairs(target) == wanted
    return continued


@pytest.mark.more
@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_an_import_killed_at_random_moments_has_each_sample_once(
    tmp_path: Path, kind: str
) -> None:
    names = [f"{label}/{number:05d}.jpg" for label in range(4) for number in range(500)]
    values = [image(name, 5000) for name in names]
    labels = [name.partition("/")[0].encode() for name in names]
    if kind == "folder":
        source = folder(tmp_path / "source", names, 5000)
    else:
        given = [
            (f"{number:06d}.{ending}".encode(), part)
            for number, sample in enumerate(zip(values, labels, strict=True))
            for ending, part in zip(("jpg", "cls"), sample, strict=True)
        ]
        source = tmp_path / "source"
        source.mkdir()
        for shard in range(4):
            archive(source / f"{shard}.tar", given[shard * 1000 : shard * 1000 + 1000])
    wanted = [*zip(values, labels, strict=True)]
    assert kill_and_continue(source, tmp_path / "set", wanted, long_run.cases(20, 3))


@pytest.mark.more
@pytest.mark.parametrize("change", ["more", "fewer", "other", "shards", "order"])
def test_a_source_that_has_changed_is_refused(tmp_path: Path, change: str) -> None:
    names = [f"a/{number:05d}.jpg" for number in range(1000)]
    source = folder(tmp_path / "source", names, 5000)
    given = [source]
    if change in ("shards", "order"):
        shutil.rmtree(source)
        source.mkdir()
        archive(source / "0.tar", members(3000))
        archive(source / "1.tar", members(10, 3000))
        given = [source / "0.tar", source / "1.tar"]
    process = start(*given, tmp_path / "set")
    while not is_begun(tmp_path / "set.part"):
        time.sleep(0.001)
    process.kill()
    process.communicate()
    if change == "more":
        folder(source, ["b/1.jpg"])
        text = r"source/b is new: 1 images"
    elif change == "fewer":
        (source / "a/00999.jpg").unlink()
        text = r"source/a was 1,000 images, .* and is 999 images"
    elif change == "other":
        (source / "a/00999.jpg").write_bytes(image("other", 5000))
        text = r"source/a was 1,000 images, .* and is 1,000 images"
    elif change == "order":
        given, text = given[::-1], r"order was \w+, and is \w+ now"
    else:
        archive(source / "0.tar", members(3001))
        text = r"source/0.tar was \d+ bytes"
    with pytest.raises(Error, match=text):
        import_samples(given, tmp_path / "set")


def test_a_file_that_changes_meanwhile_is_named(tmp_path: Path) -> None:
    from lmdbio.ingest.folder import Folder

    source = folder(tmp_path / "source", ["a/1.jpg", "a/2.jpg"])
    opened = Folder(source)
    (source / "a/2.jpg").write_bytes(b"shorter")
    with pytest.raises(Error, match=r"a/2.jpg: changed while it was imported: 504 bytes, now 7"):
        list(opened.batches(0))
