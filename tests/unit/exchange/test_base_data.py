"""Base tasks from files of other formats.

Invariants: the same tasks come from JSONL, CSV, Parquet, verl's Parquet and a saved dataset; a bad
row names file, line or row, field and reason, and stops the import unless bad rows are skipped,
then each is listed; no held-out task becomes a base task; a mapping reaches into structures; of a
folder the split train of one configuration is read, or its choices are named; columns that are not
asked for do no harm; a file of another form than its ending is named by its form, with what to do;
settings of data.base_file are named for that file alone.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from genenv_core.config.load import resolve
from genenv_core.config.sections.data import DataConfig
from genenv_core.domains.desk import DeskDomain
from genenv_core.errors import ConfigError, DataError
from genenv_core.exchange.base_data import heldout_fingerprints, read_base
from genenv_core.exchange.external import offline_input
from tests.mutations import mutation

BASE_ROWS = "genenv_core/exchange/base_rows.py"

DESK = DeskDomain()
DRAFTS = DESK.base_tasks(0, 12)
PROGRAMS = [draft.program for draft in DRAFTS]


def verl_rows() -> list[dict[str, Any]]:
    return [
        {
            "data_source": "x",
            "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": d.prompt}],
            "reward_model": {"style": "rule", "ground_truth": d.ground_truth},
            "extra_info": {"text": d.program},
        }
        for d in DRAFTS
    ]


def written(folder: Path, kind: str) -> Path:
    path = folder / f"base.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps({"program": p}) + "\n\n" for p in PROGRAMS))
    elif kind == "csv":
        with path.open("w", newline="") as out:
            csv.writer(out).writerows([("program", "note"), *((p, "a\nb") for p in PROGRAMS)])
    elif kind == "parquet":
        pl.DataFrame({"program": PROGRAMS}).write_parquet(path)
    elif kind == "verl":
        pl.DataFrame(verl_rows()).write_parquet(path)
    elif kind == "hf":
        (path / "data").mkdir(parents=True)
        pl.DataFrame({"program": PROGRAMS}).write_parquet(path / "data" / "train-00000.parquet")
        pl.DataFrame({"program": ["no task"]}).write_parquet(path / "data" / "test-00000.parquet")
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "verl", "hf"])
def test_every_format_gives_the_same_tasks(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    found = read_base(path, DESK, format_="verl" if kind == "verl" else "auto")
    assert found.drafts == DRAFTS
    assert (found.bad, found.repeated) == ([], 0)
    assert read_base(path, DESK, format_=kind, count=5).drafts == DRAFTS[:5]


def test_a_saved_dataset_is_read(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    path = tmp_path / "saved"
    train, test = Dataset.from_dict({"text": PROGRAMS}), Dataset.from_dict({"text": ["no"]})
    DatasetDict({"train": train, "test": test}).save_to_disk(path)
    assert read_base(path, DESK, mapping={"program": "text"}).drafts == DRAFTS
    DatasetDict({"test": test}).save_to_disk(tmp_path / "other")
    with pytest.raises(DataError, match="no split train; splits there: test"):
        read_base(tmp_path / "other", DESK)


def test_a_mapping_reaches_into_structures(tmp_path: Path) -> None:
    path = written(tmp_path, "verl")
    mapped = read_base(path, DESK, format_="parquet", mapping={"program": "extra_info.text"})
    assert mapped.drafts == DRAFTS


BAD = [
    ("base.jsonl", "{\n", ":1: is no JSON"),
    ("base.jsonl", '\n[1]\n[2]\n', ":2: is '[1]', expected a JSON object"),
    ("base.jsonl", '{"program": 7}\n', ':1: field "program" is 7, expected a text'),
    ("base.jsonl", '{"program": "+ 1 pigs 2"}\n', "unparseable: unknown item 'pigs'"),
    ("base.csv", "program\n+ 1 bolts 2\n- 1 bolts 3\n", 'base.csv:3: field "program"'),
    ("base.csv", "program\n+ 1 bolts 2,3,4\n", ":2: has 2 more values than the header"),
    ("base.csv", "text\n+ 1 bolts 2\n", 'field "program" is missing (the row has text), expected'),
    ("base.jsonl", '{"program": null}', 'field "program" is None, expected a text'),
    ("base.jsonl", '{"program": "+ 1 bolts 2"},\n', ":1: is no JSON: it ends with a comma"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words"), BAD)
def test_a_bad_row_names_place_field_and_reason(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_base(path, DESK)
    assert str(path) in str(caught.value) and words in str(caught.value)
    assert "data.skip_bad" in str(caught.value)


def test_bad_rows_are_skipped_and_listed_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl"
    rows = [{"program": PROGRAMS[0]}, {"program": "what"}, {"program": PROGRAMS[0]}, {}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_base(path, DESK, skip_bad=True)
    assert found.drafts == DRAFTS[:1]
    assert found.repeated == 1
    assert [row.short.split(" ")[0] for row in found.bad] == ["base.jsonl:2:", "base.jsonl:4:"]
    path.write_text('{"program": "what"}\n')
    with pytest.raises(DataError, match=r"holds no task: all rows are bad, the first is .*what"):
        read_base(path, DESK, skip_bad=True)


def test_a_heldout_task_is_no_base_task(tmp_path: Path) -> None:
    heldout = heldout_fingerprints(DESK, 0, DataConfig(validation_tasks=8, test_tasks=12))
    path = tmp_path / "base.jsonl"
    path.write_text("".join(json.dumps({"program": p}) + "\n" for p in sorted(heldout)))
    with pytest.raises(DataError, match="is a held-out task"):
        read_base(path, DESK, heldout=heldout)


def test_verl_rows_whose_answer_is_wrong_are_bad(tmp_path: Path) -> None:
    rows = verl_rows()
    rows[3]["reward_model"]["ground_truth"] = DRAFTS[4].ground_truth
    rows[5]["prompt"] = [{"role": "user", "content": "Do something."}]
    pl.DataFrame(rows).write_parquet(tmp_path / "v.parquet")
    found = read_base(tmp_path / "v.parquet", DESK, format_="verl", skip_bad=True)
    assert found.drafts == [d for i, d in enumerate(DRAFTS) if i not in (3, 5)]
    assert [row.place.where for row in found.bad] == [": row 4", ": row 6"]
    assert "the ground truth is wrong" in found.bad[0].reason
    assert "no request of desk" in found.bad[1].reason


def test_a_domain_that_reads_no_answers_says_so(tmp_path: Path) -> None:
    class Plain:
        name = "plain"

    with pytest.raises(ConfigError, match="domain plain reads no tasks from prompt"):
        read_base(written(tmp_path, "verl"), Plain(), format_="verl")  # type: ignore[arg-type]


def test_unknown_endings_and_broken_files(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"set data\.base_format"):
        read_base(tmp_path / "base.txt", DESK)
    (tmp_path / "base.parquet").write_text("x")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        read_base(tmp_path / "base.parquet", DESK)
    (tmp_path / "base.csv").write_bytes(b"program\n\xff\n")
    with pytest.raises(DataError, match=r"csv:2: is no text in UTF-8 \(byte 0xff in .*save it as"):
        read_base(tmp_path / "base.csv", DESK)
    with pytest.raises(DataError, match="it is a directory, not a file"):
        read_base(tmp_path, DESK, format_="jsonl")


@mutation(
    "a file without the column has a bad first row", BASE_ROWS,
    "        if top not in names:\n", "        if False:\n",
)  # fmt: skip
def test_a_file_without_the_column_is_named_with_the_columns_that_it_has(tmp_path: Path) -> None:
    pl.DataFrame({"text": PROGRAMS, "n": 1}).write_parquet(tmp_path / "base.parquet")
    with pytest.raises(DataError, match=r"has no column 'program', only text, n: .*base_mapping"):
        read_base(tmp_path / "base.parquet", DESK, skip_bad=True)


@mutation(
    "settings of data.base_file are named for other files", "genenv_core/exchange/base_data.py",
    "of_base = field == BASE_FILE", "of_base = True",
)  # fmt: skip
@pytest.mark.parametrize("data", [b"PAR1", b'{"program": "what"}\n'])
def test_what_does_nothing_for_another_file_is_not_advised(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"data\.(base_format|skip_bad)"):
        read_base(path, DESK, format_="jsonl")
    with pytest.raises(DataError) as caught:
        read_base(path, DESK, format_="jsonl", field="teacher.file")
    assert not any(f"data.{name}" in str(caught.value) for name in ("base", "skip_bad"))
    assert any(said in str(caught.value) for said in ("convert it", "the row of teacher.file"))


@pytest.mark.parametrize("indent", [None, 2])
@mutation(
    "a JSON array is read line by line", BASE_ROWS,
    "if _not_lines(path) else None", "if False else None",
)  # fmt: skip
def test_an_array_is_read(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "base.json"
    path.write_text(json.dumps([{"program": p} for p in PROGRAMS], indent=indent))
    assert read_base(path, DESK).drafts == DRAFTS
    path.write_text(json.dumps([{"program": PROGRAMS[0]}, 7], indent=indent))
    with pytest.raises(DataError, match=r"base\.json: row 2: is '7', expected a JSON object"):
        read_base(path, DESK)


@mutation(
    "a long field stops the import", BASE_ROWS,
    "csv.field_size_limit(LONGEST_FIELD)", "csv.field_size_limit(131_072)",
)  # fmt: skip
def test_long_fields_of_other_columns_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "base.csv"
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([("program", "note"), *((p, "x" * 140_000) for p in PROGRAMS)])
    assert read_base(path, DESK).drafts == DRAFTS


@mutation(
    "columns that nobody names are read", BASE_ROWS,
    "batch_size=4096, columns=wanted", "batch_size=4096",
)  # fmt: skip
def test_odd_values_of_other_columns_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "base.parquet"
    late = pa.array([2**62] * len(PROGRAMS), pa.timestamp("ms"))
    table = pa.table({"program": PROGRAMS, "when": late, "a.b": PROGRAMS})
    pq.write_table(table, path)
    assert read_base(path, DESK).drafts == DRAFTS
    assert read_base(path, DESK, mapping={"program": "a.b"}).drafts == DRAFTS


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        ("a.csv", b'[{"program": "x"}]', "JSON and is read as csv"),
        ("a.csv", b"PAR1", "Parquet and is read as csv"),
        ("a.jsonl", b"\x1f\x8b\x08", "gzip and is read as jsonl: unpack it"),
        ("a.jsonl", b"BZh91AY", "bzip2 and is read as jsonl: unpack it"),
        ("a.jsonl", b"a" + b"\0" * 256 + b"ustar", "a tar archive and is read as jsonl: unpack"),
        (
            "a.csv",
            "program".encode("utf-16"),
            "text in UTF-16 and is read as csv: save it as UTF-8",
        ),
        ("a.jsonl", "{}".encode("utf-32"), "text in UTF-32 and is read as jsonl"),
        ("a.jsonl", "{}".encode("utf-16-le"), "binary, or text in UTF-16 and is read"),
        ("a.json", b"<!DOCTYPE html>", "HTML and is read as jsonl"),
        ("a.parquet", b'{"program": "x"}', "JSON and is read as parquet"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1", "a pointer of Git LFS"),
        ("a.csv", b"PK\x03\x04", "a zip archive or a spreadsheet"),
    ],
)
def test_another_form_than_the_ending_is_named(
    tmp_path: Path, name: str, data: bytes, form: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"{name}: is {form}"):
        read_base(path, DESK, skip_bad=True)


@mutation(
    "a directory is read for the digest of an offline file", "genenv_core/exchange/external.py",
    "if why := unreadable(file):", "if why := None:",
)  # fmt: skip
def test_a_directory_is_no_offline_file(tmp_path: Path) -> None:
    run = resolve("tiny", overrides=["arm=offline", f"teacher.file={tmp_path}"])
    with pytest.raises(DataError, match=r"teacher\.file .*: it is a directory, not a file"):
        offline_input(run)


@mutation(
    "a packed file is to be given a format", "genenv_core/exchange/base_data.py",
    "(form := form_of(path)) and form[1] != CONVERT", "(form := form_of(path)) and not form",
)  # fmt: skip
def test_a_packed_file_is_to_be_unpacked_whatever_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "base.jsonl.gz"
    path.write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(ConfigError, match=r"data\.base_file .*is gzip: unpack it first"):
        read_base(path, DESK)
    path.write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"set data\.base_format to"):
        read_base(path, DESK)


def folder(path: Path, *files: str, readme: str = "") -> Path:
    """Write a dataset folder in which only files with `train` in their name hold tasks."""
    for file in files:
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        rows = PROGRAMS if "train" in file else ["no task"]
        pl.DataFrame({"program": rows}).write_parquet(path / file)
    if readme:
        (path / "README.md").write_text(f"---\n{readme}---\n")
    return path


CONFIGS = """configs:
- config_name: one
  data_files: [{split: train, path: a/train.parquet}]
- config_name: two
  data_files: [{split: train, path: b/*}]
"""
DEFAULT = CONFIGS.replace("  data", "  default: true\n  data", 1)


@pytest.mark.parametrize(
    ("files", "readme"),
    [
        (("data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"), ""),
        (("train.parquet", "constraint-test.parquet", ".cache/train.parquet"), ""),
        (("train/0.parquet", "validation/0.parquet"), ""),
        (
            ("a/train.parquet", "b/0.parquet"),
            DEFAULT,
        ),
    ],
)
def test_of_a_folder_the_split_train_is_read(
    tmp_path: Path, files: tuple[str, ...], readme: str
) -> None:
    found = read_base(folder(tmp_path / "set", *files, readme=readme), DESK)
    assert found.drafts == DRAFTS and found.repeated == 0


@mutation(
    "a folder without training data gives its other splits", BASE_ROWS,
    'if "train" not in splits:', "if not splits:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("files", "readme", "words"),
    [
        (
            ("data/test-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"),
            "",
            "no split train; splits there: (validation, test|test, validation)",
        ),
        (("a/train.parquet", "b/0.parquet"), CONFIGS, "the configurations one, two, and none is"),
        ((), "license: mit\n", "no Hugging Face dataset"),
    ],
)
def test_what_is_no_choice_is_named(
    tmp_path: Path, files: tuple[str, ...], readme: str, words: str
) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(DataError, match=words):
        read_base(folder(tmp_path / "set", *files, readme=readme), DESK)
