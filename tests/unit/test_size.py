import json
import subprocess
import sys
from pathlib import Path

SIZE = Path(__file__).parents[2] / "tools" / "size"


def figures(directory):
    command = [sys.executable, SIZE, "--json", directory]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout)


def test_counts_every_line_and_each_folder_by_itself(tmp_path):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "a.py").write_text("# comment\n\nx = 1\n")
    (package / "inner" / "b.py").write_text("y = 2")
    (package / "inner" / "c.py").write_text("z = 3\nz = 4\n")
    (package / "inner" / "data.toml").write_text("not = 'Python'\n")
    assert figures(package) == {
        "lines": 6,
        "files": 3,
        "files_per_folder": {"package/inner": 2, "package": 1},
        "longest_files": {"package/a.py": 3, "package/inner/c.py": 2, "package/inner/b.py": 1},
    }


def test_measures_the_package_when_no_directory_is_given():
    printed = subprocess.run([SIZE], check=True, capture_output=True, text=True, timeout=200).stdout
    assert "  files\n" in printed
    assert "fpga_pool/" in printed


def test_no_file_of_the_package_has_more_than_400_lines_and_no_folder_more_than_15_files():
    found = figures(SIZE.parents[1] / "fpga_pool")
    assert {name: lines for name, lines in found["longest_files"].items() if lines > 400} == {}
    assert {name: files for name, files in found["files_per_folder"].items() if files > 15} == {}
