// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/load.h"

#include "skein/config/fields.h"
#include "skein/config/syntax/values.h"
#include "skein/config/test_support.h"

namespace skein::config {
namespace {

using LoadTest = ConfigTest;

TEST_F(LoadTest, ValuesAreReadByTheTypeOfTheirField) {
  const auto config = load_yaml(
                          "learning_rate: 1e-4\nmax_steps: 2e3\nblock_size: 1_024\n"
                          "warmup_ratio: 5%\ntrain_from_scratch: yes\ndata_seed: none\n"
                          "save_total_limit: ~\nexperiment_name: 0123\nseed: \"7\"\n")
                          .config;
  EXPECT_EQ(config.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(config.schedule.max_steps, 2000);
  EXPECT_EQ(config.data.block_size, 1024);
  EXPECT_EQ(config.schedule.warmup_ratio, 0.05);
  EXPECT_TRUE(config.model.train_from_scratch);
  EXPECT_FALSE(config.data_seed);
  EXPECT_FALSE(config.checkpoint.save_total_limit);
  EXPECT_EQ(config.checkpoint.experiment_name, "0123");
  EXPECT_EQ(config.seed, 7);
}

TEST_F(LoadTest, ListsOfFilesAndOtherGuidesSamples) {
  const auto resolved =
      load_yaml("train_file: [a.txt, b c.txt]\neval_file: e.txt\nmax_samples: 9\n");
  EXPECT_EQ(resolved.config.data.train_file, "a.txt,b c.txt");
  EXPECT_EQ(resolved.config.data.eval_file, "e.txt");
  EXPECT_EQ(resolved.config.data.max_train_samples, 9);
  EXPECT_PRED2(contains, notes_of(resolved), "blocks of block_size tokens, not documents");
  const auto rows = load_yaml("stage: sft\nmax_samples: 9\n");
  EXPECT_EQ(notes_of(rows), "run.yaml:2:1: 'max_samples' is read as max_train_samples: rows\n");
}

TEST_F(LoadTest, AllThatIsWrongIsToldAtOnce) {
  EXPECT_EQ(error_of("colour: red\nmax_stpes: 3\nseed: 1\nload_in_8bit: true\n", {"shape=round"}),
            "run.yaml:1:1: unknown key 'colour'\n"
            "  run.yaml:2:1: unknown key 'max_stpes'; did you mean 'max_steps'?\n"
            "  run.yaml:4:1: 'load_in_8bit' is a known key, but this version does not support "
            "it; remove it or set it to 'false'\n"
            "  command line: unknown key 'shape'");
  EXPECT_EQ(error_of("seed: one\nmax_steps: two\n"),
            "run.yaml:1:7: 'seed' must be a whole number, not 'one'\n"
            "  run.yaml:2:12: 'max_steps' must be a whole number, not 'two'");
  std::string many;
  for (int i = 0; i < 50; ++i) many += fmt::format("colour{}: red\n", i);
  EXPECT_TRUE(error_of(many).ends_with("'colour19'\n  and 30 more")) << error_of(many);
}

TEST_F(LoadTest, RefusalsSayWhereAndWhy) {
  struct Case {
    const char* yaml;
    const char* message;
  };
  const Case cases[] = {
      {"seed: 1\ntraining:\n  max_stpes: 3\n",
       "run.yaml:3:3: unknown key 'max_stpes'; did you mean 'max_steps'?"},
      {"colour: red\n", "run.yaml:1:1: unknown key 'colour'"},
      {"dataloader:\n  batchsize: 3\n",
       "run.yaml:2:3: unknown key 'dataloader.batchsize'; did you mean 'dataloader.batch_size'"},
      {"learning_rate:\n  a: 1\n", "run.yaml:2:3: 'learning_rate' takes a value, not a section"},
      {"seed: 1\ntraining:\n  seed: 2\n",
       "run.yaml:3:3: 'seed' is given twice: also at run.yaml:1:1"},
      {"cutoff_len: 1\ntraining:\n  cutoff_len: 2\n",
       "run.yaml:3:3: 'cutoff_len' is given twice: also at run.yaml:1:1"},
      {"lr: 1\nlearning_rate: 1\n",
       "run.yaml:2:1: 'learning_rate' contradicts 'lr' (run.yaml:1:1)"},
      {"bf16: true\ndtype: float32\n", "run.yaml:2:1: 'dtype' contradicts 'bf16'"},
      {"pure_bf16: true\ndtype: float32\n",
       "run.yaml:2:1: dtype is float32, but 'pure_bf16' (run.yaml:1:1) trains in bfloat16 alone"},
      {"fp16: true\npure_bf16: true\n", "dtype is float16, but 'pure_bf16'"},
      {"bf16: true\nmixed_precision: no\n", "'mixed_precision' contradicts 'bf16'"},
      {"learning_rate: fast\n", "run.yaml:1:16: 'learning_rate' must be a number, not 'fast'"},
      {"learning_rate:\n", "run.yaml:1:1: 'learning_rate' must be a number, not 'null'"},
      {"max_steps: 1.5\n", "'max_steps' must be a whole number, not '1.5'"},
      {"seed: 017\n", "run.yaml:1:7: 'seed' must be a whole number without leading zeros"},
      {"max_steps: [1, 2]\n", "'max_steps' must be a whole number, not '[1, 2]'"},
      {"gradient_checkpointing: maybe\n",
       "'gradient_checkpointing' must be true, false or offload"},
      {"per_device_train_batch_size: many\n", "must be a whole number or auto, not 'many'"},
      {"distributed_strategy: zero4\n", "zero1, zero2, zero3, deepspeed, not 'zero4'"},
      {"finetuning_type: qlora\n", "give finetuning_type: lora with quantization_bit: 4"},
      {"adapter: dora\n",
       "must be lora, qlora (lora beside weights in 4 bits) or none, not 'dora'"},
      {"adapter: dora\n", "DoRA is adapter: lora with use_dora: true"},
      {"offload_optimizer: true\n", "give cpu (host memory), or nvme with nvme_path: FOLDER"},
      {"offload_activations: cpu\n", "must be true or false, not 'cpu'; true is host memory"},
      {"gradient_accumulation_steps: auto\n", "it follows from global_batch_size and"},
      {"per_device_train_batch_size: -4\n",
       "run.yaml:1:30: 'per_device_train_batch_size' must be at least 1, not '-4'"},
      {"batch_size: 0\n", "must be at least 1"},
      {"save_steps: 0\n", "'save_steps' must be more than 0"},
      {"adam_beta2: 1\n", "'adam_beta2' must be less than 1, not '1'"},
      {"warmup_ratio: 1.5\n", "'warmup_ratio' must be at most 1"},
      {"offload_ratio: 1.5\n", "'offload_ratio' must be at most 1, not '1.5'"},
      {"offload_ratio: -0.5\n", "'offload_ratio' must be at least 0, not '-0.5'"},
      {"save_timeout: 9999999999\n", "'save_timeout' must be at most 1000000000"},
      {"ddp_timeout: 9223372036854775807\n", "'ddp_timeout' must be at most 1000000000"},
      {"ddp_backend: mpi\n", "'ddp_backend' must be one of auto, nccl, gloo, not 'mpi'"},
      {"lr_scheduler_type: cosin\n", "not 'cosin'; did you mean 'cosine'?"},
      {"lr_scheduler_type: reduce_lr_on_plateau\n",
       "'lr_scheduler_type: reduce_lr_on_plateau' is known, but this version does not support it"},
      {"stage: less\n", "'stage: less' is known, but this version does not support it"},
      {"warmup_steps: 10\nwarmup_ratio: 0.1\n",
       "run.yaml:2:1: 'warmup_ratio' and 'warmup_steps' (run.yaml:1:1)"},
      {"fp16: true\nbf16: true\n", "run.yaml:2:1: 'bf16' contradicts 'fp16' (run.yaml:1:1)"},
      {"mixed_precision: fp16\nbf16: true\n", "'bf16' contradicts 'mixed_precision'"},
      {"fp16: true\ndtype: bfloat16\n", "'dtype' contradicts 'fp16'"},
      {"optim: adafactor\n", "'optim: adafactor' is known, but this version does not support it"},
      {"profile_steps: 12-10\n",
       "'profile_steps' must be an update or a range of them, as 10-12, not '12-10'"},
      {"profile_steps: 0\n", "as 10-12, not '0'"},
      {"profile_steps: 3-\n", "as 10-12, not '3-'"},
      {"grad_accum_dtype: bf16\n", "'grad_accum_dtype' must be fp32 or auto, not 'bf16'"},
      {"distributed_strategy: deepspeed\n", "add deepspeed: FILE.json"},
      {"report_to: tensorbord\n", "not 'tensorbord'; did you mean 'tensorboard'?"},
      {"report_to: [tensorboard, mlflow]\n",
       "'report_to: mlflow' is known, but this version does not support it"},
      {"stage: orpo\n", "not 'orpo'; give stage: dpo with pref_loss: orpo"},
      {"pref_loss: dpo\n", "not 'dpo'; DPO's own is sigmoid"},
      {"stage: gpro\n", "not 'gpro'; did you mean 'grpo'"},
      {"pref_loss: [sigmoid, aot]\n",
       "'pref_loss: aot' is known, but it mixes the samples of a batch"},
      {"pref_loss: [sigmoid, hing]\n", "not 'hing'; did you mean 'hinge'"},
      {"loss_weights: [1, -1]\n", "'loss_weights' must be at least 0"},
      {"loss_weights: heavy\n", "'loss_weights' must be a number or a list of numbers"},
      {"rl: ipo\nstage: grpo\n", "contradicts"},
      {"greater_is_better: maybe\n", "'greater_is_better' must be one of auto, true, false"},
      {"reference_free: true\n", "pref_loss: simpo or orpo needs no reference"},
      {"val_size: -1\n", "'val_size' must be a share of the data below 1, or rows, not '-1'"},
      {"adapter: qlora\nquantization_bit: none\n", "contradicts 'adapter'"},
      {"load_in_4bit: 3\n", "'load_in_4bit' must be true or false, not '3'"},
      {"quantization_bit: 8\n",
       "'quantization_bit: 8' is known, but this version does not support it; it has none, 4"},
      {"quantization_type: fp4\n", "4-bit weights are NF4"},
      {"rank_pattern: {q_proj: 0.5}\n", "'rank_pattern.q_proj' must be at least 1, not '0.5'"},
      {"rank_pattern: 8\n", "'rank_pattern' must be names with numbers, {name: number}, not '8'"},
      {"use_peft: true\nfinetuning_type: full\n", "contradicts 'use_peft'"},
      {"save_strategy: best\n", "'save_strategy: best' is known, but this version"},
      {"load_best_model_at_end: true\n", "set eval_strategy: steps or epoch"},
      {"early_stopping_patience: 3\n",
       "'early_stopping_patience' needs evaluations; set eval_strategy: steps or epoch"},
      {"load_best_model_at_end: true\neval_strategy: steps\nsave_strategy: 'no'\n",
       "needs checkpoints; set save_strategy: steps or epoch"},
      {"load_best_model_at_end: true\neval_strategy: steps\neval_steps: 3\nsave_steps: 5\n",
       "save_steps (5) must be a multiple of eval_steps (3)"},
      {"load_best_model_at_end: true\neval_strategy: steps\neval_steps: 6\nsave_steps: 3\n",
       "save_steps (3) must be a multiple of eval_steps (6)"},
      {"load_best_model_at_end: true\neval_strategy: steps\nlogging_steps: 7\nsave_steps: 5\n",
       "save_steps (5) must be a multiple of logging_steps (7)"},
      {"load_best_model_at_end: true\neval_strategy: steps\neval_steps: 0.1\nsave_steps: 100\n",
       "save_steps (100) must be a multiple of eval_steps (0.1)"},
      {"load_best_model_at_end: true\neval_strategy: epoch\n",
       "eval_strategy is epoch and save_strategy steps; give both the same"},
      {"nan_policy: rollback\nsave_only_model: true\n", "drop one"},
      {"save_on_each_node: true\ndistributed_strategy: zero1\n", "shared output_dir"},
      {"save_on_each_node: true\noffload_param: cpu\n",
       "but 'offload_param' (run.yaml:2:1) is for the shards of zero3, which spreads it over the "
       "nodes; use a shared output_dir, or offload_optimizer alone"},
      {"bf16: false\nmixed_precision: bf16\n", "'mixed_precision' contradicts 'bf16'"},
      {"bf16: false\ndtype: bf16\n", "'dtype' contradicts 'bf16'"},
      {"lr_scheduler_type: warmup_stable_decay\n",
       "run.yaml:1:1: 'lr_scheduler_type: warmup_stable_decay' needs num_decay_steps"},
      {"lr_scheduler_type: cosine_with_min_lr\n", "needs min_lr or min_lr_rate"},
      {"do_eval: false\neval_strategy: steps\n", "'do_eval: false' contradicts"},
      {"min_lr: 1e-5\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n", "keep one"},
      {"num_cycles: 2\nlr_scheduler_kwargs: {num_cycles: 2}\n", "contradicts 'num_cycles'"},
  };
  for (const auto& c : cases) EXPECT_PRED2(contains, error_of(c.yaml), c.message) << c.yaml;
}

TEST_F(LoadTest, PureBf16MakesAnOpenTypeBfloat16) {
  EXPECT_EQ(load_yaml("pure_bf16: true").config.model.dtype, DType::kBF16);
  EXPECT_EQ(load_yaml("pure_bf16: true\nbf16: true").config.model.dtype, DType::kBF16);
  EXPECT_EQ(load_yaml("pure_bf16: false").config.model.dtype, std::nullopt);
}

TEST_F(LoadTest, KeysOfMissingFeaturesAreKnownAndAcceptedWhenOff) {
  const char* refused[] = {"loraplus_lr_embedding: 1",
                           "load_in_8bit: true",
                           "dataset: alpaca",
                           "lora_bias: all",
                           "pref_bco_weight: 1",
                           "eval_delay: 3",
                           "wandb_entity: me",
                           "sync_ref_model: true",
                           "create_new_adapter: true",
                           "bias: all",
                           "eval_dataset: alpaca",
                           "dataset_text_field: content",
                           "default_system: Be brief.",
                           "enable_thinking: false",
                           "chat_template_kwargs: {enable_thinking: false}",
                           "lr_scheduler_kwargs: {colour: red}",
                           "mode: eval"};
  for (const auto* line : refused) {
    EXPECT_PRED2(contains, error_of(line), "is a known key, but this version does not support it")
        << line;
  }
  const char* accepted[] = {"fp16: false",
                            "fp16: off",
                            "lr_scheduler_kwargs: {}",
                            "lr_scheduler_kwargs: null",
                            "lr_scaling: none",
                            "val_size: null",
                            "use_wandb: false",
                            "eval_strategy: no",
                            "do_eval: false",
                            "packing: false",
                            "val_size: 0.0",
                            "finetuning_type: full",
                            "save_strategy: steps",
                            "resume_from_checkpoint: null",
                            "resume_from_checkpoint: true",
                            "resume_from_checkpoint: latest",
                            "auto_resume_from_checkpoints: true",
                            "dataset: null",
                            "mode: train",
                            "optim: adamw_torch_fused",
                            "grad_accum_dtype: auto",
                            "bias: none",
                            "create_new_adapter: false",
                            "dataset_text_field: text",
                            "default_system: null",
                            "enable_thinking: true",
                            "chat_template_kwargs: {}"};
  for (const auto* line : accepted) {
    const auto resolved = load_yaml(line);
    EXPECT_EQ(resolved.config, RunConfig()) << line;
    EXPECT_TRUE(resolved.notes.empty()) << line;
  }
}

TEST_F(LoadTest, KeysWithoutEffectAreNoted) {
  for (const auto* key : {"gradient_as_bucket_view",
                          "set_to_none",
                          "ddp_bucket_cap_mb",
                          "bucket_cap_mb",
                          "find_unused_parameters",
                          "ddp_find_unused_parameters",
                          "ddp_broadcast_buffers",
                          "pin_memory",
                          "persistent_workers",
                          "dataloader_pin_memory",
                          "overwrite_output_dir",
                          "save_safetensors",
                          "logging_dir",
                          "model_type",
                          "tokenizer_type",
                          "strict",
                          "pad_to_sequence_len",
                          "flash_attention",
                          "eos_token",
                          "pad_token",
                          "compute_accuracy",
                          "enable_liger_kernel",
                          "fp16_backend",
                          "bnb_4bit_compute_dtype",
                          "special_tokens"}) {
    const auto resolved = load_yaml(std::string(key) + ": 25\n");
    EXPECT_EQ(resolved.config, RunConfig()) << key;
    ASSERT_EQ(resolved.notes.size(), 1u) << key;
    EXPECT_PRED2(contains, notes_of(resolved),
                 "run.yaml:1:1: '" + std::string(key) + "' has no effect: ");
  }
}

// What `lora_*` and others of the table would take for a feature that is missing.
TEST_F(LoadTest, ASlipInAKeyThatWorksIsNoMissingFeature) {
  const std::pair<const char*, const char*> cases[] = {
      {"lora_alpah: 8", "unknown key 'lora_alpah'; did you mean 'lora_alpha'?"},
      {"lora_rnk: 8", "did you mean 'lora_rank'"},
      {"freeze_trainable_layer: 8", "did you mean 'freeze_trainable_layers'"},
      {"eval_setps: 8", "did you mean 'eval_steps'"},
      {"lora_qkv_kernel: true", "'lora_qkv_kernel' is a known key, but this version"},
      {"freeze_vision_tower: true", "'freeze_vision_tower' is a known key, but this version"},
  };
  for (const auto& [yaml, says] : cases) EXPECT_PRED2(contains, error_of(yaml), says) << yaml;
}

TEST_F(LoadTest, KeysOfMissingFeaturesSayWhatToTypeInstead) {
  const std::pair<const char*, const char*> cases[] = {
      {"create_new_adapter: true", "`skein merge ADAPTER --out DIR` first"},
      {"eval_dataset: alpaca", "(use eval_file)"},
      {"dataset_text_field: content", R"(a text is called "text"); remove it or set it to 'text')"},
      {"default_system: Be brief.", R"(begin the rows with a message {"role": "system"})"},
      {"enable_thinking: false", "{% set NAME = VALUE %}"},
      {"chat_template_kwargs: {a: 1}", "give chat_template: FILE"},
      {"zero_optimization: {stage: 2}", "deepspeed: FILE.json"},
      {"zero_stage: 2", "use distributed_strategy: ddp, zero1, zero2 or zero3"},
      {"cpu_offload: true", "use offload_optimizer: cpu"},
      {"steps_per_print: 10", "use logging_steps"},
      {"wall_clock_breakdown: true", "use profile_steps"},
      {"flops_profiler: {enabled: true}", "use profile_steps"},
      {"quantization_config: {load_in_4bit: true}", "use quantization_bit: 4"},
      {"use_unsloth: true", "kernels are fused by hand"},
      {"use_galore: true", "optim: adamw_8bit"},
      {"use_badam: true", "finetuning_type: freeze or lora"},
      {"upcast_layernorm: true", "remove it or set it to 'false'"},
      {"tf32: true", "bf16: true is faster"},
  };
  for (const auto& [yaml, says] : cases) EXPECT_PRED2(contains, error_of(yaml), says) << yaml;
  const auto tokens = notes_of(load_yaml("special_tokens:\n  eos_token: </s>\n  pad_token: x\n"));
  EXPECT_PRED2(contains, tokens, "run.yaml:2:3: 'special_tokens.eos_token' has no effect: ");
  EXPECT_PRED2(contains, tokens, "run.yaml:3:3: 'special_tokens.pad_token' has no effect: ");
}

TEST_F(LoadTest, ListsAreWrittenAsJsonToo) {
  const auto config =
      load_yaml("", {R"(lora_target=["q_proj", "v_proj"])", "--report_to", R"(["wandb"])",
                     R"(train_file=['a.txt','b c.txt'])", R"(new_special_tokens=["<a,b>", "<\"c"])",
                     "modules_to_save=[embed_tokens, lm_head]"})
          .config;
  using Words = std::vector<std::string>;
  EXPECT_EQ(config.finetune.lora_target, (Words{"q_proj", "v_proj"}));
  EXPECT_EQ(config.log.report_to, Words{"wandb"});
  EXPECT_EQ(config.data.train_file, "a.txt,b c.txt");
  EXPECT_EQ(config.model.new_special_tokens, (Words{"<a,b>", "<\"c"}));
  EXPECT_EQ(config.finetune.modules_to_save, (Words{"embed_tokens", "lm_head"}));
  EXPECT_PRED2(contains, error_of("", {R"(seed=["1"])"}), "command line: 'seed' must be a whole");
}

TEST_F(LoadTest, PrecisionKeysStandForDtype) {
  struct Case {
    const char* yaml;
    std::optional<DType> expected;
  };
  const Case cases[] = {
      {"bf16: true", DType::kBF16},
      {"bf16: false", DType::kF32},
      {"bf16: auto", std::nullopt},
      {"mixed_precision: bf16", DType::kBF16},
      {"mixed_precision: no", DType::kF32},
      {"use_mixed_precision: true", std::nullopt},
      {"use_mixed_precision: false", DType::kF32},
      {"use_mixed_precision: true\nbf16: true", DType::kBF16},
      {"bf16: true\nmixed_precision: bf16", DType::kBF16},
      {"fp16: false\nbf16: true", DType::kBF16},
      {"fp16_opt_level: O0", DType::kF32},
      {"fp16_opt_level: O1", std::nullopt},
      {"fp16: true\nfp16_opt_level: O2", DType::kF16},
      {"fp16: true", DType::kF16},
      {"mixed_precision: fp16", DType::kF16},
      {"dtype: half", DType::kF16},
      {"dtype: fp64", DType::kF64},
      {"fp16: true\nbf16: false", DType::kF16},
      {"bf16: false\nfp16: true", DType::kF16},
      {"bf16: false\ndtype: fp16", DType::kF16},
      {"dtype: bf16\nbf16: true", DType::kBF16},
      {"bf16: true\ndtype: bfloat16", DType::kBF16},
  };
  for (const auto& c : cases) EXPECT_EQ(load_yaml(c.yaml).config.model.dtype, c.expected) << c.yaml;
  EXPECT_PRED2(contains, notes_of(load_yaml("fp16_opt_level: O1")), "apex");
  EXPECT_TRUE(load_yaml("grad_accum_dtype: fp32").config.optimizer.grad_accum_fp32);
  EXPECT_EQ(load_yaml("loss_scale: 128").config.loss_scale.loss_scale, 128);
  EXPECT_EQ(load_yaml("loss_scale: 128", {"loss_scale=dynamic"}).config.loss_scale.loss_scale, 0);
}

TEST_F(LoadTest, SpellingsOfOneKey) {
  for (const auto* key : {"per_device_train_batch_size", "micro_batch_size",
                          "micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu"}) {
    const auto resolved = load_yaml(std::string(key) + ": 4\n");
    EXPECT_EQ(resolved.config.batch.per_device_train_batch_size, 4) << key;
  }
  EXPECT_EQ(load_yaml("training:\n  dataloader:\n    batch_size: 4\n")
                .config.batch.per_device_train_batch_size,
            4);
  EXPECT_FALSE(load_yaml("use_ddp: false").config.parallel.distributed);
  EXPECT_FALSE(load_yaml("ddp: no").config.parallel.distributed);
  EXPECT_EQ(load_yaml("distributed_backend: gloo").config.parallel.ddp_backend, "gloo");
  EXPECT_EQ(load_yaml("base_model: m").config.model.model_name_or_path, "m");
  EXPECT_EQ(load_yaml("stage: pretrain").config, load_yaml("algorithm: pt").config);
}

TEST_F(LoadTest, TheCommandLineWins) {
  const auto resolved = load_yaml("lr: 1e-3\ndtype: bfloat16\nseed: 1\n",
                                  {"learning_rate=2e-3", "--bf16", "false", "training.seed=9"});
  EXPECT_EQ(resolved.config.optimizer.learning_rate, 2e-3);
  EXPECT_EQ(resolved.config.model.dtype, DType::kF32);
  EXPECT_EQ(resolved.config.seed, 9);
  EXPECT_EQ(resolved.origin_of("learning_rate").text(), "command line");
  EXPECT_EQ(resolved.origin_of("dtype").text(), "command line (bf16)");
  EXPECT_EQ(resolved.origin_of("block_size").text(), "default");
}

TEST_F(LoadTest, TheCommandLineIsCheckedLikeAFile) {
  EXPECT_EQ(error_of("", {"max_stpes=3"}),
            "command line: unknown key 'max_stpes'; did you mean 'max_steps'?");
  EXPECT_EQ(error_of("", {"--block-size", "one"}),
            "command line: 'block_size' must be a whole number, not 'one'");
  EXPECT_EQ(error_of("", {"lr=1", "--learning-rate=2"}),
            "command line: 'learning_rate' contradicts 'lr' (command line): both say what "
            "'learning_rate' is; keep one");
}

TEST_F(LoadTest, AWrongValueIsRefusedEvenWhenItIsOverridden) {
  EXPECT_PRED2(contains, error_of("lr: fast\n", {"lr=1e-3"}),
               "run.yaml:1:5: 'lr' must be a number");
}

TEST_F(LoadTest, TheResolvedConfigurationReloadsToTheSameRun) {
  const char* runs[] = {
      "",
      "model_name_or_path: \"C:\\\\models\\\\a \\\"b\\\"\\tc\"\ntrain_file: \"a: b # c\"\n"
      "output_dir: \"\"\nexperiment_name: 名前\n",
      "bf16: true\nlr: 3.3333333333333335e-5\nadam_epsilon: 1e-12\nwarmup_steps: 0.03\n"
      "data_seed: 3\nsave_total_limit: 2\nmax_steps: 10\ngrad_accum_dtype: fp32\n",
      "batch_size: 32\nbatch_conflict: keep_global\n",
      "batch_size: 8\naccumulation_steps: 4\nuse_ddp: false\nnan_policy: rollback\n",
      "deepspeed: {zero_optimization: {stage: 3}, optimizer: {type: AdamW, params: {betas: [0.8, "
      "0.95]}}}\n",
  };
  for (const auto* run : runs) {
    const auto first = load_yaml(run);
    EXPECT_EQ(load_yaml(to_yaml(first)).config, first.config) << to_yaml(first);
    EXPECT_EQ(load_yaml(to_yaml(first, true)).config, first.config) << to_yaml(first, true);
  }
}

TEST_F(LoadTest, EveryFieldChangedReloadsToTheSameRun) {
  Resolved changed;
  fields(changed.config, [](const std::string&, auto& member, const About& about) {
    using Member = std::decay_t<decltype(member)>;
    if (!about.saved) return;
    if constexpr (std::is_same_v<Member, std::string>) {
      member = about.choices.empty() ? "text" : std::string(about.choices.back());
    } else if constexpr (std::is_same_v<Member, bool>) {
      member = !member;
    } else if constexpr (std::is_same_v<Member, double>) {
      member = std::max(0.125, about.min);
    } else if constexpr (IsOpenChoice<Member>) {
      member = static_cast<typename Member::value_type>(1);
    } else if constexpr (std::is_same_v<Member, std::optional<DType>>) {
      member = DType::kF64;
    } else if constexpr (std::is_enum_v<Member>) {
      member = static_cast<Member>(std::is_same_v<Member, TrainingStage> ? 0 : 1);
    } else if constexpr (std::is_same_v<Member, std::vector<std::string>>) {
      member = {"wandb", "tensorboard"};
      if (about.is_verbatim) member = {"Q_proj", R"(.*\.[kv]{1,2}"x\d)", "a, b"};
    } else if constexpr (std::is_same_v<Member, std::vector<PreferenceLoss>>) {
      member = {PreferenceLoss::kIpo, PreferenceLoss::kSft};
    } else if constexpr (std::is_same_v<Member, std::vector<double>>) {
      member = {0.5, 2};
    } else if constexpr (std::is_same_v<Member, NumberMap>) {
      member = {{"model.Layers.0", 16}, {R"(.*"\d)", 1.5}};
    } else {
      member = 77;
    }
  });
  changed.config.model.dtype = DType::kBF16;  // pure_bf16 has no other
  changed.config.schedule.warmup_ratio = 0;
  changed.config.checkpoint.save_on_each_node = false;  // not with offload_param
  changed.config.schedule.min_lr = 0;
  changed.config.log.profile_steps = "3-7";
  changed.config.eval.metric_for_best_model = "loss";
  EXPECT_EQ(load_yaml(to_yaml(changed)).config, changed.config) << to_yaml(changed);
}

TEST_F(LoadTest, ListsOfModulesAndMapsKeepTheirWords) {
  const auto config =
      load_yaml("lora_target: [Wqkv, '.*\\.(q|v)_proj']\nrank_pattern: {a.B: 4}\n",
                {"alpha_pattern={q_proj: 8, V.0: 2}", "modules_to_save=Head, x{1,2}"})
          .config.finetune;
  EXPECT_EQ(config.lora_target, (std::vector<std::string>{"Wqkv", R"(.*\.(q|v)_proj)"}));
  EXPECT_EQ(config.modules_to_save, (std::vector<std::string>{"Head", "x{1,2}"}));
  EXPECT_EQ(config.rank_pattern, (NumberMap{{"a.B", 4}}));
  EXPECT_EQ(config.alpha_pattern, (NumberMap{{"V.0", 2}, {"q_proj", 8}}));
  EXPECT_TRUE(load_yaml("modules_to_save: none\nrank_pattern: {}\n").config.finetune ==
              FinetuneConfig());
}

TEST_F(LoadTest, WordsForPreferences) {
  using enum PreferenceLoss;
  EXPECT_EQ(load_yaml("stage: reward_model").config.stage, TrainingStage::kReward);
  EXPECT_EQ(load_yaml("algorithm: kto").config.stage, TrainingStage::kKto);
  const auto trl = load_yaml(
                       "stage: dpo\nbeta: 0.2\nloss_type: [sigmoid, sft]\nloss_weights: [1, 0.5]\n"
                       "label_smoothing: 0.1\ndesirable_weight: 2\n")
                       .config;
  EXPECT_EQ(trl.preference.pref_beta, 0.2);
  EXPECT_EQ(trl.preference.pref_loss, (std::vector{kSigmoid, kSft}));
  EXPECT_EQ(trl.preference.loss_weights, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(trl.finetune.label_smoothing_factor, 0.1);
  const auto words = load_yaml("", {"pref_loss=ipo,hinge", "loss_weights=2"}).config.preference;
  EXPECT_EQ(words.pref_loss, (std::vector{kIpo, kHinge}));
  EXPECT_EQ(words.loss_weights, std::vector<double>{2});
  EXPECT_TRUE(load_yaml("pref_loss: none").config.preference.pref_loss.empty());
  for (const auto& [rl, stage, losses] :
       {std::tuple{"dpo", TrainingStage::kDpo, std::vector<PreferenceLoss>{}},
        {"orpo", TrainingStage::kDpo, {kOrpo}},
        {"simpo", TrainingStage::kDpo, {kSimpo}},
        {"ipo", TrainingStage::kDpo, {kIpo}},
        {"kto", TrainingStage::kKto, {}}}) {
    const auto config = load_yaml(std::string("rl: ") + rl).config;
    EXPECT_EQ(config.stage, stage) << rl;
    EXPECT_EQ(config.preference.pref_loss, losses) << rl;
  }
  EXPECT_EQ(
      load_yaml("metric_for_best_model: eval_rewards/margins").config.eval.metric_for_best_model,
      "rewards/margins");
}

TEST_F(LoadTest, OldWordsForPreferences) {
  EXPECT_EQ(load_yaml("stage: dpo\ndpo_ftx: 0.5").config.preference.pref_ftx, 0.5);
  EXPECT_PRED2(contains, error_of("gamma_beta_ratio: 0.5"), "use simpo_gamma: this ratio times");
  EXPECT_PRED2(contains, error_of("truncation_mode: keep_end"),
               "rows that are too long lose their");
  EXPECT_PRED2(contains, error_of("chosen_key: better"), "rename it in the data");
  for (const char* line : {"chosen_key: chosen", "rejected_key: rejected", "prompt_key: prompt",
                           "truncation_mode: keep_start"}) {
    EXPECT_NO_THROW(load_yaml(line)) << line;
  }
}

TEST_F(LoadTest, ARewardModelThatIsTrueIsAxolotlsStage) {
  const auto resolved = load_yaml("reward_model: true");
  EXPECT_EQ(resolved.config.stage, TrainingStage::kReward);
  EXPECT_EQ(resolved.config.reward.reward_model, "");
  EXPECT_PRED2(contains, notes_of(resolved),
               "run.yaml:1:1: 'reward_model: true' is axolotl's stage: rm; for rewards it takes");
  EXPECT_EQ(load_yaml("reward_model: true\nstage: rm").config.stage, TrainingStage::kReward);
  EXPECT_EQ(load_yaml("reward_model: false\nstage: grpo").config.reward.reward_model, "");
  EXPECT_EQ(load_yaml("reward_model: judge\nstage: ppo").config.reward.reward_model, "judge");
  EXPECT_PRED2(contains, error_of("reward_model: true\nstage: ppo"), "contradicts");
}

TEST_F(LoadTest, PreferencesThatTeachNothingAreRefused) {
  EXPECT_PRED2(contains, error_of("stage: kto\ndesirable_weight: 0\nkto_rejected_weight: 0"),
               "are both 0: no answer would be learnt from");
  EXPECT_NO_THROW(load_yaml("stage: kto\nkto_chosen_weight: 0"));
  EXPECT_PRED2(contains, error_of("stage: dpo\nlabel_smoothing: 0.5"), "nothing would be learnt");
  EXPECT_PRED2(
      contains, error_of("stage: dpo\npref_loss: [hinge, sigmoid]\nlabel_smoothing: 0.7"),
      "run.yaml:3:1: 'label_smoothing_factor' is 0.7, how often the worse answer was chosen");
  EXPECT_PRED2(contains, error_of("rl: simpo\nlabel_smoothing: 0.5"),
               "with pref_loss: simpo nothing");
  EXPECT_NO_THROW(load_yaml("stage: dpo\npref_loss: ipo\nlabel_smoothing: 0.5"));
  EXPECT_NO_THROW(load_yaml("stage: dpo\nlabel_smoothing: 0.49"));
  EXPECT_NO_THROW(load_yaml("stage: sft\nlabel_smoothing: 0.6"));
}

TEST_F(LoadTest, OtherToolsWordsForFineTuning) {
  EXPECT_EQ(load_yaml("adapter: lora").config.finetune.finetuning_type, FinetuningType::kLora);
  EXPECT_EQ(load_yaml("use_peft: true").config.finetune.finetuning_type, FinetuningType::kLora);
  const auto qlora = load_yaml(
                         "adapter: qlora\nload_in_4bit: true\n"
                         "bnb_4bit_use_double_quant: false\nbnb_4bit_quant_type: nf4\n")
                         .config;
  EXPECT_EQ(qlora.finetune.finetuning_type, FinetuningType::kLora);
  EXPECT_EQ(qlora.model.quantization_bit, QuantizationBit::kFour);
  EXPECT_FALSE(qlora.model.double_quantization);
  EXPECT_EQ(load_yaml("load_in_4bit: false").config.model.quantization_bit, QuantizationBit::kNone);
  EXPECT_TRUE(load_yaml("assistant_only_loss: false").config.rows.train_on_prompt);
  EXPECT_FALSE(load_yaml("completion_only_loss: true").config.rows.train_on_prompt);
  EXPECT_TRUE(load_yaml("neat_packing: true").config.rows.packing);
  EXPECT_FALSE(load_yaml("neat_packing: false").config.rows.packing);
  EXPECT_TRUE(load_yaml("packing: true\nneat_packing: true").config.rows.packing);
  EXPECT_EQ(load_yaml("val_size: 100").config.data.validation_rows, 100);
  const auto rope = load_yaml("rope_scaling: {type: linear, factor: 2}").config.model;
  EXPECT_EQ(rope.rope_scaling, "linear");
  EXPECT_EQ(rope.rope_scaling_factor, 2);
}

TEST_F(LoadTest, OriginsAreShown) {
  const auto text = to_yaml(load_yaml("seed: 3\n", {"--lr", "1e-3"}), true);
  EXPECT_PRED2(contains, without_folder(text), "# run.yaml:1:1\n");
  EXPECT_PRED2(contains, text, "# command line (lr)\n");
  EXPECT_PRED2(contains, text, "# default\n");
}

TEST_F(LoadTest, FreshBelongsToOneStart) {
  const auto resolved = load_yaml("", {"--fresh"});
  EXPECT_TRUE(resolved.config.checkpoint.fresh);
  EXPECT_FALSE(contains(to_yaml(resolved), "fresh"));
}

TEST_F(LoadTest, FilesWithAPlaceOfTheirOwnAreNoConfiguration) {
  const auto said = [&](const std::string& path) {
    const std::string words[] = {path};
    return without_folder(refusal<UserError>([&] { load(words); }));
  };
  const auto json = write("ds.json", R"({"zero_optimization": {"stage": 2}})");
  EXPECT_EQ(said(json), "'ds.json' is a DeepSpeed file, no configuration: give deepspeed=ds.json");
  EXPECT_PRED2(contains, said(write("fp16.json", R"({"fp16": {"enabled": true}})")),
               "give deepspeed=fp16.json");
  const auto model = write("model/config.json", R"({"model_type": "llama", "hidden_size": 8})");
  EXPECT_PRED2(contains, said(model), "give its folder, model_name_or_path=");
  EXPECT_PRED2(contains, said((folder_ / "model").string()),
               "is not a regular file: a model's folder is given as model_name_or_path=model");
}

TEST_F(LoadTest, AMissingFileIsNamed) {
  const std::string words[] = {"nowhere.yaml"};
  EXPECT_EQ(refusal<UserError>([&] { load(words); }),
            "configuration file 'nowhere.yaml' does not exist");
}

}  // namespace
}  // namespace skein::config
