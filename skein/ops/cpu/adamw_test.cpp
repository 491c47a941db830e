// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/cpu/adamw.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "skein/core/error.h"
#include "skein/core/random.h"

namespace skein::ops {
namespace {

using Bytes = std::vector<std::byte>;

float random_float(uint64_t stream, int64_t i) {
  const auto word = random::philox(stream, static_cast<uint64_t>(i)).word[0];
  return static_cast<float>(word) / 0x1p31F - 1;
}

// What goes wrong first: zeros, subnormals, the largest, infinities, NaN; in between random
// numbers.
float awkward_float(uint64_t stream, int64_t i) {
  using Limits = std::numeric_limits<float>;
  constexpr std::array kSpecial = {0.0F,
                                   -0.0F,
                                   Limits::denorm_min(),
                                   -1e-41F,
                                   6e-8F,  // subnormal in fp16
                                   Limits::min(),
                                   65504.0F,
                                   65520.0F,  // rounds to infinity in fp16
                                   Limits::max(),
                                   -Limits::max(),
                                   Limits::infinity(),
                                   -Limits::infinity(),
                                   Limits::quiet_NaN()};
  const auto words = random::philox(stream, static_cast<uint64_t>(i));
  return words.word[1] % 3 == 0 ? kSpecial[words.word[2] % kSpecial.size()]
                                : random_float(stream, i);
}

void store(DType type, float value, std::byte* at) {
  const auto put = [&](auto stored) { std::memcpy(at, &stored, sizeof(stored)); };
  if (type == DType::kF64) return put(double{value});
  if (type == DType::kF32) return put(value);
  if (type == DType::kBF16) return put(c10::BFloat16(value).x);
  put(c10::Half(value).x);
}

double load(DType type, const std::byte* at) {
  const auto get = [&](auto stored) {
    std::memcpy(&stored, at, sizeof(stored));
    return stored;
  };
  if (type == DType::kF64) return get(double{});
  if (type == DType::kF32) return get(float{});
  if (type == DType::kBF16)
    return float{c10::BFloat16(get(uint16_t{}), c10::BFloat16::from_bits())};
  return float{c10::Half(get(uint16_t{}), c10::Half::from_bits())};
}

using Values = float (*)(uint64_t stream, int64_t i);

// The arrays of one update, all of them `offset` elements behind an aligned address and with a
// margin that nothing may write.
class Update {
 public:
  static constexpr int64_t kMargin = 32;

  Update(DType type, DType gradient_type, int64_t count, int64_t offset, Values values)
      : call_{.count = count,
              .type = type,
              .gradient_type = gradient_type,
              .factor = 0.75,
              .step = 3,
              .learning_rate = 1e-2,
              .beta1 = 0.9,
              .beta2 = 0.95,
              .epsilon = 1e-8,
              .weight_decay = 0.1},
        first_(kMargin + offset),
        wide_(type == DType::kF64 ? type : DType::kF32) {
    fill(master_, wide_, 1, values);
    fill(exp_avg_, wide_, 2, values);
    fill(exp_avg_sq_, wide_, 3,
         [](uint64_t stream, int64_t i) { return std::abs(random_float(stream, i)); });
    fill(gradient_, gradient_type, 4, values);
    fill(weights_, type, 5, values);
  }

  HostAdamW& settings() { return call_; }

  // [begin, end) of it.
  HostAdamW cut(int64_t begin, int64_t end) {
    auto part = call_;
    const bool narrow = dtype_bytes(call_.type) == 2;
    part.weights = narrow ? at(weights_, call_.type, begin) : nullptr;
    part.master = at(master_, wide_, begin);
    part.exp_avg = at(exp_avg_, wide_, begin);
    part.exp_avg_sq = at(exp_avg_sq_, wide_, begin);
    part.gradient = at(gradient_, call_.gradient_type, begin);
    part.count = end - begin;
    return part;
  }
  HostAdamW whole() { return cut(0, call_.count); }

  double master(int64_t i) { return load(wide_, at(master_, wide_, i)); }
  double exp_avg(int64_t i) { return load(wide_, at(exp_avg_, wide_, i)); }
  double exp_avg_sq(int64_t i) { return load(wide_, at(exp_avg_sq_, wide_, i)); }
  double gradient(int64_t i) {
    return load(call_.gradient_type, at(gradient_, call_.gradient_type, i));
  }
  double weight(int64_t i) { return load(call_.type, at(weights_, call_.type, i)); }
  void set_master(int64_t i, float value) { store(wide_, value, at(master_, wide_, i)); }
  void set_gradient(int64_t i, float value) {
    store(call_.gradient_type, value, at(gradient_, call_.gradient_type, i));
  }
  uint16_t* gradient_bits() {
    return reinterpret_cast<uint16_t*>(at(gradient_, call_.gradient_type, 0));
  }

  // Everything, margins included. NaNs are alike.
  std::vector<uint64_t> bits() {
    std::vector<uint64_t> all;
    const auto add = [&](const Bytes& array, DType type) {
      for (size_t i = 0; i < array.size(); i += dtype_bytes(type)) {
        const double value = load(type, array.data() + i);
        all.push_back(std::isnan(value) ? ~uint64_t{0} : std::bit_cast<uint64_t>(value));
      }
    };
    add(master_, wide_);
    add(exp_avg_, wide_);
    add(exp_avg_sq_, wide_);
    add(gradient_, call_.gradient_type);
    add(weights_, call_.type);
    return all;
  }

 private:
  void fill(Bytes& array, DType type, uint64_t stream, Values values) {
    const auto size = static_cast<int64_t>(dtype_bytes(type));
    array.resize(static_cast<size_t>((first_ + call_.count + kMargin) * size));
    for (int64_t i = -first_; i < call_.count + kMargin; ++i) {
      const bool inside = i >= 0 && i < call_.count;
      store(type, inside ? values(stream, i) : 7, at(array, type, i));
    }
  }
  std::byte* at(Bytes& array, DType type, int64_t i) const {
    return array.data() + (first_ + i) * static_cast<int64_t>(dtype_bytes(type));
  }

  HostAdamW call_;
  int64_t first_;
  DType wide_;  // of master and moments
  Bytes master_, exp_avg_, exp_avg_sq_, gradient_, weights_;
};

struct Types {
  DType weights, gradients;
};
constexpr std::array kTypes = {Types{DType::kF32, DType::kF32},   Types{DType::kF32, DType::kBF16},
                               Types{DType::kF32, DType::kF16},   Types{DType::kBF16, DType::kF32},
                               Types{DType::kBF16, DType::kBF16}, Types{DType::kBF16, DType::kF16},
                               Types{DType::kF16, DType::kF32},   Types{DType::kF16, DType::kBF16},
                               Types{DType::kF16, DType::kF16},   Types{DType::kF64, DType::kF64}};

std::vector<uint64_t> bits_after(Update update, const HostAdamWOptions& options) {
  const auto whole = update.whole();
  adamw_on_cpu({&whole, 1}, options);
  return update.bits();
}

TEST(HostAdamW, EveryInstructionSetGivesTheSameBits) {
  const auto sets = instruction_sets();
  ASSERT_EQ(sets.front(), InstructionSet::kBaseline);
  for (const auto [weights, gradients] : kTypes) {
    for (const int64_t count : {0, 1, 3, 7, 15, 16, 17, 31, 33, 64, 100, 1023}) {
      for (const int64_t offset : {0, 1, 5}) {
        const Update update(weights, gradients, count, offset, awkward_float);
        const auto expected = bits_after(update, {.instructions = sets.front()});
        for (const auto set : sets) {
          EXPECT_EQ(bits_after(update, {.instructions = set}), expected)
              << dtype_word(weights) << " " << dtype_word(gradients) << " " << count << " "
              << offset << " set " << static_cast<int>(set);
        }
      }
    }
  }
}

TEST(HostAdamW, AnyNumberOfThreadsAndAnyCutGiveTheSameBits) {
  constexpr int64_t kCount = 300'007;
  for (const auto [weights, gradients] : {kTypes[0], kTypes[4]}) {
    const Update update(weights, gradients, kCount, 3, random_float);
    const auto expected = bits_after(update, {});
    for (const int threads : {2, 5}) {
      EXPECT_EQ(bits_after(update, {.threads = threads}), expected) << threads;
      auto pieces = update;
      std::vector<HostAdamW> calls;
      for (int64_t begin = 0, size = 1; begin < kCount; begin += size, size = size * 3 + 1) {
        calls.push_back(pieces.cut(begin, std::min(begin + size, kCount)));
      }
      calls.push_back(pieces.cut(kCount, kCount));
      adamw_on_cpu(calls, {.threads = threads});
      EXPECT_EQ(pieces.bits(), expected) << threads;
    }
  }
}

// Writes nothing else, whatever the values: margins were part of the bits, but on both sides.
TEST(HostAdamW, LeavesNeighboursAndGradientsAsTheyAre) {
  for (const auto [weights, gradients] : kTypes) {
    Update update(weights, gradients, 77, 1, random_float), before = update;
    const auto whole = update.whole();
    adamw_on_cpu({&whole, 1}, {});
    for (int64_t i = 0; i < 77; ++i) EXPECT_EQ(update.gradient(i), before.gradient(i));
    for (const int64_t i : {-2, -1, 77, 78}) {
      EXPECT_EQ(update.master(i), 7);
      EXPECT_EQ(update.exp_avg(i), 7);
      EXPECT_EQ(update.exp_avg_sq(i), 7);
      EXPECT_EQ(update.weight(i), 7);
    }
  }
}

// The paper's formulas in double, element by element, over many steps: what fp32 adds up to.
TEST(HostAdamW, FollowsAFloat64ReferenceForAHundredSteps) {
  constexpr int64_t kCount = 200;
  for (const auto [weights, gradients] : kTypes) {
    const double tolerance = weights == DType::kF64 ? 1e-14 : 2e-6;
    Update update(weights, gradients, kCount, 0, random_float);
    std::vector<double> w, m, v;
    for (int64_t i = 0; i < kCount; ++i) {
      w.push_back(update.master(i));
      m.push_back(update.exp_avg(i));
      v.push_back(update.exp_avg_sq(i));
    }
    auto& settings = update.settings();
    for (settings.step = 1; settings.step <= 100; ++settings.step) {
      for (int64_t i = 0; i < kCount; ++i) {
        update.set_gradient(i, random_float(100 + static_cast<uint64_t>(settings.step), i));
        const double g = update.gradient(i) * settings.factor;
        w[i] *= 1 - settings.learning_rate * settings.weight_decay;
        m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * g;
        v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * g * g;
        const auto t = static_cast<double>(settings.step);
        const double root = std::sqrt(v[i] / (1 - std::pow(settings.beta2, t)));
        w[i] -= settings.learning_rate * m[i] / (1 - std::pow(settings.beta1, t)) /
                (root + settings.epsilon);
      }
      const auto whole = update.whole();
      adamw_on_cpu({&whole, 1}, {});
    }
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(update.master(i), w[i], tolerance) << dtype_word(weights);
      EXPECT_NEAR(update.exp_avg(i), m[i], tolerance);
      EXPECT_NEAR(update.exp_avg_sq(i), v[i], tolerance);
    }
  }
}

// Every one of the 65,536 gradients: with beta1 = 0 the first moment is the gradient.
TEST(HostAdamW, WidensEvery16BitNumberExactly) {
  constexpr int64_t kCount = 1 << 16;
  for (const auto type : {DType::kBF16, DType::kF16}) {
    for (const auto set : instruction_sets()) {
      Update update(DType::kF32, type, kCount, 0, random_float);
      update.settings().beta1 = 0;
      update.settings().factor = 1;
      for (int64_t i = 0; i < kCount; ++i) update.gradient_bits()[i] = static_cast<uint16_t>(i);
      auto whole = update.whole();
      const std::vector<float> zeros(kCount);
      std::memcpy(whole.exp_avg, zeros.data(), kCount * sizeof(float));
      adamw_on_cpu({&whole, 1}, {.instructions = set});
      for (int64_t i = 0; i < kCount; ++i) {
        const double expected = update.gradient(i);
        const bool same =
            std::isnan(expected) ? std::isnan(update.exp_avg(i)) : update.exp_avg(i) == expected;
        ASSERT_TRUE(same) << dtype_word(type) << " " << i;
      }
    }
  }
}

// Each 16-bit number's upper neighbourhood: itself, the tie with the next one and what lies beside.
TEST(HostAdamW, RoundsWeightsAsTorchDoes) {
  std::vector<float> values;
  const auto add_around = [&](uint32_t bits) {
    for (const uint32_t near : {bits - 1, bits, bits + 1}) {
      const auto value = std::bit_cast<float>(near);
      if (!std::isinf(value)) values.push_back(value);
    }
  };
  for (uint32_t high = 0; high < (1U << 16); ++high) {
    add_around(high << 16);
    add_around(high << 16 | 0x8000);
    const float half = c10::Half(static_cast<uint16_t>(high), c10::Half::from_bits());
    const auto bits = std::bit_cast<uint32_t>(half);
    add_around(bits);
    add_around(bits + 0x1000);                               // between two normal ones
    const float tie = half + std::copysign(0x1p-25F, half);  // between two subnormal ones
    add_around(std::bit_cast<uint32_t>(tie));
  }
  const auto count = static_cast<int64_t>(values.size());
  for (const auto type : {DType::kBF16, DType::kF16}) {
    for (const auto set : instruction_sets()) {
      Update update(type, DType::kF32, count, 0, [](uint64_t, int64_t) { return 0.0F; });
      update.settings().learning_rate = 0;
      for (int64_t i = 0; i < count; ++i) update.set_master(i, values[i]);
      const auto whole = update.whole();
      adamw_on_cpu({&whole, 1}, {.instructions = set});
      for (int64_t i = 0; i < count; ++i) {
        std::array<std::byte, 2> stored;
        store(type, values[i], stored.data());
        const double expected = load(type, stored.data());
        const bool same = std::isnan(expected) ? std::isnan(update.weight(i))
                                               : std::bit_cast<uint64_t>(update.weight(i)) ==
                                                     std::bit_cast<uint64_t>(expected);
        ASSERT_TRUE(same) << dtype_word(type) << " " << values[i] << ": " << update.weight(i);
      }
    }
  }
}

TEST(HostAdamW, RefusesWhatItCannotRead) {
  for (const auto& [weights, gradients] :
       {Types{DType::kF64, DType::kF32}, Types{DType::kF32, DType::kF64},
        Types{DType::kI32, DType::kF32}}) {
    const HostAdamW call{.type = weights, .gradient_type = gradients};
    EXPECT_THROW(adamw_on_cpu({&call, 1}, {}), InternalError);
  }
}

}  // namespace
}  // namespace skein::ops
