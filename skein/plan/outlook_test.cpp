// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/outlook.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "skein/checkpoint/files/manifest.h"
#include "skein/checkpoint/files/run_record.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/testing.h"
#include "skein/plan/continuation.h"
#include "skein/plan/refusals.h"
#include "skein/plan/trainer_state.h"

namespace skein::plan {
namespace {

// A tiny GPT-2 without weights, and 1,000 bytes of text.
class OutlookTest : public TemporaryFolder {
 protected:
  OutlookTest() {
    write("model/config.json", R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64,
                                   "n_embd": 32, "n_layer": 2, "n_head": 4, "attn_pdrop": 0})");
    write("text.txt", std::string(1000, 'a'));
    auto& config = resolved_.config;
    config.model.model_name_or_path = (folder_ / "model").string();
    config.model.train_from_scratch = true;
    config.data.train_file = (folder_ / "text.txt").string();
    config.data.block_size = 32;
    config.data.data_cache_dir = (folder_ / "cache").string();
    config.checkpoint.output_dir = (folder_ / "out").string();
  }

  config::RunConfig& config() { return resolved_.config; }

  Outlook look(const Machine& machine = {.memory = {.host = uint64_t{1} << 40}}) {
    return look_ahead(resolved_, machine);
  }

  std::string why_refused(const Machine& machine = {.memory = {.host = uint64_t{1} << 40}}) {
    return refusal<UserError>([&] { look(machine); });
  }

  // As a run of two ranks leaves it, with a global batch of 8 rows.
  void write_checkpoint(int64_t step, const std::string& run = "r", int64_t state_step = -1) {
    const auto name = fmt::format("out/checkpoint-{}/", step);
    const std::vector<std::pair<std::string, std::string>> files = {
        {"config.json",
         saved_config_.empty() ? read_file(folder_ / "model/config.json") : saved_config_},
        {"model.safetensors", "weights"},
        {"optimizer.safetensors", optimizer_},
        {kStateFile, state_text(state_step < 0 ? step : state_step)}};
    checkpoint::Manifest manifest{.step = static_cast<uint64_t>(step), .run = run};
    manifest.conditions.size = 2;
    for (const auto& [file, text] : files) {
      write(name + file, text);
      manifest.files.push_back(
          {.name = file, .size = text.size(), .ranges = {{0, text.size(), digest(text)}}});
    }
    write(name + "manifest.json", checkpoint::manifest_text(manifest));
  }

  // What a run has claimed is its own.
  void write_record(const std::vector<checkpoint::Start>& starts = {{.token = "r", .step = 0}}) {
    fs::create_directories(folder_ / "out");
    checkpoint::write_record(folder_ / "out", {.starts = starts});
  }

  std::string state_text(int64_t step) {
    return trainer_state_text({.step = step,
                               .identity = {.data_digest = "d",
                                            .global_batch = 8,
                                            .seed = static_cast<int64_t>(data_seed(config())),
                                            .block_size = 32,
                                            .total_steps = 12}});
  }

  config::Resolved resolved_;
  std::string saved_config_, optimizer_ = "states";  // of write_checkpoint()
};

// As safetensors: a header of these tensors, each of 128 elements.
std::string tensor_file(const std::vector<std::pair<std::string, std::string>>& tensors) {
  std::string header = "{", data;
  for (const auto& [name, dtype] : tensors) {
    const size_t bytes = dtype == "F32" ? 512 : dtype == "BF16" ? 256 : 128;
    header +=
        fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[128],\"data_offsets\":[{},{}]}}",
                    header.size() > 1 ? "," : "", name, dtype, data.size(), data.size() + bytes);
    data.append(bytes, '\0');
  }
  header += "}";
  std::string size(8, '\0');
  for (int i = 0; i < 8; ++i) size[i] = static_cast<char>(header.size() >> (8 * i));
  return size + header + data;
}

constexpr Machine kNewGpus{.ranks = 2, .place = {config::Device::kCuda, true}};
constexpr Machine kOldGpus{.ranks = 2, .place = {config::Device::kCuda, false}};

TEST_F(OutlookTest, CountsStepsAsTheLoaderDoes) {
  // 1,001 tokens (an end token) are 31 blocks of 32 and one of 9; 8 per step.
  const auto outlook = look();
  EXPECT_EQ(outlook.data.tokens, 1001);
  EXPECT_EQ(outlook.data.blocks, 32);
  EXPECT_EQ(outlook.steps->steps_per_epoch, 4);
  EXPECT_EQ(outlook.steps->total_steps, 12);
}

TEST_F(OutlookTest, AllOfTheStepsCanBeWarmUp) {
  config().schedule.warmup_ratio = 1;
  EXPECT_EQ(look().steps->warmup_steps, 12);
}

TEST_F(OutlookTest, AutoIsBfloat16OnlyWhereGpusHaveIt) {
  EXPECT_EQ(look(kNewGpus).dtype, DType::kBF16);
  EXPECT_EQ(look(kOldGpus).dtype, DType::kF16);
  ASSERT_EQ(look(kOldGpus).warnings.size(), 1U);
  EXPECT_TRUE(contains(look(kOldGpus).warnings[0], "has no bfloat16 arithmetic"));
  EXPECT_EQ(look().dtype, DType::kF32);
  config().model.dtype = DType::kBF16;
  EXPECT_EQ(look(kOldGpus).dtype, DType::kBF16);
  EXPECT_TRUE(look(kNewGpus).warnings.empty());
  ASSERT_EQ(look(kOldGpus).warnings.size(), 1U);
  EXPECT_TRUE(contains(look(kOldGpus).warnings[0], "emulate"));
}

TEST_F(OutlookTest, KeysOfOffloadThatDoNotGoTogether) {
  auto& offload = config().offload;
  offload.offload_ratio = 0.5;
  EXPECT_TRUE(contains(why_refused(), "give offload_optimizer=cpu too"));
  offload.offload_optimizer = config::Offload::kCpu;
  EXPECT_EQ(why_refused(), "");
  auto gpus = kNewGpus;
  gpus.memory.host = uint64_t{1} << 40;
  EXPECT_EQ(why_refused(gpus), "");
  config().parallel.distributed_strategy = config::Strategy::kZero2;
  offload.offload_param = config::Offload::kCpu;
  EXPECT_TRUE(contains(why_refused(), "offload_param is for the shards of zero3"));
  config().parallel.distributed_strategy = config::Strategy::kZero3;
  EXPECT_EQ(why_refused(), "");
  EXPECT_TRUE(contains(look().warnings.at(0), "offload_param takes all of the optimizer's states"));
  offload.offload_ratio = 1;
  EXPECT_TRUE(look().warnings.empty());
}

TEST_F(OutlookTest, SoftCapsAreWarnedOf) {
  const std::string start = R"({"model_type": "gemma2", "vocab_size": 257, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64)";
  write("model/config.json", start + "}");
  ASSERT_EQ(look(kNewGpus).warnings.size(), 1U);
  EXPECT_PRED2(contains, look(kNewGpus).warnings[0],
               "attn_logit_softcapping is 50: attention takes the unfused path");
  write("model/config.json", start + R"(, "attn_logit_softcapping": null})");
  EXPECT_TRUE(look(kNewGpus).warnings.empty());
}

TEST_F(OutlookTest, OffloadToADiskNeedsAFolderThere) {
  auto& offload = config().offload;
  offload.offload_optimizer = config::Offload::kNvme;
  EXPECT_TRUE(contains(why_refused(), "give nvme_path=FOLDER, or offload_optimizer=cpu"));
  offload.nvme_path = (folder_ / "none").string();
  EXPECT_TRUE(contains(why_refused(), "is not a folder: make it, on every node"));
  offload.nvme_path = "none\nerror: \x1b[31m";
  EXPECT_TRUE(contains(why_refused(), "none\\nerror: \\x1b[31m is not a folder"));
  offload.nvme_path = (folder_ / "text.txt").string();
  EXPECT_TRUE(contains(why_refused(), "is not a folder"));
  offload.nvme_path = folder_.string();
  EXPECT_EQ(why_refused(), "");
  config().parallel.distributed_strategy = config::Strategy::kZero3;
  offload.offload_param = config::Offload::kNvme;
  EXPECT_EQ(why_refused(), "");
  config().finetune.finetuning_type = config::FinetuningType::kLora;
  config().finetune.use_dora = true;
  EXPECT_TRUE(contains(why_refused(), "does not go with use_dora"));
  if (::geteuid() == 0) return;  // may write everywhere
  offload.nvme_path = "/";
  EXPECT_TRUE(contains(why_refused(), "files cannot be made in /"));
}

// What is wrong with this machine's disks and memory does not keep a plan for another from its
// numbers.
TEST_F(OutlookTest, APlanForAnotherMachineIsOnlyWarned) {
  auto elsewhere = kNewGpus;
  elsewhere.memory.host = 1;
  auto& offload = config().offload;
  offload.offload_optimizer = config::Offload::kNvme;
  offload.nvme_path = (folder_ / "none").string();
  config().checkpoint.output_dir = "/proc/nowhere";
  EXPECT_NE(refusal<UserError>([&] { look(elsewhere); }), "");
  elsewhere.is_here = false;
  const auto warnings = fmt::format("{}", fmt::join(look(elsewhere).warnings, "\n"));
  EXPECT_PRED2(contains, warnings, "is not a folder: make it, on every node");
  EXPECT_PRED2(contains, warnings, "cannot create folder /proc/nowhere");
  EXPECT_PRED2(contains, warnings, "what this machine's ranks offload needs about");
}

// Without checkpoints a stop saves one all the same.
TEST_F(OutlookTest, AFullDiskIsToldWithWhatIsSavedThere) {
  write("model/config.json", R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64,
                                 "n_embd": 65536, "n_layer": 1000, "n_head": 4, "attn_pdrop": 0})");
  auto elsewhere = kNewGpus;
  elsewhere.is_here = false;
  const auto said = [&] { return fmt::format("{}", fmt::join(look(elsewhere).warnings, "\n")); };
  EXPECT_PRED2(contains, said(), "with one more checkpoint while it is saved, and");
  config().checkpoint.save_strategy = config::SaveStrategy::kNo;
  EXPECT_PRED2(contains, said(), "with the checkpoint that a stop (SIGTERM) saves, and");
}

// As train does, with the same words.
TEST_F(OutlookTest, AHostThatIsTooSmallForWhatIsOffloadedIsRefused) {
  auto machine = kNewGpus;
  machine.memory.host = uint64_t{1} << 30;
  config().offload.offload_optimizer = config::Offload::kCpu;
  EXPECT_PRED2(contains, why_refused(machine), "what this machine's ranks offload needs about");
  EXPECT_PRED2(contains, why_refused(machine), "offload_optimizer=none makes it fit");
}

TEST_F(OutlookTest, MemoryIsNoDisk) {
  auto& offload = config().offload;
  offload.offload_optimizer = config::Offload::kNvme;
  offload.nvme_path = "/dev/shm";
  if (!fs::is_directory(offload.nvme_path)) GTEST_SKIP() << "no /dev/shm here";
  EXPECT_TRUE(contains(look().warnings.at(0), "lies in memory (tmpfs)"));
}

TEST_F(OutlookTest, TypesThatTheGpuLacksAndScalesWithoutFloat16) {
  config().optimizer.pure_bf16 = true;
  config().model.dtype = DType::kBF16;
  EXPECT_TRUE(contains(look(kOldGpus).warnings.at(0), "optim=adamw_8bit has small states too"));
  EXPECT_FALSE(contains(look(kOldGpus).warnings.at(0), "dtype=float16"));
  config().optimizer.pure_bf16 = false;
  config().model.dtype = std::nullopt;
  resolved_.origins["loss_scale"] = {.kind = config::Origin::Kind::kCommandLine};
  EXPECT_TRUE(contains(look(kNewGpus).warnings.at(0), "loss_scale has no effect: dtype: auto is"));
  EXPECT_EQ(look(kOldGpus).warnings.size(), 1U);  // of float16 itself
}

TEST_F(OutlookTest, RefusesWhatTrainRefuses) {
  config().data.block_size = 65;
  EXPECT_TRUE(contains(why_refused(), "block_size is 65, but the model knows 64 positions"));
  config().data.block_size = 64;
  config().model.train_from_scratch = false;
  EXPECT_TRUE(contains(why_refused(), "holds neither model.safetensors nor"));
  EXPECT_TRUE(contains(why_refused(), "train_from_scratch=true starts from random weights"));
  config().model.train_from_scratch = true;
  config().data.train_file = "nowhere.txt";
  EXPECT_TRUE(contains(why_refused(), "train_file: nowhere.txt does not exist"));
  config().data.train_file = "";
  config().data.eval_file = "nowhere.txt";
  EXPECT_TRUE(contains(why_refused(), "eval_file: nowhere.txt does not exist"));
}

TEST_F(OutlookTest, PositionsAreNamedByTheKeyThatWasTyped) {
  config().data.block_size = 65;
  resolved_.origins["block_size"] = {.kind = config::Origin::Kind::kCommandLine,
                                     .spelling = "cutoff_len"};
  EXPECT_TRUE(contains(why_refused(),
                       "cutoff_len is 65, but the model knows 64 positions: lower "
                       "cutoff_len"));
  write("model/config.json", R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 32,
      "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
      "max_position_embeddings": 64})");
  EXPECT_TRUE(contains(look().warnings.at(0), "cutoff_len is 65, but the model's config.json is"));
  write("model/config.json", R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 32,
      "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
      "max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 2}})");
  EXPECT_TRUE(look().warnings.empty()) << look().warnings.at(0);
}

// cutoff_len is the size of packs, or more than any row needs: the rows tell.
TEST_F(OutlookTest, OfRowsTheLongestCounts) {
  config().stage = config::TrainingStage::kSft;
  config().data.train_file = "";
  config().data.block_size = 2048;
  const Dimensions learned{.positions = 64, .positions_are_learned = true};
  const Dimensions rotary{.positions = 64};
  EXPECT_EQ(check_longest_row(resolved_, learned, 64), "");
  EXPECT_EQ(check_longest_row(resolved_, rotary, 64), "");
  EXPECT_TRUE(
      contains(refusal<UserError>([&] { check_longest_row(resolved_, learned, 65); }),
               "a row has 65 tokens, but the model knows 64 positions: give cutoff_len=64"));
  EXPECT_TRUE(contains(check_longest_row(resolved_, rotary, 65),
                       "a row has 65 tokens, but the model's config.json is made for 64"));
  for (const auto& warning : run_warnings(resolved_, {})) {
    EXPECT_FALSE(contains(warning, "2048")) << warning;
  }
}

TEST_F(OutlookTest, AnswersMayNotReachWhereRopeTurnsByTheirLength) {
  write("model/config.json", R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 32,
      "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
      "max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 2}})");
  const auto model = read_run_model(config()).dimensions();
  EXPECT_EQ(model.usable_positions(), 128);
  config().stage = config::TrainingStage::kGrpo;
  config().rollout.max_completion_length = 16;
  EXPECT_EQ(check_longest_row(resolved_, model, 48), "");
  EXPECT_PRED2(contains, refusal<UserError>([&] { check_longest_row(resolved_, model, 49); }),
               "a prompt has 49 tokens and its answer up to 16, but beyond 64 tokens the model's "
               "RoPE (rope_scaling in config.json) turns by the length of the whole text");
}

TEST_F(OutlookTest, ARunThatContinuesNeedsNoOtherWeights) {
  config().model.train_from_scratch = false;
  write_checkpoint(3);
  EXPECT_EQ(why_refused(), "");
  config().checkpoint.fresh = true;
  EXPECT_TRUE(contains(why_refused(), "holds neither"));
}

TEST_F(OutlookTest, ContinuesTheNewestThatLooksWhole) {
  EXPECT_FALSE(look().continues);
  write_checkpoint(3);
  write_checkpoint(8);
  const auto path = [&] { return look().continues->checkpoint.filename().string(); };
  EXPECT_EQ(path(), "checkpoint-8");
  EXPECT_EQ(look().continues->step, 8);
  EXPECT_FALSE(look().continues->nothing_left);

  auto state = state_text(8);
  state[state.find('8')] = '9';
  write("out/checkpoint-8/trainer_state.json", state);
  EXPECT_EQ(path(), "checkpoint-3");
  write_checkpoint(8);
  write("out/checkpoint-8/model.safetensors", "weight");
  EXPECT_EQ(path(), "checkpoint-3");
  config().checkpoint.fresh = true;
  EXPECT_FALSE(look().continues);
}

// One number.
std::string tiny_tensors() {
  std::string header = R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  header.resize(64, ' ');
  return std::string("@\0\0\0\0\0\0\0", 8) + header + "1234";
}

TEST_F(OutlookTest, ARunWithItsFinalModelHasNothingLeft) {
  write_record();
  write_checkpoint(12);
  EXPECT_FALSE(look().continues->nothing_left);
  write("out/trainer_state.json", state_text(12));
  write("out/config.json", "{}");
  write("out/model.safetensors", tiny_tensors());
  EXPECT_TRUE(look().continues->nothing_left);
  write("out/model.safetensors", tiny_tensors().substr(0, 74));
  EXPECT_FALSE(look().continues->nothing_left);
  fs::remove(folder_ / "out/model.safetensors");
  EXPECT_FALSE(look().continues->nothing_left);
  write("out/model.safetensors", tiny_tensors());
  for (const char* config : {"[]", "x", ""}) {
    write("out/config.json", config);
    EXPECT_FALSE(look().continues->nothing_left) << config;
  }
  write("out/config.json", "{}");
  write("out/trainer_state.json", R"({"global_step": "x"})");
  EXPECT_FALSE(look().continues->nothing_left);
  write("out/trainer_state.json", state_text(12));
  config().schedule.num_train_epochs = 4;
  EXPECT_FALSE(look().continues->nothing_left);
}

TEST_F(OutlookTest, AnotherProgramsFilesAreNotReplaced) {
  write("out/model.safetensors", "mine");
  EXPECT_TRUE(contains(why_refused(), "out holds model.safetensors, which no run of skein"));
  write_record();
  EXPECT_EQ(why_refused(), "");
}

TEST_F(OutlookTest, AFinalModelWithoutCheckpointsIsTheEndOfThatRunAlone) {
  write_record();
  write("out/trainer_state.json", state_text(12));
  write("out/model.safetensors", tiny_tensors());
  EXPECT_FALSE(look().continues);
  write("out/config.json", read_file(folder_ / "model/config.json"));
  EXPECT_TRUE(look().continues->nothing_left);
  config().data.block_size = 31;
  config().schedule.max_steps = 12;
  EXPECT_FALSE(look().continues);
  config().data.block_size = 32;
  EXPECT_TRUE(look().continues->nothing_left);
  config().checkpoint.fresh = true;
  EXPECT_FALSE(look().continues);
}

TEST_F(OutlookTest, ARefusedContinuationSaysWhatToType) {
  write_checkpoint(3);
  const auto batch = refusal<UserError>([&] { look({.ranks = 4}); });
  EXPECT_TRUE(contains(batch, "a global batch size of 8, this start has 32")) << batch;
  EXPECT_TRUE(contains(batch, "Give global_batch_size=8, or")) << batch;
  config().batch.per_device_train_batch_size = 4;
  EXPECT_TRUE(contains(why_refused(), "--nproc-per-node 2 on one machine) or global_batch_size=8"));
  config().batch.per_device_train_batch_size.reset();
  config().data.block_size = 16;
  EXPECT_TRUE(contains(why_refused(), "a block_size of 32, this start has 16"));
  EXPECT_TRUE(contains(why_refused(), "Give block_size=32, or"));
  config().data.block_size = 32;
  config().data_seed = 5;
  EXPECT_TRUE(contains(why_refused(), "a data seed of 42, this start has 5"));
  config().data_seed.reset();
  write("model/config.json", R"({"model_type": "llama", "vocab_size": 257, "hidden_size": 32,
                                 "intermediate_size": 88, "num_hidden_layers": 2,
                                 "num_attention_heads": 4, "max_position_embeddings": 64})");
  EXPECT_TRUE(contains(why_refused(), "model_type is gpt2 there and llama here. Give"));
}

// Moments in 8 bits look alike beside float32 weights and with pure_bf16: config.json tells.
TEST_F(OutlookTest, StatesIn8BitsAreContinuedWithTheTypeThatTheyBelongTo) {
  config().batch.global_batch_size = 8;
  config().optimizer.optim = config::OptimizerKind::kAdamW8bit;
  optimizer_ = tensor_file({{"w.exp_avg", "U8"}, {"w.exp_avg_scale", "F32"}});
  write_record();
  const auto saved_as = [&](const char* dtype) {
    auto text = read_file(folder_ / "model/config.json");
    saved_config_ = text.insert(1, fmt::format("\"dtype\": \"{}\", ", dtype));
    write_checkpoint(4);
  };
  const auto start_with = [&](DType dtype, bool pure) {
    config().model.dtype = dtype;
    config().optimizer.pure_bf16 = pure;
    return why_refused();
  };
  saved_as("float32");
  EXPECT_EQ(start_with(DType::kF32, false), "");
  EXPECT_PRED2(contains, start_with(DType::kBF16, true),
               "was saved with pure_bf16: false, this start has true");
  EXPECT_PRED2(contains, start_with(DType::kBF16, false), "was saved with dtype=float32");
  saved_as("bfloat16");
  EXPECT_EQ(start_with(DType::kBF16, true), "");
  for (const auto dtype : {DType::kF32, DType::kBF16}) {
    EXPECT_PRED2(contains, start_with(dtype, false),
                 "was saved with pure_bf16: true, this start has false");
  }
}

TEST_F(OutlookTest, WhatResumeFromCheckpointNamesMustBeThere) {
  config().checkpoint.resume_from_checkpoint = "nope";
  EXPECT_EQ(why_refused(), "resume_from_checkpoint: there is no nope");
  write_checkpoint(3);
  config().checkpoint.resume_from_checkpoint = "false";
  EXPECT_TRUE(contains(why_refused(), "holds checkpoints of a started run"));
  config().checkpoint.resume_from_checkpoint = (folder_ / "out/checkpoint-3").string();
  EXPECT_EQ(look().continues->step, 3);
  write("out/checkpoint-3/optimizer.safetensors", "");
  EXPECT_TRUE(contains(why_refused(), "is not a whole checkpoint"));
  write_checkpoint(3);
  config().checkpoint.fresh = true;
  EXPECT_TRUE(contains(why_refused(), "--fresh would remove"));
}

// Its digests fit: it was changed, not damaged.
TEST_F(OutlookTest, AStateOfAnotherStepThanItsCheckpointsIsRefused) {
  write_checkpoint(3, "r", 6);
  const auto said = refusal<IoError>([&] { look(); });
  EXPECT_PRED2(contains, said, "manifest.json is of step 3, trainer_state.json of step 6");
}

// The ranks would skip them too.
TEST_F(OutlookTest, AnotherRunsCheckpointAndOneThatWasLeftAreNotContinued) {
  write_checkpoint(3);
  write_checkpoint(6, "stranger");
  EXPECT_EQ(look().continues->step, 6);  // without a record nobody can tell
  write_record();
  EXPECT_EQ(look().continues->step, 3);
  write_checkpoint(8);
  EXPECT_EQ(look().continues->step, 8);
  write_record({{.token = "r", .step = 0}, {.token = "again", .step = 3}});
  EXPECT_EQ(look().continues->step, 3);
}

// As the ranks would refuse it.
TEST_F(OutlookTest, CheckpointsOfWhichNoneIsWholeAreNoBeginning) {
  write_checkpoint(3);
  write_record();
  write("out/checkpoint-3/optimizer.safetensors", "");
  fs::create_directories(folder_ / "out/checkpoint-5");
  write_checkpoint(6, "stranger");
  const auto said = refusal<IoError>([&] { look(); });
  EXPECT_PRED2(contains, said, "holds checkpoint-6, checkpoint-5, checkpoint-3, of which none can");
  EXPECT_PRED2(contains, said, "checkpoint-6: it is another run's; checkpoint-5: manifest.json");
  EXPECT_PRED2(contains, said, "checkpoint-3: optimizer.safetensors");
  EXPECT_PRED2(contains, said, "--fresh");
  config().checkpoint.fresh = true;
  EXPECT_FALSE(look().continues);
}

// What a report calls saved. `latest` is for people: it may not have been moved.
TEST_F(OutlookTest, TheNewestOfARunIsKnownWithoutALink) {
  write_checkpoint(4);
  write_checkpoint(8);
  write_record();
  fs::create_directory_symlink("checkpoint-4", folder_ / "out/latest");
  EXPECT_EQ(newest_saved(folder_ / "out"), folder_ / "out/checkpoint-8");
  write_checkpoint(9, "stranger");
  fs::create_directories(folder_ / "out/checkpoint-10");
  EXPECT_EQ(newest_saved(folder_ / "out"), folder_ / "out/checkpoint-8");
  EXPECT_EQ(newest_saved(folder_ / "nowhere"), std::nullopt);
}

TEST_F(OutlookTest, ANamedCheckpointIsTheBeginningOfARunThatGoesOn) {
  const auto asked = (folder_ / "elsewhere/checkpoint-2").string();
  config().checkpoint.resume_from_checkpoint = asked;
  write_record({{.token = "r", .step = 0, .asked = asked}});
  EXPECT_TRUE(contains(why_refused(), "there is no"));  // nothing newer yet
  write_checkpoint(3);
  EXPECT_EQ(look().continues->step, 3);
  config().checkpoint.fresh = true;
  EXPECT_TRUE(contains(why_refused(), "there is no"));
}

// Killed between the record's rename and the last removal: what is left is the old run's.
TEST_F(OutlookTest, ARunThatFreshHasEndedIsNotDone) {
  write("out/config.json", read_file(folder_ / "model/config.json"));
  const std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  write("out/model.safetensors",
        std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "x");
  write("out/trainer_state.json", state_text(12));
  write_record();
  ASSERT_TRUE(look().continues && look().continues->nothing_left);
  checkpoint::write_record(folder_ / "out", {.starts = {{.token = "new", .step = 0}},
                                             .removing_starts = {"r"},
                                             .removing_files = {"trainer_state.json"}});
  write_checkpoint(12);
  EXPECT_FALSE(look().continues);
  EXPECT_FALSE(has_final_model(folder_ / "out", 12));
}

TEST_F(OutlookTest, MoreStepsThanCanBeCountedAreRefused) {
  config().schedule.num_train_epochs = 1e18;
  EXPECT_TRUE(contains(why_refused(), "num_train_epochs=1e+18 of 4 steps each"));
}

TEST_F(OutlookTest, HubNamesAreNotDownloaded) {
  config().model.model_name_or_path = "openai-community/gpt2";
  EXPECT_TRUE(contains(why_refused(), "hf download openai-community/gpt2 --local-dir gpt2"));
  config().model.model_name_or_path = (folder_ / "nowhere").string();
  EXPECT_FALSE(contains(why_refused(), "hf download"));
}

TEST_F(OutlookTest, AnAdapterIsNoModel) {
  write("adapter/adapter_config.json",
        R"({"peft_type": "LORA", "base_model_name_or_path": "bases/llama"})");
  const auto adapter = (folder_ / "adapter").string();
  config().model.model_name_or_path = adapter;
  const auto why = why_refused();
  EXPECT_PRED2(contains, why, adapter + " is an adapter, not a model: ");
  EXPECT_PRED2(contains, why, "give model_name_or_path=bases/llama, finetuning_type=lora and");
  EXPECT_PRED2(contains, why, "adapter_name_or_path=" + adapter);
}

TEST_F(OutlookTest, EveryFileOfTheFolderIsTold) {
  const auto files = look().files;
  for (const char* name : {".skein-run", "config.yaml", "trainer_log.jsonl", "model.safetensors"}) {
    EXPECT_EQ(std::ranges::count(files, config().checkpoint.output_dir + "/" + name), 1) << name;
  }
  config().checkpoint.max_shard_size = 20'000;
  const auto split = look().files;
  EXPECT_EQ(std::ranges::count(split, config().checkpoint.output_dir + "/model.safetensors"), 0);
  EXPECT_EQ(
      std::ranges::count(split, config().checkpoint.output_dir + "/model.safetensors.index.json"),
      1);
}

TEST_F(OutlookTest, WhatIsNotGivenIsLeftOut) {
  config().model.model_name_or_path = config().data.train_file = config().checkpoint.output_dir =
      "";
  const auto outlook = look();
  EXPECT_FALSE(outlook.model);
  EXPECT_FALSE(outlook.steps);
  EXPECT_TRUE(outlook.files.empty());
}

}  // namespace
}  // namespace skein::plan
