// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// In which order does a rank issue the collectives of a step? Read from its board, which is what a
// launcher sees. And where must it issue none?

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "skein/board/board.h"
#include "skein/core/log.h"
#include "skein/model/model.h"
#include "skein/parallel/sharded.h"

namespace skein::ranks {
namespace {

const char* const kModel =
    R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "tie_word_embeddings": false})";

// Stands for a model's forward: all goes to the sharding, and the calls issued before a unit's use
// are noted.
class NotingUnits final : public tensor::Units {
 public:
  explicit NotingUnits(parallel::Sharded& sharded) : sharded_(sharded) {}

  tensor::Tensors run(int unit, const tensor::Block& block,
                      const tensor::Tensors& inputs) override {
    return sharded_.run(
        unit,
        [this, unit, block](const tensor::Tensors& in) {
          issued_before.try_emplace(unit, board::own_board()->issued);
          return block(in);
        },
        inputs);
  }
  void begin_forward(const tensor::PassOptions& options) override {
    sharded_.begin_forward(options);
  }
  void end_forward() override { sharded_.end_forward(); }
  void acquire(int, Pass) override {}
  void release(int, Pass) override {}
  std::span<const at::Tensor> leaves(int) override { return {}; }
  void add_gradients(int, tensor::Tensors) override {}
  bool recompute(int) const override { return false; }

  std::map<int, uint64_t> issued_before;  // by unit, at its first use

 private:
  parallel::Sharded& sharded_;
};

TEST(Order, OfAStepAtStage3) {
  const board::Board board(/*rank=*/0);
  board::attach_board(board.descriptor());
  const auto model = model::build(plan::parse_hf_config(kModel, "llama"), {});
  const auto& units = model->table().units;  // embedding, three blocks, head
  parallel::Sharded sharded(model->table(), {.stage = parallel::kZero3}, comm::Group());
  sharded.initialise(5);
  const auto text = (at::arange(2).unsqueeze(1) * 7 + at::arange(9) * 3) % 61;
  const tensor::Batch batch{text.slice(1, 0, 8).contiguous(), text.slice(1, 1, 9).contiguous(),
                            at::arange(2), 16};

  const auto before = board::own_board()->issued;
  NotingUnits noting(sharded);
  sharded.begin_micro_batch(0, 1);
  const auto hidden = model->forward(batch, {.seed = 3}, noting);
  torch::autograd::backward({model->head_loss_sum(hidden, batch.targets, {}, noting)});
  sharded.end_micro_batch();

  // Units are told apart by their size; blocks are equally large.
  const auto size_of = [&](int unit) {
    int64_t count = 0;
    for (const auto& parameter : model->table().parameters) {
      if (parameter.unit == unit) count += (parameter.numel() + 127) / 128 * 128;
    }
    return static_cast<uint64_t>(count);
  };
  std::map<uint64_t, std::string> names;
  for (const int unit : {0, 1, 4}) names[size_of(unit)] = unit == 1 ? "block" : units[unit].name;
  ASSERT_EQ(names.size(), 3U);
  std::vector<std::string> order;
  const auto view = board::own_board(256);
  for (const auto& call : view->calls) {
    if (call.sequence <= before) continue;
    order.push_back(fmt::format("{} {}", call.operation, names[call.count]));
  }
  const std::string gather = "all_gather ", reduce = "reduce_scatter ";
  EXPECT_EQ(order, (std::vector<std::string>{
                       gather + "embedding", gather + "head",  // before anything is waited for
                       gather + "block",                       // before the embedding is used
                       gather + "block", gather + "block",     // one ahead
                       reduce + "head",                        // complete first
                       gather + "block", reduce + "block", gather + "block", reduce + "block",
                       reduce + "block", reduce + "embedding"}));
  EXPECT_EQ(noting.issued_before.at(0) - before, 3U);
  EXPECT_EQ(noting.issued_before.at(1) - before, 4U);
}

// Tokens `begin` to `begin + count` of a row whose keys lie in the cache's first page.
at::Tensor decode(const model::Model& model, model::KvCache& cache, tensor::Units& units,
                  const at::Tensor& row, int64_t begin, int64_t count) {
  if (cache.pages() == 0) cache.reserve(1);
  cache.begin({.positions = at::arange(begin, begin + count, at::kLong),
               .pages = at::zeros({1, 1}, at::kInt),
               .rows = at::zeros({count}, at::kInt)});
  return model.decode(row.narrow(1, begin, count), cache, units);
}

// Generation at stage 3: ranks decode as many tokens as each needs.
TEST(Order, RanksDecodeAtTheirOwnPaceWhileAllIsWhole) {
  const auto config = plan::parse_hf_config(kModel, "llama");
  const auto tokens = at::arange(8).unsqueeze(0) * 5 % 61;
  const auto plain = model::build(config, {.dtype = at::kDouble});
  model::materialise(plain->table(), at::kCPU, 5);
  tensor::PlainUnits plain_units;
  auto whole_row = plain->make_cache();
  const auto expected = decode(*plain, whole_row, plain_units, tokens, 0, 8);
  comm::run_ranks(2, [&](comm::Group& world) {
    const auto model = model::build(config, {.dtype = at::kDouble});
    parallel::Sharded sharded(model->table(), {.stage = parallel::kZero3, .inference = true},
                              world);
    sharded.initialise(5);
    const auto whole = sharded.hold_whole();
    auto cache = model->make_cache();
    const int64_t step = world.rank() + 1;  // 8 passes on one rank, 4 on the other
    for (int64_t done = 0; done < 8; done += step) {
      const auto found = decode(*model, cache, sharded, tokens, done, step);
      EXPECT_TRUE(found.allclose(expected.narrow(1, done, step), 1e-10, 1e-10));
    }
  });
}

}  // namespace
}  // namespace skein::ranks

int main(int argc, char** argv) {
  skein::set_log_level(skein::LogLevel::kError);
  at::set_num_threads(1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
