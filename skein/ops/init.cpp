// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "skein/core/hash.h"
#include "skein/core/parallel.h"
#include "skein/core/random.h"
#include "skein/ops/fused.h"
#include "skein/ops/nf4.h"
#include "skein/ops/normal_kernel.h"

namespace skein::ops {
namespace {

using tensor::Init;

// Which elements of which stream.
struct Draw {
  int64_t begin = 0;
  double deviation = 1;
  uint64_t key = 0;
};

// As normal4: elements 4 · block to 4 · block + 3, even between -1 and 1.
void uniform4(uint64_t key, int64_t block, double (&out)[kNormalWords]) {
  const random::Words words = random::philox(key, static_cast<uint64_t>(block));
  for (size_t i = 0; i < kNormalWords; ++i) {
    out[i] = (static_cast<double>(words.word[i]) + 0.5) * 0x1p-31 - 1;
  }
}

// `draw4` is one of the two.
template <typename Draw4>
void draw_on_cpu(const at::Tensor& values, const Draw& draw, Draw4 draw4) {
  constexpr int64_t kBlocksPerTask = 1 << 15;  // a few milliseconds
  float* out = values.mutable_data_ptr<float>();
  const int64_t end = draw.begin + values.numel();
  const int64_t first_block = draw.begin / kNormalWords;
  const int64_t last_block = (end + kNormalWords - 1) / kNormalWords;
  const int64_t tasks = (last_block - first_block + kBlocksPerTask - 1) / kBlocksPerTask;
  for_each_index(tasks, at::get_num_threads(), [&](int64_t task) {
    const int64_t task_begin = first_block + task * kBlocksPerTask;
    double four[kNormalWords];
    for (int64_t block = task_begin; block < std::min(last_block, task_begin + kBlocksPerTask);
         ++block) {
      draw4(draw.key, block, four);
      const int64_t first = block * kNormalWords;
      const int64_t from = std::max(draw.begin, first), to = std::min(end, first + kNormalWords);
      for (int64_t i = from; i < to; ++i) {
        out[i - draw.begin] = static_cast<float>(draw.deviation * four[i - first]);
      }
    }
  });
}

void draw_on_cuda(const at::Tensor& values, const Draw& draw) {
  normal_on_cuda({.out = values.mutable_data_ptr(),
                  .begin = draw.begin,
                  .count = values.numel(),
                  .key = draw.key,
                  .deviation = draw.deviation,
                  .type = element_type(values)});
}

// In place where the dtype allows it, else by way of fp32.
void draw_normal(const at::Tensor& data, const Draw& draw) {
  const bool cuda = data.is_cuda(), bfloat16 = data.scalar_type() == at::kBFloat16;
  const bool direct = data.scalar_type() == at::kFloat || (cuda && bfloat16);
  const auto values = direct && data.is_contiguous()
                          ? data
                          : at::empty({data.numel()}, data.options().dtype(at::kFloat));
  if (cuda) {
    draw_on_cuda(values, draw);
  } else {
    draw_on_cpu(values, draw, normal4);
  }
  if (!values.is_same(data)) data.copy_(values);
}

// On the host alone: what begins so is small.
void draw_uniform(const at::Tensor& data, const Draw& draw) {
  const auto values = at::empty({data.numel()}, at::kFloat);
  draw_on_cpu(values, draw, uniform4);
  data.copy_(values);
}

}  // namespace

uint64_t init_key(uint64_t seed, const std::string& name) {
  return random::mix(seed, hash64(name));
}

void initialise(const at::Tensor& data, int64_t begin, const Init& init, uint64_t key) {
  switch (init.kind) {
    case Init::Kind::kZeros:
      data.zero_();
      break;
    case Init::Kind::kOnes:
      data.fill_(1);
      break;
    case Init::Kind::kNormal:
      draw_normal(data, {begin, init.deviation, key});
      break;
    case Init::Kind::kUniform:
      draw_uniform(data, {begin, init.deviation, key});
      break;
  }
}

void initialise(const at::Tensor& data, int64_t begin, const tensor::Parameter& parameter,
                uint64_t seed) {
  const auto key = init_key(seed, parameter.name);
  if (!parameter.packed) return initialise(data, begin, parameter.init, key);
  const auto bytes =
      quantise_nf4(parameter.packed->layout(), [&](int64_t first, const at::Tensor& values) {
        const auto drawn =
            data.is_cuda() ? at::empty(values.sizes(), data.options().dtype(at::kFloat)) : values;
        initialise(drawn, first, parameter.init, key);
        if (!drawn.is_same(values)) values.copy_(drawn);
      });
  data.copy_(bytes.narrow(0, begin, data.numel()));
}

}  // namespace skein::ops
