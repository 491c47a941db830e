# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Shows that each check passes on good files and fails on a violation."""
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import check_docs
import check_layers
import check_lengths

TOOLS = Path(__file__).resolve().parent
LAYERS = "core:\nlaunch/placement: core\nlaunch/ranks: core launch/placement\ntensor: core\ndata: core tensor\ncli: *\ntorch_free: core launch\n"


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("Makefile", "build: setup\nsetup:\n")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)


class Layers(Tree):
    def setUp(self):
        super().setUp()
        self.allow(LAYERS)

    def allow(self, layers):
        """Writes layers.txt, and a file in each folder that includes all it may."""
        shutil.rmtree(self.root / "skein", ignore_errors=True)
        self.write("tools/layers.txt", layers)
        for folder, names in check_layers.read_layers(self.root / "tools/layers.txt").items():
            if folder != "torch_free":
                self.write(f"skein/{folder}/all.h", "".join(f'#include "skein/{name}/all.h"\n' for name in names if name != "*"))

    def check(self):
        return list(check_layers.main(self.root))

    def test_downward_includes_pass(self):
        self.write("skein/core/error.h", "#include <string>\n")
        self.write("skein/tensor/flat.h", '#include <ATen/core/Tensor.h>\n#include "skein/core/error.h"\n')
        self.write("skein/cli/main.cpp", '#include "skein/tensor/flat.h"\n')
        self.assertEqual(self.check(), [])

    def test_an_upward_include_names_both_files(self):
        self.write("skein/core/error.cpp", '#include "skein/tensor/flat.h"\n')
        [error] = self.check()
        self.assertIn("skein/core/error.cpp includes skein/tensor/flat.h", error)

    def test_json_has_one_reader(self):
        self.write("skein/core/json.cpp", "return Json::sax_parse(text);\n")
        self.write("skein/data/row_test.cpp", "return nlohmann::json::parse(text);\n")
        self.write("skein/data/row.cpp", "using json = nlohmann::json;  // json::parse\n")
        self.assertEqual(self.check(), [])
        self.write("skein/data/row.cpp", "return nlohmann::ordered_json::parse(text);\n")
        [error] = self.check()
        self.assertIn("skein/data/row.cpp reads JSON", error)

    def test_a_folder_without_a_line_is_refused(self):
        self.write("skein/misc/a.h", "")
        self.assertIn("'misc' has no line", self.check()[0])

    def test_sub_folders_have_lines_of_their_own(self):
        self.write("skein/launch/placement/detect.h", "")
        self.write("skein/launch/ranks/launcher.h", '#include "skein/launch/placement/detect.h"\n')
        self.write("skein/cli/main.cpp", '#include "skein/launch/ranks/launcher.h"\n')
        self.assertEqual(self.check(), [])
        self.write("skein/launch/placement/detect.h", '#include "skein/launch/ranks/launcher.h"\n')
        self.assertIn("'launch/placement' may not include 'launch/ranks'", self.check()[0])
        self.write("skein/launch/placement/detect.h", "")
        self.write("skein/launch/board/board.h", "")
        self.assertIn("'launch/board' has no line", self.check()[0])

    def test_a_folder_s_name_allows_all_below_it(self):
        self.allow("launch/placement:\ndata: launch\n")
        self.write("skein/launch/placement/detect.h", "")
        self.write("skein/data/a.h", '#include "skein/launch/placement/detect.h"\n')
        self.assertEqual(self.check(), [])

    def test_a_line_names_lines_above_it_alone(self):
        self.allow("core: data\ndata: core\n")
        [error] = self.check()
        self.assertIn("'core' names 'data'", error)

    def test_a_line_names_no_more_than_is_included(self):
        self.assertEqual(self.check(), [])
        self.write("skein/data/all.h", '#include "skein/core/all.h"\n')
        [error] = self.check()
        self.assertIn("'data' names 'tensor', which none of its files includes", error)

    def test_a_folder_takes_sixty_sources(self):
        for i in range(59):  # and all.h
            self.write(f"skein/core/a{i}.h", "")
        self.write("skein/core/CMakeLists.txt", "")
        self.assertEqual(self.check(), [])
        self.write("skein/core/one_more.cpp", "")
        self.assertIn("skein/core: 61 sources", self.check()[0])

    def test_torch_in_a_torch_free_folder(self):
        self.write("skein/core/error.h", "#include <c10/util/Exception.h>\n")
        self.assertIn("skein/core/error.h includes c10/util/Exception.h", self.check()[0])
        self.write("skein/core/error.h", "")
        self.write("skein/launch/placement/detect.h", "#include <c10/util/Exception.h>\n")
        self.assertIn("skein/launch/placement/detect.h includes c10/util/Exception.h", self.check()[0])

    def test_torch_reached_by_a_torch_free_sub_folder(self):
        self.allow("tensor:\ndata/files: tensor\ndata: tensor\ntorch_free: data/files\n")
        self.write("skein/tensor/flat.h", "#include <ATen/core/Tensor.h>\n")
        self.write("skein/data/header.cpp", '#include "skein/tensor/flat.h"\n')
        self.assertEqual(self.check(), [])
        self.write("skein/data/files/header.cpp", '#include "skein/tensor/flat.h"\n')
        self.assertIn("reached from skein/data/files/header.cpp", self.check()[0])

    def test_torch_in_a_cuda_file(self):
        self.write("skein/tensor/a.cu", "#include <ATen/core/Tensor.h>\n")
        self.assertIn("skein/tensor/a.cu includes ATen", self.check()[0])


class Lengths(Tree):
    def check(self):
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        return list(check_lengths.main(self.root))

    def test_lengths_at_the_limit_pass(self):
        self.write("skein/core/a.cpp", "x\n" * 800)
        self.write("skein/train/offline.cpp", "x\n" * 150)
        self.assertEqual(self.check(), [])

    def test_one_line_more_fails(self):
        self.write("skein/core/a.cpp", "x\n" * 801)
        self.write("skein/train/offline.cpp", "x\n" * 151)
        self.assertEqual(len(self.check()), 2)


class Docs(Tree):
    def check(self, text):
        self.write("README.md", text)
        return list(check_docs.main(self.root))

    def test_what_exists_passes(self):
        self.write("skein/core/error.h", "")
        self.write("docs/a.md", "[up](../README.md)")
        self.assertEqual(self.check("`skein/core/error.h:12`, `core/error.h`, `skein/*/error.h`, `make setup`, "
                                    "`a/b`, `skein train`, [page](docs/a.md#top), [out](https://x.org/y)"), [])

    def test_missing_paths_links_and_targets_fail(self):
        self.write("skein/core/error.h", "")
        for text in ("`skein/core/gone.h`", "`core/gone.h`", "see `python3 tools/gone.py --x`", "[p](docs/gone.md)",
                     "```\ncat tests/gone.txt\n```\n", "`make gone`"):
            self.assertEqual(len(self.check(text)), 1, text)

    def test_only_marked_blocks_are_commands(self):
        self.write("README.md", "```bash run\nmake\n```\ntext\n```bash\nrm x\n```\n```bash run\nls\n```\n")
        self.assertEqual(check_docs.commands(self.root / "README.md").split(), ["make", "ls"])


class Format(Tree):
    @unittest.skipUnless(shutil.which("clang-format-19"), "no clang-format-19: tools/setup.sh --check")
    def test_only_formatted_files_pass(self):
        for text, code in (("int a = 1;\n", 0), ("int   a=1;\n", 1)):
            self.write("a.cpp", text)
            result = subprocess.run([TOOLS / "format.sh", "--check", self.root / "a.cpp"], capture_output=True)
            self.assertEqual(result.returncode, code, result.stderr)


if __name__ == "__main__":
    unittest.main()
