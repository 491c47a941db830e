// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/update_bench.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "skein/core/error.h"
#include "skein/core/parallel.h"
#include "skein/optim/adamw.h"
#include "skein/tensor/dtype.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace skein::optim {
namespace {

constexpr double kRate = 1e-4;
constexpr double kUpdateBytes = 28, kTriadBytes = 12;

void triad(float* a, const float* b, const float* c, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + 0.5F * c[i];
}

// Stores that do not first read what they overwrite, as those of an update in place need not.
// Arrays begin at multiples of 16 bytes, `count` is a multiple of 4.
void streamed_triad(float* a, const float* b, const float* c, int64_t count) {
#if defined(__x86_64__)
  const auto half = _mm_set1_ps(0.5F);
  for (int64_t i = 0; i < count; i += 4) {
    const auto product = _mm_mul_ps(half, _mm_load_ps(c + i));
    _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), product));
  }
  _mm_sfence();
#else
  triad(a, b, c, count);
#endif
}

// Everything that the three work on: the triad overwrites weights with a mix of the moments.
class Arrays {
 public:
  explicit Arrays(const UpdateBenchOptions& options)
      : memory_(tensor::FlatMemory::create(at::kCPU)),
        weights_(at::randn({options.elements}).to(tensor::scalar_type_of(options.dtype))),
        gradients_(at::randn({options.elements}).to(weights_.scalar_type())),
        adamw_({{weights_, gradients_, {{{0, options.elements}}}}}, options_, *memory_),
        threads_(options.threads) {}

  void update() { adamw_.step(kRate, {factor_, skip_}); }

  void update_by_torch() {
    if (!wide_gradients_.defined()) wide_gradients_ = gradients_.to(at::kFloat);
    steps_.add_(1);
    at::_fused_adamw_({master()}, {wide_gradients_}, {state("exp_avg")}, {state("exp_avg_sq")}, {},
                      {steps_}, kRate, options_.adam_beta1, options_.adam_beta2,
                      options_.weight_decay, options_.adam_epsilon, false, false, {}, {});
  }

  void run_triad(void (*kernel)(float*, const float*, const float*, int64_t)) {
    constexpr int64_t kPart = int64_t{1} << 17;
    auto* a = master().mutable_data_ptr<float>();
    const auto* b = state("exp_avg").const_data_ptr<float>();
    const auto* c = state("exp_avg_sq").const_data_ptr<float>();
    const int64_t count = master().numel();
    for_each_index((count + kPart - 1) / kPart, threads_, [&](int64_t i) {
      const int64_t begin = i * kPart;
      kernel(a + begin, b + begin, c + begin, std::min(kPart, count - begin));
    });
  }

  at::Tensor master() { return weights_.scalar_type() == at::kFloat ? weights_ : state("master"); }

 private:
  at::Tensor state(std::string_view name) {
    return std::ranges::find(adamw_.states()[0], name, &NamedState::name)->data;
  }

  config::OptimizerConfig options_ = {.weight_decay = 0.1};
  std::shared_ptr<tensor::FlatMemory> memory_;
  at::Tensor weights_, gradients_, wide_gradients_;
  AdamW adamw_;
  at::Tensor steps_ = at::full({}, 0, at::kFloat);
  at::Tensor factor_ = at::full({}, 1, at::kDouble), skip_ = at::full({}, 0, at::kFloat);
  int threads_;
};

// A figure is of use only if the work was done.
void check_updates(UpdateBenchOptions options) {
  options.elements = 4096;
  const auto seeded = [&] {
    at::manual_seed(1);
    return Arrays(options);
  };
  auto ours = seeded(), theirs = seeded();
  for (int i = 0; i < 3; ++i) {
    ours.update();
    theirs.update_by_torch();
  }
  const auto difference = (ours.master() - theirs.master()).abs().max().item<double>();
  if (!(difference < 1e-6)) {
    throw InternalError(fmt::format("an update and torch's differ by {}", difference));
  }
}

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

UpdateBench bench_update(const UpdateBenchOptions& options) {
  SKEIN_CHECK(options.elements % 128 == 0 && options.rounds > 0, "whole shards, some rounds");
  const int threads_before = at::get_num_threads();
  at::set_num_threads(options.threads);
  check_updates(options);
  Arrays arrays(options);
  arrays.update();  // touches every page once
  arrays.update_by_torch();
  UpdateBench best;
  const auto count = static_cast<double>(options.elements);
  const auto keep_best = [&](double& rate, double bytes, const std::function<void()>& work) {
    rate = std::max(rate, bytes * count / seconds(work));
  };
  for (int64_t i = 0; i < options.rounds; ++i) {
    keep_best(best.update, kUpdateBytes, [&] { arrays.update(); });
    keep_best(best.triad, kTriadBytes, [&] { arrays.run_triad(triad); });
    keep_best(best.torch, kUpdateBytes, [&] { arrays.update_by_torch(); });
    keep_best(best.triad, kTriadBytes, [&] { arrays.run_triad(streamed_triad); });
  }
  at::set_num_threads(threads_before);
  return best;
}

}  // namespace skein::optim
