# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein plan` and `skein train` know the same rules: what one refuses the other refuses with the same words,
before any rank starts; what plan announces is what train does."""
import json
import subprocess
import unittest

import harness
from harness import Workspace, gpt2, run_skein

DRIVER = r"""
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? (device == 0 ? 8 : 7) : 0;  /* an A100 and a V100 */
  return 0;
}
"""


def message(stderr):
    return stderr[stderr.index("error: "):]


class Plan(unittest.TestCase):
    def test_plan_and_train_refuse_alike_before_ranks_start(self):
        cases = {
            "positions": ["block_size=65"],
            "best model": ["load_best_model_at_end=true", "eval_strategy=no"],
            "best model without saves": ["load_best_model_at_end=true", "eval_strategy=epoch",
                                         "save_strategy=no"],
            "weights": ["train_from_scratch=false"],
            "data": ["train_file=nowhere.txt"],
            "evaluation data": ["eval_strategy=epoch", "eval_file=nowhere.txt"],
            "family": ["model_name_or_path=other"],
            "batch": ["global_batch_size=9"],
        }
        with Workspace(gpt2(), output_dir="out") as work:
            work.write_model({"model_type": "mystery"}, name="other")
            for name, words in cases.items():
                with self.subTest(name):
                    trained = work.run(*words, ranks=2, code=2)
                    planned = run_skein(["plan", *work.command(*words, ranks=2)[1:]], work.folder, 2)
                    self.assertEqual(message(planned.stderr), message(trained.stderr))
                    self.assertNotIn("rank 0", trained.stderr)
                    self.assertEqual(planned.stdout, "")
                    self.assertFalse((work / "out").exists())

    def test_all_of_a_run_can_be_warm_up(self):
        with Workspace(max_steps=4, output_dir="out", warmup_ratio=1.0) as work:
            plan = json.loads(run_skein(["plan", "c.yaml", "--json"], work.folder).stdout)
            self.assertEqual(plan["steps"]["warmup"], 4)
            work.run(ranks=1)
            rates = [record["learning_rate"] for record in work.records("out")]
            self.assertEqual([round(rate * 4e3) for rate in rates], [0, 1, 2, 3])

    def test_gpus_without_bfloat16_are_seen(self):
        """The driver is asked: here one of ours, with two GPUs."""
        with Workspace(device="auto") as work:
            (work / "driver.c").write_text(DRIVER)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"], cwd=work.folder,
                           check=True)
            environment = harness.ENVIRONMENT | {"LD_LIBRARY_PATH": str(work.folder)}
            ended = subprocess.run([harness.SKEIN, "plan", "c.yaml", "--json"], cwd=work.folder, text=True,
                                   env=environment, capture_output=True, check=True)
            hardware = json.loads(ended.stdout)["hardware"]
            self.assertEqual((hardware["gpus"], hardware["gpus_have_bfloat16"]), (2, False))


if __name__ == "__main__":
    unittest.main()
