"""The correlation application: parameters, inputs, refusals, result."""

from __future__ import annotations

import csv
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from hetapps.correlation import Correlation
from libtask.checkpoint import Checkpoint, StripSizer
from libtask.devices import open_device
from libtask.errors import InputError
from libtask.messages import CheckpointRecord, DeviceSpec

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame(
    {
        "height": [1.5, 1.6, 1.75, 1.8, 1.92],
        "weight": [50.0, 65.0, 63.0, 80.0, 79.0],
        "shoe size": [36, 38, 42, 43, 47],
        "legs": [2, 2, 2, 2, 2],
    }
)
WARNING = "constant columns correlate with nothing (NaN): 'legs'"


def run(task: Correlation) -> dict[str, Any]:
    task.load()
    device = open_device(DeviceSpec(name="cpu", kind="cpu"))
    sizer = StripSizer(1, fixed=2)
    checkpoint = Checkpoint(CheckpointRecord(total=task.total()), sizer)
    for _ in Correlation.implementations["cpu"](task, device, checkpoint):
        checkpoint.done = checkpoint.drawn
    result: dict[str, Any] = task.save(checkpoint)
    return result


def written(folder: Path, text: str) -> str:
    path = folder / "table.csv"
    path.write_text(text)
    return str(path)


def test_csv_in_csv_out_as_pandas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "people.csv", tmp_path / "out.csv"
    FRAME.to_csv(source, index=False)

    result = run(Correlation(str(source), str(output), dtype="float64"))

    pd.testing.assert_frame_equal(pd.read_csv(output, index_col=0), FRAME.corr())
    assert result["warnings"] == [WARNING]
    assert capsys.readouterr().err == f"warning: {WARNING}\n"
    assert result["strongest"][:2] == ["height", "shoe size"]


def test_parquet_in_npy_out_as_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    source, output = tmp_path / "people.parquet", tmp_path / "out.npy"
    FRAME.to_parquet(source)
    task = Correlation(str(source), str(output))

    result = run(task)

    assert task.size().signature == "5x4/float32"
    assert (result["rows"], result["columns"]) == (5, 4)
    np.testing.assert_allclose(np.load(output), FRAME.corr(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, ">f8", np.bool_])
def test_npy_of_any_number(tmp_path: Path, dtype: Any) -> None:
    path, output = tmp_path / "table.npy", tmp_path / "out.npy"
    table = np.random.default_rng(0).integers(0, 2, (30, 4)).astype(dtype)
    np.save(path, table)

    run(Correlation(str(path), str(output), dtype="float64"))

    expected = np.corrcoef(table.astype(float), rowvar=False)
    np.testing.assert_allclose(np.load(output), expected, rtol=0, atol=1e-12)


def test_csv_with_quotes_and_missing_values(tmp_path: Path) -> None:
    path = written(tmp_path, '"a, b",c\n1,2\n3,\n5,1\nNA,4\n\n6,2\n')

    task = Correlation(path, missing="drop-rows", dtype="float64")
    run(task)

    kept = np.array([[1, 2], [5, 1], [6, 2]])
    assert task.names == ["a, b", "c"]
    np.testing.assert_allclose(task.matrix, np.corrcoef(kept, rowvar=False))


def test_one_row_is_constant_everywhere(tmp_path: Path) -> None:
    result = run(Correlation(written(tmp_path, "a,b\n1,2\n")))

    assert result["strongest"] is None
    assert "'a', 'b'" in result["warnings"][0]


def test_a_long_warning_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "table.npy"
    np.save(path, np.ones((3, 12)))

    assert run(Correlation(str(path)))["warnings"][0].endswith("'9' and 2 more")


def test_generated_tables_correlate_and_depend_on_the_seed() -> None:
    results = [run(Correlation(rows=500, columns=20, seed=seed)) for seed in (1, 1, 2)]

    assert results[0] == results[1] != results[2]
    assert abs(results[0]["strongest"][2]) > 0.5


def test_size_knows_what_load_allocates(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n" + "1.25,2.5\n" * 1000)
    size = Correlation(path).size()
    task = Correlation(rows=1000, columns=2)
    task.load()

    assert size.signature == "1000x2/float32"
    assert size == task.size()
    assert size.input_bytes == task.table.table.nbytes
    assert size.state_bytes == task.matrix.nbytes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,\n", "column 'b' misses row 1 .*drop-rows"),
        ("a,b\n1,2\n3,-inf\n", r"column 'b' is infinite in row 1 \(counted from 0\)"),
        ("a,b\n1e200,2\n-1e200,3\n", "column 'a' holds values too large to square"),
        ("a,name\n1,2\n3,Ann\n", "line 3: column 'name' is not numeric.*'Ann'"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 fields, the header 2"),
        ("a,b,c\n1,2\n3,4\n", "3 names head 2 columns"),
    ],
)
def test_names_what_is_wrong_in_a_csv(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(InputError, match=f"{path}: .*{message}|{path}: {message}"):
        Correlation(path).load()


def test_refuses_text_columns_of_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "people.parquet"
    FRAME.assign(name=list("abcde")).to_parquet(path)

    with pytest.raises(InputError, match="column 'name' is not numeric but"):
        Correlation(str(path)).load()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), "of shape 3; give rows x columns"),
        (np.zeros((2, 2), complex), "holds complex128"),
    ],
)
def test_refuses_other_arrays(tmp_path: Path, array: Any, message: str) -> None:
    path = tmp_path / "array.npy"
    np.save(path, array)

    for action in (Correlation(str(path)).size, Correlation(str(path)).load):
        with pytest.raises(InputError, match=message):
            action()


@pytest.mark.parametrize("name", ["missing.npy", "text.npy", "bad.parquet", "x.xlsx"])
def test_refuses_unreadable_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if not name.startswith("missing"):
        path.write_text("not a table")

    with pytest.raises(InputError, match=f"{path}: (not a readable table|format)"):
        Correlation(str(path)).size()


@pytest.mark.parametrize("text", ["", "a,b\n", "\n"])
def test_refuses_empty_tables(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no rows or no columns"):
        Correlation(written(tmp_path, text)).load()


def test_refuses_to_drop_every_row(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,\n,2\n")

    with pytest.raises(InputError, match="every row has a missing value"):
        Correlation(path, missing="drop-rows").load()


def test_refuses_an_output_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        Correlation(output=str(tmp_path / "missing" / "out.npy")).size()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"missing": "mean"}, "missing is 'mean'"),
        ({"output": "out.txt"}, "must end in .npy or .csv"),
        ({"rows": 0}, "rows is 0"),
        ({"columns": -1}, "columns is -1"),
    ],
)
def test_refuses_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Correlation(**parameters)


def test_import_stays_light() -> None:
    code = (
        "import sys, hetapps.correlation;"
        "print({'numba', 'scipy', 'pyopencl', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"


def test_csv_output_keeps_names_with_commas(tmp_path: Path) -> None:
    path, output = written(tmp_path, '"a, b",c\n1,2\n3,5\n'), tmp_path / "out.csv"

    run(Correlation(path, str(output)))

    with output.open(newline="") as file:
        names = [[row[0] for row in csv.reader(file)]]
    with output.open(newline="") as file:
        names.append(next(csv.reader(file)))
    assert names == [["", "a, b", "c"]] * 2
