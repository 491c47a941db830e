# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Fine-tuning on rows, end to end: training, evaluation, resuming, and what is refused."""
import json
import shutil
import unittest

from harness import ChatWorkspace, children, finish, gpt2, kill, llama, read_safetensors, relative, run_skein

PACKED = ("packing=true",)
SHORT = dict(max_steps=6, global_batch_size=4, lr_scheduler_type="linear", warmup_steps=1)


def message(role, content):
    return {"role": role, "content": content}


def conversation(*contents):
    """user, assistant, user, …"""
    return {"messages": [message(("user", "assistant")[i % 2], content) for i, content in enumerate(contents)]}


def losses(records):
    return [record["loss"] for record in records if "loss" in record]


class Training(unittest.TestCase):
    def test_it_learns_and_ranks_agree(self):
        with ChatWorkspace(max_steps=30, global_batch_size=8, learning_rate=5e-3) as work:
            for words in ((), PACKED, ("group_by_length=true",)):
                with self.subTest(words=words):
                    alone = work.run("output_dir=alone", "--fresh", *words)
                    self.assertIn("the end of a turn is trained on in 40 of 40 rows", alone.stderr)
                    work.run("output_dir=two", "--fresh", "distributed_strategy=zero2",
                             "per_device_train_batch_size=2", *words, ranks=2)
                    found, expected = losses(work.records("two")), losses(work.records("alone"))
                    self.assertEqual(len(expected), 30)
                    self.assertLess(expected[-1], 0.7 * expected[0])
                    for a, b in zip(found, expected):
                        self.assertLess(relative(a, b), 1e-5)

    def test_only_the_assistant_is_learned(self):
        with ChatWorkspace(**SHORT) as work:
            work.write_rows([conversation("a" * 50, "b")] * 8)
            for words, targets in (((), 3), (("train_on_prompt=true",), 71)):
                work.run("output_dir=out", "--fresh", "logging_steps=1", *words)
                audit = run_skein(["data", "inspect", "c.yaml", "--rows", "1", *words], work.folder).stdout
                # b, the end of the turn and its line feed; or all but the first token.
                self.assertIn(f"{8 * targets} trained on", audit)

    def test_epochs_are_counted_exactly(self):
        with ChatWorkspace(num_rows=37, global_batch_size=2, num_train_epochs=3, block_size=96,
                           save_strategy="epoch") as work:
            work.run("output_dir=out", *PACKED)
            records = work.records("out")
            ends = [record["step"] for record in records if record["epoch"] in (1.0, 2.0, 3.0)]
            self.assertEqual(len(ends), 3)
            self.assertEqual(sorted(int(path.name.split("-")[1]) for path in (work / "out").glob("checkpoint-*")),
                             ends)
            for step, epoch in zip(ends, (1, 2, 3)):
                state = json.loads((work / f"out/checkpoint-{step}/trainer_state.json").read_text())
                self.assertEqual(state["epoch"], epoch)
            self.assertEqual(records[-1]["step"], ends[-1])

    def test_a_cut_run_goes_on_to_the_byte(self):
        with ChatWorkspace(num_rows=23, save_steps=1, block_size=96, **SHORT) as work:
            for words in (PACKED, ("group_by_length=true",), ()):
                with self.subTest(words=words):
                    work.run("output_dir=whole", "--fresh", *words, ranks=2)
                    shutil.rmtree(work / "cut", ignore_errors=True)
                    shutil.copytree(work / "whole", work / "cut", symlinks=True)
                    for step in range(4, 7):
                        shutil.rmtree(work / f"cut/checkpoint-{step}")
                    (work / "cut/model.safetensors").unlink()
                    ended = work.run("output_dir=cut", *words, ranks=2)
                    self.assertIn("continuing cut/checkpoint-3 at step 3", ended.stderr)
                    for name in ("model.safetensors", "optimizer.safetensors"):
                        self.assertEqual((work / f"cut/checkpoint-6/{name}").read_bytes(),
                                         (work / f"whole/checkpoint-6/{name}").read_bytes())
                    self.assertEqual(losses(work.records("cut")), losses(work.records("whole")))

    def test_a_killed_run_goes_on_to_the_byte(self):
        with ChatWorkspace(num_rows=23, save_steps=2, block_size=96, **SHORT | {"max_steps": 40}) as work:
            words = (*PACKED, "distributed_strategy=zero3")
            work.run("output_dir=whole", *words, ranks=2)
            process = work.start("output_dir=killed", *words, ranks=2)
            work.wait_for_step(process, "killed", 5)
            kill(children(process.pid))
            process.kill()
            finish(process)
            ended = work.run("output_dir=killed", *words, ranks=2)
            self.assertIn("continuing killed/checkpoint-", ended.stderr)
            for name in ("model.safetensors", "checkpoint-40/optimizer.safetensors"):
                self.assertEqual((work / "killed" / name).read_bytes(), (work / "whole" / name).read_bytes())
            self.assertEqual(losses(work.records("killed")), losses(work.records("whole")))

    def test_another_template_mask_or_packing_is_another_order(self):
        with ChatWorkspace(save_steps=3, **SHORT) as work:
            work.run("output_dir=out", "max_steps=3")
            (work / "own.jinja").write_text(
                "{% for m in messages %}<|im_start|>{{ m.role }} {% generation %}{{ m.content }}<|im_end|>"
                "{% endgeneration %}{% endfor %}")
            for words in (("template=", "chat_template=own.jinja"), ("mask_history=true",), PACKED,
                          ("group_by_length=true",), ("excess_length_strategy=drop",)):
                with self.subTest(words=words):
                    ended = work.run("output_dir=out", *words, code=2)
                    self.assertIn("template, masks or packing changed", ended.stderr)


class Evaluation(unittest.TestCase):
    def test_rows_are_evaluated_in_training_and_alone(self):
        with ChatWorkspace(eval_strategy="steps", eval_steps=3, eval_file="eval.jsonl", **SHORT) as work:
            work.write_chat(9, "eval.jsonl", seed=2)
            for words in ((), PACKED):
                work.run("output_dir=out", "--fresh", *words, ranks=2)
                evaluated = [record["eval_loss"] for record in work.records("out") if "eval_loss" in record]
                self.assertEqual(len(evaluated), 2)
                for ranks in (1, 2):
                    alone = json.loads(run_skein(
                        ["eval", "out", "--dataset", "eval.jsonl", "--template", "chatml", "--cutoff-len", "128",
                         "--device", "cpu", "--json", "--nproc-per-node", ranks], work.folder).stdout)
                    self.assertLess(relative(alone["eval_loss"], evaluated[-1]), 1e-6)
                    self.assertEqual(alone["num_samples"], 9)
            everything = json.loads(run_skein(
                ["eval", "out", "--dataset", "eval.jsonl", "--template", "chatml", "--train-on-prompt", "--device",
                 "cpu", "--json"], work.folder).stdout)
            self.assertGreater(everything["num_tokens"], 2 * alone["num_tokens"])

    def test_rows_that_are_texts_are_blocks(self):
        with ChatWorkspace(**SHORT) as work:
            work.run("output_dir=out")
            (work / "texts.jsonl").write_text(json.dumps({"text": "a" * 99}) + "\n")
            result = json.loads(run_skein(["eval", "out", "--dataset", "texts.jsonl", "--block-size", "25",
                                           "--device", "cpu", "--json"], work.folder).stdout)
            self.assertEqual((result["num_samples"], result["num_tokens"]), (4, 96))

    def test_what_a_data_set_is_does_not_hang_on_its_first_line(self):
        with ChatWorkspace(**SHORT) as work:
            work.run("output_dir=out")
            command = ["eval", "out", "--dataset", "mixed.jsonl", "--device", "cpu", "--json"]
            work.write_rows([{"text": "a" * 9}, conversation("a", "b")], "mixed.jsonl")
            ended = run_skein(command, work.folder)
            # A text and its end, but for the first token; b, the end of the turn and its line feed.
            self.assertEqual(json.loads(ended.stdout)["num_tokens"], 9 + 3)
            self.assertIn("prepared the eval data", ended.stderr)
            self.assertNotIn("train data", ended.stderr)
            (work / "mixed.jsonl").write_text("{\n" + json.dumps(conversation("a", "b")) + "\n")
            ended = run_skein(command, work.folder, code=4)
            self.assertIn("mixed.jsonl:1: ", ended.stderr)
            ended = run_skein([*command, "bad_lines=skip"], work.folder)
            self.assertEqual(json.loads(ended.stdout)["num_tokens"], 3)
            # As training is told: rows of one text each.
            work.write_rows([{"text": "a" * 9}] * 2, "mixed.jsonl")
            for words, samples in (((), 1), (("--stage", "sft"), 2), (("stage=sft",), 2), (("--stage", "pt"), 1)):
                ended = run_skein([*command, *words], work.folder)
                self.assertEqual(json.loads(ended.stdout)["num_samples"], samples, words)
            ended = run_skein([*command, "--stage", "ppo"], work.folder, code=2)
            self.assertIn("--stage: 'ppo' is neither pt (text) nor sft (rows)", ended.stderr)

    def test_words_of_eval_name_its_flags(self):
        with ChatWorkspace(**SHORT) as work:
            work.run("output_dir=out")
            (work / "rows").mkdir()
            work.write_chat(4, "rows/a.jsonl")
            (work / "rows/b.csv").write_text("x")
            ended = run_skein(["eval", "out", "--dataset", "rows", "--device", "cpu"], work.folder)
            self.assertIn("--dataset: 1 file of rows left out", ended.stderr)
            (work / "out/tokenizer.json").unlink()
            ended = run_skein(["eval", "out", "--dataset", "chat.jsonl"], work.folder, code=2)
            self.assertIn("--tokenizer FOLDER", ended.stderr)
            for flag in ("--tokenizer", "--tokenizer-name-or-path"):
                run_skein(["eval", "out", "--dataset", "chat.jsonl", flag, "model", "--template", "chatml", "--device",
                           "cpu"], work.folder)

    def test_rows_are_held_out(self):
        with ChatWorkspace(eval_strategy="steps", eval_steps=3, **SHORT) as work:
            for words, held_out in ((("val_size=0.2",), 8), (("val_size=5",), 5), ((), 2)):
                ended = work.run("output_dir=out", "--fresh", *words)
                self.assertIn(f"train  {40 - held_out} of 40 rows", ended.stderr)
                self.assertIn(f"eval   {held_out} of 40 rows", ended.stderr)


class Commands(unittest.TestCase):
    def test_inspect_shows_what_is_trained_on(self):
        with ChatWorkspace() as work:
            work.write_rows([conversation("Hi", "Ho\u001b"), conversation("1", "2", "3", "4")])
            shown = run_skein(["data", "inspect", "c.yaml", "--rows", "2"], work.folder).stdout
            self.assertIn("⟦<|im_start|>user\n  Hi<|im_end|>\n  <|im_start|>assistant\n  ⟧Ho\\x1B<|im_end|>", shown)
            self.assertIn("chat.jsonl:1", shown)
            self.assertIn("up to", shown)
            self.assertIn("the end of a turn is trained on in 2 of 2 rows", shown)
            prepared = run_skein(["data", "prepare", "c.yaml"], work.folder).stdout
            self.assertIn(".rows", prepared)
            ended = run_skein(["data", "inspect", "c.yaml", "--split", "eval"], work.folder, code=2)
            self.assertIn("has no evaluation data", ended.stderr)

    def test_turns_that_render_to_nothing_are_told(self):
        call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "look"}}]}
        with ChatWorkspace(max_steps=1, global_batch_size=2) as work:
            (work / "plain.jinja").write_text(
                "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
            work.write_rows([conversation("a", "b"), conversation("a", ""),
                             {"messages": [message("user", "a"), call]}])
            words = ["c.yaml", "output_dir=out", "template=", "chat_template=plain.jinja"]
            for command in (["data", "inspect"], ["train"]):
                ended = run_skein([*command, *words], work.folder)
                self.assertIn("warning: 2 assistant turns render to nothing", ended.stdout + ended.stderr)
                self.assertRegex(ended.stdout + ended.stderr, "tool calls; first .*chat.jsonl:2")

    def test_plan_counts_rows_and_packs(self):
        with ChatWorkspace(num_rows=37, global_batch_size=2, num_train_epochs=1, block_size=96) as work:
            for words in ((), PACKED):
                work.run("output_dir=out", "--fresh", *words)
                steps = work.records("out")[-1]["step"]
                shutil.rmtree(work / "out")
                text = run_skein(["plan", "c.yaml", *words], work.folder).stdout
                plan = json.loads(run_skein(["plan", "c.yaml", "--json", *words], work.folder).stdout)
                self.assertEqual(plan["data"]["rows"], 37)
                self.assertEqual(plan["data"]["packs"] > 0, bool(words))
                self.assertIn("37 rows", text)
                self.assertLessEqual(abs(plan["steps"]["total"] - steps), 1)


class BadInput(unittest.TestCase):
    """Each: exit code, and one message that names the place and what to do."""

    def refuse(self, work, code, *parts, words=(), reads_data=False):
        # Of `skein train`, of `skein plan`, which starts nothing, and of `skein config check`, which reads no data.
        commands = [["train"], ["plan"]] + ([] if code == 4 or reads_data else [["config", "check"]])
        for command in commands:
            ended = run_skein([*command, "c.yaml", "output_dir=out", *words], work.folder, code=code)
            self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
            for part in parts:
                self.assertIn(part, ended.stderr, command)
        self.assertFalse(list((work / ".").glob("out/checkpoint-*")))

    def test_rows(self):
        good = conversation("a", "b")
        cases = [
            ({"question": "a", "answer": "b"}, "chat.jsonl:2: ", "messages"),
            ({"messages": []}, "chat.jsonl:2: ", "no message"),
            (conversation("a", "b") | {"messages": [message("assistant", "b"), message("user", "a")]},
             "chat.jsonl:2: ", "roles out of order"),
            ({"messages": [message("user", "a"), message("user", "b")]}, "chat.jsonl:2: ", "user"),
            ({"messages": [message("king", "a")]}, "chat.jsonl:2: ", "king"),
            ({"prompt": "a"}, "chat.jsonl:2: ", "completion"),
            ({"prompt": "a", "chosen": "b", "rejected": "c"}, "chat.jsonl:2: ", "chosen"),
        ]
        with ChatWorkspace() as work:
            for row, *parts in cases:
                with self.subTest(row=row):
                    work.write_rows([good, row, good])
                    self.refuse(work, 4, *parts, "bad_lines=skip")
                    prepared = run_skein(["data", "prepare", "c.yaml", "bad_lines=skip"], work.folder)
                    self.assertIn("train  2 of 2 rows", prepared.stdout)
                    self.assertIn("1 bad rows left out", prepared.stdout)
                    self.assertIn("chat.jsonl:2: ", prepared.stderr)
            work.write_rows([good, {"messages": []}] + [good] * 20)
            ended = work.run("output_dir=out", "max_steps=1", "bad_lines=skip")
            self.assertIn("1 bad", ended.stderr)

    def test_files_by_other_names_and_in_other_encodings(self):
        rows = [conversation("a", "b")] * 8
        with ChatWorkspace(max_steps=1, global_batch_size=2) as work:
            (work / "list.jsonl").write_text(json.dumps(rows, indent=2))
            ended = work.run("train_file=list.jsonl", "output_dir=list")
            self.assertIn("train  8 of 8 rows", ended.stderr)
            for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
                (work / "wide.jsonl").write_bytes("".join(json.dumps(row) + "\n" for row in rows).encode(encoding))
                self.refuse(work, 4, "wide.jsonl: the file is UTF-16", "iconv -f UTF-16",
                            words=("train_file=wide.jsonl",))
            (work / "data").mkdir()
            (work / "data/chat.json").write_text(json.dumps(rows))
            (work / "data/dataset_info.json").write_text(json.dumps({"chat": {"file_name": "chat.json"}}, indent=2))
            ended = work.run("train_file=", "train_file_dir=data", "output_dir=folder")
            self.assertIn("train  8 of 8 rows", ended.stderr)
            self.assertIn("data/dataset_info.json describes data sets and holds no row: left out", ended.stderr)
            work.write_rows([{"question": "a", "answer": "b"}] * 8)
            ended = work.run("output_dir=out", code=4)
            self.assertIn("jq -c '.instruction = .question | .output = .answer | del(.question, .answer)' OLD.jsonl > NEW.jsonl", ended.stderr)
            self.assertNotIn("bad_lines", ended.stderr)

    def test_a_line_of_100_megabytes(self):
        with ChatWorkspace() as work:
            with open(work / "chat.jsonl", "a") as file:
                file.write('{"messages": [{"role": "user", "content": "' + "x" * 100_000_000 + '"}]}\n')
            ended = work.run("output_dir=out", "max_steps=1", code=4)
            self.assertIn("chat.jsonl:41: the row is longer than 64 MiB", ended.stderr)
            ended = work.run("output_dir=out", "max_steps=1", "bad_lines=skip")
            self.assertIn("1 bad", ended.stderr)

    def test_templates(self):
        with ChatWorkspace() as work:
            work.write_recipe({key: value for key, value in work.keys.items() if key != "template"})
            self.refuse(work, 2, "chat.jsonl:1: model has no chat template", "chatml, llama3, qwen", reads_data=True)
            self.refuse(work, 2, "both set", words=("template=chatml", "chat_template=own.jinja"))
            self.refuse(work, 2, "named by template: chatml", words=("chat_template=chatml",))
            self.refuse(work, 2, "chatml", words=("template=chatlm",))
            self.refuse(work, 2, "there is no file", words=("chat_template=nothing.jinja",))
            self.refuse(work, 2, "/dev/null is no regular file", words=("chat_template=/dev/null",))
            (work / "broken.jinja").write_text("{% for m in messages %}")
            self.refuse(work, 2, "broken.jinja", words=("chat_template=broken.jinja",))
            (work / "later.jinja").write_text("{% for m in messages %}{{ messages|length }}{{ m.content }}{% endfor %}")
            self.refuse(work, 4, "chat.jsonl:", "later.jinja: the text of message 2 (assistant) depends on",
                        "generation", words=("chat_template=later.jinja",))
            (work / "strict.jinja").write_text("{{ raise_exception('no rows today') }}")
            self.refuse(work, 4, "chat.jsonl:1: ", "no rows today", words=("chat_template=strict.jinja",))

    def test_tokens_that_the_tokenizer_does_not_have(self):
        says = 'new_special_tokens: ["<|user|>", "<|end|>", "<|assistant|>"] and resize_vocab: true'
        with ChatWorkspace() as work:
            self.refuse(work, 2, "template: phi3 ends turns with tokens that model does not have", says,
                        words=("template=phi3",))
            tokens = "new_special_tokens=<|user|>,<|end|>,<|assistant|>"
            ended = work.run("output_dir=grown", "template=phi3", tokens, "resize_vocab=true", "max_steps=1")
            self.assertIn("the end of a turn is trained on in 40 of 40 rows", ended.stderr)
            # The model's own, which rows without turns do not need.
            shown = run_skein(["template", "show", "phi3"], work.folder).stdout
            (work / "model/chat_template.jinja").write_text(shown)
            ended = work.run("output_dir=out", "template=", code=4)
            self.assertIn(says, ended.stderr)
            work.write_rows([{"prompt": "a", "completion": "b"}] * 40)
            work.run("output_dir=out", "template=", "max_steps=1")

    def test_files_that_are_not_there(self):
        with ChatWorkspace() as work:
            self.refuse(work, 2, "eval_file: nowhere.jsonl does not exist", words=("eval_file=nowhere.jsonl",))
            self.refuse(work, 2, "train_file: nowhere.jsonl does not exist", words=("train_file=nowhere.jsonl",))
            self.refuse(work, 2, "org/name --local-dir name", words=("model_name_or_path=org/name",))
            self.refuse(work, 2, "holds neither model.safetensors", words=("train_from_scratch=false",))

    def test_a_template_that_never_ends_a_turn(self):
        with ChatWorkspace() as work:
            (work / "endless.jinja").write_text(
                "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}")
            for command in (["train"], ["data", "inspect"]):
                ended = run_skein([*command, "c.yaml", "output_dir=out", "template=",
                                   "chat_template=endless.jinja"], work.folder, code=4)
                self.assertIn("in no row of the train data is the end of a turn trained on", ended.stderr)

    def test_rows_without_a_target(self):
        with ChatWorkspace(block_size=64) as work:
            work.write_rows([conversation("a", "b")] * 9 + [conversation("a" * 70, "b")])
            ended = work.run("output_dir=out", code=4)
            self.assertIn("1 of 10 rows of the train data (10.0 %) have a prompt as long as cutoff_len=64", ended.stderr)
            self.assertIn("larger cutoff_len", ended.stderr)

    def test_rows_that_are_too_long(self):
        with ChatWorkspace(block_size=64) as work:
            work.write_rows([conversation("a", "b")] * 39 + [conversation("a", "b" * 90)])
            ended = work.run("output_dir=out", "max_steps=1")
            self.assertIn("1 rows longer than cutoff_len=64 cut short", ended.stderr)
            ended = work.run("output_dir=out", "max_steps=1", "--fresh", "excess_length_strategy=error", code=4)
            self.assertIn("chat.jsonl:40: the row has", ended.stderr)

    def test_tokens_that_the_model_does_not_have(self):
        with ChatWorkspace() as work:
            work.write_tokenizer(extra=("<|a|>", "<|b|>"))
            self.refuse(work, 2, "vocab_size is 260", "resize_vocab")

    def test_new_tokens_without_rows_for_them(self):
        with ChatWorkspace() as work:
            self.refuse(work, 2, "with them the tokenizer has 261 ids, but the model has rows for 260",
                        "resize_vocab=true gives it the rows that it lacks",
                        words=("new_special_tokens=<|a|>,<|b|>",))
            work.run("output_dir=grown", "max_steps=1", "new_special_tokens=<|a|>,<|b|>", "resize_vocab=true")
            self.assertEqual(json.loads((work / "grown/config.json").read_text())["vocab_size"], 261)

    def test_new_rows_beside_layers_of_as_many(self):
        with ChatWorkspace(llama(vocab_size=260, intermediate_size=261, max_position_embeddings=256)) as work:
            work.run("output_dir=base", "max_steps=1", "save_strategy=no")
            work.run("output_dir=grown", "max_steps=1", "new_special_tokens=<|a|>,<|b|>", "resize_vocab=true",
                     "model_name_or_path=base", "train_from_scratch=false")
            shapes = {name: tensor[1] for name, tensor in read_safetensors(work / "grown/model.safetensors").items()}
            self.assertEqual(shapes["model.embed_tokens.weight"], [261, 32])
            self.assertEqual(shapes["model.layers.0.mlp.up_proj.weight"], [261, 32])

    def test_new_rows_that_an_adapter_cannot_hold(self):
        with ChatWorkspace() as work:
            work.run("output_dir=base", "max_steps=1", "save_strategy=no")
            words = ["model_name_or_path=base", "train_from_scratch=false", "finetuning_type=lora", "max_steps=1",
                     "output_dir=out"]
            ended = work.run(*words, "new_special_tokens=<|a|>")  # 260 rows, of which 259 were in use
            self.assertIn("modules_to_save=embed_tokens,lm_head trains them", ended.stderr)
            ended = work.run(*words, "--fresh", "new_special_tokens=<|a|>,<|b|>", "resize_vocab=true", code=2)
            self.assertIn("need 1 rows of the embedding that the base does not have", ended.stderr)
            # Of a template's tokens that is said at once: other advice would end there too.
            ended = work.run(*words, "--fresh", "template=phi3", code=2)
            self.assertIn("phi3 ends turns with <|user|> and <|end|> and <|assistant|>", ended.stderr)
            self.assertIn("need 2 rows of the embedding that the base does not have", ended.stderr)

    def test_positions_of_rows(self):
        """Packs may be longer than what a model has positions for, rows may not; rotary ones are warned of."""
        row = {"prompt": "a" * 20, "completion": "b" * 20}
        for model, key in ((gpt2(vocab_size=260), "n_positions"), (llama(vocab_size=260), "max_position_embeddings")):
            with self.subTest(model["model_type"]), ChatWorkspace(model, block_size=2048, packing="true") as work:
                (work / "chat.jsonl").write_text((json.dumps(row) + "\n") * 40)
                ended = work.run("output_dir=short", "max_steps=1")
                self.assertNotIn("positions", ended.stderr)
                long = json.dumps(row | {"completion": "b" * 80}) + "\n"
                (work / "chat.jsonl").write_text((json.dumps(row) + "\n") * 40 + long)
                ended = work.run("output_dir=long", "max_steps=1", code=2 if key == "n_positions" else 0)
                self.assertRegex(ended.stderr, r"a row has \d+ tokens, but the model.* 64 positions")
                self.assertIn("block_size=64", ended.stderr)  # as the recipe spells it
                self.assertNotIn("positions", work.run("output_dir=cut", "max_steps=1", "block_size=64").stderr)

    def test_evaluated_rows_are_as_long_as_the_model_is_made_for(self):
        stretched = llama(vocab_size=260, max_position_embeddings=32,
                          rope_scaling={"rope_type": "dynamic", "factor": 8.0})
        with ChatWorkspace(stretched) as work:
            work.run("output_dir=out", "max_steps=1")
            command = ["eval", "out", "--dataset", "chat.jsonl", "--template", "chatml", "--device", "cpu", "--json"]
            found, whole = (json.loads(run_skein([*command, *words], work.folder).stdout) for words in
                            ([], ["--cutoff-len", "256"]))
            self.assertEqual(found, whole)
            cut = json.loads(run_skein([*command, "--cutoff-len", "32"], work.folder).stdout)
            self.assertLess(cut["num_tokens"], found["num_tokens"])

    def test_no_tokenizer(self):
        with ChatWorkspace() as work:
            (work / "model/tokenizer.json").unlink()
            self.refuse(work, 2, "needs a tokenizer", "tokenizer_name_or_path")


if __name__ == "__main__":
    unittest.main()
