// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// AdamW with states in fewer bytes, on host memory.

#include <ATen/ops/linspace.h>
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/random.h"
#include "skein/ops/cpu/adamw.h"
#include "skein/ops/moment_code.h"
#include "skein/ops/random_rounding.h"

namespace skein::ops {
namespace {

constexpr MomentCode kSigned = make_moment_code(true), kUnsigned = make_moment_code(false);
constexpr const MomentCode* kCodes[] = {&kSigned, &kUnsigned};

float random_float(uint64_t stream, size_t i) {
  return static_cast<float>(random::philox(stream, i).word[0]) / 0x1p31F - 1;
}

// bitsandbytes' create_dynamic_map(signed, max_exponent_bits=7, total_bits=8), step by step as it
// is published.
std::vector<float> published_map(bool is_signed) {
  std::vector<float> values = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int64_t items = (is_signed ? 1 << i : 2 << i) + 1;
    const auto borders = at::linspace(0.1, 1, items);
    const auto* border = borders.const_data_ptr<float>();
    for (int64_t k = 0; k + 1 < items; ++k) {
      const auto mean = static_cast<float>(std::pow(10, i - 6)) * ((border[k] + border[k + 1]) / 2);
      values.push_back(mean);
      if (is_signed) values.push_back(-mean);
    }
  }
  std::ranges::sort(values);
  return values;
}

TEST(MomentCode, NumbersAreThoseOfBitsandbytes) {
  for (const auto* code : kCodes) {
    const auto published = published_map(code->is_signed);
    ASSERT_EQ(published.size(), 256U);
    std::vector<float> ours(std::begin(code->values), std::end(code->values));
    std::ranges::sort(ours);
    for (size_t i = 0; i < 256; ++i) {
      EXPECT_NEAR(ours[i], published[i], 2e-7 * std::abs(published[i])) << i;
    }
  }
}

TEST(MomentCode, BytesRiseFromZeroAndFallBelowIt) {
  EXPECT_EQ(kSigned.values[0], 0);
  EXPECT_EQ(kSigned.values[128], 1);
  EXPECT_EQ(kUnsigned.values[0], 0);
  EXPECT_EQ(kUnsigned.values[255], 1);
  for (int byte = 1; byte < 256; ++byte) {
    EXPECT_GT(kUnsigned.values[byte], kUnsigned.values[byte - 1]);
    if (byte <= 128) {
      EXPECT_GT(kSigned.values[byte], kSigned.values[byte - 1]);
    } else {
      EXPECT_EQ(kSigned.values[byte], -kSigned.values[256 - byte]);
    }
  }
}

// Stored on disk: a few of them, by hand.
TEST(MomentCode, BytesKeepTheirMeaning) {
  EXPECT_EQ(kSigned.values[1], 0.55e-6F);
  EXPECT_EQ(kSigned.values[2], 0.325e-5F);
  EXPECT_EQ(kSigned.values[64], static_cast<float>(0.1 + 0.9 / 128));
  EXPECT_EQ(kSigned.values[255], -0.55e-6F);
  EXPECT_EQ(kUnsigned.values[1], 0.325e-6F);
  EXPECT_EQ(kUnsigned.values[254], static_cast<float>(0.1 + 0.9 * 127.5 / 128));
}

TEST(MomentCode, EveryNumberIsItsOwnNearest) {
  for (const auto* code : kCodes) {
    for (int byte = 0; byte < 256; ++byte) {
      EXPECT_EQ(code->nearest(code->values[byte]), byte) << code->values[byte];
    }
  }
  EXPECT_EQ(kSigned.nearest(-0.0F), 0);
  EXPECT_EQ(kUnsigned.nearest(-0.0F), 0);
}

// Beside every border, and at magnitudes from 1 down to 1e-9. Between two numbers that are equally
// near but for a rounding, either will do.
TEST(MomentCode, NoOtherNumberIsNearer) {
  for (const auto* code : kCodes) {
    std::vector<float> sorted(std::begin(code->values), std::end(code->values)), tried;
    std::ranges::sort(sorted);
    for (size_t i = 0; i + 1 < sorted.size(); ++i) {
      const float middle = (sorted[i] + sorted[i + 1]) / 2;
      tried.insert(tried.end(), {middle * 0.9999F, middle, middle * 1.0001F});
    }
    for (size_t i = 0; i < 20'000; ++i) {
      const float value = random_float(1, i) * std::pow(10.0F, 4.5F * (random_float(2, i) - 1));
      tried.push_back(code->is_signed ? value : std::abs(value));
    }
    for (const float value : tried) {
      const float found = code->values[code->nearest(value)];
      double least = 1;
      for (const float other : sorted) {
        const bool is_allowed = code->is_signed || value == 0 || other > 0;
        if (is_allowed) least = std::min(least, std::abs(double{other} - value));
      }
      EXPECT_LE(std::abs(double{found} - value), least + 2e-7 * std::abs(value)) << value;
    }
  }
}

TEST(MomentCode, ASecondMomentDoesNotBecomeZero) {
  for (const float value : {1e-7F, 1e-20F, std::numeric_limits<float>::denorm_min()}) {
    EXPECT_EQ(kUnsigned.nearest(value), 1);
    EXPECT_EQ(kSigned.nearest(value), 0);
  }
}

TEST(RandomRounding, GoesUpAsOftenAsThePartThatIsCutOffSays) {
  for (const float value : {1.0F + 0x1p-9F, 1.0F + 0x1p-8F, -3.0F - 0x1.8p-7F, 1e-20F, 7.7e8F}) {
    double sum = 0;
    for (uint32_t noise = 0; noise < (1U << 16); ++noise) {
      const uint16_t bits = round_at_random(value, noise);
      sum += float{c10::BFloat16(bits, c10::BFloat16::from_bits())};
    }
    EXPECT_NEAR(sum / (1 << 16) / value, 1, 1e-7) << value;
  }
}

TEST(RandomRounding, LeavesWhatIsExact) {
  for (const float value : {0.0F, -0.0F, 1.0F, -0.5F, std::numeric_limits<float>::infinity()}) {
    for (const uint32_t noise : {0U, 1U, 0xFFFFU}) {
      EXPECT_EQ(uint32_t{round_at_random(value, noise)} << 16, std::bit_cast<uint32_t>(value));
    }
  }
  EXPECT_EQ(round_at_random(std::numeric_limits<float>::quiet_NaN(), 0xFFFF), 0x7FC0);
}

// Every element has bits of its own, and the two of a call differ.
TEST(RandomRounding, DrawsByPlace) {
  std::set<uint64_t> seen;
  for (int64_t block = 0; block < 4; ++block) {
    for (int64_t call = 0; call < kRoundingCalls; ++call) {
      for (const auto& bits :
           {rounding_pair(1, block, call).low, rounding_pair(1, block, call).high}) {
        seen.insert(uint64_t{bits.word[0]} << 32 | bits.word[1]);
      }
    }
  }
  EXPECT_EQ(seen.size(), 4U * kRoundingBlock);
}

// The arrays of an update with moments in 8 bits.
struct Small {
  DType type, gradient_type;
  std::vector<float> master, gradient;  // the gradient in fp32, or as 16 bits in the half of it
  std::vector<uint16_t> weights;
  std::vector<uint8_t> exp_avg, exp_avg_sq;
  std::vector<float> exp_avg_scale, exp_avg_sq_scale;
  int64_t step = 1;

  Small(size_t count, DType type, DType gradient_type)
      : type(type),
        gradient_type(gradient_type),
        master(count),
        gradient(count),
        weights(count),
        exp_avg(count),
        exp_avg_sq(count),
        exp_avg_scale(count / kMomentBlock),
        exp_avg_sq_scale(count / kMomentBlock) {
    for (size_t i = 0; i < count; ++i) master[i] = random_float(1, i);
  }

  // Of magnitudes that differ inside a block.
  void draw_gradient(uint64_t stream) {
    for (size_t i = 0; i < master.size(); ++i) {
      const float value = random_float(stream, i) * std::pow(10.0F, 4 * random_float(9, i));
      if (gradient_type == DType::kF32) {
        gradient[i] = value;
      } else {
        reinterpret_cast<uint16_t*>(gradient.data())[i] = c10::BFloat16(value).x;
      }
    }
  }

  HostAdamW cut(size_t begin, size_t end) {
    const bool narrow = dtype_bytes(type) == 2;
    auto* bytes = reinterpret_cast<std::byte*>(gradient.data());
    return {.weights = narrow ? weights.data() + begin : nullptr,
            .master = master.data() + begin,
            .exp_avg = exp_avg.data() + begin,
            .exp_avg_sq = exp_avg_sq.data() + begin,
            .exp_avg_scale = exp_avg_scale.data() + begin / kMomentBlock,
            .exp_avg_sq_scale = exp_avg_sq_scale.data() + begin / kMomentBlock,
            .gradient = bytes + begin * dtype_bytes(gradient_type),
            .count = static_cast<int64_t>(end - begin),
            .type = type,
            .gradient_type = gradient_type,
            .factor = 0.75,
            .step = step,
            .learning_rate = 1e-2,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1};
  }
  void update(const HostAdamWOptions& options = {}) {
    const auto call = cut(0, master.size());
    adamw_on_cpu({&call, 1}, options);
    ++step;
  }

  bool operator==(const Small&) const = default;
};

Small after_steps(Small small, const HostAdamWOptions& options) {
  for (uint64_t step = 0; step < 4; ++step) {
    small.draw_gradient(20 + step);
    small.update(options);
  }
  return small;
}

// The plain update of moments as the bytes say, then the nearest bytes.
TEST(HostAdamW8bit, IsThePlainUpdateOfDecodedMoments) {
  constexpr size_t kCount = 3 * kMomentBlock;
  for (const auto type : {DType::kF32, DType::kBF16}) {
    auto small = after_steps({kCount, type, DType::kF32}, {});
    small.draw_gradient(50);
    std::vector<float> master = small.master, m(kCount), v(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      m[i] = kSigned.values[small.exp_avg[i]] * small.exp_avg_scale[i / kMomentBlock];
      v[i] = kUnsigned.values[small.exp_avg_sq[i]] * small.exp_avg_sq_scale[i / kMomentBlock];
    }
    auto plain = small.cut(0, kCount);
    std::vector<uint16_t> weights(kCount);
    plain.weights = type == DType::kF32 ? nullptr : weights.data();
    plain.master = master.data();
    plain.exp_avg = m.data();
    plain.exp_avg_sq = v.data();
    plain.exp_avg_scale = plain.exp_avg_sq_scale = nullptr;
    adamw_on_cpu({&plain, 1}, {});
    small.update();
    EXPECT_EQ(small.master, master);
    EXPECT_EQ(small.weights, weights);
    for (size_t block = 0; block < kCount / kMomentBlock; ++block) {
      float largest1 = 0, largest2 = 0;
      for (size_t i = block * kMomentBlock; i < (block + 1) * kMomentBlock; ++i) {
        largest1 = std::max(largest1, std::abs(m[i]));
        largest2 = std::max(largest2, v[i]);
      }
      EXPECT_EQ(small.exp_avg_scale[block], largest1);
      EXPECT_EQ(small.exp_avg_sq_scale[block], largest2);
      for (size_t i = block * kMomentBlock; i < (block + 1) * kMomentBlock; ++i) {
        EXPECT_EQ(small.exp_avg[i], kSigned.nearest(m[i] / largest1));
        EXPECT_EQ(small.exp_avg_sq[i], kUnsigned.nearest(v[i] / largest2));
      }
    }
    EXPECT_GT((std::set(small.exp_avg.begin(), small.exp_avg.end()).size()), 50U);
  }
}

TEST(HostAdamW8bit, EveryInstructionSetGivesTheSameBits) {
  for (const auto type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto gradient_type : {DType::kF32, DType::kBF16}) {
      const Small small(5 * kMomentBlock, type, gradient_type);
      const auto expected = after_steps(small, {.instructions = InstructionSet::kBaseline});
      for (const auto set : instruction_sets()) {
        EXPECT_EQ(after_steps(small, {.instructions = set}), expected) << static_cast<int>(set);
      }
    }
  }
}

TEST(HostAdamW8bit, AnyNumberOfThreadsAndAnyCutGiveTheSameBits) {
  constexpr size_t kBlocks = 2500;
  const Small small(kBlocks * kMomentBlock, DType::kBF16, DType::kBF16);
  const auto expected = after_steps(small, {});
  EXPECT_EQ(after_steps(small, {.threads = 3}), expected);
  auto pieces = small;
  for (uint64_t step = 0; step < 4; ++step, ++pieces.step) {
    pieces.draw_gradient(20 + step);
    std::vector<HostAdamW> calls;
    for (size_t begin = 0, size = 1; begin < kBlocks; begin += size, size = size * 3 + step) {
      const size_t end = std::min(begin + size, kBlocks);
      calls.push_back(pieces.cut(begin * kMomentBlock, end * kMomentBlock));
    }
    adamw_on_cpu(calls, {.threads = 2});
  }
  EXPECT_EQ(pieces, expected);
}

// Padding: a gradient and moments of zero, beside other elements of the block and alone.
TEST(HostAdamW8bit, ZerosStayZero) {
  Small small(2 * kMomentBlock, DType::kF32, DType::kF32);
  const auto zero_from = [&](std::vector<float>& values, size_t begin) {
    std::fill(values.begin() + static_cast<int64_t>(begin), values.end(), 0.0F);
  };
  zero_from(small.master, 77);
  for (uint64_t step = 0; step < 3; ++step) {
    small.draw_gradient(step);
    zero_from(small.gradient, 77);
    small.update();
  }
  for (size_t i = 77; i < small.master.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(small.master[i]), 0U);
    EXPECT_EQ(small.exp_avg[i], 0);
    EXPECT_EQ(small.exp_avg_sq[i], 0);
  }
  EXPECT_EQ(small.exp_avg_scale[1], 0);
  EXPECT_EQ(small.exp_avg_sq_scale[1], 0);
  EXPECT_NE(small.exp_avg[3], 0);
}

// Second moments are squares: they leave the normal numbers first.
TEST(HostAdamW8bit, TinyGradientsAreFinite) {
  for (const float size : {1e-18F, 1e-21F, 1e-25F}) {
    Small small(kMomentBlock, DType::kF32, DType::kF32);
    for (int step = 0; step < 3; ++step) {
      for (size_t i = 0; i < small.gradient.size(); ++i) {
        small.gradient[i] = size * random_float(4, i);
      }
      small.update();
    }
    for (const float weight : small.master) EXPECT_TRUE(std::isfinite(weight));
    EXPECT_TRUE(std::isfinite(small.exp_avg_sq_scale[0]));
  }
}

// bf16 alone, and with moments in 8 bits.
struct Pure {
  bool in_8bit = false;
  std::vector<uint16_t> weights, gradient, exp_avg, exp_avg_sq;
  std::vector<uint8_t> bytes, bytes_sq;
  std::vector<float> scale, scale_sq;

  Pure(size_t count, bool in_8bit)
      : in_8bit(in_8bit),
        weights(count),
        gradient(count),
        exp_avg(count),
        exp_avg_sq(count),
        bytes(count),
        bytes_sq(count),
        scale(count / kMomentBlock),
        scale_sq(count / kMomentBlock) {
    for (size_t i = 0; i < count; ++i) {
      weights[i] = c10::BFloat16(random_float(1, i)).x;
      gradient[i] = c10::BFloat16(random_float(2, i)).x;
    }
  }

  HostAdamW cut(size_t begin, size_t end, int64_t step) {
    HostAdamW call{.weights = weights.data() + begin,
                   .exp_avg = exp_avg.data() + begin,
                   .exp_avg_sq = exp_avg_sq.data() + begin,
                   .gradient = gradient.data() + begin,
                   .count = static_cast<int64_t>(end - begin),
                   .type = DType::kBF16,
                   .gradient_type = DType::kBF16,
                   .step = step,
                   .rounding_key = 77,
                   .first_element = 1280 + static_cast<int64_t>(begin),
                   .learning_rate = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.99,
                   .epsilon = 1e-8,
                   .weight_decay = 0.1};
    if (!in_8bit) return call;
    call.exp_avg = bytes.data() + begin;
    call.exp_avg_sq = bytes_sq.data() + begin;
    call.exp_avg_scale = scale.data() + begin / kMomentBlock;
    call.exp_avg_sq_scale = scale_sq.data() + begin / kMomentBlock;
    return call;
  }
  // The elements before `at` in one call, the others in another.
  Pure after(const HostAdamWOptions& options, size_t at = 0) const {
    auto pure = *this;
    for (int64_t step = 1; step <= 4; ++step) {
      const std::array calls = {pure.cut(0, at, step), pure.cut(at, weights.size(), step)};
      adamw_on_cpu(calls, options);
    }
    return pure;
  }

  bool operator==(const Pure&) const = default;
};

TEST(HostAdamWPure, InstructionSetsThreadsAndCutsGiveTheSameBits) {
  for (const bool in_8bit : {false, true}) {
    const Pure pure(2100 * kRoundingBlock, in_8bit);
    const auto expected = pure.after({.instructions = InstructionSet::kBaseline});
    for (const auto set : instruction_sets()) {
      EXPECT_EQ(pure.after({.instructions = set}), expected) << static_cast<int>(set);
    }
    EXPECT_EQ(pure.after({.threads = 3}), expected);
    EXPECT_EQ(pure.after({.threads = 2}, 77 * kRoundingBlock), expected);
  }
}

// Each number is one of bf16's two neighbours of what fp32 gives.
TEST(HostAdamWPure, RoundsTheUpdateOfFp32) {
  constexpr size_t kCount = 4 * kRoundingBlock;
  auto pure = Pure(kCount, false).after({});
  std::vector<float> master, m, v;
  const auto widen = [](uint16_t bits) {
    return float{c10::BFloat16(bits, c10::BFloat16::from_bits())};
  };
  for (size_t i = 0; i < kCount; ++i) {
    master.push_back(widen(pure.weights[i]));
    m.push_back(widen(pure.exp_avg[i]));
    v.push_back(widen(pure.exp_avg_sq[i]));
  }
  auto plain = pure.cut(0, kCount, 5);
  const auto small = plain;
  plain.type = DType::kF32;
  plain.weights = nullptr;
  plain.master = master.data();
  plain.exp_avg = m.data();
  plain.exp_avg_sq = v.data();
  adamw_on_cpu({&plain, 1}, {});
  adamw_on_cpu({&small, 1}, {});
  int up = 0;
  const auto expect_neighbour = [&](uint16_t found, float exact) {
    const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16);
    EXPECT_TRUE(found == below || found == below + 1) << exact;
    up += found != below;
  };
  for (size_t i = 0; i < kCount; ++i) {
    expect_neighbour(pure.weights[i], master[i]);
    expect_neighbour(pure.exp_avg[i], m[i]);
    expect_neighbour(pure.exp_avg_sq[i], v[i]);
  }
  EXPECT_NEAR(up, 3 * kCount / 2.0, 0.1 * kCount);
}

TEST(HostAdamWPure, ZerosStayZero) {
  for (const bool in_8bit : {false, true}) {
    Pure pure(2 * kRoundingBlock, in_8bit);
    std::fill(pure.weights.begin() + 100, pure.weights.end(), uint16_t{0});
    std::fill(pure.gradient.begin() + 100, pure.gradient.end(), uint16_t{0});
    const auto after = pure.after({});
    for (size_t i = 100; i < after.weights.size(); ++i) {
      EXPECT_EQ(after.weights[i] | after.exp_avg[i] | after.exp_avg_sq[i], 0);
      EXPECT_EQ(after.bytes[i] | after.bytes_sq[i], 0);
    }
  }
}

TEST(HostAdamWPure, RefusesHalfBlocksAndOtherTypes) {
  Pure pure(2 * kRoundingBlock, false);
  auto call = pure.cut(0, 100, 1);
  EXPECT_THROW(adamw_on_cpu({&call, 1}, {}), InternalError);
  call = pure.cut(0, kRoundingBlock, 1);
  call.first_element = 64;
  EXPECT_THROW(adamw_on_cpu({&call, 1}, {}), InternalError);
  call = pure.cut(0, kRoundingBlock, 1);
  call.type = DType::kF16;
  EXPECT_THROW(adamw_on_cpu({&call, 1}, {}), InternalError);
}

TEST(HostAdamW8bit, RefusesHalfBlocksAndDouble) {
  Small small(2 * kMomentBlock, DType::kF32, DType::kF32);
  auto call = small.cut(0, kMomentBlock + 1);
  EXPECT_THROW(adamw_on_cpu({&call, 1}, {}), InternalError);
  call = small.cut(0, kMomentBlock);
  call.exp_avg_sq_scale = nullptr;
  EXPECT_THROW(adamw_on_cpu({&call, 1}, {}), InternalError);
  call = small.cut(0, kMomentBlock);
  call.type = call.gradient_type = DType::kF64;
  EXPECT_THROW(adamw_on_cpu({&call, 1}, {}), InternalError);
}

}  // namespace
}  // namespace skein::ops
