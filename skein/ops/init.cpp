// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "skein/core/hash.h"
#include "skein/core/random.h"

namespace skein::ops {
namespace {

using tensor::Init;

// Four normal values from one Philox block, by Box and Muller's transform in double.
void normal4(uint64_t key, int64_t block, double out[4]) {
  const auto words = random::philox(key, static_cast<uint64_t>(block));
  for (size_t pair = 0; pair < 2; ++pair) {
    const double u = (static_cast<double>(words.word[2 * pair]) + 1) * 0x1p-32;  // (0, 1]
    const double angle = 2 * std::numbers::pi * words.word[2 * pair + 1] * 0x1p-32;
    const double radius = std::sqrt(-2 * std::log(u));
    out[2 * pair] = radius * std::cos(angle);
    out[2 * pair + 1] = radius * std::sin(angle);
  }
}

at::Tensor normal(int64_t begin, int64_t count, double deviation, uint64_t key) {
  auto values = at::empty({count}, at::kFloat);
  float* out = values.mutable_data_ptr<float>();
  const int64_t end = begin + count;
  at::parallel_for(begin / 4, (end + 3) / 4, 4096, [&](int64_t first_block, int64_t last_block) {
    double four[4];
    for (int64_t block = first_block; block < last_block; ++block) {
      normal4(key, block, four);
      const int64_t from = std::max(begin, block * 4), to = std::min(end, block * 4 + 4);
      for (int64_t i = from; i < to; ++i) {
        out[i - begin] = static_cast<float>(deviation * four[i - block * 4]);
      }
    }
  });
  return values;
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
      data.copy_(normal(begin, data.numel(), init.deviation, key));
      break;
  }
}

}  // namespace skein::ops
